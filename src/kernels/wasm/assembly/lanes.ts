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

/** The trees of four sums at once, as the lanes of the result. Each argument is (a + c) + (b + d) of tree16. */
@inline
export function trees(a: v128, b: v128, c: v128, d: v128): v128 {
  const ab = f32x4.add(i32x4.shuffle(a, b, 0, 1, 4, 5), i32x4.shuffle(a, b, 2, 3, 6, 7));
  const cd = f32x4.add(i32x4.shuffle(c, d, 0, 1, 4, 5), i32x4.shuffle(c, d, 2, 3, 6, 7));
  return f32x4.add(i32x4.shuffle(ab, cd, 0, 2, 4, 6), i32x4.shuffle(ab, cd, 1, 3, 5, 7));
}

/** Four float16 numbers, sign-extended to 32 bits. Exact, with denormals, infinities and NaN. */
@inline
export function halfToFloat(h: v128): v128 {
  // Sign, exponent and fraction in float32 places are the number times 2^-112; a power of two multiplies exactly.
  const bits = v128.and(i32x4.shl(h, 13), i32x4.splat(0x8fffe000));
  const value = f32x4.mul(bits, f32x4.splat(reinterpret<f32>((127 + 112) << 23)));
  // The largest exponent, which would be 2^16, means infinity or NaN.
  const special = v128.and(f32x4.ge(f32x4.abs(value), f32x4.splat(65536)), i32x4.splat(0x7f800000));
  return v128.or(value, special);
}

/** Vector k, a constant below 8, of those at p. An offset in the instruction is up to a fifth faster than one that is added. */
@inline
function loadVector(p: usize, k: usize): v128 {
  if (k == 0) return v128.load(p);
  if (k == 1) return v128.load(p, 16);
  if (k == 2) return v128.load(p, 32);
  if (k == 3) return v128.load(p, 48);
  if (k == 4) return v128.load(p, 64);
  if (k == 5) return v128.load(p, 80);
  if (k == 6) return v128.load(p, 96);
  return v128.load(p, 112);
}

/** Float32 of the lower or the upper four of eight bfloat16 elements: one instruction, where extending and shifting are two. */
@inline
export function bfloatToFloat(halves: v128, upper: bool): v128 {
  const zeros = i16x8.splat(0);
  return upper
    ? i16x8.shuffle(zeros, halves, 4, 12, 5, 13, 6, 14, 7, 15)
    : i16x8.shuffle(zeros, halves, 0, 8, 1, 9, 2, 10, 3, 11);
}

/** Elements 4k .. 4k+3 of the 16 (k < 4) or 32 weights at p as float32. E: f32, Bfloat16 or Float16. k: a constant. */
@inline
export function decodeQuad<E>(p: usize, k: usize): v128 {
  if (isFloat<E>()) return loadVector(p, k);
  if (isSigned<E>()) return halfToFloat(v128.load16x4_s(p + 8 * k));
  return bfloatToFloat(loadVector(p, k >> 1), (k & 1) == 1);
}

/** The four weights at p as float32. */
@inline
export function decode4<E>(p: usize): v128 {
  if (isFloat<E>()) return v128.load(p);
  return isSigned<E>() ? halfToFloat(v128.load16x4_s(p)) : bfloatToFloat(v128.load64_zero(p), false);
}

/** The first `count` (1 to 3) weights at p; the other lanes are +0. */
export function decodePart<E>(p: usize, count: i32): v128 {
  if (isFloat<E>()) return loadPart(p, count);
  let halves = v128.load16_lane(p, i16x8.splat(0), 0);
  if (count > 1) halves = v128.load16_lane(p, halves, 1, 2);
  if (count > 2) halves = v128.load16_lane(p, halves, 2, 4);
  return isSigned<E>() ? halfToFloat(i32x4.extend_low_i16x8_s(halves)) : bfloatToFloat(halves, false);
}
