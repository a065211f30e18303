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
import { Guesses } from './guesses.ts';
import { type ExpertRecords, ExpertShapes } from './layout.ts';
import type { Prefetch } from './look-ahead-switch.ts';
import { type EvictionPolicy, LruPolicy, type PolicyFacts } from './policy.ts';
import { type ReadQueue, Slots } from './slots.ts';

/** A blocked wait looks at the cancellation flag this often. */
const WAIT_SLICE_MS = 100;

/** Told of every lease; must not allocate, and cannot change anything. */
export interface LeaseObserver {
  /** `experts` 0..count-1 are asked for by `uses` rows each; both lists belong to the caller. */
  leaseBegins?(layer: number, experts: Int32Array, uses: Int32Array, count: number): void;
  leaseEnds?(layer: number): void;
  /** An expert has arrived, from the drive of that number. */
  readEnds?(bytes: number, serviceUs: number, drive: number): void;
  /** `--prefetch auto` has found that guesses about the next layer pay, or that they do not. */
  lookAheadChanges?(pays: boolean): void;
}

export interface ExpertSource {
  readonly pool: ReadQueue;
  readonly table: Pick<RecordTable, 'partOffset' | 'readBytes'>;
  /** One address per slot. */
  readonly slots: readonly Place[];
  /** True when the request should stop; looked at while waiting. */
  readonly cancelled: () => boolean;
  /** What may be read before a router asks for it: nothing, what pays, everything likely. */
  readonly prefetch: Prefetch;
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
  #guesses!: Guesses;
  #prefetch: Prefetch = 'off';
  #isWhole = false;
  // the lease
  readonly #wanted: Int32Array;
  readonly #leaseSlot: Int32Array;
  #wantedCount = 0;
  #nextMissing = 0;
  #outstanding = 0;
  #layer = -1;
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
    this.#slots = new Slots(slots, this.#records, pool, table, policy, this.counters);
    this.#slots.onRead = (bytes, serviceUs, drive) => {
      for (const observer of this.#observers) observer.readEnds?.(bytes, serviceUs, drive);
    };
    this.#ahead = new ReadAhead(this.#slots, pool, this.experts, record => table.readBytes(record));
    this.#policy = policy;
    const layers = this.firstRecord.filter(first => first >= 0).length;
    this.#isWhole = slots.length >= this.experts * layers;
    this.#guesses = new Guesses(this.experts, this.counters, now, pays => {
      this.counters.lookAheadChanges++;
      for (const observer of observers) observer.lookAheadChanges?.(pays);
    });
    this.prefetch = source.prefetch;
  }

  get prefetch(): Prefetch {
    return this.#prefetch;
  }

  /** Says anew what may be read ahead: comparisons in one process need it. */
  set prefetch(mode: Prefetch) {
    this.#prefetch = mode;
    // with a slot for every expert nothing is read twice
    this.#guesses.setMode(this.#isWhole ? 'off' : mode);
  }

  /** True when the layer's expert is in memory now. */
  isResident(layer: number, expert: number): boolean {
    const slot = this.#slots.of(this.firstRecord[layer] + expert);
    return slot >= 0 && this.#slots.isReady(slot);
  }

  get slotCount(): number {
    return this.#slots.count;
  }

  /** Gives up the experts that nobody keeps for good. Gives the places of the empty slots, to be read to before the next lease. */
  vacate(): Place[] {
    return this.#slots.vacate().map(slot => this.#slots.places[slot]);
  }

  /** Whatever `work` asks for, no observer hears of it. */
  unobserved(work: () => void): void {
    const observers = this.#observers;
    this.#observers = [];
    try {
      work();
    } finally {
      this.#observers = observers;
    }
  }

  /** Writes where each expert is, at layer * experts + expert: 0 not in memory, 1 on its way, 2 in memory, 3 there for good. */
  places(into: Uint8Array): void {
    const { experts, firstRecord } = this;
    into.fill(0);
    for (let layer = 0; layer < firstRecord.length; layer++) {
      if (firstRecord[layer] < 0) continue;
      for (let expert = 0; expert < experts; expert++) {
        const slot = this.#slots.of(firstRecord[layer] + expert);
        if (slot < 0) continue;
        into[layer * experts + expert] = this.#slots.pinned[slot] ? 3 : this.#slots.isReady(slot) ? 2 : 1;
      }
    }
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
    const isNewPass = this.#guesses.leaseBegins(layer);
    if (isNewPass) this.#slots.newPass();
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
      this.#guesses.use(first, experts[position], this.#source.table.readBytes(record));
      if (slot >= 0) this.#slots.use(slot);
    }
    this.#ahead.expire(first, isNewPass);
    this.#requestMissing();
  }

  /**
   * Fills `ready` with positions that can be computed now and returns how many; 0 when the lease is served, or when `waits` is false and
   * there are none. All of them must be released before the next call.
   */
  next(waits = true): number {
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
      if (!waits) return 0;
      this.#requestMissing();
      this.#wait();
    }
  }

  /** True while the lease has experts that next() has not handed out. */
  get isWaiting(): boolean {
    return this.#outstanding > 0;
  }

  #noteLastArrival(): void {
    this.#guesses.lastArrives((this.counters.waitUs - this.#waitUsBefore) / 1000 / this.#missesOfLease);
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
    this.#guesses.leaseEnds();
    for (const observer of this.#observers) observer.leaseEnds?.(this.#layer);
    this.#wantedCount = 0;
    this.#nextMissing = 0;
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

  /** Starts low-priority reads of a layer's experts that are not in memory, nearly all of which are needed. */
  readAhead(layer: number): void {
    if (this.#prefetch !== 'off') this.#ahead.layer(this.firstRecord[layer]);
  }

  /** True while guesses are made in every token: always, or because they pay. */
  get looksAhead(): boolean {
    return this.#guesses.switch.pays;
  }

  /** True when guesses about the next layer are welcome; to be asked once per layer where they could be made. */
  wantsGuesses(): boolean {
    return this.#guesses.wanted();
  }

  /**
   * Names the experts that a later layer is likely to ask for, the likeliest first; the first `count` of the list count. Those not in
   * memory are read while no demand waits for a reader or for a slot.
   */
  guess(layer: number, experts: Int32Array, count: number): void {
    const first = this.firstRecord[layer];
    this.#guesses.name(first, experts, count);
    if (this.#nextMissing === this.#wantedCount) this.#ahead.guesses(first, experts, count, this.#guesses.budget);
  }

  /**
   * Ends a request: drops queued reads, waits for those in flight, and counts unused reads ahead as wasted. A cancelled
   * request does not wait: what is still being read then keeps its slot until it arrives.
   */
  settle(): void {
    this.#slots.settle(this.#source.cancelled, WAIT_SLICE_MS);
    this.#ahead.forget();
  }

  // ---- placement ----------------------------------------------------------------------------------------------------

  /** Begins to read a hot expert into an empty slot, behind everything else; false when it is there or all slots are taken. */
  warm(layer: number, expert: number): boolean {
    const record = this.firstRecord[layer] + expert;
    return this.#slots.of(record) < 0 && this.#source.pool.freeTickets > 0 && this.#slots.warm(record);
  }

  /** The expert stays, once it is in a slot, or no longer. Who pins leaves enough slots to all others. */
  pin(layer: number, expert: number, on: boolean): void {
    this.#slots.pin(this.firstRecord[layer] + expert, on);
  }

  /** Takes in what has been read while there is no lease; gives the number of reads that have not ended. */
  collect(): number {
    return this.#slots.collect();
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
      this.counters.missBytes += this.#source.table.readBytes(this.#wanted[position]);
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
