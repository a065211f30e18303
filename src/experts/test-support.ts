/** An expert store over a disk that does what a test says. */

import { StorageError } from '../common/errors.ts';
import type { StoredPart, StoredRecord } from '../quant/stored.ts';
import type { ReadPool } from '../storage/read-pool.ts';
import type { Prefetch } from './look-ahead-switch.ts';
import { ExpertStore } from './store.ts';

export const RECORD_BYTES = 1000;
const SLOT_BYTES = 4096;
/** Records of resident tensors that come before the experts. */
const RESIDENTS = 3;

interface Request {
  readonly record: number;
  readonly slot: number;
  ahead: boolean;
  state: 'queued' | 'running' | 'done' | 'failed';
}

/** Requests wait until `complete`; a blocked wait completes one by itself, as `pick` says. */
export class FakePool {
  readonly requests = new Map<number, Request>();
  /** Every record submitted, in order. */
  readonly submitted: number[] = [];
  readonly promoted: number[] = [];
  /** Records whose reads fail. */
  readonly broken = new Set<number>();
  freeTickets = 1024;
  waitedUs = 0;
  waits = 0;
  /** Which of the unfinished tickets ends next. */
  pick: (tickets: readonly number[]) => number = tickets => tickets[0];
  #last = 0;

  get unfinished(): number[] {
    return [...this.requests]
      .filter(([, r]) => r.state === 'queued' || r.state === 'running')
      .map(([ticket]) => ticket);
  }

  submit(record: number, _arena: number, offset: number, priority: 'demand' | 'ahead'): number {
    for (const other of this.requests.values()) {
      if (other.slot === offset / SLOT_BYTES) throw new Error(`slot ${other.slot} is being read into already`);
    }
    this.submitted.push(record);
    this.freeTickets--;
    this.requests.set(++this.#last, {
      record,
      slot: offset / SLOT_BYTES,
      ahead: priority === 'ahead',
      state: 'queued',
    });
    return this.#last;
  }

  state(ticket: number): string {
    return this.#get(ticket).state;
  }

  promote(ticket: number): void {
    this.#get(ticket).ahead = false;
    this.promoted.push(ticket);
  }

  cancel(ticket: number): boolean {
    if (this.#get(ticket).state !== 'queued') return false;
    this.#free(ticket);
    return true;
  }

  waitAny(): boolean {
    this.waits++;
    this.waitedUs += 1000;
    const tickets = this.unfinished;
    if (tickets.length === 0) throw new Error('waiting although nothing is being read');
    this.complete(this.pick(tickets));
    return true;
  }

  finish(ticket: number): { bytes: number; serviceUs: number } {
    const { record, state } = this.#get(ticket);
    if (state !== 'done' && state !== 'failed') throw new Error('finished too early');
    this.#free(ticket);
    if (state === 'failed') throw new StorageError('READ_FAILED', `record ${record}`);
    return { bytes: RECORD_BYTES, serviceUs: 10 };
  }

  /** A reader takes it: it cannot be called off any more. */
  start(ticket: number): void {
    this.#get(ticket).state = 'running';
  }

  complete(ticket: number): void {
    const request = this.#get(ticket);
    request.state = this.broken.has(request.record) ? 'failed' : 'done';
  }

  #get(ticket: number): Request {
    const request = this.requests.get(ticket);
    if (!request) throw new Error(`ticket ${ticket} is free`);
    return request;
  }

  #free(ticket: number): void {
    this.requests.delete(ticket);
    this.freeTickets++;
  }
}

export interface FakeStore {
  readonly store: ExpertStore;
  readonly pool: FakePool;
  /** Record of a layer's expert. */
  record(layer: number, expert: number): number;
  /** Asks for experts of a layer as a forward pass does; `use` sees each position once, while it is in memory. */
  lease(layer: number, experts: readonly number[], use?: (expert: number, ready: readonly number[]) => void): void;
  setCancelled(value: boolean): void;
}

export function fakeStore(layers: number, experts: number, slots: number, prefetch: Prefetch = 'on'): FakeStore {
  const part: StoredPart = { encoding: 'f32', layout: 'f32', rows: 1, columns: 1, fileBytes: 4, source: null };
  const one = (name: string): StoredRecord => ({
    name,
    extents: [],
    parts: [part, part, part],
    packs: [],
    sha256: null,
  });
  const records = Array.from({ length: RESIDENTS + layers * experts }, (_, i) => one(`record ${i}`));
  const firstRecord = Array.from({ length: layers }, (_, layer) => RESIDENTS + layer * experts);
  const store = new ExpertStore({ experts, firstRecord, records });
  const pool = new FakePool();
  let cancelled = false;
  store.open({
    pool: pool as unknown as ReadPool,
    table: { partOffset: (_record: number, index: number) => index * 100, readBytes: () => RECORD_BYTES },
    slots: Array.from({ length: slots }, (_, slot) => ({ arena: slot % 2, offset: slot * SLOT_BYTES })),
    cancelled: () => cancelled,
    prefetch,
  });
  return {
    store,
    pool,
    record: (layer, expert) => firstRecord[layer] + expert,
    lease(layer, wanted, use = () => {}) {
      begin(store, layer, wanted);
      try {
        for (let count = store.next(); count > 0; count = store.next()) {
          const ready = Array.from(store.ready.subarray(0, count));
          for (const position of ready) {
            use(
              wanted[position],
              ready.map(each => wanted[each]),
            );
            store.release(position);
          }
        }
      } finally {
        store.end();
      }
    },
    setCancelled(value) {
      cancelled = value;
    },
  };
}

/** Begins a lease in which one row asks for each expert. */
export function begin(store: ExpertStore, layer: number, experts: readonly number[]): void {
  store.begin(layer, Int32Array.from(experts), new Int32Array(experts.length).fill(1), experts.length);
}
