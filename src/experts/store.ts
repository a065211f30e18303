/**
 * The expert store: a bounded set of slots through which every routed expert passes. One lease at a time: `begin` names the
 * distinct experts of a layer, `next` hands out those that are in memory (waiting for reads only when none is), `release`
 * frees them for eviction. An expert in use is never evicted; each is read at most once per lease; demand reads go before
 * reads ahead. Nothing here can change a value, only when it arrives.
 */

import { InternalError } from '../common/errors.ts';
import type { Place } from '../compute/arenas.ts';
import type { Matrix } from '../compute/matrix.ts';
import type { RecordTable } from '../storage/record-table.ts';
import { ReadAhead } from './ahead.ts';
import { zeroCounters } from './counters.ts';
import { type ExpertRecords, ExpertShapes } from './layout.ts';
import { type EvictionPolicy, LruPolicy, type PolicyFacts } from './policy.ts';
import { type ReadQueue, Slots } from './slots.ts';

/** A blocked wait looks at the cancellation flag this often. */
const WAIT_SLICE_MS = 100;

/** Told of every lease; must not allocate, and cannot change anything. */
export interface LeaseObserver {
  /** `experts` 0..count-1 are asked for by `uses` rows each; both lists belong to the caller. */
  leaseBegins?(layer: number, experts: Int32Array, uses: Int32Array, count: number): void;
  leaseEnds?(layer: number): void;
}

export interface ExpertSource {
  readonly pool: ReadQueue;
  readonly table: Pick<RecordTable, 'partOffset' | 'readBytes'>;
  /** One address per slot. */
  readonly slots: readonly Place[];
  /** True when the request should stop; looked at while waiting. */
  readonly cancelled: () => boolean;
  /** Guess the next layer's experts while one token is decoded. */
  readonly lookAhead: boolean;
  /** Default: least recently used. */
  readonly policy?: (facts: PolicyFacts) => EvictionPolicy;
  readonly observers?: readonly LeaseObserver[];
  /** Milliseconds; default: those of the machine. */
  readonly now?: () => number;
}

/** Thrown out of a wait when the request was cancelled; never shown to a user. */
export class Cancelled extends Error {}

export class ExpertStore {
  readonly experts: number;
  /** First record of each layer's experts, -1 for layers that do not route. */
  readonly firstRecord: readonly number[];
  readonly counters = zeroCounters();
  /** Positions (in the list given to `begin`) that the last `next` made available. */
  readonly ready: Int32Array;
  readonly #shapes: ExpertShapes;
  readonly #records: number;
  #source!: ExpertSource;
  #policy!: EvictionPolicy;
  #slots!: Slots;
  #ahead!: ReadAhead;
  #observers!: readonly LeaseObserver[];
  #now!: () => number;
  // the lease
  readonly #wanted: Int32Array;
  readonly #leaseSlot: Int32Array;
  #wantedCount = 0;
  #nextMissing = 0;
  #outstanding = 0;
  #layer = -1;
  // what the look-ahead knows of time
  #lookAhead = false;
  #lastArrivalMs = 0;
  #missesOfLease = 0;
  #waitUsBefore = 0;

  constructor(layout: ExpertRecords) {
    this.experts = layout.experts;
    this.firstRecord = layout.firstRecord;
    this.#records = layout.records.length;
    this.ready = new Int32Array(layout.experts);
    this.#wanted = new Int32Array(layout.experts);
    this.#leaseSlot = new Int32Array(layout.experts);
    this.#shapes = new ExpertShapes(layout);
  }

  /** Connects the store to its slots and readers, once the arenas exist. */
  open(source: ExpertSource): void {
    const { pool, table, slots, observers = [], now = () => performance.now() } = source;
    const facts = { slots: slots.length, experts: this.experts, firstRecord: this.firstRecord };
    const policy = source.policy?.(facts) ?? new LruPolicy(facts);
    this.#source = source;
    this.#observers = observers;
    this.#now = now;
    this.#slots = new Slots(slots, this.#records, pool, table, policy, this.counters);
    this.#ahead = new ReadAhead(this.#slots, pool, this.experts);
    this.#policy = policy;
    const layers = this.firstRecord.filter(first => first >= 0).length;
    // with a slot for every expert nothing is read twice
    this.#lookAhead = source.lookAhead && slots.length < this.experts * layers;
  }

  /** True when the layer's expert is in memory now. */
  isResident(layer: number, expert: number): boolean {
    const slot = this.#slots.of(this.firstRecord[layer] + expert);
    return slot >= 0 && this.#slots.isReady(slot);
  }

  get slotCount(): number {
    return this.#slots.count;
  }

  // ---- lease --------------------------------------------------------------------------------------------------------

