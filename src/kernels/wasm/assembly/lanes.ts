// Groups of four float32 lanes: short loads and stores, the fixed tree, weights decoded to float32.

/** The first `count` (1 to 3) floats at p; the other lanes are +0. */
export function loadPart(p: usize, count: i32): v128 {
  if (count == 1) return v128.load32_zero(p);
  const pair = v128.load64_zero(p);
  return count == 2 ? pair : v128.load32_lane(p, pair, 2, 8);
}

export function storePart(p: usize, v: v128, count: i32): void {
  if (count == 1) {
    v128.store32_lane(p, v, 0);
    return;
  }
  v128.store64_lane(p, v, 0);
  if (count == 3) v128.store32_lane(p, v, 2, 8);
}

/** Sum of 16 lanes a, b, c, d (lanes 0-3, 4-7, 8-11, 12-15): halves are added, then halves of that. */
@inline
export function tree16(a: v128, b: v128, c: v128, d: v128): f32 {
  const four = f32x4.add(f32x4.add(a, c), f32x4.add(b, d));
  const two = f32x4.add(four, i32x4.shuffle(four, four, 2, 3, 2, 3));
  return f32x4.extract_lane(two, 0) + f32x4.extract_lane(two, 1);
}

/** Four float16 numbers, sign-extended to 32 bits. Exact, with denormals, infinities and NaN. */
@inline
function halfToFloat(h: v128): v128 {
  // Sign, exponent and fraction in float32 places are the number times 2^-112; a power of two multiplies exactly.
  const bits = v128.and(i32x4.shl(h, 13), i32x4.splat(0x8fffe000));
  const value = f32x4.mul(bits, f32x4.splat(reinterpret<f32>((127 + 112) << 23)));
  // The largest exponent, which would be 2^16, means infinity or NaN.
  const special = v128.and(f32x4.ge(f32x4.abs(value), f32x4.splat(65536)), i32x4.splat(0x7f800000));
  return v128.or(value, special);
}

/** Float32 of four 16-bit elements in 32-bit lanes. */
@inline
function widen<E>(halves: v128): v128 {
  return isSigned<E>() ? halfToFloat(halves) : i32x4.shl(halves, 16);
}

/** Elements 4k .. 4k+3 of the weights at p as float32. E: f32, Bfloat16 or Float16. */
@inline
export function decode4<E>(p: usize, k: usize): v128 {
  if (isFloat<E>()) return v128.load(p + 16 * k);
  return widen<E>(isSigned<E>() ? v128.load16x4_s(p + 8 * k) : v128.load16x4_u(p + 8 * k));
}

/** The first `count` (1 to 3) weights at p; the other lanes are +0. */
export function decodePart<E>(p: usize, count: i32): v128 {
  if (isFloat<E>()) return loadPart(p, count);
  let halves = v128.load16_lane(p, i16x8.splat(0), 0);
  if (count > 1) halves = v128.load16_lane(p, halves, 1, 2);
  if (count > 2) halves = v128.load16_lane(p, halves, 2, 4);
  return widen<E>(isSigned<E>() ? i32x4.extend_low_i16x8_s(halves) : i32x4.extend_low_i16x8_u(halves));
}
