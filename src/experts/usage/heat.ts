/**
 * How much each expert of a model is used: how often in its life, how much lately, and when last. One history is kept of the past
 * (read from a file) and one of what has happened since; `add` joins the second to the first, so that two processes that use one
 * model can both add theirs to a file.
 */

import type { LeaseObserver } from '../store.ts';

/**
 * After so many tokens a use counts half. Long against a conversation: what was measured on halves of texts is that pins chosen
 * from a shorter memory follow the last text and miss the next one.
 */
export const HALF_LIFE_TOKENS = 16_384;

/** Powers of two beyond this would come near the end of float64 (2^1023). */
const MAX_GROWTH = 512;

export interface UsageShape {
  /** Layers of the model, those that do not route included, prediction heads not. */
  readonly layers: number;
  /** Routed experts of a layer. */
  readonly experts: number;
  /** Experts that a token uses in a layer. */
  readonly topK: number;
}

/** Expert e of layer l has the index l * experts + e. */
export class Usage implements LeaseObserver {
  readonly shape: UsageShape;
  /** Rows that went through the model. */
  tokens = 0;
  /** Rows that chose the expert. */
  readonly counts: Float64Array;
  /** Value of `tokens` when it was chosen last; -1 = never. */
  readonly lastUse: Float64Array;
  /** Heat times `#unit`: so the heat of all decays without being touched. */
  readonly #heat: Float64Array;
  /** What a use counts now; doubles every half-life. */
  #unit = 1;
  #lastLayer = Number.POSITIVE_INFINITY;

  constructor(shape: UsageShape) {
    this.shape = shape;
    const size = shape.layers * shape.experts;
    this.counts = new Float64Array(size);
    this.lastUse = new Float64Array(size).fill(-1);
    this.#heat = new Float64Array(size);
  }

  get size(): number {
    return this.counts.length;
  }

  /** Uses, each halved every HALF_LIFE_TOKENS. */
  heat(index: number): number {
    return this.#heat[index] / this.#unit;
  }

  /** Tokens since the last use; Infinity = never used. */
  age(index: number): number {
    return this.lastUse[index] < 0 ? Number.POSITIVE_INFINITY : this.tokens - this.lastUse[index];
  }

  /** Sets what was read from a file. */
  set(index: number, count: number, heat: number, age: number): void {
    this.counts[index] = count;
    this.#heat[index] = heat * this.#unit;
    this.lastUse[index] = Number.isFinite(age) ? Math.max(0, this.tokens - age) : -1;
  }

  /** Layers come in ascending order, so a pass begins where they go back. */
  leaseBegins(layer: number, experts: Int32Array, uses: Int32Array, count: number): void {
    const { layers, experts: perLayer, topK } = this.shape;
    if (layer >= layers) return;
    if (layer <= this.#lastLayer) {
      let rows = 0;
      for (let i = 0; i < count; i++) rows += uses[i];
      this.#pass(rows / topK);
    }
    this.#lastLayer = layer;
    const first = layer * perLayer;
    for (let i = 0; i < count; i++) {
      const index = first + experts[i];
      this.counts[index] += uses[i];
      this.#heat[index] += uses[i] * this.#unit;
      this.lastUse[index] = this.tokens;
    }
  }

  /** `later` came after this one. */
  add(later: Usage): void {
    const fade = 2 ** (-later.tokens / HALF_LIFE_TOKENS);
    for (let i = 0; i < this.size; i++) {
      this.counts[i] += later.counts[i];
      this.#heat[i] = this.#heat[i] * fade + later.heat(i) * this.#unit;
      if (later.lastUse[i] >= 0) this.lastUse[i] = this.tokens + later.lastUse[i];
    }
    this.tokens += later.tokens;
  }

  /** As if newly made. */
  clear(): void {
    this.tokens = 0;
    this.counts.fill(0);
    this.lastUse.fill(-1);
    this.#heat.fill(0);
    this.#unit = 1;
    this.#lastLayer = Number.POSITIVE_INFINITY;
  }

  #pass(tokens: number): void {
    this.tokens += tokens;
    const growth = tokens / HALF_LIFE_TOKENS;
    if (Math.log2(this.#unit) + growth > MAX_GROWTH) {
      for (let i = 0; i < this.size; i++) this.#heat[i] /= this.#unit;
      this.#unit = 1;
    }
    this.#unit *= 2 ** growth;
  }
}
