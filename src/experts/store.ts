/**
 * The expert store: a bounded set of slots through which every routed expert passes. One lease at a time: `begin` names the
 * distinct experts of a layer, `next` hands out those that are in memory (waiting for reads only when none is), `release`
 * frees them for eviction. An expert in use is never evicted; each is read at most once per lease; demand reads go before
 * reads ahead. Nothing here can change a value, only when it arrives.
 */

import { InternalError } from '../common/errors.ts';
import type { Place } from '../compute/arenas.ts';
import type { Matrix } from '../compute/matrix.ts';
import type { ReadPool } from '../storage/read-pool.ts';
import type { RecordTable } from '../storage/record-table.ts';
import { zeroCounters } from './counters.ts';
import { type ExpertRecords, ExpertShapes } from './layout.ts';
import { LookAheadBudget } from './look-ahead-budget.ts';
import { type EvictionPolicy, LruPolicy } from './policy.ts';

/** A blocked wait looks at the cancellation flag this often. */
const WAIT_SLICE_MS = 100;

/**
 * Layers come round in a circle, so when each wants more experts than its share of the slots, the least recently used one is
 * always the next to be wanted, and nothing would ever be found. Then new ones are given up first and the others stay; one in
 * so many is kept, so that the stock follows the text.
 */
const KEPT_OF_FLOOD = 16;

/** Tickets that reads ahead leave to demands. */
const RESERVED_TICKETS = 64;

const FREE = 0;
const LOADING = 1;
const READY = 2;

export interface ExpertSource {
  readonly pool: ReadPool;
  readonly table: RecordTable;
  /** One address per slot. */
  readonly slots: readonly Place[];
  /** True when the request should stop; looked at while waiting. */
  readonly cancelled: () => boolean;
  /** Guess the next layer's experts while one token is decoded. */
  readonly lookAhead: boolean;
}

/** Thrown out of a wait when the request was cancelled; never shown to a user. */
export class Cancelled extends Error {}

export class ExpertStore {
  readonly experts: number;
  readonly counters = zeroCounters();
  /** Positions (in the list given to `begin`) that the last `next` made available. */
  readonly ready: Int32Array;
  readonly #shapes: ExpertShapes;
  readonly #firstRecord: readonly number[];
  #source!: ExpertSource;
  #policy!: EvictionPolicy;
  // per record of the table (experts only are ever set)
  readonly #slotOf: Int32Array;
  // per slot
  #recordIn!: Int32Array;
  #state!: Uint8Array;
  #inUse!: Uint8Array;
  #ahead!: Uint8Array;
  /** Slots that were marked as read ahead and may still be. */
  #aheadSlots!: Int32Array;
  #aheadCount = 0;
  #ticket!: Int32Array;
  // the lease
  readonly #wanted: Int32Array;
  readonly #leaseSlot: Int32Array;
  #wantedCount = 0;
  #nextMissing = 0;
  #outstanding = 0;
  #layer = -1;
  // what the look-ahead knows of time
  readonly #budget = new LookAheadBudget();
  #lookAhead = false;
  #lastArrivalMs = 0;
  #missesOfLease = 0;
  /** Slots over layers, and whether the lease asks for more though all slots are taken. */
  #fairShare = 0;
  #isFlood = false;
  #loads = 0;
  #waitUsBefore = 0;

  constructor(layout: ExpertRecords) {
    this.experts = layout.experts;
    this.#firstRecord = layout.firstRecord;
    this.#slotOf = new Int32Array(layout.records.length).fill(-1);
    this.ready = new Int32Array(layout.experts);
    this.#wanted = new Int32Array(layout.experts);
    this.#leaseSlot = new Int32Array(layout.experts);
    this.#shapes = new ExpertShapes(layout);
  }

  /** Connects the store to its slots and readers, once the arenas exist. */
  open(source: ExpertSource, policy: EvictionPolicy = new LruPolicy(source.slots.length)): void {
    const slots = source.slots.length;
    this.#source = source;
    this.#policy = policy;
    this.#recordIn = new Int32Array(slots).fill(-1);
    this.#state = new Uint8Array(slots);
    this.#inUse = new Uint8Array(slots);
    this.#ahead = new Uint8Array(slots);
    this.#aheadSlots = new Int32Array(slots);
    const layers = this.#firstRecord.filter(first => first >= 0).length;
    this.#fairShare = slots / layers;
    // with a slot for every expert nothing is read twice
    this.#lookAhead = source.lookAhead && slots < this.experts * layers;
    this.#ticket = new Int32Array(slots).fill(-1);
  }

  /** True when the layer's expert is in memory now. */
  isResident(layer: number, expert: number): boolean {
    const slot = this.#slotOf[this.#firstRecord[layer] + expert];
    return slot >= 0 && this.#state[slot] === READY;
  }

  get slotCount(): number {
    return this.#source.slots.length;
  }

  // ---- lease --------------------------------------------------------------------------------------------------------

