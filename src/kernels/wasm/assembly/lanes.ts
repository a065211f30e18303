// Groups of four float32 lanes: short loads and stores, the fixed tree, weights decoded to float32.

import { BF16, F16, F32 } from './layouts';

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

/** Four float16 numbers in the low half of each 32-bit lane. Exact, with denormals, infinities and NaN. */
@inline
function halfToFloat(h: v128): v128 {
  const magnitude = v128.and(h, i32x4.splat(0x7fff));
  // The bits moved up are the number times 2^-112; a power of two multiplies exactly, denormals included.
  const value = f32x4.mul(i32x4.shl(magnitude, 13), f32x4.splat(reinterpret<f32>((127 + 112) << 23)));
  const special = v128.and(i32x4.gt_s(magnitude, i32x4.splat(0x7bff)), i32x4.splat(0x7f800000));
  const sign = i32x4.shl(v128.and(h, i32x4.splat(0x8000)), 16);
  return v128.or(v128.or(value, special), sign);
}

@inline
function widen(layout: i32, halves: v128): v128 {
  return layout == BF16 ? i32x4.shl(halves, 16) : halfToFloat(halves);
}

/** Bytes of an element of a float layout. */
@inline
export function elementBytes(layout: i32): usize {
  return layout == F32 ? 4 : 2;
}

/** Elements 4k .. 4k+3 of the weights at p as float32; `layout` and `k` are constants. */
@inline
export function decode4(layout: i32, p: usize, k: usize): v128 {
  if (layout == F32) return v128.load(p + 16 * k);
  return widen(layout, v128.load16x4_u(p + 8 * k));
}

/** The first `count` (1 to 3) weights at p; the other lanes are +0. */
export function decodePart(layout: i32, p: usize, count: i32): v128 {
  if (layout == F32) return loadPart(p, count);
  let halves = v128.load16_lane(p, i16x8.splat(0), 0);
  if (count > 1) halves = v128.load16_lane(p, halves, 1, 2);
  if (count > 2) halves = v128.load16_lane(p, halves, 2, 4);
  halves = i32x4.extend_low_i16x8_u(halves);
  return layout == F16 ? halfToFloat(halves) : i32x4.shl(halves, 16);
}
