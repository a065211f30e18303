// Activations to int8 per group of 64.

import { loadPart } from './lanes';

/** Adding it to |x| < 2^22 rounds to the nearest integer, ties to even; the sum's bits are ROUND_BITS + that integer. */
const ROUND: f32 = 12582912.0;
const ROUND_BITS: i32 = 0x4b400000;
const SMALLEST_NORMAL: f32 = reinterpret<f32>(0x00800000);

/** Floats 4k .. 4k+3 of a group that has `count` real ones; the rest are +0. */
@inline
function load4(x: usize, k: i32, count: i32): v128 {
  const left = count - 4 * k;
  const p = x + (<usize>k << 4);
  return left >= 4 ? v128.load(p) : left > 0 ? loadPart(p, left) : f32x4.splat(0);
}

@inline
function round4(v: v128, scale: v128): v128 {
  return i32x4.sub(f32x4.add(f32x4.div(v, scale), f32x4.splat(ROUND)), i32x4.splat(ROUND_BITS));
}

/** Writes 64 codes and returns their sum. */
function writeCodes(x: usize, count: i32, scale: f32, codes: usize): i32 {
  const s = f32x4.splat(scale);
  let sum = i32x4.splat(0);
  for (let k = 0; k < 16; k += 4) {
    const low = i16x8.narrow_i32x4_s(round4(load4(x, k, count), s), round4(load4(x, k + 1, count), s));
    const high = i16x8.narrow_i32x4_s(round4(load4(x, k + 2, count), s), round4(load4(x, k + 3, count), s));
    const q = i8x16.max_s(i8x16.narrow_i16x8_s(low, high), i8x16.splat(-127));
    v128.store(codes + (<usize>k << 2), q);
    sum = i32x4.add(sum, i32x4.extadd_pairwise_i16x8_s(i16x8.extadd_pairwise_i8x16_s(q)));
  }
  sum = i32x4.add(sum, i32x4.shuffle(sum, sum, 2, 3, 2, 3));
  return i32x4.extract_lane(sum, 0) + i32x4.extract_lane(sum, 1);
}

function quantiseGroup(x: usize, count: i32, codes: usize, scales: usize, sums: usize): void {
  const infinity = f32x4.splat(Infinity);
  let max = f32x4.splat(0);
  let finite = i32x4.splat(-1);
  for (let k = 0; k < 16; k++) {
    const magnitude = f32x4.abs(load4(x, k, count));
    finite = v128.and(finite, f32x4.lt(magnitude, infinity));
    max = f32x4.pmax(max, magnitude);
  }
  max = f32x4.pmax(max, i32x4.shuffle(max, max, 2, 3, 2, 3));
  max = f32x4.pmax(max, i32x4.shuffle(max, max, 1, 1, 1, 1));
  let scale = f32x4.extract_lane(max, 0) / 127;
  if (scale < SMALLEST_NORMAL) scale = 0;
  if (!i32x4.all_true(finite)) scale = NaN;
  store<f32>(scales, scale);
  if (scale > 0) {
    store<i32>(sums, writeCodes(x, count, scale, codes));
  } else {
    memory.fill(codes, 0, 64);
    store<i32>(sums, 0);
  }
}

export function quantise(
  x: usize, columns: i32, codes: usize, scales: usize, sums: usize, row0: i32, row1: i32,
): void {
  const groups = (columns + 63) >> 6;
  for (let row = row0; row < row1; row++) {
    for (let g = 0; g < groups; g++) {
      const at = <usize>row * groups + g;
      const from = x + ((<usize>row * columns + (g << 6)) << 2);
      quantiseGroup(from, columns - (g << 6), codes + (at << 6), scales + (at << 2), sums + (at << 2));
    }
  }
}