  /** Asks for `count` distinct experts of a layer. Reads of the missing ones start at once, as far as slots allow. */
  begin(layer: number, experts: Int32Array, count: number): void {
    this.#layer = layer;
    this.#wantedCount = count;
    this.#isFlood = count > this.#fairShare && this.#loads >= this.slotCount;
    this.#nextMissing = 0;
    this.#outstanding = count;
    if (this.#lastArrivalMs > 0) this.#budget.observeGap(performance.now() - this.#lastArrivalMs);
    this.#lastArrivalMs = 0;
    this.#missesOfLease = 0;
    this.#waitUsBefore = this.counters.waitUs;
    const first = this.#firstRecord[layer];
    for (let position = 0; position < count; position++) {
      const record = first + experts[position];
      this.#wanted[position] = record;
      const slot = this.#slotOf[record];
      this.#leaseSlot[position] = slot;
      this.counters.requests++;
      if (slot < 0) continue;
      this.counters.hits++;
      this.#inUse[slot] = 1;
      if (!this.#isFlood || !this.#ahead[slot]) this.#policy.touch(slot);
      if (this.#state[slot] === LOADING && this.#ahead[slot]) this.#source.pool.promote(this.#ticket[slot]);
      if (this.#ahead[slot]) this.#budget.observeGuess(true);
      this.#ahead[slot] = 0;
    }
    this.#expireAhead(first);
    this.#requestMissing();
  }

  /**
   * Fills `ready` with positions that can be computed now and returns how many; 0 when the lease is served. All of them
   * must be released before the next call.
   */
  next(): number {
    if (this.#outstanding === 0) return 0;
    for (;;) {
      let found = 0;
      for (let position = 0; position < this.#wantedCount; position++) {
        const slot = this.#leaseSlot[position];
        if (slot >= 0 && this.#state[slot] === LOADING) this.#poll(slot);
        if (slot >= 0 && this.#state[slot] === READY) this.ready[found++] = position;
      }
      if (found > 0) {
        this.#outstanding -= found;
        if (this.#outstanding === 0 && this.#missesOfLease > 0) this.#noteLastArrival();
        return found;
      }
      this.#requestMissing();
      this.#wait();
    }
  }

  #noteLastArrival(): void {
    this.#lastArrivalMs = performance.now();
    this.#budget.observeRead((this.counters.waitUs - this.#waitUsBefore) / 1000 / this.#missesOfLease);
  }

  /** Gives one position back; a missing expert may take its slot. */
  release(position: number): void {
    const slot = this.#leaseSlot[position];
    this.#inUse[slot] = 0;
    this.#leaseSlot[position] = -1;
    this.#wanted[position] = -1;
    this.#requestMissing();
  }

  /** Ends the lease, also after an error: nothing stays in use. */
  end(): void {
    for (let position = 0; position < this.#wantedCount; position++) {
      if (this.#leaseSlot[position] >= 0) this.#inUse[this.#leaseSlot[position]] = 0;
    }
    this.#wantedCount = 0;
    this.#outstanding = 0;
    this.#layer = -1;
  }

  /** Shape of a part (0 gate, 1 up, 2 down) of the expert at a position. */
  shape(position: number, part: number): Matrix {
    return this.#shapes.of(this.#wanted[position], part);
  }

  arenaOf(position: number): number {
    return this.#source.slots[this.#leaseSlot[position]].arena;
  }

  /** Address of a part in its arena. */
  addressOf(position: number, part: number): number {
    const record = this.#wanted[position];
    return this.#source.slots[this.#leaseSlot[position]].offset + this.#source.table.partOffset(record, part);
  }

  // ---- reading ahead ------------------------------------------------------------------------------------------------

  /** Starts low-priority reads of a layer's experts that are not in memory, into slots that nobody uses. */
  readAhead(layer: number): void {
    const first = this.#firstRecord[layer];
    for (let expert = 0; expert < this.experts; expert++) {
      if (this.#slotOf[first + expert] < 0 && !this.prefetch(layer, expert)) return;
    }
  }

  /** How many experts of the next layer the look-ahead may ask for; asked once per layer and token. */
  lookAheadReads(): number {
    return this.#lookAhead ? this.#budget.reads() : 0;
  }

  /** Starts a low-priority read of one expert, unless it is in memory or no slot is to be had; true when it did. */
  prefetch(layer: number, expert: number): boolean {
    const first = this.#firstRecord[layer];
    // what is being asked for now is no guess
    if (layer === this.#layer || this.#slotOf[first + expert] >= 0) return false;
    if (this.#source.pool.freeTickets <= RESERVED_TICKETS) return false;
    // a slot of the coming layer, or one being read, is worth more than the expert it would make room for
    const slot = this.#takeSlot(first, first + this.experts);
    if (slot < 0) return false;
    this.#load(first + expert, slot, true);
    this.counters.prefetched++;
    return true;
  }

  /** The layer has come without asking for these reads ahead: those not begun are called off, the others were in vain. */
  #expireAhead(first: number): void {
    let kept = 0;
    for (let i = 0; i < this.#aheadCount; i++) {
      const slot = this.#aheadSlots[i];
      if (!this.#ahead[slot]) continue;
      if (this.#recordIn[slot] < first || this.#recordIn[slot] >= first + this.experts) {
        this.#aheadSlots[kept++] = slot;
      } else if (this.#state[slot] !== LOADING || !this.#callOff(slot)) {
        this.counters.wasted++;
        this.#budget.observeGuess(false);
        this.#ahead[slot] = 0;
      }
    }
    this.#aheadCount = kept;
  }

  /**
   * Ends a request: drops queued reads, waits for those in flight, and counts unused reads ahead as wasted. A cancelled
   * request does not wait: what is still being read then keeps its slot until it arrives.
   */
  settle(): void {
    const { pool, cancelled } = this.#source;
    for (let slot = 0; slot < this.slotCount; slot++) {
      while (!this.#withdraw(slot) && !cancelled()) pool.waitAny(WAIT_SLICE_MS);
      if (this.#ahead[slot]) this.counters.wasted++;
      this.#ahead[slot] = 0;
    }
    this.#aheadCount = 0;
  }

  // ---- inside -------------------------------------------------------------------------------------------------------

  #requestMissing(): void {
    while (this.#nextMissing < this.#wantedCount) {
      const position = this.#nextMissing;
      if (this.#leaseSlot[position] >= 0 || this.#wanted[position] < 0) {
        this.#nextMissing++;
        continue;
      }
      const slot = this.#source.pool.freeTickets > 0 ? this.#takeSlot(0, 0) : -1;
      if (slot < 0) return;
      this.counters.misses++;
      this.#missesOfLease++;
      this.#inUse[slot] = 1;
      this.#leaseSlot[position] = slot;
      this.#load(this.#wanted[position], slot, false);
      this.#nextMissing++;
    }
  }

  /** The policy's first choice among slots that nobody uses and no read is filling, but for records from..to-1; -1 = none. */
  #takeSlot(from: number, to: number): number {
    for (let slot = this.#policy.first(); slot >= 0; slot = this.#policy.after(slot)) {
      const record = this.#recordIn[slot];
      const kept = this.#state[slot] !== FREE && record >= from && record < to;
      if (this.#inUse[slot] || kept || !this.#withdraw(slot)) continue;
      if (this.#state[slot] !== FREE) this.#empty(slot);
      return slot;
    }
    return -1;
  }

  /** Ends a read that nobody waits for, if it is queued or has ended; false while it is in flight. */
  #withdraw(slot: number): boolean {
    if (this.#state[slot] !== LOADING) return true;
    if (this.#callOff(slot)) return true;
    try {
      this.#poll(slot);
    } catch {
      // the request that needed it has already failed, or nobody needs it any more
    }
    return this.#state[slot] !== LOADING;
  }

  /** Takes back a read that no reader has begun. */
  #callOff(slot: number): boolean {
    if (!this.#source.pool.cancel(this.#ticket[slot])) return false;
    if (this.#ahead[slot]) this.counters.prefetched--;
    this.#ahead[slot] = 0;
    this.#empty(slot);
    return true;
  }

  #empty(slot: number): void {
    this.#slotOf[this.#recordIn[slot]] = -1;
    this.#recordIn[slot] = -1;
    this.#state[slot] = FREE;
    if (this.#ahead[slot]) this.counters.wasted++;
    this.#ahead[slot] = 0;
  }

  #load(record: number, slot: number, ahead: boolean): void {
    const { pool, slots } = this.#source;
    const ticket = pool.submit(record, slots[slot].arena, slots[slot].offset, ahead ? 'ahead' : 'demand');
    this.#ticket[slot] = ticket;
    this.#recordIn[slot] = record;
    this.#slotOf[record] = slot;
    this.#state[slot] = LOADING;
    this.#ahead[slot] = ahead ? 1 : 0;
    if (ahead) this.#noteAhead(slot);
    this.#loads++;
    if (this.#isFlood && this.#loads % KEPT_OF_FLOOD !== 0) this.#policy.demote(slot);
    else this.#policy.touch(slot);
  }

  /** A slot may be in the list already, with an older read that was evicted. */
  #noteAhead(slot: number): void {
    for (let i = 0; i < this.#aheadCount; i++) if (this.#aheadSlots[i] === slot) return;
    this.#aheadSlots[this.#aheadCount++] = slot;
  }

  /** Looks at a read in flight; a failed one frees its slot and throws. */
  #poll(slot: number): void {
    const { pool } = this.#source;
    const state = pool.state(this.#ticket[slot]);
    if (state === 'queued' || state === 'running') return;
    try {
      const { bytes, serviceUs } = pool.finish(this.#ticket[slot]);
      this.counters.bytesRead += bytes;
      this.counters.serviceUs += serviceUs;
      this.#state[slot] = READY;
    } catch (error) {
      this.#empty(slot);
      throw error;
    }
  }

  #wait(): void {
    if (this.#layer < 0) throw new InternalError('NO_LEASE', 'the expert store waits without a lease');
    const { pool } = this.#source;
    const before = pool.waitedUs;
    pool.waitAny(WAIT_SLICE_MS);
    this.counters.waitUs += pool.waitedUs - before;
    if (this.#source.cancelled()) throw new Cancelled();
  }
}