  /**
   * Asks for `count` distinct experts of a layer; uses[i] rows chose experts[i]. Reads of the missing ones start at once, as far
   * as slots allow.
   */
  begin(layer: number, experts: Int32Array, uses: Int32Array, count: number): void {
    this.#layer = layer;
    this.#wantedCount = count;
    this.#nextMissing = 0;
    this.#outstanding = count;
    if (this.#lastArrivalMs > 0) this.#ahead.budget.observeGap(this.#now() - this.#lastArrivalMs);
    this.#lastArrivalMs = 0;
    this.#missesOfLease = 0;
    this.#waitUsBefore = this.counters.waitUs;
    this.#policy.begin(layer, count);
    for (const observer of this.#observers) observer.leaseBegins?.(layer, experts, uses, count);
    const first = this.firstRecord[layer];
    for (let position = 0; position < count; position++) {
      const record = first + experts[position];
      this.#wanted[position] = record;
      const slot = this.#slots.of(record);
      this.#leaseSlot[position] = slot;
      this.counters.requests++;
      if (slot >= 0 && this.#slots.use(slot)) this.#ahead.budget.observeGuess(true);
    }
    this.#ahead.expire(first);
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
        if (slot >= 0 && this.#slots.isLoading(slot)) this.#slots.poll(slot);
        if (slot >= 0 && this.#slots.isReady(slot)) this.ready[found++] = position;
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
    this.#lastArrivalMs = this.#now();
    this.#ahead.budget.observeRead((this.counters.waitUs - this.#waitUsBefore) / 1000 / this.#missesOfLease);
  }

  /** Gives one position back; a missing expert may take its slot. */
  release(position: number): void {
    const slot = this.#leaseSlot[position];
    this.#slots.inUse[slot] = 0;
    this.#leaseSlot[position] = -1;
    this.#wanted[position] = -1;
    this.#requestMissing();
  }

  /** Ends the lease, also after an error: nothing stays in use. */
  end(): void {
    for (let position = 0; position < this.#wantedCount; position++) {
      if (this.#leaseSlot[position] >= 0) this.#slots.inUse[this.#leaseSlot[position]] = 0;
    }
    for (const observer of this.#observers) observer.leaseEnds?.(this.#layer);
    this.#wantedCount = 0;
    this.#outstanding = 0;
    this.#layer = -1;
  }

  /** Shape of a part (0 gate, 1 up, 2 down) of the expert at a position. */
  shape(position: number, part: number): Matrix {
    return this.#shapes.of(this.#wanted[position], part);
  }

  arenaOf(position: number): number {
    return this.#slots.places[this.#leaseSlot[position]].arena;
  }

  /** Address of a part in its arena. */
  addressOf(position: number, part: number): number {
    const record = this.#wanted[position];
    return this.#slots.places[this.#leaseSlot[position]].offset + this.#source.table.partOffset(record, part);
  }

  // ---- reading ahead ------------------------------------------------------------------------------------------------

  /** Starts low-priority reads of a layer's experts that are not in memory, into slots that nobody uses. */
  readAhead(layer: number): void {
    this.#ahead.layer(this.firstRecord[layer]);
  }

  /** How many experts of the next layer the look-ahead may ask for; asked once per layer and token. */
  lookAheadReads(): number {
    return this.#lookAhead ? this.#ahead.budget.reads() : 0;
  }

  /** Starts a low-priority read of one expert, unless it is in memory or no slot is to be had; true when it did. */
  prefetch(layer: number, expert: number): boolean {
    // what is being asked for now is no guess
    return layer !== this.#layer && this.#ahead.expert(this.firstRecord[layer], expert);
  }

  /**
   * Ends a request: drops queued reads, waits for those in flight, and counts unused reads ahead as wasted. A cancelled
   * request does not wait: what is still being read then keeps its slot until it arrives.
   */
  settle(): void {
    this.#slots.settle(this.#source.cancelled, WAIT_SLICE_MS);
    this.#ahead.forget();
  }

  // ---- inside -------------------------------------------------------------------------------------------------------

  #requestMissing(): void {
    while (this.#nextMissing < this.#wantedCount) {
      const position = this.#nextMissing;
      if (this.#leaseSlot[position] >= 0 || this.#wanted[position] < 0) {
        this.#nextMissing++;
        continue;
      }
      const slot = this.#source.pool.freeTickets > 0 ? this.#slots.take() : -1;
      if (slot < 0) return;
      this.counters.misses++;
      this.#missesOfLease++;
      this.#slots.inUse[slot] = 1;
      this.#leaseSlot[position] = slot;
      this.#slots.load(this.#wanted[position], slot, false);
      this.#nextMissing++;
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
