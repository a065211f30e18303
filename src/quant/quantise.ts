/**
 * float32 weights -> tiles with bfloat16 scales, for the converter. The scale is rounded to bfloat16 first and the codes
 * are chosen for the rounded scale: code = clamp(round-half-even(float32(x / scale))). Groups are 64 columns of a row; a
 * ragged last group sees its real columns only. The result depends on the values alone.
 *
 * q8g64: scale = max|x| / 127, codes -127..127.
 * q4g64: codes -8..7. With m the value of largest magnitude, the scales m / -d for d in Q4_DIVISORS are tried (so a scale
 * may be negative: the extreme value gets the end of the range that reaches further); the best of them by squared
 * error is then refined once to the least-squares scale of its own codes, kept when that lowers the error.
 */

import { ColiError } from '../common/errors.ts';
import { bfloatOf, bfloatValue } from './floats.ts';
import { GROUP, groupsOf, layoutBytes, panelsOf, TILE_BYTES, TILE_ROWS } from './layouts.ts';

export type QuantisedLayout = 'q4g64' | 'q8g64';

/**
 * Where the largest value of a group lands on the grid. Past 8 it is clipped, which pays when the rest of the group is
 * small. On trained experts the relative error is 0.0903 with these four and a refinement, 0.0951 with 8 alone, 0.1078
 * with the symmetric 7, and 0.0899 with a dense search over 50 scales.
 */
const Q4_DIVISORS = [8, 8.5, 9, 7.5];

/** A smaller scale becomes 0 and so does its group: the rule of activations (kernels/README.md). */
const SMALLEST_NORMAL = 2 ** -126;
/** Adding and subtracting 1.5 * 2^52 rounds |x| < 2^51 to the nearest integer, ties to even. */
const ROUND = 6755399441055744;

const group = new Float32Array(GROUP);
const codes = new Int8Array(GROUP);

/** The bfloat16 scale nearest to `value`; 0 when it would be subnormal or infinite. */
function scaleBits(value: number): number {
  const bits = bfloatOf(value);
  return Math.abs(bfloatValue(bits)) < SMALLEST_NORMAL ? 0 : bits;
}

/** Quantises `group` with a scale other than 0 into `codes`. */
function quantiseGroup(scale: number, low: number, high: number): void {
  for (let i = 0; i < GROUP; i++) {
    const q = Math.fround(group[i] / scale) + ROUND - ROUND;
    codes[i] = Math.max(low, Math.min(high, q));
  }
}

/** Squared error of `group` on the grid of `scale`; sums for the least-squares scale are left in `fit`. */
const fit = { products: 0, squares: 0 };
function q4Error(scale: number): number {
  let error = 0;
  let products = 0;
  let squares = 0;
  for (let i = 0; i < GROUP; i++) {
    const x = group[i];
    let q = Math.fround(x / scale) + ROUND - ROUND;
    if (q < -8) q = -8;
    if (q > 7) q = 7;
    const difference = x - q * scale;
    error += difference * difference;
    products += x * q;
    squares += q * q;
  }
  fit.products = products;
  fit.squares = squares;
  return error;
}

/** Bits of the chosen scale of `group`, whose value of largest magnitude is `extreme`. */
function chooseQ4Scale(extreme: number): number {
  let best = 0;
  let bestError = Number.POSITIVE_INFINITY;
  let refined = 0;
  for (const divisor of Q4_DIVISORS) {
    const bits = scaleBits(extreme / -divisor);
    if (bits === 0) continue;
    const error = q4Error(bfloatValue(bits));
    if (error >= bestError) continue;
    best = bits;
    bestError = error;
    refined = fit.products / fit.squares;
  }
  if (best === 0) return 0;
  const bits = scaleBits(refined);
  return bits !== 0 && q4Error(bfloatValue(bits)) < bestError ? bits : best;
}

/** Loads a group, zero-padded; returns its value of largest magnitude, or NaN when a value is not finite. */
function loadGroup(values: Float32Array, from: number, count: number): number {
  let extreme = 0;
  let finite = true;
  for (let i = 0; i < count; i++) {
    const x = values[from + i];
    group[i] = x;
    if (!(Math.abs(x) < Number.POSITIVE_INFINITY)) finite = false;
    if (Math.abs(x) > Math.abs(extreme)) extreme = x;
  }
  group.fill(0, count);
  return finite ? extreme : Number.NaN;
}

function storeQ8(out: Uint8Array, tile: number, row: number): void {
  for (let i = 0; i < GROUP; i++) out[tile + (i >> 2) * 64 + row * 4 + (i & 3)] = codes[i];
}

function storeQ4(out: Uint8Array, tile: number, row: number): void {
  for (let i = 0; i < GROUP / 2; i++) {
    out[tile + (i >> 2) * 64 + row * 4 + (i & 3)] = (codes[i] + 8) | ((codes[i + GROUP / 2] + 8) << 4);
  }
}

/**
 * Quantises `values` [rows, columns] into `out` (layoutBytes(layout, rows, columns) bytes). Rows of a larger matrix may
 * be done piecewise, a multiple of 16 at a time. Throws NOT_FINITE with the row and column when a weight is NaN or infinite.
 */
export function quantiseMatrix(
  layout: QuantisedLayout,
  values: Float32Array,
  rows: number,
  columns: number,
  out: Uint8Array,
): void {
  if (values.length < rows * columns || out.byteLength !== layoutBytes(layout, rows, columns)) {
    throw new RangeError(
      `quantiseMatrix: ${values.length} values and ${out.byteLength} bytes for [${rows}, ${columns}]`,
    );
  }
  const groups = groupsOf(columns);
  const tileBytes = TILE_BYTES[layout];
  const q4 = layout === 'q4g64';
  for (let row = 0; row < panelsOf(rows) * TILE_ROWS; row++) {
    for (let g = 0; g < groups; g++) {
      const tile = ((row >> 4) * groups + g) * tileBytes;
      const r = row & 15;
      const from = row * columns + g * GROUP;
      const extreme = row < rows ? loadGroup(values, from, Math.min(GROUP, columns - g * GROUP)) : 0;
      if (Number.isNaN(extreme)) throw notFinite(values, row, columns);
      const bits = q4 ? chooseQ4Scale(extreme) : scaleBits(Math.abs(extreme) / 127);
      const scale = bfloatValue(bits);
      if (bits === 0) codes.fill(0);
      else if (q4) quantiseGroup(scale, -8, 7);
      else quantiseGroup(scale, -127, 127);
      if (q4) storeQ4(out, tile, r);
      else storeQ8(out, tile, r);
      const at = tile + tileBytes - TILE_ROWS * 2 + r * 2;
      out[at] = bits & 255;
      out[at + 1] = bits >> 8;
    }
  }
}

function notFinite(values: Float32Array, row: number, columns: number): ColiError {
  const slice = values.subarray(row * columns, (row + 1) * columns);
  const column = slice.findIndex(x => !Number.isFinite(x));
  return new ColiError('NOT_FINITE', `weight (${row}, ${column}) is ${slice[column]}`, { details: { row, column } });
}
