/**
 * Transcendentals for tables, in float64 basic arithmetic only: + - * / and sqrt are exact everywhere, Math.sin and friends
 * are not. Good to about 1e-15 relative, far below the float32 rounding that follows.
 */

import { log64 } from './scalar.ts';

const LN2 = 0.6931471805599453;
const PI_2_HI = 1.5707963267341256;
const PI_2_MID = 6.077100506303966e-11;
const PI_2_LO = 2.0222662487959506e-21;

/** e^x for |x| < 700: x = n ln 2 + r, Taylor series of r. */
export function exp64(x: number): number {
  const n = Math.floor(x / LN2 + 0.5);
  const r = x - n * 0.6931471803691238 - n * 1.9082149292705877e-10;
  let sum = 1;
  for (let k = 18; k >= 1; k--) sum = 1 + (sum * r) / k;
  let scale = 1;
  for (let i = 0; i < Math.abs(n); i++) scale *= n > 0 ? 2 : 0.5;
  return sum * scale;
}

/** base^exponent for a positive base. */
export function pow64(base: number, exponent: number): number {
  return exponent === 0 ? 1 : exp64(exponent * log64(base));
}

/** [sin x, cos x] for |x| < 2^26. */
export function sinCos64(x: number): [number, number] {
  const n = Math.floor(x / 1.5707963267948966 + 0.5);
  const r = x - n * PI_2_HI - n * PI_2_MID - n * PI_2_LO;
  const r2 = r * r;
  let sin = 0;
  let cos = 0;
  for (let k = 11; k >= 1; k--) {
    sin = (1 - sin) * (r2 / (2 * k * (2 * k + 1)));
    cos = (1 - cos) * (r2 / ((2 * k - 1) * 2 * k));
  }
  sin = r * (1 - sin);
  cos = 1 - cos;
  switch (((n % 4) + 4) % 4) {
    case 0:
      return [sin, cos];
    case 1:
      return [cos, -sin];
    case 2:
      return [-sin, -cos];
    default:
      return [-cos, sin];
  }
}
