/** Replays a trace through the expert store itself, over a disk that answers at once: what counts as a hit is decided in one place. */

import type { StoredPart, StoredRecord } from '../../quant/stored.ts';
import type { EvictionPolicy, PolicyFacts } from '../policy.ts';
import type { ReadQueue } from '../slots.ts';
import { ExpertStore } from '../store.ts';
import { ReplayedPins } from './pins.ts';
import type { Trace } from './trace.ts';

export interface ReplayResult {
  readonly requests: number;
  readonly hits: number;
  readonly bytesRead: number;
}

/** Leases between two calls of `onSlice`. */
export const SLICE_LEASES = 4096;

/** A read is there when it is asked for. The ticket is its record. */
class InstantQueue implements ReadQueue {
  readonly freeTickets = Number.MAX_SAFE_INTEGER;
  readonly waitedUs = 0;
  readonly #finished = { bytes: 0, serviceUs: 0, drive: 0 };
  readonly #bytesOf: Float64Array;

  constructor(bytesOf: Float64Array) {
    this.#bytesOf = bytesOf;
  }

  submit(record: number): number {
    return record;
  }
  state(): 'done' {
    return 'done';
  }
  promote(): void {}
  cancel(): boolean {
    return false;
  }
  finish(ticket: number): { bytes: number; serviceUs: number; drive: number } {
    this.#finished.bytes = this.#bytesOf[ticket];
    return this.#finished;
  }
  waitAny(): boolean {
    return true;
  }
}

/** Experts of a trace as records of a table: layer by layer, those that route. */
export function recordsOf({ experts, expertBytes }: Trace['header']): { firstRecord: number[]; records: number } {
  let records = 0;
  const firstRecord = expertBytes.map(bytes => (bytes > 0 ? (records += experts) - experts : -1));
  return { firstRecord, records };
}

/** A store with an instant disk. Reads ahead are off. */
export function instantStore(
  header: Trace['header'],
  slots: number,
  policy: (facts: PolicyFacts) => EvictionPolicy,
): ExpertStore {
  const { firstRecord, records } = recordsOf(header);
  const part: StoredPart = { encoding: 'f32', layout: 'f32', rows: 1, columns: 1, fileBytes: 4, source: null };
  const one: StoredRecord = { name: 'expert', extents: [], parts: [part, part, part], packs: [], sha256: null };
  const store = new ExpertStore({
    experts: header.experts,
    firstRecord,
    records: Array.from({ length: records }, () => one),
  });
  const bytesOf = new Float64Array(records);
  for (const [layer, first] of firstRecord.entries()) {
    if (first >= 0) bytesOf.fill(header.expertBytes[layer], first, first + header.experts);
  }
  store.open({
    pool: new InstantQueue(bytesOf),
    table: { partOffset: () => 0, readBytes: record => bytesOf[record] },
    slots: Array.from({ length: slots }, () => ({ arena: 0, offset: 0 })),
    cancelled: () => false,
    prefetch: 'off',
    policy,
    now: () => 0,
  });
  return store;
}

/** Hits of a policy. `onSlice` gets the leases done now and then. */
export function replay(
  trace: Trace,
  slots: number,
  policy: (facts: PolicyFacts) => EvictionPolicy,
  onSlice: (leases: number) => void = () => {},
  withPins = false,
): ReplayResult {
  const store = instantStore(trace.header, slots, policy);
  const pins = withPins ? new ReplayedPins(store, trace.header) : null;
  const leases = trace.layer.length;
  for (let from = 0; from < leases; from += SLICE_LEASES) {
    const to = Math.min(leases, from + SLICE_LEASES);
    for (let lease = from; lease < to; lease++) {
      replayLease(store, trace, lease);
      pins?.leaseEnds(trace, lease);
    }
    onSlice(to);
  }
  const { requests, hits, bytesRead } = store.counters;
  return { requests, hits, bytesRead };
}

const NO_USES = new Int32Array(0);
let wanted = new Int32Array(0);

/** Begins and serves one lease of the trace. */
export function replayLease(store: ExpertStore, { layer, start, ids, header }: Trace, lease: number): void {
  if (wanted.length < header.experts) wanted = new Int32Array(header.experts);
  const count = start[lease + 1] - start[lease];
  for (let i = 0; i < count; i++) wanted[i] = ids[start[lease] + i];
  store.begin(layer[lease], wanted, NO_USES, count);
  for (let ready = store.next(); ready > 0; ready = store.next()) {
    for (let i = 0; i < ready; i++) store.release(store.ready[i]);
  }
  store.end();
}
