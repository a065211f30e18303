// The choice of keys by the lightning indexer.

import { dotRow, dots3 } from './float-rows';
import { BF16, Bfloat16 } from './layouts';
import { KV_BLOCK } from './softmax';

/** Adds `count` (1 to 3) of weights * max(dots * scale, 0) to a sum, one after the other; NaN counts as 0. */
@inline
function addScores(sum: f32, dots: v128, scale: v128, weights: usize, count: i32): f32 {
  const zero = f32x4.splat(0);
  const positive = f32x4.pmax(zero, f32x4.mul(dots, scale));
  sum += load<f32>(weights) * f32x4.extract_lane(positive, 0);
  if (count > 1) sum += load<f32>(weights, 4) * f32x4.extract_lane(positive, 1);
  if (count > 2) sum += load<f32>(weights, 8) * f32x4.extract_lane(positive, 2);
  return sum;
}

@inline
function scoreBlock<E>(
  q: usize, weights: usize, heads: i32, headDim: i32, scale: f32, block: usize, keys: i32, scores: usize,
): void {
  const queryBytes = <usize>headDim << 2;
  const factor = f32x4.splat(scale);
  for (let n = 0; n < keys; n++) {
    const key = block + <usize>n * headDim * sizeof<E>();
    let sum: f32 = 0;
    let head = 0;
    for (; head + 3 <= heads; head += 3) {
      const x = q + <usize>head * queryBytes;
      const dots = dots3<E>(key, headDim, x, x + queryBytes, x + 2 * queryBytes);
      sum = addScores(sum, dots, factor, weights + (<usize>head << 2), 3);
    }
    for (; head < heads; head++) {
      const dot = f32x4.splat(dotRow<E>(key, q + <usize>head * queryBytes, headDim));
      sum = addScores(sum, dot, factor, weights + (<usize>head << 2), 1);
    }
    store<f32>(scores + (<usize>n << 2), sum);
  }
}

export function indexScores(
  q: usize, weights: usize, heads: i32, headDim: i32, scale: f32, positions: usize, tables: usize, layout: i32,
  scores: usize, stride: usize, blocks: i32, item0: i32, item1: i32,
): void {
  for (let item = item0; item < item1; item++) {
    const row = item / blocks, number = item - row * blocks;
    const first = number * KV_BLOCK;
    const keys = min(KV_BLOCK, load<i32>(positions + (<usize>row << 2)) + 1 - first);
    if (keys <= 0) continue;
    const table = load<usize>(tables + (<usize>row << 2));
    const block = load<usize>(table + (<usize>number << 2));
    const query = q + (<usize>row * heads * headDim << 2), w = weights + (<usize>row * heads << 2);
    const to = scores + ((<usize>row * stride + first) << 2);
    if (layout == BF16) scoreBlock<Bfloat16>(query, w, heads, headDim, scale, block, keys, to);
    else scoreBlock<f32>(query, w, heads, headDim, scale, block, keys, to);
  }
}

/** A float as a word of the same order: NaN below everything, -0 as +0. */
@inline
function ordered(value: f32): u32 {
  if (value != value) return 0;
  const bits = reinterpret<u32>(value == 0 ? 0 : value);
  return bits & 0x80000000 ? ~bits : bits | 0x80000000;
}

/** Counts scores whose ordered words begin as `prefix` does, by their next byte. */
function countBytes(scores: usize, keys: i32, prefix: u32, known: u32, shift: u32, counts: usize): void {
  memory.fill(counts, 0, 1024);
  for (let key = 0; key < keys; key++) {
    const word = ordered(load<f32>(scores + (<usize>key << 2)));
    if ((word & known) != prefix) continue;
    const p = counts + (<usize>((word >> shift) & 255) << 2);
    store<i32>(p, load<i32>(p) + 1);
  }
}

/** Positions of the k largest of `keys` scores, k below keys, in ascending order. counts: 256 words. */
function selectLargest(scores: usize, keys: i32, k: i32, counts: usize, to: usize): void {
  let least: u32 = 0, known: u32 = 0;
  // How many of those that equal the least word, in all bytes known so far, are chosen.
  let equal = k;
  for (let shift: i32 = 24; shift >= 0; shift -= 8) {
    countBytes(scores, keys, least, known, shift, counts);
    let byte: u32 = 255;
    for (; load<i32>(counts + (<usize>byte << 2)) < equal; byte--) equal -= load<i32>(counts + (<usize>byte << 2));
    least |= byte << shift;
    known |= <u32>255 << shift;
  }
  for (let key = 0; key < keys; key++) {
    const word = ordered(load<f32>(scores + (<usize>key << 2)));
    if (word < least || (word == least && --equal < 0)) continue;
    store<i32>(to, key);
    to += 4;
  }
}

export function selectKeys(
  scores: usize, stride: usize, k: i32, positions: usize, selection: usize, selectionStride: usize, scratch: usize,
  row0: i32, row1: i32,
): void {
  for (let row = row0; row < row1; row++) {
    const keys = load<i32>(positions + (<usize>row << 2)) + 1;
    const to = selection + (<usize>row * selectionStride << 2);
    store<i32>(to, min(k, keys));
    if (keys > k) {
      selectLargest(scores + (<usize>row * stride << 2), keys, k, scratch, to + 4);
    } else {
      for (let key = 0; key < keys; key++) store<i32>(to + 4 + (<usize>key << 2), key);
    }
  }
}
