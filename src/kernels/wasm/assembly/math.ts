// e^x, silu, sigmoid and softplus with the operations of reference/math.ts in the same order.

/** Adding it rounds |x| < 2^22 to the nearest integer, ties to even, and leaves that integer in the low bits. */
const ROUND: f32 = 12582912.0;

/** e^x of four floats (Cephes expf polynomial). */
@inline
export function exp4(x: v128): v128 {
  const rounded = f32x4.add(f32x4.mul(x, f32x4.splat(1.4426950408889634)), f32x4.splat(ROUND));
  const n = f32x4.sub(rounded, f32x4.splat(ROUND));
  let r = f32x4.sub(x, f32x4.mul(n, f32x4.splat(0.693359375)));
  r = f32x4.sub(r, f32x4.mul(n, f32x4.splat(-2.1219444e-4)));
  let y = f32x4.add(f32x4.mul(f32x4.splat(1.98756915e-4), r), f32x4.splat(1.3981999507e-3));
  y = f32x4.add(f32x4.mul(y, r), f32x4.splat(8.3334519073e-3));
  y = f32x4.add(f32x4.mul(y, r), f32x4.splat(4.1665795894e-2));
  y = f32x4.add(f32x4.mul(y, r), f32x4.splat(1.6666665459e-1));
  y = f32x4.add(f32x4.mul(y, r), f32x4.splat(5.0000001201e-1));
  y = f32x4.add(f32x4.add(f32x4.mul(y, f32x4.mul(r, r)), r), f32x4.splat(1));
  // The low 9 bits of ROUND are 0, so the shift leaves n + 127 in the exponent field.
  y = f32x4.mul(y, i32x4.shl(i32x4.add(rounded, i32x4.splat(127)), 23));
  y = v128.andnot(y, f32x4.lt(x, f32x4.splat(-87.3365447504019)));
  return v128.bitselect(f32x4.splat(Infinity), y, f32x4.gt(x, f32x4.splat(88.3762626647949)));
}

/** x / (1 + e^-x) of four floats. */
@inline
export function silu4(x: v128): v128 {
  return f32x4.div(x, f32x4.add(f32x4.splat(1), exp4(f32x4.neg(x))));
}

/** 1 / (1 + e^-x) of four floats. */
@inline
export function sigmoid4(x: v128): v128 {
  const one = f32x4.splat(1);
  return f32x4.div(one, f32x4.add(one, exp4(f32x4.neg(x))));
}

/** e^x of one float. */
export function exp32(x: f32): f32 {
  return f32x4.extract_lane(exp4(f32x4.splat(x)), 0);
}

/** 1 / (1 + e^-x) of one float. */
export function sigmoid32(x: f32): f32 {
  return <f32>1 / (<f32>1 + exp32(-x));
}

/** Natural logarithm of a finite x >= 1 (Cephes logf polynomial). */
function log32(x: f32): f32 {
  const bits = reinterpret<u32>(x);
  let exponent = <i32>(bits >>> 23) - 126;
  let m = reinterpret<f32>((bits & 0x007fffff) | 0x3f000000);
  if (m < <f32>0.7071067811865476) {
    exponent -= 1;
    m = m + m - 1;
  } else m = m - 1;
  const z = m * m;
  let y: f32 = 7.0376836292e-2;
  y = y * m + <f32>-1.151461031e-1;
  y = y * m + <f32>1.167699874e-1;
  y = y * m + <f32>-1.2420140846e-1;
  y = y * m + <f32>1.4249322787e-1;
  y = y * m + <f32>-1.6668057665e-1;
  y = y * m + <f32>2.0000714765e-1;
  y = y * m + <f32>-2.4999993993e-1;
  y = y * m + <f32>3.3333331174e-1;
  y = y * m * z;
  y = y + <f32>exponent * <f32>-2.1219444e-4;
  y = y - <f32>0.5 * z;
  return m + y + <f32>exponent * <f32>0.693359375;
}

/** ln(1 + e^x); x itself above 20. */
export function softplus32(x: f32): f32 {
  if (!(x <= 20)) return x;
  const e = exp32(x);
  const u = <f32>1 + e;
  return u == 1 ? e : log32(u) * (e / (u - 1));
}
