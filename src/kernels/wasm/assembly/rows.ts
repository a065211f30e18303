// Operations on whole rows: normalisation, rotation, copies.

import { load4, store4 } from './elementwise';
import { dotRow } from './float-rows';
import { sigmoid4 } from './math';
import { sumOf } from './softmax';

/** 1 / sqrt(mean(x^2) + eps). */
@inline
function inverseRoot(x: usize, columns: i32, eps: f32): v128 {
  const mean = dotRow<f32>(x, x, columns) / <f32>columns;
  return f32x4.splat(<f32>1 / sqrt<f32>(mean + eps));
}

export function rmsNorm(
  x: usize, xStride: usize, weight: usize, y: usize, yStride: usize, columns: i32, eps: f32, row0: i32, row1: i32,
): void {
  for (let row = row0; row < row1; row++) {
    const from = x + (<usize>row * xStride << 2), to = y + (<usize>row * yStride << 2);
    const factor = inverseRoot(from, columns, eps);
    for (let i = 0; i < columns; i += 4) {
      const at = <usize>i << 2, left = columns - i;
      store4(to + at, f32x4.mul(load4(weight + at, left), f32x4.mul(load4(from + at, left), factor)), left);
    }
  }
}

export function layerNorm(
  x: usize, stride: usize, weight: usize, bias: usize, columns: i32, eps: f32, row0: i32, row1: i32,
): void {
  for (let row = row0; row < row1; row++) {
    const p = x + (<usize>row * stride << 2);
    const mean = f32x4.splat(sumOf(p, columns) / <f32>columns);
    for (let i = 0; i < columns; i += 4) {
      const at = <usize>i << 2, left = columns - i;
      store4(p + at, f32x4.sub(load4(p + at, left), mean), left);
    }
    const factor = inverseRoot(p, columns, eps);
    for (let i = 0; i < columns; i += 4) {
      const at = <usize>i << 2, left = columns - i;
      const scaled = f32x4.mul(f32x4.mul(load4(p + at, left), factor), load4(weight + at, left));
      store4(p + at, f32x4.add(scaled, load4(bias + at, left)), left);
    }
  }
}

/** Turns pairs (i, i + half) of a head. */
@inline
function turnHalves(p: usize, half: i32, cos: usize): void {
  const halfBytes = <usize>half << 2;
  for (let i = 0; i < half; i += 4) {
    const at = <usize>i << 2, left = half - i;
    const low = load4(p + at, left), high = load4(p + halfBytes + at, left);
    const c = load4(cos + at, left), s = load4(cos + halfBytes + at, left);
    store4(p + at, f32x4.sub(f32x4.mul(low, c), f32x4.mul(high, s)), left);
    store4(p + halfBytes + at, f32x4.add(f32x4.mul(high, c), f32x4.mul(low, s)), left);
  }
}

/** Turns pairs (2i, 2i + 1) of a head. */
@inline
function turnNeighbours(p: usize, half: i32, cos: usize): void {
  const sin = cos + (<usize>half << 2);
  let i = 0;
  for (; i + 4 <= half; i += 4) {
    const at = <usize>i << 2;
    const first = v128.load(p), second = v128.load(p, 16);
    const even = i32x4.shuffle(first, second, 0, 2, 4, 6), odd = i32x4.shuffle(first, second, 1, 3, 5, 7);
    const c = v128.load(cos + at), s = v128.load(sin + at);
    const low = f32x4.sub(f32x4.mul(even, c), f32x4.mul(odd, s));
    const high = f32x4.add(f32x4.mul(odd, c), f32x4.mul(even, s));
    v128.store(p, i32x4.shuffle(low, high, 0, 4, 1, 5));
    v128.store(p, i32x4.shuffle(low, high, 2, 6, 3, 7), 16);
    p += 32;
  }
  for (; i < half; i++) {
    const at = <usize>i << 2;
    const even = load<f32>(p), odd = load<f32>(p, 4);
    const c = load<f32>(cos + at), s = load<f32>(sin + at);
    store<f32>(p, even * c - odd * s);
    store<f32>(p, odd * c + even * s, 4);
    p += 8;
  }
}

export function rope(
  x: usize, heads: i32, headDim: i32, first: i32, rotaryDim: i32, adjacent: i32, table: usize, positions: usize,
  row0: i32, row1: i32,
): void {
  const half = rotaryDim >> 1;
  for (let row = row0; row < row1; row++) {
    const cos = table + (<usize>load<i32>(positions + (<usize>row << 2)) * rotaryDim << 2);
    let p = x + ((<usize>row * heads * headDim + first) << 2);
    for (let head = 0; head < heads; head++) {
      if (adjacent) turnNeighbours(p, half, cos);
      else turnHalves(p, half, cos);
      p += <usize>headDim << 2;
    }
  }
}

export function copyColumns(
  x: usize, xStride: usize, y: usize, yStride: usize, width: usize, item0: i32, item1: i32,
): void {
  for (let item = item0; item < item1; item++) {
    memory.copy(y + (<usize>item * yStride << 2), x + (<usize>item * xStride << 2), width << 2);
  }
}

export function gateRows(x: usize, gates: usize, columns: i32, row0: i32, row1: i32): void {
  for (let row = row0; row < row1; row++) {
    const factor = sigmoid4(v128.load32_splat(gates + (<usize>row << 2)));
    const p = x + (<usize>row * columns << 2);
    for (let i = 0; i < columns; i += 4) {
      const at = <usize>i << 2, left = columns - i;
      store4(p + at, f32x4.mul(load4(p + at, left), factor), left);
    }
  }
}

export function addRows(x: usize, bias: usize, columns: i32, row0: i32, row1: i32): void {
  for (let row = row0; row < row1; row++) {
    const p = x + (<usize>row * columns << 2);
    for (let i = 0; i < columns; i += 4) {
      const at = <usize>i << 2, left = columns - i;
      store4(p + at, f32x4.add(load4(p + at, left), load4(bias + at, left)), left);
    }
  }
}
