// Dot products over 16 virtual lanes (lane = element mod 16) and row decoding, for float layouts and, decoded first, tiles and blocks.

import { decodeBlockRow } from './blocks';
import { decode4, decodePart, decodeQuad, loadPart, storePart, tree16, trees } from './lanes';
import { BF16, Bfloat16, F32, Float16, FP8, Q4, rowOf } from './layouts';
import { decodeTileRow } from './tile-rows';

/** Rows of w and of x that are worked on together: both stay in the second cache. */
const BLOCK_ROWS: i32 = 16;
const BLOCK_X: i32 = 12;

/** What the last `rest` (1 to 15) elements add to lanes 4k .. 4k+3. */
function tailTerm<E>(w: usize, x: usize, rest: i32, k: i32): v128 {
  const count = rest - 4 * k;
  if (count <= 0) return f32x4.splat(0);
  w += (<usize>k << 2) * sizeof<E>();
  x += <usize>k << 4;
  if (count < 4) return f32x4.mul(decodePart<E>(w, count), loadPart(x, count));
  return f32x4.mul(decode4<E>(w), v128.load(x));
}

/** Adds w . x to a lane quad. */
@inline
function addProduct(acc: v128, w: v128, x: usize, k: usize): v128 {
  return f32x4.add(acc, f32x4.mul(w, v128.load(x + 16 * k)));
}

/** Dot of `columns` weights at w with the floats at x. */
@inline
export function dotRow<E>(w: usize, x: usize, columns: i32): f32 {
  let a0 = f32x4.splat(0), a1 = a0, a2 = a0, a3 = a0;
  const end = x + (<usize>(columns & ~15) << 2);
  while (x < end) {
    a0 = addProduct(a0, decodeQuad<E>(w, 0), x, 0);
    a1 = addProduct(a1, decodeQuad<E>(w, 1), x, 1);
    a2 = addProduct(a2, decodeQuad<E>(w, 2), x, 2);
    a3 = addProduct(a3, decodeQuad<E>(w, 3), x, 3);
    w += 16 * sizeof<E>();
    x += 64;
  }
  const rest = columns & 15;
  if (rest) {
    a0 = f32x4.add(a0, tailTerm<E>(w, x, rest, 0));
    a1 = f32x4.add(a1, tailTerm<E>(w, x, rest, 1));
    a2 = f32x4.add(a2, tailTerm<E>(w, x, rest, 2));
    a3 = f32x4.add(a3, tailTerm<E>(w, x, rest, 3));
  }
  return tree16(a0, a1, a2, a3);
}

/** Dots of one weight row with three activation rows as lanes 0 to 2; each weight is decoded once. */
@inline
export function dots3<E>(w: usize, columns: i32, x0: usize, x1: usize, x2: usize): v128 {
  let a0 = f32x4.splat(0), a1 = a0, a2 = a0, a3 = a0;
  let b0 = a0, b1 = a0, b2 = a0, b3 = a0, c0 = a0, c1 = a0, c2 = a0, c3 = a0;
  const end = x0 + (<usize>(columns & ~15) << 2);
  while (x0 < end) {
    let v = decodeQuad<E>(w, 0);
    a0 = addProduct(a0, v, x0, 0);
    b0 = addProduct(b0, v, x1, 0);
    c0 = addProduct(c0, v, x2, 0);
    v = decodeQuad<E>(w, 1);
    a1 = addProduct(a1, v, x0, 1);
    b1 = addProduct(b1, v, x1, 1);
    c1 = addProduct(c1, v, x2, 1);
    v = decodeQuad<E>(w, 2);
    a2 = addProduct(a2, v, x0, 2);
    b2 = addProduct(b2, v, x1, 2);
    c2 = addProduct(c2, v, x2, 2);
    v = decodeQuad<E>(w, 3);
    a3 = addProduct(a3, v, x0, 3);
    b3 = addProduct(b3, v, x1, 3);
    c3 = addProduct(c3, v, x2, 3);
    w += 16 * sizeof<E>();
    x0 += 64;
    x1 += 64;
    x2 += 64;
  }
  const rest = columns & 15;
  if (rest) {
    a0 = f32x4.add(a0, tailTerm<E>(w, x0, rest, 0));
    a1 = f32x4.add(a1, tailTerm<E>(w, x0, rest, 1));
    a2 = f32x4.add(a2, tailTerm<E>(w, x0, rest, 2));
    a3 = f32x4.add(a3, tailTerm<E>(w, x0, rest, 3));
    b0 = f32x4.add(b0, tailTerm<E>(w, x1, rest, 0));
    b1 = f32x4.add(b1, tailTerm<E>(w, x1, rest, 1));
    b2 = f32x4.add(b2, tailTerm<E>(w, x1, rest, 2));
    b3 = f32x4.add(b3, tailTerm<E>(w, x1, rest, 3));
    c0 = f32x4.add(c0, tailTerm<E>(w, x2, rest, 0));
    c1 = f32x4.add(c1, tailTerm<E>(w, x2, rest, 1));
    c2 = f32x4.add(c2, tailTerm<E>(w, x2, rest, 2));
    c3 = f32x4.add(c3, tailTerm<E>(w, x2, rest, 3));
  }
  const c = f32x4.add(f32x4.add(c0, c2), f32x4.add(c1, c3));
  return trees(f32x4.add(f32x4.add(a0, a2), f32x4.add(a1, a3)), f32x4.add(f32x4.add(b0, b2), f32x4.add(b1, b3)), c, c);
}

