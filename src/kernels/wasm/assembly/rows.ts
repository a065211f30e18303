// Operations on whole rows: normalisation, rotation, softmax, selection.

import { exponentials, maxOf } from './attention';
import { load4, store4 } from './elementwise';
import { dotRow } from './float-rows';
import { tree16 } from './lanes';

export function rmsNorm(
  x: usize, weight: usize, y: usize, columns: i32, eps: f32, row0: i32, row1: i32,
): void {
  for (let row = row0; row < row1; row++) {
    const offset = <usize>row * columns << 2;
    const from = x + offset;
    const mean = dotRow<f32>(from, from, columns) / <f32>columns;
    const factor = f32x4.splat(<f32>1 / sqrt<f32>(mean + eps));
    for (let i = 0; i < columns; i += 4) {
      const at = <usize>i << 2, left = columns - i;
      store4(y + offset + at, f32x4.mul(load4(weight + at, left), f32x4.mul(load4(from + at, left), factor)), left);
    }
  }
}

export function rope(
  x: usize, heads: i32, headDim: i32, rotaryDim: i32, table: usize, positions: usize, row0: i32, row1: i32,
): void {
  const half = rotaryDim >> 1;
  const halfBytes = <usize>half << 2;
  for (let row = row0; row < row1; row++) {
    const cos = table + (<usize>load<i32>(positions + (<usize>row << 2)) * rotaryDim << 2);
    let p = x + (<usize>row * heads * headDim << 2);
    for (let head = 0; head < heads; head++) {
      for (let i = 0; i < half; i += 4) {
        const at = <usize>i << 2, left = half - i;
        const low = load4(p + at, left), high = load4(p + halfBytes + at, left);
        const c = load4(cos + at, left), s = load4(cos + halfBytes + at, left);
        store4(p + at, f32x4.sub(f32x4.mul(low, c), f32x4.mul(high, s)), left);
        store4(p + halfBytes + at, f32x4.add(f32x4.mul(high, c), f32x4.mul(low, s)), left);
      }
      p += <usize>headDim << 2;
    }
  }
}

function divideRow(y: usize, columns: i32, divisor: f32): void {
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

function hasNaN(x: usize, count: i32): bool {
  for (let i = 0; i < count; i++) {
    const value = load<f32>(x + (<usize>i << 2));
    if (value != value) return true;
  }
  return false;
}

function isTaken(ids: usize, slots: i32, id: i32): bool {
  for (let s = 0; s < slots; s++) if (load<i32>(ids + (<usize>s << 2)) == id) return true;
  return false;
}

/** The first index, not yet taken, whose value no later one exceeds. Slow; says what a row with NaN gives. */
function nextOfAny(x: usize, columns: i32, ids: usize, slot: i32): i32 {
  let best = -1;
  let bestValue: f32 = 0;
  for (let i = 0; i < columns; i++) {
    const value = load<f32>(x + (<usize>i << 2));
    if ((best < 0 || value > bestValue) && !isTaken(ids, slot, i)) {
      best = i;
      bestValue = value;
    }
  }
  return best;
}

/** The first of the largest values that come after (last, lastId) in descending order, ties by ascending index. */
function nextInOrder(x: usize, columns: i32, last: f32, lastId: i32): i32 {
  let best = -1;
  let bestValue: f32 = 0;
  for (let i = 0; i < columns; i++) {
    const value = load<f32>(x + (<usize>i << 2));
    const left = value < last || (value == last && i > lastId);
    if (left && (best < 0 || value > bestValue)) {
      best = i;
      bestValue = value;
    }
  }
  return best;
}

export function topK(
  x: usize, columns: i32, k: i32, ids: usize, weights: usize, normalise: i32, row0: i32, row1: i32,
): void {
  for (let row = row0; row < row1; row++) {
    const from = x + (<usize>row * columns << 2);
    const toIds = ids + (<usize>row * k << 2), toWeights = weights + (<usize>row * k << 2);
    const ordered = !hasNaN(from, columns);
    let last: f32 = Infinity;
    let lastId = -1;
    for (let slot = 0; slot < k; slot++) {
      lastId = ordered ? nextInOrder(from, columns, last, lastId) : nextOfAny(from, columns, toIds, slot);
      last = load<f32>(from + (<usize>lastId << 2));
      store<i32>(toIds + (<usize>slot << 2), lastId);
      store<f32>(toWeights + (<usize>slot << 2), last);
    }
    if (normalise) divideRow(toWeights, k, sumOf(toWeights, k));
  }
}

/** Sum of `count` floats in the 16-lane order. */
function sumOf(x: usize, count: i32): f32 {
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
