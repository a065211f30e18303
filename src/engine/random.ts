/**
 * The sampler's random numbers: xoshiro128** (Blackman and Vigna), its 128 bits of state filled by two outputs of
 * SplitMix64 from a seed of 53 bits (low word first). Both are frozen: the same seed gives the same text for ever.
 */

/** Seeds are integers from 0 to this, so that JSON carries them exactly. */
export const MAX_SEED = Number.MAX_SAFE_INTEGER;

const MASK64 = 0xffffffffffffffffn;

/** The first `count` outputs of SplitMix64. */
export function splitMix64(seed: number, count: number): bigint[] {
  let state = BigInt(seed);
  return Array.from({ length: count }, () => {
    state = (state + 0x9e3779b97f4a7c15n) & MASK64;
    let z = state;
    z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK64;
    z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & MASK64;
    return z ^ (z >> 31n);
  });
}

export class Random {
  readonly #state: Uint32Array;

  constructor(seed: number) {
    this.#state = new Uint32Array(4);
    const [a, b] = splitMix64(seed, 2);
    this.setState([Number(a & 0xffffffffn), Number(a >> 32n), Number(b & 0xffffffffn), Number(b >> 32n)]);
  }

  /** Four 32-bit words, not all zero. */
  setState(words: readonly number[]): void {
    this.#state.set(words);
  }

  /** A 32-bit unsigned integer. */
  nextUint32(): number {
    const s = this.#state;
    const x = Math.imul(s[1], 5);
    const result = Math.imul((x << 7) | (x >>> 25), 9) >>> 0;
    const t = s[1] << 9;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = (s[3] << 11) | (s[3] >>> 21);
    return result;
  }

  /** A float64 in [0, 1) with 53 random bits: 27 from the first word drawn, 26 from the second. */
  nextFloat64(): number {
    const high = this.nextUint32() >>> 5;
    const low = this.nextUint32() >>> 6;
    return (high * 2 ** 26 + low) * 2 ** -53;
  }
}

/** A seed nobody chose, for requests without one. */
export function randomSeed(): number {
  const words = crypto.getRandomValues(new Uint32Array(2));
  return (words[0] >>> 11) * 2 ** 32 + words[1];
}
