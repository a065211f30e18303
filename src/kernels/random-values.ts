/** Reproducible test values: ordinary numbers and those that break kernels. */

/**
 * `extreme` mixes all finite kinds; `special` adds infinities and NaN. `wide`: up to 100, where exponentials end.
 * `steps`: multiples of 1/4 between -2 and 2, so that equal values are common. `halves`: multiples of 1/2 up to 127, which
 * lie half way between two codes when 127 itself is among them.
 */
export type Kind =
  | 'ordinary'
  | 'wide'
  | 'zero'
  | 'equal'
  | 'denormal'
  | 'huge'
  | 'steps'
  | 'halves'
  | 'extreme'
  | 'special';

const FINITE: readonly Kind[] = ['ordinary', 'zero', 'denormal', 'huge', 'steps'];

export class RandomValues {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** 32 random bits (mulberry32). */
  bits(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let t = this.#state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (t ^ (t >>> 14)) >>> 0;
  }

  /** Integer in [from, to]. */
  integer(from: number, to: number): number {
    return from + (this.bits() % (to - from + 1));
  }

  /** One float32 of a kind. */
  float(kind: Kind): number {
    const sign = this.bits() & 1 ? -1 : 1;
    const unit = this.bits() * 2 ** -32;
    switch (kind) {
      case 'ordinary':
        return Math.fround(sign * unit * 3);
      case 'wide':
        return Math.fround(sign * unit * 100);
      case 'zero':
        return sign * 0;
      case 'equal':
        return 0.7;
      case 'denormal':
        return Math.fround(sign * unit * 2 ** -126);
      case 'huge':
        return Math.fround(sign * unit * 2 ** 127);
      case 'steps':
        return this.integer(-8, 8) / 4;
      case 'halves':
        return this.integer(0, 7) ? this.integer(-254, 254) / 2 : 127;
      case 'extreme':
        return this.float(FINITE[this.bits() % FINITE.length]);
      case 'special':
        if (this.bits() % 8) return this.float('extreme');
        return [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY][this.bits() % 3];
    }
  }

  floats(count: number, kind: Kind): Float32Array {
    const values = new Float32Array(count);
    for (let i = 0; i < count; i++) values[i] = this.float(kind);
    return values;
  }

  bytes(count: number): Uint8Array {
    const values = new Uint8Array(count);
    for (let i = 0; i < count; i++) values[i] = this.bits();
    return values;
  }

  /** `count` different integers of [0, below), in random order. */
  distinct(count: number, below: number): number[] {
    const all = Array.from({ length: below }, (_, i) => i);
    for (let i = 0; i < count; i++) {
      const other = this.integer(i, below - 1);
      [all[i], all[other]] = [all[other], all[i]];
    }
    return all.slice(0, count);
  }
}
