/**
 * The most hits that any policy can have, knowing the future (Belady 1966), for leases: experts that are in memory when a lease begins
 * are hits; all others of the lease must be read into a slot; what a lease uses stays until it has been used. So after a lease of
 * no more experts than slots all of them are in memory, and what was there before and is needed last has gone. A lease of more
 * experts than slots goes in waves; what remains of it and of what was there before is then free, which is a slot more than a store
 * can have that reads one of them last.
 *
 * Keeping an expert from one use to its next saves one read, takes a slot during the leases between, and all reads count the same:
 * intervals, as many as possible, with so many at once. Whenever there are too many, dropping the one that ends last is best.
 */

import { type ReplayResult, recordsOf, SLICE_LEASES } from './replay.ts';
import type { Trace } from './trace.ts';

const NEVER = 0xffffffff;

/** Where each request's expert is asked for next: the number of the lease, or NEVER. */
function nextUses({ layer, start, ids, header }: Trace): Uint32Array {
  const { firstRecord, records } = recordsOf(header);
  const coming = new Uint32Array(records).fill(NEVER);
  const next = new Uint32Array(ids.length);
  for (let lease = layer.length - 1; lease >= 0; lease--) {
    const first = firstRecord[layer[lease]];
    for (let i = start[lease]; i < start[lease + 1]; i++) {
      next[i] = coming[first + ids[i]];
      coming[first + ids[i]] = lease;
    }
  }
  return next;
}

/** Hits and reads of the optimum. `onSlice`: as that of `replay`. */
export function belady(trace: Trace, slots: number, onSlice: (leases: number) => void = () => {}): ReplayResult {
  const { layer, start, ids, header } = trace;
  const { firstRecord, records } = recordsOf(header);
  const next = nextUses(trace);
  const memory = new Memory(records);
  let hits = 0;
  let bytesRead = 0;
  for (let lease = 0; lease < layer.length; lease++) {
    const first = firstRecord[layer[lease]];
    const count = start[lease + 1] - start[lease];
    let found = 0;
    for (let i = start[lease]; i < start[lease + 1]; i++) if (memory.has(first + ids[i])) found++;
    hits += found;
    bytesRead += (count - found) * header.expertBytes[layer[lease]];
    // what the lease uses is not given up, unless it does not fit
    if (count <= slots) {
      for (let i = start[lease]; i < start[lease + 1]; i++) memory.remove(first + ids[i]);
      while (memory.size > slots - count) memory.remove(memory.last());
    }
    for (let i = start[lease]; i < start[lease + 1]; i++) memory.put(first + ids[i], next[i]);
    while (memory.size > slots) memory.remove(memory.last());
    if (lease % SLICE_LEASES === SLICE_LEASES - 1) onSlice(lease + 1);
  }
  return { requests: ids.length, hits, bytesRead };
}

/** Records by their next use: a heap with the latest on top, and each record's place in it. */
class Memory {
  readonly #heap: Int32Array;
  readonly #next: Uint32Array;
  readonly #place: Int32Array;
  size = 0;

  constructor(records: number) {
    this.#heap = new Int32Array(records);
    this.#next = new Uint32Array(records);
    this.#place = new Int32Array(records).fill(-1);
  }

  has(record: number): boolean {
    return this.#place[record] >= 0;
  }

  /** The record that is needed last. */
  last(): number {
    return this.#heap[0];
  }

  put(record: number, next: number): void {
    this.#next[record] = next;
    const at = this.#place[record];
    if (at < 0) {
      this.#set(this.size, record);
      this.#up(this.size++);
    } else {
      this.#up(at);
      this.#down(this.#place[record]);
    }
  }

  remove(record: number): void {
    const at = this.#place[record];
    if (at < 0) return;
    this.#place[record] = -1;
    const moved = this.#heap[--this.size];
    if (moved === record) return;
    this.#set(at, moved);
    this.#up(at);
    this.#down(this.#place[moved]);
  }

  #set(at: number, record: number): void {
    this.#heap[at] = record;
    this.#place[record] = at;
  }

  #up(from: number): void {
    const record = this.#heap[from];
    let at = from;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (this.#next[this.#heap[parent]] >= this.#next[record]) break;
      this.#set(at, this.#heap[parent]);
      at = parent;
    }
    this.#set(at, record);
  }

  #down(from: number): void {
    const record = this.#heap[from];
    let at = from;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= this.size) break;
      if (child + 1 < this.size && this.#next[this.#heap[child + 1]] > this.#next[this.#heap[child]]) child++;
      if (this.#next[this.#heap[child]] <= this.#next[record]) break;
      this.#set(at, this.#heap[child]);
      at = child;
    }
    this.#set(at, record);
  }
}
