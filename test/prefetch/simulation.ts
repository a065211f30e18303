/** Decoding in simulated time: a disk with a few readers, arithmetic that takes as long as is said, routers that can be guessed or not. */

import type { Prefetch } from '../../src/experts/look-ahead-switch.ts';
import type { EvictionPolicy, PolicyFacts } from '../../src/experts/policy.ts';
import type { ReadQueue } from '../../src/experts/slots.ts';
import { ExpertStore, type LeaseObserver } from '../../src/experts/store.ts';
import type { StoredPart, StoredRecord } from '../../src/quant/stored.ts';

export const RECORD_BYTES = 1_000_000;
const SLOT_BYTES = 4096;

interface Request {
  readonly record: number;
  readonly sequence: number;
  isAhead: boolean;
  state: 'queued' | 'running' | 'done';
  endsMs: number;
}

/** Reads take `readMs` each, as many at once as there are readers; demands go first. Time passes in waits and in `pass` alone. */
export class SimulatedDisk {
  nowMs = 0;
  waitedUs = 0;
  freeTickets = 1024;
  readonly #readMs: number;
  readonly #readers: number;
  readonly #requests = new Map<number, Request>();
  #last = 0;

  constructor(readMs: number, readers: number) {
    this.#readMs = readMs;
    this.#readers = readers;
  }

  submit(record: number, _arena: number, _offset: number, priority: 'demand' | 'ahead'): number {
    const sequence = ++this.#last;
    this.freeTickets--;
    this.#requests.set(sequence, { record, sequence, isAhead: priority === 'ahead', state: 'queued', endsMs: 0 });
    this.#start();
    return sequence;
  }

  state(ticket: number): Request['state'] {
    return this.#get(ticket).state;
  }

  promote(ticket: number): void {
    this.#get(ticket).isAhead = false;
  }

  cancel(ticket: number): boolean {
    if (this.#get(ticket).state !== 'queued') return false;
    this.#free(ticket);
    return true;
  }

  finish(ticket: number): { bytes: number; serviceUs: number; drive: number } {
    this.#free(ticket);
    return { bytes: RECORD_BYTES, serviceUs: this.#readMs * 1000, drive: 0 };
  }

  waitAny(): boolean {
    const ends = this.#running.map(request => request.endsMs);
    if (ends.length === 0) throw new Error('waiting although nothing is being read');
    const next = Math.min(...ends);
    this.waitedUs += Math.round((next - this.nowMs) * 1000);
    this.pass(next - this.nowMs);
    return true;
  }

  /** Lets so many milliseconds go by: arithmetic. */
  pass(ms: number): void {
    const end = this.nowMs + ms;
    for (;;) {
      const next = Math.min(...this.#running.map(request => request.endsMs));
      if (!(next <= end)) break;
      this.nowMs = next;
      for (const request of this.#running) if (request.endsMs <= next) request.state = 'done';
      this.#start();
    }
    this.nowMs = end;
  }

  get #running(): Request[] {
    return [...this.#requests.values()].filter(request => request.state === 'running');
  }

  #start(): void {
    for (let free = this.#readers - this.#running.length; free > 0; free--) {
      const queued = [...this.#requests.values()].filter(request => request.state === 'queued');
      const next = queued.find(request => !request.isAhead) ?? queued[0];
      if (!next) return;
      next.state = 'running';
      next.endsMs = this.nowMs + this.#readMs;
    }
  }

  #get(ticket: number): Request {
    const request = this.#requests.get(ticket);
    if (!request) throw new Error(`ticket ${ticket} is free`);
    return request;
  }

  #free(ticket: number): void {
    this.#requests.delete(ticket);
    this.freeTickets++;
  }
}

export interface Machine {
  readonly readMs: number;
  readonly readers: number;
  /** From the end of a layer's experts to the router of the next. */
  readonly attentionMs: number;
  readonly expertMs: number;
  /** What guessing costs, per layer. */
  readonly guessMs: number;
  /** Share of the experts that are guessed rightly. */
  readonly recall: number;
  readonly slots: number;
  readonly policy?: (facts: PolicyFacts) => EvictionPolicy;
}

export const LAYERS = 6;
export const EXPERTS = 32;
const TOP_K = 4;

/** A new store on a new disk, in the mode that is asked for. */
export function simulatedStore(machine: Machine, prefetch: Prefetch, observers: readonly LeaseObserver[] = []) {
  const disk = new SimulatedDisk(machine.readMs, machine.readers);
  const part: StoredPart = { encoding: 'f32', layout: 'f32', rows: 1, columns: 1, fileBytes: 4, source: null };
  const record = { name: '', extents: [], parts: [part, part, part], packs: [], sha256: null } satisfies StoredRecord;
  const store = new ExpertStore({
    experts: EXPERTS,
    firstRecord: Array.from({ length: LAYERS }, (_, layer) => layer * EXPERTS),
    records: Array.from({ length: LAYERS * EXPERTS }, () => record),
  });
  store.open({
    pool: disk satisfies ReadQueue,
    table: { partOffset: () => 0, readBytes: () => RECORD_BYTES },
    slots: Array.from({ length: machine.slots }, (_, slot) => ({ arena: 0, offset: slot * SLOT_BYTES })),
    cancelled: () => false,
    prefetch,
    policy: machine.policy,
    observers,
    now: () => disk.nowMs,
  });
  return { store, disk };
}

/** Milliseconds that so many tokens take; routing and guesses depend on the number of the token and the layer alone. */
export function decode(
  { store, disk }: ReturnType<typeof simulatedStore>,
  machine: Machine,
  tokens: number,
  from = 0,
): number {
  const begun = disk.nowMs;
  for (let token = from; token < from + tokens; token++) {
    for (let layer = 0; layer < LAYERS; layer++) {
      disk.pass(machine.attentionMs);
      const chosen = routed(token, layer);
      store.begin(layer, chosen, new Int32Array(TOP_K).fill(1), TOP_K);
      if (layer + 1 < LAYERS && store.wantsGuesses()) {
        disk.pass(machine.guessMs);
        store.guess(layer + 1, guessed(token, layer + 1, machine.recall), TOP_K);
      }
      for (let ready = store.next(); ready > 0; ready = store.next()) {
        const positions = store.ready.slice(0, ready);
        disk.pass(ready * machine.expertMs);
        for (const position of positions) store.release(position);
      }
      store.end();
    }
  }
  return disk.nowMs - begun;
}

/** A number from 0 to 1 that depends on its arguments alone. */
function chance(...of: number[]): number {
  let x = 0x9e3779b9;
  for (const each of of) {
    x = Math.imul(x ^ each, 0x85ebca6b);
    x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
    x ^= x >>> 16;
  }
  return (x >>> 0) / 2 ** 32;
}

/** Half of the experts of a layer are asked for much more often than the others. */
function routed(token: number, layer: number): Int32Array {
  const chosen = new Set<number>();
  for (let i = 0; chosen.size < TOP_K; i++) {
    const isHot = chance(token, layer, i, 1) < 0.8;
    chosen.add(Math.floor(chance(token, layer, i, 2) * (isHot ? EXPERTS / 2 : EXPERTS)));
  }
  return Int32Array.from(chosen).sort();
}

function guessed(token: number, layer: number, recall: number): Int32Array {
  const true_ = routed(token, layer);
  const wrong = Array.from({ length: EXPERTS }, (_, expert) => expert).filter(expert => !true_.includes(expert));
  return true_.map((expert, i) => {
    if (chance(token, layer, i, 3) < recall) return expert;
    return wrong.splice(Math.floor(chance(token, layer, i, 4) * wrong.length), 1)[0];
  });
}
