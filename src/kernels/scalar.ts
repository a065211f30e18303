/** Scalar functions outside the kernels' float32 contract: float64 in basic arithmetic, so the same on every machine. */

const LN2_HI = 0.6931471803691238; // the upper 21 bits of ln 2: times an exponent it stays exact
const LN2_LO = 1.9082149292705877e-10;
const SMALLEST_NORMAL = 2.2250738585072014e-308;

const double = new Float64Array(1);
const words = new Uint32Array(double.buffer); // little endian, as WebAssembly memory is

/**
 * Natural logarithm in float64, within 2 ulp. x = 2^k (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)); with s = f / (2 + f),
 * log(1 + f) = 2 atanh(s) = f - s (f - R), where R = 2 s^2/3 + 2 s^4/5 + ... + 2 s^20/21 (the next term is below 2^-57).
 * log64(0) = -inf, log64(+inf) = +inf, NaN for NaN and negative numbers.
 */
export function log64(x: number): number {
  if (!(x > 0)) return x === 0 ? Number.NEGATIVE_INFINITY : Number.NaN;
  if (x === Number.POSITIVE_INFINITY) return x;
  let k = 0;
  if (x < SMALLEST_NORMAL) {
    x *= 2 ** 54;
    k = -54;
  }
  double[0] = x;
  k += (words[1] >>> 20) - 1023;
  words[1] = (words[1] & 0x000fffff) | 0x3ff00000;
  let m = double[0];
  if (m > Math.SQRT2) {
    m *= 0.5;
    k++;
  }
  const f = m - 1;
  const s = f / (2 + f);
  const z = s * s;
  let series = 2 / 21;
  for (let odd = 19; odd >= 3; odd -= 2) series = series * z + 2 / odd;
  const r = series * z;
  return k * LN2_HI + (f - (s * (f - r) - k * LN2_LO));
}
