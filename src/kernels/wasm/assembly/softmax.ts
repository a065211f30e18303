// Rows of numbers as a whole: their largest, their exponentials, their sum in 16 lanes.

import { load4, store4 } from './elementwise';
import { loadPart, storePart, tree16 } from './lanes';
import { exp4 } from './math';

/** Tokens per block of keys and values, as kernels.ts has it. */
export const KV_BLOCK: i32 = 64;

/** max(a, b) that keeps a where b is NaN. */
@inline
function largest(v: v128): f32 {
  v = f32x4.pmax(v, i32x4.shuffle(v, v, 2, 3, 2, 3));
  v = f32x4.pmax(v, i32x4.shuffle(v, v, 1, 1, 1, 1));
  return f32x4.extract_lane(v, 0);
}

/** Largest of `count` floats, NaN left out; -inf when there is none. */
export function maxOf(x: usize, count: i32): f32 {
  let max = f32x4.splat(-Infinity);
  let i = 0;
  for (; i + 4 <= count; i += 4) max = f32x4.pmax(max, v128.load(x + (<usize>i << 2)));
  let result = largest(max);
  for (; i < count; i++) {
    const value = load<f32>(x + (<usize>i << 2));
    if (value > result) result = value;
  }
  return result;
}

/** y[i] = e^(x[i] - max); returns the sum in the 16-lane order. y may be x. */
export function exponentials(x: usize, y: usize, count: i32, max: f32): f32 {
  const m = f32x4.splat(max);
  let a = f32x4.splat(0), b = a, c = a, d = a;
  let i = 0;
  for (; i + 16 <= count; i += 16) {
    let e = exp4(f32x4.sub(v128.load(x), m));
    v128.store(y, e);
    a = f32x4.add(a, e);
    e = exp4(f32x4.sub(v128.load(x, 16), m));
    v128.store(y, e, 16);
    b = f32x4.add(b, e);
    e = exp4(f32x4.sub(v128.load(x, 32), m));
    v128.store(y, e, 32);
    c = f32x4.add(c, e);
    e = exp4(f32x4.sub(v128.load(x, 48), m));
    v128.store(y, e, 48);
    d = f32x4.add(d, e);
    x += 64;
    y += 64;
  }
  if (i < count) {
    a = f32x4.add(a, exponentialsTail(x, y, count - i, m));
    b = f32x4.add(b, exponentialsTail(x + 16, y + 16, count - i - 4, m));
    c = f32x4.add(c, exponentialsTail(x + 32, y + 32, count - i - 8, m));
    d = f32x4.add(d, exponentialsTail(x + 48, y + 48, count - i - 12, m));
  }
  return tree16(a, b, c, d);
}

function exponentialsTail(x: usize, y: usize, count: i32, max: v128): v128 {
  if (count <= 0) return f32x4.splat(0);
  const whole = count >= 4;
  let e = exp4(f32x4.sub(whole ? v128.load(x) : loadPart(x, count), max));
  if (whole) {
    v128.store(y, e);
    return e;
  }
  storePart(y, e, count);
  return loadPart(y, count);
}

/** Sum of `count` floats in the 16-lane order. */
export function sumOf(x: usize, count: i32): f32 {
  let a = f32x4.splat(0), b = a, c = a, d = a;
  for (let i = 0; i < count; i += 16) {
    const p = x + (<usize>i << 2), left = count - i;
    a = f32x4.add(a, load4(p, left));
    if (left > 4) b = f32x4.add(b, load4(p + 16, left - 4));
    if (left > 8) c = f32x4.add(c, load4(p + 32, left - 8));
    if (left > 12) d = f32x4.add(d, load4(p + 48, left - 12));
  }
  return tree16(a, b, c, d);
}

/** Positions as lanes of four quads. */
@inline
function lanesFrom(first: i32): v128 {
  return i32x4.add(i32x4(0, 1, 2, 3), i32x4.splat(first));
}

/** What e adds to the lanes named `lanes`: itself where its lane is, else +0. */
@inline
function inLane(e: v128, lane: v128, lanes: v128): v128 {
  return v128.and(e, i32x4.eq(lane, lanes));
}

/**
 * Sum of `count` numbers that are not below +0, each in the lane of its position: the i32 at `chosen`, or first, first + 1, ...
 * when that is 0.
 */
export function sumByPosition(x: usize, count: i32, first: i32, chosen: usize): f32 {
  const quad0 = lanesFrom(0), quad1 = lanesFrom(4), quad2 = lanesFrom(8), quad3 = lanesFrom(12);
  let a = f32x4.splat(0), b = a, c = a, d = a;
  for (let n = 0; n < count; n++) {
    const e = v128.load32_splat(x + (<usize>n << 2));
    const lane = i32x4.splat((chosen ? load<i32>(chosen + (<usize>n << 2)) : first + n) & 15);
    a = f32x4.add(a, inLane(e, lane, quad0));
    b = f32x4.add(b, inLane(e, lane, quad1));
    c = f32x4.add(c, inLane(e, lane, quad2));
    d = f32x4.add(d, inLane(e, lane, quad3));
  }
  return tree16(a, b, c, d);
}

/** y /= divisor, for `columns` floats. */
export function divideRow(y: usize, columns: i32, divisor: f32): void {
  const d = f32x4.splat(divisor);
  for (let i = 0; i < columns; i += 4) {
    const p = y + (<usize>i << 2), left = columns - i;
    store4(p, f32x4.div(load4(p, left), d), left);
  }
}

export function softmax(x: usize, y: usize, columns: i32, row0: i32, row1: i32): void {
  for (let row = row0; row < row1; row++) {
    const offset = <usize>row * columns << 2;
    const sum = exponentials(x + offset, y + offset, columns, maxOf(x + offset, columns));
    divideRow(y + offset, columns, sum);
  }
}
