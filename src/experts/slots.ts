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

/** A guess may take a slot among this part of those that could be given up, beginning with the least dear; at least one. */
const SPARE_SHARE = 1 / 8;

const FREE = 0;
const LOADING = 1;
const READY = 2;

/** Values of `ahead`: read on a guess about the next layer, or because the expert was hot in the past. */
const GUESSED = 1;
const WARM = 2;

export class Slots {
  readonly count: number;
  readonly places: readonly Place[];
  /** Slots that the lease uses. */
  readonly inUse: Uint8Array;
  /** Slots whose records are to stay, whatever the policy says. */
  readonly pinned: Uint8Array;
  /** Per record: it is pinned in whatever slot it comes to. */
  readonly #isPin: Uint8Array;
  /** Slots that were read ahead and not asked for since. */
  readonly ahead: Uint8Array;
  /** Slots that were read ahead and asked for while they were still being read. */
  readonly #late: Uint8Array;
  /** The forward pass that last asked for what is in the slot. */
  readonly #usedIn: Int32Array;
  #pass = 1;
  readonly #state: Uint8Array;
  readonly #recordIn: Int32Array;
  readonly #ticket: Int32Array;
  /** Per record of the table; experts only are ever set. */
  readonly #slotOf: Int32Array;
  readonly #pool: ReadQueue;
  readonly #table: Pick<RecordTable, 'readBytes'>;
  readonly #policy: EvictionPolicy;
  readonly #counters: ExpertCounters;
  /** Told of every read that has arrived; must not allocate. */
  onRead: (bytes: number, serviceUs: number, drive: number) => void = () => {};
  /** Records that the search for a slot must leave alone. */
  #keptFrom = 0;
  #keptTo = 0;
  #candidates = 0;
  readonly #isAllowed = (slot: number): boolean => {
    const record = this.#recordIn[slot];
    if (this.inUse[slot] || this.pinned[slot] || (record >= this.#keptFrom && record < this.#keptTo)) return false;
    return this.#withdraw(slot);
  };
  readonly #isSpare = (slot: number): boolean => {
    if (this.#candidates <= 0 || this.inUse[slot] || this.pinned[slot]) return false;
    if (this.#state[slot] === FREE) return true;
    this.#candidates--;
    return this.#usedIn[slot] !== this.#pass && this.#isAllowed(slot);
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
    this.#isPin = new Uint8Array(records);
    this.ahead = new Uint8Array(this.count);
    this.#late = new Uint8Array(this.count);
    this.#usedIn = new Int32Array(this.count);
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
    return this.#takeFrom(this.#isAllowed, keptFrom, keptTo);
  }

  /**
   * As take(), for a guess: no slot that the forward pass has used, nor one that the policy holds dearer than most. No slot stays free
   * for long, so what can be spared is what would be given up next.
   */
  takeSpare(keptFrom: number, keptTo: number): number {
    this.#candidates = Math.max(1, Math.floor(this.count * SPARE_SHARE));
    return this.#takeFrom(this.#isSpare, keptFrom, keptTo);
  }

  #takeFrom(allowed: (slot: number) => boolean, keptFrom: number, keptTo: number): number {
    this.#keptFrom = keptFrom;
    this.#keptTo = keptTo;
    const slot = this.#policy.victim(allowed);
    if (slot >= 0 && this.#state[slot] !== FREE) this.#empty(slot);
    return slot;
  }

  /** Begins to read a record into an empty slot, behind everything else; false when there is none. */
  warm(record: number): boolean {
    const slot = this.#state.indexOf(FREE);
    if (slot < 0) return false;
    this.load(record, slot, true);
    this.ahead[slot] = WARM;
    this.#counters.prefetched--;
    return true;
  }

  /** From now on the record stays in its slot, also when it comes to one later; or no longer. */
  pin(record: number, on: boolean): void {
    this.#isPin[record] = on ? 1 : 0;
    if (this.#slotOf[record] >= 0) this.pinned[this.#slotOf[record]] = on ? 1 : 0;
  }

  /** Looks at all reads, for times without a lease; gives the number of those that have not ended. */
  collect(): number {
    let left = 0;
    for (let slot = 0; slot < this.count; slot++) {
      if (this.#state[slot] !== LOADING) continue;
      try {
        this.poll(slot);
      } catch {
        // whoever asks for it will be told
      }
      if (this.#state[slot] === LOADING) left++;
    }
    return left;
  }

  /** Gives up what nobody keeps for good, while there is no lease and no read. Gives the slots that are empty now. */
  vacate(): number[] {
    const empty: number[] = [];
    for (let slot = 0; slot < this.count; slot++) {
      if (this.#state[slot] === READY && !this.pinned[slot]) this.#empty(slot);
      if (this.#state[slot] === FREE) empty.push(slot);
    }
    return empty;
  }

  newPass(): void {
    this.#pass = (this.#pass + 1) | 0;
  }

  /** Begins to read a record into an empty slot. */
  load(record: number, slot: number, ahead: boolean): void {
    const { arena, offset } = this.places[slot];
    this.#ticket[slot] = this.#pool.submit(record, arena, offset, ahead ? 'ahead' : 'demand');
    this.#recordIn[slot] = record;
    this.#slotOf[record] = slot;
    this.#state[slot] = LOADING;
    this.pinned[slot] = this.#isPin[record];
    this.ahead[slot] = ahead ? GUESSED : 0;
    this.#late[slot] = 0;
    this.#usedIn[slot] = ahead ? 0 : this.#pass;
    if (ahead) this.#counters.prefetched++;
    this.#policy.fill(slot, record, ahead);
  }

  /** The lease asks for what is in the slot. */
  use(slot: number): void {
    const counters = this.#counters;
    counters.hits++;
    this.inUse[slot] = 1;
    this.#usedIn[slot] = this.#pass;
    this.#policy.use(slot);
    const bytes = this.#bytesIn(slot);
    counters.hitBytes += bytes;
    const isAhead = this.ahead[slot] === GUESSED || (this.ahead[slot] === WARM && this.#state[slot] === LOADING);
    // each hit is counted in one tier
    if (this.pinned[slot] && !isAhead) {
      counters.pinnedHits++;
      counters.pinnedBytes += bytes;
    }
    if (!this.ahead[slot]) return;
    const isWarm = this.ahead[slot] === WARM;
    this.ahead[slot] = 0;
    if (isWarm && this.#state[slot] === READY) {
      counters.warmHits++;
      return;
    }
    // what is asked for while it is read is the same as a guess
    if (isWarm) counters.prefetched++;
    counters.aheadHits++;
    counters.usefulBytes += bytes;
    if (this.#state[slot] !== LOADING) return;
    this.#late[slot] = 1;
    if (!this.#hasEnded(slot)) counters.aheadLate++;
    this.#pool.promote(this.#ticket[slot]);
  }

  /** Looks at a read in flight; a failed one frees its slot and throws, unless it was asked for too early to be blamed on the request. */
  poll(slot: number): void {
    if (!this.#hasEnded(slot)) return;
    try {
      const { bytes, serviceUs, drive } = this.#pool.finish(this.#ticket[slot]);
      this.#counters.bytesRead += bytes;
      this.#counters.serviceUs += serviceUs;
      if (this.ahead[slot] === WARM) this.#counters.warmed++;
      this.onRead(bytes, serviceUs, drive);
      this.#state[slot] = READY;
    } catch (error) {
      if (this.#late[slot]) {
        this.#readAgain(slot);
        return;
      }
      this.#empty(slot);
      throw error;
    }
  }

  #hasEnded(slot: number): boolean {
    const state = this.#pool.state(this.#ticket[slot]);
    return state === 'done' || state === 'failed';
  }

  /** A read ahead that failed after it was asked for: the guess was in vain, and the demand gets a read of its own. */
  #readAgain(slot: number): void {
    const counters = this.#counters;
    const bytes = this.#bytesIn(slot);
    counters.hits--;
    counters.hitBytes -= bytes;
    counters.misses++;
    counters.missBytes += bytes;
    counters.aheadHits--;
    counters.wasted++;
    counters.usefulBytes -= bytes;
    counters.wastedBytes += bytes;
    this.#late[slot] = 0;
    const { arena, offset } = this.places[slot];
    this.#ticket[slot] = this.#pool.submit(this.#recordIn[slot], arena, offset, 'demand');
  }

  #bytesIn(slot: number): number {
    return this.#table.readBytes(this.#recordIn[slot]);
  }

  /** Takes back a read ahead that no reader has begun; false when it is too late. */
  callOff(slot: number): boolean {
    if (this.#state[slot] !== LOADING || !this.#pool.cancel(this.#ticket[slot])) return false;
    if (this.ahead[slot] === GUESSED) this.#counters.prefetched--;
    this.ahead[slot] = 0;
    this.#empty(slot);
    return true;
  }

  /** What was read ahead is not wanted: it stays as an ordinary expert, and is counted once. */
  waste(slot: number): void {
    if (this.ahead[slot] !== GUESSED) return;
    this.ahead[slot] = 0;
    this.#counters.wasted++;
    this.#counters.wastedBytes += this.#bytesIn(slot);
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
    this.#late[slot] = 0;
    try {
      this.poll(slot);
    } catch {
      // the request that needed it has already failed, or nobody needs it any more
    }
    return this.#state[slot] !== LOADING;
  }

  #empty(slot: number): void {
    this.waste(slot);
    this.ahead[slot] = 0;
    this.pinned[slot] = 0;
    this.#slotOf[this.#recordIn[slot]] = -1;
    this.#recordIn[slot] = -1;
    this.#state[slot] = FREE;
    this.#policy.clear(slot);
  }
}
