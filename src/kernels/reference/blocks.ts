/** Rows of block layouts, by the numbers under which kernels know them. */

import { decodeBlockRow as decode } from '../../quant/blocks.ts';
import { BLOCKS, type BlockLayout, blockRowBytes, LAYOUT_ID } from '../../quant/layouts.ts';

const NAMES = Object.keys(BLOCKS) as BlockLayout[];

/** Row `row` of a matrix at byte `w` into `out` (one element per column). */
export function decodeBlockRow(
  bytes: DataView,
  layout: number,
  w: number,
  columns: number,
  row: number,
  out: Float32Array,
): void {
  const name = NAMES.find(one => LAYOUT_ID[one] === layout);
  if (!name) throw new RangeError(`layout ${layout} is not a block layout`);
  decode(name, bytes, w + row * blockRowBytes(name, columns), columns, out);
}
