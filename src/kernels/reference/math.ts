/** Scalar building blocks with a stated sequence of float32 operations; every implementation repeats them exactly. */

const f = Math.fround;

// Constants of the exponential, for every form of it in TypeScript.
export const LOG2E = f(1.4426950408889634);
export const LN2_HI = f(0.693359375);
export const LN2_LO = f(-2.1219444e-4);
export const P0 = f(1.98756915e-4);
export const P1 = f(1.3981999507e-3);
export const P2 = f(8.3334519073e-3);
export const P3 = f(4.1665795894e-2);
export const P4 = f(1.6666665459e-1);
export const P5 = f(5.0000001201e-1);
/** Adding and subtracting 1.5 * 2^23 rounds |x| < 2^22 to the nearest integer, ties to even. */
const ROUND = f(12582912);
export const EXP_MAX = f(88.3762626647949);
export const EXP_MIN = f(-87.3365447504019);

const bits = new Int32Array(1);
const asFloat = new Float32Array(bits.buffer);
const floatBits = new Float32Array(1);
const floatAsBits = new Uint32Array(floatBits.buffer);

/** Nearest integer, ties to even, for |x| < 2^22. */
export function roundEven(x: number): number {
  return f(f(x + ROUND) - ROUND);
}

/** e^x in float32 (Cephes expf polynomial); +inf above EXP_MAX, 0 below EXP_MIN, NaN stays NaN. */
export function exp32(x: number): number {
  if (x > EXP_MAX) return Number.POSITIVE_INFINITY;
  if (x < EXP_MIN) return 0;
  const n = roundEven(f(x * LOG2E));
  let r = f(x - f(n * LN2_HI));
  r = f(r - f(n * LN2_LO));
  let y = P0;
  y = f(f(y * r) + P1);
  y = f(f(y * r) + P2);
  y = f(f(y * r) + P3);
  y = f(f(y * r) + P4);
  y = f(f(y * r) + P5);
  y = f(f(f(y * f(r * r)) + r) + 1);
  bits[0] = ((n | 0) + 127) << 23;
  return f(y * asFloat[0]);
}

/** x / (1 + e^-x) in float32. */
export function silu32(x: number): number {
  return f(x / f(1 + exp32(-x)));
}

/** 1 / (1 + e^-x) in float32. */
export function sigmoid32(x: number): number {
  return f(1 / f(1 + exp32(-x)));
}

// Cephes logf, for arguments of 1 and above.
const LOG_P: readonly number[] = [
  7.0376836292e-2, -1.151461031e-1, 1.167699874e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
  2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
].map(f);
const SQRT_HALF = f(0.7071067811865476);

/** Natural logarithm in float32 of a finite x >= 1 (Cephes logf polynomial). */
export function log32(x: number): number {
  floatBits[0] = x;
  let exponent = (floatAsBits[0] >>> 23) - 126;
  floatAsBits[0] = (floatAsBits[0] & 0x007fffff) | 0x3f000000;
  let m = floatBits[0];
  if (m < SQRT_HALF) {
    exponent -= 1;
    m = f(f(m + m) - 1);
  } else m = f(m - 1);
  const z = f(m * m);
  let y = LOG_P[0];
  for (let i = 1; i < LOG_P.length; i++) y = f(f(y * m) + LOG_P[i]);
  y = f(f(y * m) * z);
  y = f(y + f(exponent * LN2_LO));
  y = f(y - f(f(0.5) * z));
  return f(f(m + y) + f(exponent * LN2_HI));
}

/** ln(1 + e^x) in float32: x itself above 20, as in torch; small values keep their relative accuracy. */
export function softplus32(x: number): number {
  if (!(x <= 20)) return x;
  const e = exp32(x);
  const u = f(1 + e);
  return u === 1 ? e : f(log32(u) * f(e / f(u - 1)));
}

/** The fixed tree over 16 lanes: halves are added, lane i with lane i+8, then +4, +2, +1. `lanes` is overwritten. */
export function tree16(lanes: Float32Array): number {
  for (let half = 8; half >= 1; half >>= 1) {
    for (let i = 0; i < half; i++) lanes[i] = lanes[i] + lanes[i + half];
  }
  return lanes[0];
}

/** float16 bits to number, denormals, infinities and NaN included. */
export function halfToFloat(h: number): number {
  const sign = h & 0x8000 ? -1 : 1;
  const exponent = (h >> 10) & 31;
  const fraction = h & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

/** bfloat16 bits to number. */
export function bfloatToFloat(b: number): number {
  bits[0] = b << 16;
  return asFloat[0];
}
