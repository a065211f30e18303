/** Reading weights back from a kernel layout: for evaluation, self-checks and tests. */

import { decodeBlockRow } from './blocks.ts';
import { asFloat32, asUint16, asUint32, bfloatsToFloatBits, bfloatValue, halvesToFloatBits } from './floats.ts';
import {
  blockRowBytes,
  GROUP,
  groupsOf,
  isBlockLayout,
  isTileLayout,
  type Layout,
  layoutBytes,
  panelsOf,
  TILE_BYTES,
  TILE_ROWS,
} from './layouts.ts';

function hasWideScales(layout: Layout): boolean {
  return layout.endsWith('-f32');
}

function isFourBit(layout: Layout): boolean {
  return layout.startsWith('q4');
}

function scaleAt(view: DataView, wide: boolean, at: number): number {
  return wide ? view.getFloat32(at, true) : bfloatValue(view.getUint16(at, true));
}

/** Row `row` of a matrix [rows, columns] in any layout, decoded to float32 into `out` (at least `columns` elements). */
export function decodeRow(
  layout: Layout,
  bytes: Uint8Array,
  rows: number,
  columns: number,
  row: number,
  out: Float32Array,
): void {
  if (row < 0 || row >= rows) throw new RangeError(`row ${row} of ${rows}`);
  if (isTileLayout(layout)) {
    const tileBytes = TILE_BYTES[layout];
    const groups = groupsOf(columns);
    const wide = hasWideScales(layout);
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const r = row % TILE_ROWS;
    for (let g = 0; g < groups; g++) {
      const tile = ((row >> 4) * groups + g) * tileBytes;
      const scales = tile + tileBytes - TILE_ROWS * (wide ? 4 : 2);
      const scale = scaleAt(view, wide, scales + r * (wide ? 4 : 2));
      const count = Math.min(GROUP, columns - g * GROUP);
      for (let c = 0; c < count; c++) {
        let code: number;
        if (isFourBit(layout)) {
          const byte = bytes[tile + ((c & 31) >> 2) * 64 + r * 4 + (c & 3)];
          code = (c < 32 ? byte & 15 : byte >> 4) - 8;
        } else code = view.getInt8(tile + (c >> 2) * 64 + r * 4 + (c & 3));
        out[g * GROUP + c] = code * scale;
      }
    }
    return;
  }
  if (isBlockLayout(layout)) {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    decodeBlockRow(layout, view, row * blockRowBytes(layout, columns), columns, out);
    return;
  }
  const rowBytes = layoutBytes(layout, 1, columns);
  const slice = bytes.subarray(row * rowBytes, (row + 1) * rowBytes);
  const bits = new Uint32Array(out.buffer, out.byteOffset, columns);
  if (layout === 'f32') bits.set(asUint32(slice));
  else if (layout === 'bf16') bfloatsToFloatBits(asUint16(slice), bits);
  else halvesToFloatBits(asUint16(slice), bits);
}

/** Whether every scale of a tile layout (padding rows included) is a finite number; float and block layouts: every value. */
export function scalesFinite(layout: Layout, bytes: Uint8Array, rows: number, columns: number): boolean {
  if (!isTileLayout(layout)) {
    const row = new Float32Array(columns);
    for (let r = 0; r < rows; r++) {
      decodeRow(layout, bytes, rows, columns, r, row);
      if (!row.every(Number.isFinite)) return false;
    }
    return true;
  }
  const tileBytes = TILE_BYTES[layout];
  const wide = hasWideScales(layout);
  const scaleBytes = TILE_ROWS * (wide ? 4 : 2);
  const tiles = panelsOf(rows) * groupsOf(columns);
  for (let tile = 0; tile < tiles; tile++) {
    const at = (tile + 1) * tileBytes - scaleBytes;
    const scales = bytes.subarray(at, at + scaleBytes);
    const finite = wide
      ? asFloat32(scales).every(Number.isFinite)
      : asUint16(scales).every(bits => (bits & 0x7f80) !== 0x7f80);
    if (!finite) return false;
  }
  return true;
}
