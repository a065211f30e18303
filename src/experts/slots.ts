/**
 * The slots of the expert store: which record is in which, and what is happening to it. Reads begin and end here; why they are
 * asked for is the business of the lease and of the reads ahead.
 */

import type { Place } from '../compute/arenas.ts';
import type { ReadPool } from '../storage/read-pool.ts';
import type { RecordTable } from '../storage/record-table.ts';
import type { ExpertCounters } from './counters.ts';
import type { EvictionPolicy } from './policy.ts';

/** What the store needs of a read pool; tests and replays have one of their own. */
export type ReadQueue = Pick<
  ReadPool,
  'submit' | 'state' | 'promote' | 'cancel' | 'finish' | 'waitAny' | 'freeTickets' | 'waitedUs'
>;

const FREE = 0;
const LOADING = 1;
const READY = 2;

export class Slots {
  readonly count: number;
  readonly places: readonly Place[];
  /** Slots that the lease uses. */
  readonly inUse: Uint8Array;
  /** Slots whose records are to stay, whatever the policy says. */
  readonly pinned: Uint8Array;
  /** Slots that were read ahead and not asked for since. */
  readonly ahead: Uint8Array;
  readonly #state: Uint8Array;
  readonly #recordIn: Int32Array;
  readonly #ticket: Int32Array;
  /** Per record of the table; experts only are ever set. */
  readonly #slotOf: Int32Array;
  readonly #pool: ReadQueue;
  readonly #table: Pick<RecordTable, 'readBytes'>;
  readonly #policy: EvictionPolicy;
  readonly #counters: ExpertCounters;
  /** Records that the search for a slot must leave alone. */
  #keptFrom = 0;
  #keptTo = 0;
  readonly #isAllowed = (slot: number): boolean => {
    const record = this.#recordIn[slot];
    if (this.inUse[slot] || this.pinned[slot] || (record >= this.#keptFrom && record < this.#keptTo)) return false;
    return this.#withdraw(slot);
  };

  constructor(
    places: readonly Place[],
    records: number,
    pool: ReadQueue,
    table: Pick<RecordTable, 'readBytes'>,
    policy: EvictionPolicy,
    counters: ExpertCounters,
  ) {
    this.count = places.length;
    this.places = places;
    this.inUse = new Uint8Array(this.count);
    this.pinned = new Uint8Array(this.count);
    this.ahead = new Uint8Array(this.count);
    this.#state = new Uint8Array(this.count);
    this.#recordIn = new Int32Array(this.count).fill(-1);
    this.#ticket = new Int32Array(this.count).fill(-1);
    this.#slotOf = new Int32Array(records).fill(-1);
    this.#pool = pool;
    this.#table = table;
    this.#policy = policy;
    this.#counters = counters;
  }

  /** Slot of a record that is in memory or on its way, or -1. */
  of(record: number): number {
    return this.#slotOf[record];
  }

  /** Record in a slot, or -1. */
  record(slot: number): number {
    return this.#recordIn[slot];
  }

  isReady(slot: number): boolean {
    return this.#state[slot] === READY;
  }

  isLoading(slot: number): boolean {
    return this.#state[slot] === LOADING;
  }

  /** The best slot that nobody uses and no reader is filling, emptied, unless it holds one of records keptFrom..keptTo-1; -1 = none. */
  take(keptFrom = 0, keptTo = 0): number {
    this.#keptFrom = keptFrom;
    this.#keptTo = keptTo;
    const slot = this.#policy.victim(this.#isAllowed);
    if (slot >= 0 && this.#state[slot] !== FREE) this.#empty(slot);
    return slot;
  }

  /** Begins to read a record into an empty slot. */
  load(record: number, slot: number, ahead: boolean): void {
    const { arena, offset } = this.places[slot];
    this.#ticket[slot] = this.#pool.submit(record, arena, offset, ahead ? 'ahead' : 'demand');
    this.#recordIn[slot] = record;
    this.#slotOf[record] = slot;
    this.#state[slot] = LOADING;
    this.ahead[slot] = ahead ? 1 : 0;
    if (ahead) this.#counters.prefetched++;
    this.#policy.fill(slot, record, ahead);
  }

  /** The lease asks for what is in the slot: true when that was read ahead. */
  use(slot: number): boolean {
    const counters = this.#counters;
    counters.hits++;
    this.inUse[slot] = 1;
    this.#policy.use(slot);
    if (this.pinned[slot]) counters.pinnedHits++;
    if (!this.ahead[slot]) return false;
    this.ahead[slot] = 0;
    if (this.#state[slot] === LOADING) this.#pool.promote(this.#ticket[slot]);
    counters.aheadHits++;
    counters.usefulBytes += this.#table.readBytes(this.#recordIn[slot]);
    return true;
  }

  /** Looks at a read in flight; a failed one frees its slot and throws. */
  poll(slot: number): void {
    const state = this.#pool.state(this.#ticket[slot]);
    if (state === 'queued' || state === 'running') return;
    try {
      const { bytes, serviceUs } = this.#pool.finish(this.#ticket[slot]);
      this.#counters.bytesRead += bytes;
      this.#counters.serviceUs += serviceUs;
      this.#state[slot] = READY;
    } catch (error) {
      this.#empty(slot);
      throw error;
    }
  }

  /** Takes back a read ahead that no reader has begun; false when it is too late. */
  callOff(slot: number): boolean {
    if (this.#state[slot] !== LOADING || !this.#pool.cancel(this.#ticket[slot])) return false;
    if (this.ahead[slot]) this.#counters.prefetched--;
    this.ahead[slot] = 0;
    this.#empty(slot);
    return true;
  }

  /** What was read ahead is not wanted: it stays as an ordinary expert, and is counted once. */
  waste(slot: number): void {
    if (!this.ahead[slot]) return;
    this.ahead[slot] = 0;
    this.#counters.wasted++;
    this.#counters.wastedBytes += this.#table.readBytes(this.#recordIn[slot]);
  }

  /** Ends all reads that nobody waits for: drops queued ones, waits for the others until told to stop. */
  settle(cancelled: () => boolean, waitMs: number): void {
    for (let slot = 0; slot < this.count; slot++) {
      while (!this.#withdraw(slot) && !cancelled()) this.#pool.waitAny(waitMs);
      this.waste(slot);
    }
  }

  /** Ends a read that nobody waits for, if it is queued or has ended; false while it is in flight. */
  #withdraw(slot: number): boolean {
    if (this.#state[slot] !== LOADING || this.callOff(slot)) return true;
    try {
      this.poll(slot);
    } catch {
      // the request that needed it has already failed, or nobody needs it any more
    }
    return this.#state[slot] !== LOADING;
  }

  #empty(slot: number): void {
    this.waste(slot);
    this.#slotOf[this.#recordIn[slot]] = -1;
    this.#recordIn[slot] = -1;
    this.#state[slot] = FREE;
    this.#policy.clear(slot);
  }
}
