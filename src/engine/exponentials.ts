/**
 * exp32 for a whole vocabulary. Bit for bit what exp32 in kernels/reference/math.ts gives, nearly three times as fast: each
 * loop is one or two steps of its sequence over a block of numbers, so that no rounding to float32 waits for the one before.
 */

import { EXP_MIN, LN2_HI, LN2_LO, LOG2E, P0, P1, P2, P3, P4, P5 } from '../kernels/reference/math.ts';

const f = Math.fround;

/** Adding and subtracting 1.5 * 2^52 rounds to the nearest integer, ties to even. */
const ROUND = 6755399441055744;

const BLOCK = 256;
const x = new Float32Array(BLOCK);
const xBits = new Int32Array(x.buffer);
/** x = r - k ln 2 */
const r = new Float32Array(BLOCK);
const k = new Int32Array(BLOCK);
const y = new Float32Array(BLOCK);

/** 2^-k; the last entry is what numbers below EXP_MIN are given. */
const POWERS = Float32Array.from({ length: 128 }, (_, at) => (at < 127 ? 2 ** -at : 0));
const MAGNITUDE = 0x7fffffff;
const SIGN = -0x80000000;
const LARGEST_MAGNITUDE = bitsOf(-EXP_MIN);
/** 127 ln 2 */
const TOO_LARGE = bitsOf(88.02969);

function bitsOf(value: number): number {
  return new Int32Array(Float32Array.of(value).buffer)[0];
}

/**
 * weights[i] = e^((logits[i] - largest) / temperature) for i < count, in float32, and their sum in float64, first to last.
 * No logit may be above `largest`.
 */
export function weigh(
  logits: Float32Array,
  count: number,
  largest: number,
  temperature: number,
  weights: Float32Array,
): number {
  let sum = 0;
  for (let first = 0; first < count; first += BLOCK) {
    const n = Math.min(BLOCK, count - first);
    for (let i = 0; i < n; i++) x[i] = (logits[first + i] - largest) / temperature;
    clampBlock(n);
    exponentialsOfBlock(n);
    for (let i = 0; i < n; i++) {
      const weight = y[i];
      weights[first + i] = weight;
      sum += weight;
    }
  }
  return sum;
}

/** Moves x below EXP_MIN to where the power is 0; without a branch, because which x these are is anybody's guess. */
function clampBlock(n: number): void {
  for (let i = 0; i < n; i++) {
    const magnitude = xBits[i] & MAGNITUDE;
    const isBelow = (LARGEST_MAGNITUDE - magnitude) >> 31;
    xBits[i] = SIGN | (magnitude + ((TOO_LARGE - magnitude) & isBelow));
  }
}

/**
 * y = e^x. A store into a Float32Array rounds as f does. Some roundings of exp32 are left out because they change nothing:
 * k times LN2_HI has few bits, and x less this product is exact.
 */
function exponentialsOfBlock(n: number): void {
  for (let i = 0; i < n; i++) {
    const whole = f(x[i] * LOG2E) + ROUND - ROUND;
    k[i] = -whole;
    r[i] = x[i] - whole * LN2_HI - f(whole * LN2_LO);
  }
  for (let i = 0; i < n; i++) y[i] = f(f(P0 * r[i]) + P1) * r[i];
  for (let i = 0; i < n; i++) y[i] = f(y[i] + P2) * r[i];
  for (let i = 0; i < n; i++) y[i] = f(y[i] + P3) * r[i];
  for (let i = 0; i < n; i++) y[i] = f(y[i] + P4) * r[i];
  for (let i = 0; i < n; i++) y[i] = f(y[i] + P5) * f(r[i] * r[i]);
  for (let i = 0; i < n; i++) y[i] = f(f(y[i] + r[i]) + 1) * POWERS[k[i]];
}
