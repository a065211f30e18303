/**
 * Frequency and recency in one number: how likely an expert is to be asked for when its layer comes, and how soon that is. The
 * likelihood is the share of passes that asked for it, remembered for a short and for a long time; layers come round in a circle, and
 * what is far away on it may be read again in time. The slot with the smallest number goes.
 */

import type { EvictionPolicy, PolicyFacts } from '../policy.ts';

// chosen on recorded traces: bench/results/log.md
/** The share of the last pass in the short memory, and in the long one; and how much the short one counts. */
const SHORT = 0.5;
const LONG = 0.008;
const SHORT_WEIGHT = 0.15;
/** An expert whose layer comes after a whole round counts less by e to this power. */
const DISTANCE = 1;
/** Growing units are brought back to 1 before they come near the end of float64. */
const MAX_UNIT = 2 ** 500;
/** The search for a victim looks at all slots, and remembers one in so many of them for the searches that follow. */
const SLOTS_PER_CANDIDATE = 256;

export class FrequencyPolicy implements EvictionPolicy {
  readonly #slots: number;
  readonly #layers: number;
  /** By the number of layers until an expert's own: what that makes of its likelihood. */
  readonly #nearness: Float64Array;
  /** Place of a layer among those that route, by layer and by record. */
  readonly #rank: Int32Array;
  readonly #rankOf: Uint16Array;
  // per record: decayed uses, in units that grow with every pass instead
  readonly #short: Float64Array;
  readonly #long: Float64Array;
  #shortUnit = 1;
  #longUnit = 1;
  /** How much of the long memory is there: less than 1 in the first passes. */
  #filled = 0;
  // per slot
  readonly #recordIn: Int32Array;
  /** Counts up with every use and fill. */
  readonly #touched: Float64Array;
  /** Filled ahead: the lease up to which it is kept for its layer. */
  readonly #aheadUntil: Float64Array;
  readonly #asked: Float64Array;
  #empty: number;
  #now = 0;
  #leases = 0;
  #searches = 0;
  #layer = -1;
  // the best victims of the last look at all slots, the least valuable first
  readonly #candidates: Int32Array;
  readonly #values: Float64Array;
  #found = 0;
  #next = 0;
  #foundAt = 0;

  constructor({ slots, experts, firstRecord }: PolicyFacts) {
    const firsts = firstRecord.filter(first => first >= 0);
    const records = Math.max(...firsts) + experts;
    this.#slots = slots;
    this.#layers = firsts.length;
    this.#nearness = Float64Array.from({ length: this.#layers + 1 }, (_, away) =>
      Math.exp((-DISTANCE * away) / this.#layers),
    );
    this.#rank = new Int32Array(firstRecord.length);
    this.#rankOf = new Uint16Array(records);
    let rank = 0;
    for (const [layer, first] of firstRecord.entries()) {
      if (first < 0) continue;
      this.#rank[layer] = rank;
      this.#rankOf.fill(rank++, first, first + experts);
    }
    this.#short = new Float64Array(records);
    this.#long = new Float64Array(records);
    this.#recordIn = new Int32Array(slots).fill(-1);
    this.#touched = new Float64Array(slots);
    this.#aheadUntil = new Float64Array(slots);
    this.#asked = new Float64Array(slots);
    this.#empty = slots;
    const candidates = Math.ceil(slots / SLOTS_PER_CANDIDATE);
    this.#candidates = new Int32Array(candidates);
    this.#values = new Float64Array(candidates);
  }

  begin(layer: number, _wanted: number): void {
    this.#leases++;
    const rank = this.#rank[layer];
    if (rank <= this.#layer) this.#newPass();
    this.#layer = rank;
  }

  use(slot: number): void {
    this.#aheadUntil[slot] = 0;
    this.#touch(slot);
  }

  fill(slot: number, record: number, ahead: boolean): void {
    if (this.#recordIn[slot] < 0) this.#empty--;
    this.#recordIn[slot] = record;
    this.#aheadUntil[slot] = ahead ? this.#leases + this.#away(record) : 0;
    if (ahead) this.#touched[slot] = ++this.#now;
    else this.#touch(slot);
  }

  clear(slot: number): void {
    if (this.#recordIn[slot] >= 0) this.#empty++;
    this.#recordIn[slot] = -1;
  }

  victim(allowed: (slot: number) => boolean): number {
    this.#searches++;
    if (this.#empty > 0) {
      for (let slot = 0; slot < this.#slots; slot++) if (this.#recordIn[slot] < 0 && allowed(slot)) return slot;
    }
    for (;;) {
      while (this.#next < this.#found) {
        const slot = this.#candidates[this.#next++];
        if (this.#touched[slot] > this.#foundAt || this.#recordIn[slot] < 0) continue;
        this.#asked[slot] = this.#searches;
        if (allowed(slot)) return slot;
      }
      this.#find();
      if (this.#found === 0) return -1;
    }
  }

  #touch(slot: number): void {
    const record = this.#recordIn[slot];
    this.#touched[slot] = ++this.#now;
    this.#short[record] += this.#shortUnit;
    this.#long[record] += this.#longUnit;
  }

  /** Leases until the record's layer comes. */
  #away(record: number): number {
    const away = this.#rankOf[record] - this.#layer;
    return away > 0 ? away : away + this.#layers;
  }

  #newPass(): void {
    this.#shortUnit /= 1 - SHORT;
    this.#longUnit /= 1 - LONG;
    this.#filled += (1 - this.#filled) * LONG;
    if (this.#shortUnit > MAX_UNIT) {
      for (let i = 0; i < this.#short.length; i++) this.#short[i] /= this.#shortUnit;
      this.#shortUnit = 1;
    }
    if (this.#longUnit > MAX_UNIT) {
      for (let i = 0; i < this.#long.length; i++) this.#long[i] /= this.#longUnit;
      this.#longUnit = 1;
    }
  }

  /** Looks at all slots not asked in this search, and keeps the least valuable. */
  #find(): void {
    const shortScale = (SHORT * SHORT_WEIGHT) / this.#shortUnit;
    const longScale = (LONG * (1 - SHORT_WEIGHT)) / this.#longUnit / Math.max(this.#filled, LONG);
    const most = this.#candidates.length;
    this.#found = 0;
    this.#next = 0;
    this.#foundAt = this.#now;
    for (let slot = 0; slot < this.#slots; slot++) {
      const record = this.#recordIn[slot];
      if (record < 0 || this.#asked[slot] === this.#searches) continue;
      const isAhead = this.#aheadUntil[slot] >= this.#leases;
      const share = isAhead ? 1 : this.#short[record] * shortScale + this.#long[record] * longScale;
      const value = share * this.#nearness[this.#away(record)];
      if (this.#found < most) this.#insert(slot, value, this.#found++);
      else if (value < this.#values[most - 1]) this.#insert(slot, value, most - 1);
    }
  }

  /** Puts a slot where it belongs among the candidates before `end`. */
  #insert(slot: number, value: number, end: number): void {
    let at = end;
    for (; at > 0 && this.#values[at - 1] > value; at--) {
      this.#values[at] = this.#values[at - 1];
      this.#candidates[at] = this.#candidates[at - 1];
    }
    this.#values[at] = value;
    this.#candidates[at] = slot;
  }
}
