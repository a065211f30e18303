// q8 tiles times int8 activations. A 16-byte vector holds 4 rows x 4 columns of int8 weights (lane = row).
// The relaxed dot is exact only when its second operand is 0..127. Weights may be -128, activations never are: so the
// activations are split into max(a, 0) - max(-a, 0), both 0..127, and the weights need no unpacking at all.
// The baseline splits them into even and odd bytes, widened to 16 bits.

import { evenBytes, oddBytes, scaled, storeRows, tileScales } from './tiles-q4';

@inline
function firstPart(a: v128): v128 {
  return ASC_FEATURE_RELAXED_SIMD ? i8x16.max_s(a, i8x16.splat(0)) : evenBytes(a);
}

@inline
function secondPart(a: v128): v128 {
  return ASC_FEATURE_RELAXED_SIMD ? i8x16.max_s(i8x16.neg(a), i8x16.splat(0)) : oddBytes(a);
}

@inline
function dotFirst(part: v128, v: v128, acc: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return i32x4.relaxed_dot_i8x16_i7x16_add_s(v, part, acc);
  return i32x4.add(acc, i32x4.dot_i16x8_s(evenBytes(v), part));
}

@inline
function dotSecond(part: v128, v: v128, acc: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return i32x4.relaxed_dot_i8x16_i7x16_add_s(v, part, acc);
  return i32x4.add(acc, i32x4.dot_i16x8_s(oddBytes(v), part));
}

@inline
function join(first: v128, second: v128): v128 {
  return ASC_FEATURE_RELAXED_SIMD ? i32x4.sub(first, second) : i32x4.add(first, second);
}

/**
 * One activation row, 16 weight rows. Writes the first `count` results. Nothing is unpacked, so blocking over several
 * activation rows saves nothing (measured: 49 against 53 GMAC/s) and this kernel serves every n.
 */
export function q8Panel1<S>(
  w: usize, groups: i32, codes: usize, scales: usize, y: usize, count: i32,
): void {
  let s0 = f32x4.splat(0), s1 = s0, s2 = s0, s3 = s0;
  for (let g = 0; g < groups; g++) {
    let p0 = i32x4.splat(0), p1 = p0, p2 = p0, p3 = p0, q0 = p0, q1 = p0, q2 = p0, q3 = p0;
    const end = codes + 64;
    while (codes < end) {
      const a = v128.load32_splat(codes);
      const first = firstPart(a), second = secondPart(a);
      let v = v128.load(w);
      p0 = dotFirst(first, v, p0);
      q0 = dotSecond(second, v, q0);
      v = v128.load(w, 16);
      p1 = dotFirst(first, v, p1);
      q1 = dotSecond(second, v, q1);
      v = v128.load(w, 32);
      p2 = dotFirst(first, v, p2);
      q2 = dotSecond(second, v, q2);
      v = v128.load(w, 48);
      p3 = dotFirst(first, v, p3);
      q3 = dotSecond(second, v, q3);
      codes += 4;
      w += 64;
    }
    const x = v128.load32_splat(scales);
    s0 = f32x4.add(s0, scaled(join(p0, q0), tileScales<S>(w, 0), x));
    s1 = f32x4.add(s1, scaled(join(p1, q1), tileScales<S>(w, 1), x));
    s2 = f32x4.add(s2, scaled(join(p2, q2), tileScales<S>(w, 2), x));
    s3 = f32x4.add(s3, scaled(join(p3, q3), tileScales<S>(w, 3), x));
    w += 16 * sizeof<S>();
    scales += 4;
  }
  storeRows(y, count, s0, s1, s2, s3);
}
