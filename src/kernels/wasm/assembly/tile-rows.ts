// One row of a tile layout, decoded to float32.

import { storePart } from './lanes';
import { codeBytes, isQ8, isWide, tileBytes } from './layouts';

/** Columns 4q .. 4q+3 of a group as float32, not yet scaled. `codes` is where the row's first four codes are. */
@inline
function codes4(layout: i32, codes: usize, q: i32): v128 {
  if (isQ8(layout)) {
    const v = i16x8.extend_low_i8x16_s(v128.load32_zero(codes + (<usize>q << 6)));
    return f32x4.convert_i32x4_s(i32x4.extend_low_i16x8_s(v));
  }
  const v = i32x4.extend_low_i16x8_u(i16x8.extend_low_i8x16_u(v128.load32_zero(codes + (<usize>(q & 7) << 6))));
  const nibbles = v128.and(i32x4.shr_u(v, (q >> 3) << 2), i32x4.splat(15));
  return f32x4.convert_i32x4_s(i32x4.sub(nibbles, i32x4.splat(8)));
}

/** Row `row` of w to `columns` floats at y. */
export function decodeTileRow(layout: i32, w: usize, columns: i32, row: i32, y: usize): void {
  const groups = (columns + 63) >> 6;
  const r = <usize>(row & 15);
  let tile = w + <usize>(row >> 4) * groups * tileBytes(layout);
  for (let g = 0; g < groups; g++) {
    const at = tile + codeBytes(layout);
    const scale = f32x4.splat(
      isWide(layout) ? load<f32>(at + (r << 2)) : reinterpret<f32>(<u32>load<u16>(at + (r << 1)) << 16),
    );
    for (let q = 0; q < 16; q++) {
      const column = (g << 6) + (q << 2);
      if (column >= columns) return;
      const value = f32x4.mul(codes4(layout, tile + (r << 2), q), scale);
      const to = y + (<usize>column << 2);
      if (column + 4 <= columns) v128.store(to, value);
      else storePart(to, value, columns - column);
    }
    tile += tileBytes(layout);
  }
}