/** One weight row with activation rows i0 .. i1-1; results go to y[yIndex[i], 0]. */
@inline
function dotRows<E>(
  w: usize, columns: i32, x: usize, xStride: usize, xIndex: usize,
  y: usize, yStride: usize, yIndex: usize, i0: i32, i1: i32,
): void {
  let i = i0;
  for (; i + 3 <= i1; i += 3) {
    const dots = dots3<E>(
      w, columns,
      x + (rowOf(xIndex, i) * xStride << 2), x + (rowOf(xIndex, i + 1) * xStride << 2),
      x + (rowOf(xIndex, i + 2) * xStride << 2),
    );
    v128.store32_lane(y + (rowOf(yIndex, i) * yStride << 2), dots, 0);
    v128.store32_lane(y + (rowOf(yIndex, i + 1) * yStride << 2), dots, 1);
    v128.store32_lane(y + (rowOf(yIndex, i + 2) * yStride << 2), dots, 2);
  }
  for (; i < i1; i++) {
    const from = x + (rowOf(xIndex, i) * xStride << 2);
    store<f32>(y + (rowOf(yIndex, i) * yStride << 2), dotRow<E>(w, from, columns));
  }
}

@inline
function rows<E>(
  w: usize, columns: i32, x: usize, xStride: usize, xIndex: usize,
  y: usize, yStride: usize, yIndex: usize, n: i32, row0: i32, row1: i32,
): void {
  const rowBytes = <usize>columns * sizeof<E>();
  for (let row = row0; row < row1; row += BLOCK_ROWS) {
    const rowEnd = min(row + BLOCK_ROWS, row1);
    for (let i = 0; i < n; i += BLOCK_X) {
      const end = min(i + BLOCK_X, n);
      for (let r = row; r < rowEnd; r++) {
        const from = w + <usize>r * rowBytes;
        dotRows<E>(from, columns, x, xStride, xIndex, y + (<usize>r << 2), yStride, yIndex, i, end);
      }
    }
  }
}

export function matmulFloat(
  layout: i32, w: usize, columns: i32, x: usize, xStride: usize, xIndex: usize,
  y: usize, yStride: usize, yIndex: usize, n: i32, row0: i32, row1: i32,
): void {
  if (layout == F32) rows<f32>(w, columns, x, xStride, xIndex, y, yStride, yIndex, n, row0, row1);
  else if (layout == BF16) rows<Bfloat16>(w, columns, x, xStride, xIndex, y, yStride, yIndex, n, row0, row1);
  else rows<Float16>(w, columns, x, xStride, xIndex, y, yStride, yIndex, n, row0, row1);
}

export function matmulExact(
  layout: i32, w: usize, columns: i32, x: usize, xStride: usize, xIndex: usize,
  y: usize, yStride: usize, yIndex: usize, n: i32, scratch: usize, row0: i32, row1: i32,
): void {
  for (let row = row0; row < row1; row++) {
    if (layout >= FP8) decodeBlockRow(layout, w, columns, row, scratch);
    else decodeTileRow(layout, w, columns, row, scratch);
    matmulFloat(F32, scratch, columns, x, xStride, xIndex, y + (<usize>row << 2), yStride, yIndex, n, 0, 1);
  }
}

@inline
function decodeRow<E>(w: usize, columns: i32, y: usize): void {
  for (let i = 0; i < columns; i += 4) {
    const from = w + <usize>i * sizeof<E>(), to = y + (<usize>i << 2), left = columns - i;
    if (left >= 4) v128.store(to, decode4<E>(from));
    else storePart(to, decodePart<E>(from, left), left);
  }
}

export function embed(
  layout: i32, w: usize, columns: i32, ids: usize, y: usize, row0: i32, row1: i32,
): void {
  for (let i = row0; i < row1; i++) {
    const row = load<i32>(ids + (<usize>i << 2));
    const to = y + (<usize>i * columns << 2);
    if (layout >= FP8) decodeBlockRow(layout, w, columns, row, to);
    else if (layout >= Q4) decodeTileRow(layout, w, columns, row, to);
    else if (layout == F32) memory.copy(to, w + (<usize>row * columns << 2), <usize>columns << 2);
    else if (layout == BF16) decodeRow<Bfloat16>(w + (<usize>row * columns << 1), columns, to);
    else decodeRow<Float16>(w + (<usize>row * columns << 1), columns, to);
  }
}
