/**
 * Frequency and recency in one number: the slot goes whose expert will be asked for last, as far as the past tells. Each expert has
 * the share of passes that asked for it, remembered for a short and for a long time; 1 over their mean is how many passes it will
 * take until it is asked for again, and its layer comes round once in a pass, sooner or later than another's.
 */

import type { EvictionPolicy, PolicyFacts } from '../policy.ts';

/** What a pass adds to the short and to the long memory, and how much the short one counts. Chosen on traces; see bench/results. */
const SHORT = 0.5;
const LONG = 0.01;
const SHORT_WEIGHT = 0.2;
/** Growing units are brought back to 1 before they come near the end of float64. */
const MAX_UNIT = 2 ** 500;
/** The search for a victim looks at all slots, and remembers one in so many of them for the searches that follow. */
const SLOTS_PER_CANDIDATE = 256;

export class FrequencyPolicy implements EvictionPolicy {
  readonly #slots: number;
  readonly #layers: number;
  /** Place of a layer among those that route, by layer and by record. */
  readonly #rank: Int32Array;
  readonly #rankOf: Uint16Array;
  // per record: decayed uses, in units that grow with every pass instead
  readonly #short: Float64Array;
  readonly #long: Float64Array;
  #shortUnit = 1;
  #longUnit = 1;
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
  // the best victims of the last look at all slots, worst expert first
  readonly #candidates: Int32Array;
  readonly #scores: Float64Array;
  #found = 0;
  #next = 0;
  #foundAt = 0;

  constructor({ slots, experts, firstRecord }: PolicyFacts) {
    const firsts = firstRecord.filter(first => first >= 0);
    const records = Math.max(...firsts) + experts;
    this.#slots = slots;
    this.#layers = firsts.length;
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
    this.#scores = new Float64Array(candidates);
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
    if (this.#shortUnit > MAX_UNIT) {
      for (let i = 0; i < this.#short.length; i++) this.#short[i] /= this.#shortUnit;
      this.#shortUnit = 1;
    }
    if (this.#longUnit > MAX_UNIT) {
      for (let i = 0; i < this.#long.length; i++) this.#long[i] /= this.#longUnit;
      this.#longUnit = 1;
    }
  }

  /** Looks at all slots not asked in this search, and keeps those whose experts will be wanted last. */
  #find(): void {
    const shortScale = (SHORT * SHORT_WEIGHT) / this.#shortUnit;
    const longScale = (LONG * (1 - SHORT_WEIGHT)) / this.#longUnit;
    const most = this.#candidates.length;
    this.#found = 0;
    this.#next = 0;
    this.#foundAt = this.#now;
    for (let slot = 0; slot < this.#slots; slot++) {
      const record = this.#recordIn[slot];
      if (record < 0 || this.#asked[slot] === this.#searches) continue;
      let score = this.#away(record);
      if (this.#aheadUntil[slot] < this.#leases) {
        const share = this.#short[record] * shortScale + this.#long[record] * longScale;
        score += this.#layers / (share + 1e-9);
      }
      if (this.#found < most) this.#insert(slot, score, this.#found++);
      else if (score > this.#scores[most - 1]) this.#insert(slot, score, most - 1);
    }
  }

  /** Puts a slot where it belongs among the candidates before `end`. */
  #insert(slot: number, score: number, end: number): void {
    let at = end;
    for (; at > 0 && this.#scores[at - 1] < score; at--) {
      this.#scores[at] = this.#scores[at - 1];
      this.#candidates[at] = this.#candidates[at - 1];
    }
    this.#scores[at] = score;
    this.#candidates[at] = slot;
  }
}
