/** Single elements of weights in any layout, as the byte order of docs/formats.md defines them. */

import { LAYOUT_ID } from '../../quant/layouts.ts';
import { bfloatToFloat, halfToFloat } from './math.ts';

const { f32, bf16, f16, q4g64, q8g64 } = LAYOUT_ID;
const Q4_WIDE = LAYOUT_ID['q4g64-f32'];

/** Bytes of the codes of one tile, and of the tile. */
function tileShape(layout: number): { codes: number; tile: number; wide: boolean } {
  const codes = layout === q4g64 || layout === Q4_WIDE ? 512 : 1024;
  const wide = layout !== q4g64 && layout !== q8g64;
  return { codes, tile: codes + (wide ? 64 : 32), wide };
}

/**
 * Element (row, column). Float layouts: `stride` = columns, the value. Tile layouts: `stride` = groups, the signed code
 * (not yet scaled).
 */
export function decodeElement(
  bytes: DataView,
  layout: number,
  w: number,
  stride: number,
  row: number,
  column: number,
): number {
  if (layout === f32) return bytes.getFloat32(w + (row * stride + column) * 4, true);
  if (layout === bf16) return bfloatToFloat(bytes.getUint16(w + (row * stride + column) * 2, true));
  if (layout === f16) return halfToFloat(bytes.getUint16(w + (row * stride + column) * 2, true));
  const { codes, tile } = tileShape(layout);
  const at = w + ((row >> 4) * stride + (column >> 6)) * tile;
  const r = row & 15;
  const c = column & 63;
  if (codes === 512) {
    const byte = bytes.getUint8(at + ((c & 31) >> 2) * 64 + r * 4 + (c & 3));
    return (c < 32 ? byte & 15 : byte >> 4) - 8;
  }
  return bytes.getInt8(at + (c >> 2) * 64 + r * 4 + (c & 3));
}

/** Scale of the group `g` of a row of a tile layout. */
export function tileScale(bytes: DataView, layout: number, w: number, groups: number, row: number, g: number): number {
  const { codes, tile, wide } = tileShape(layout);
  const at = w + ((row >> 4) * groups + g) * tile + codes;
  return wide ? bytes.getFloat32(at + (row & 15) * 4, true) : bfloatToFloat(bytes.getUint16(at + (row & 15) * 2, true));
}
