/** A packer on top of another: its matrix, decoded to float32 and perhaps turned. */

import { InternalError } from '../../common/errors.ts';
import { decodeRow } from '../decode.ts';
import { LAYOUT_ID, type Layout, layoutBytes } from '../layouts.ts';
import { fp8, mxfp4, nvfp4 } from './blocks.ts';
import { expectBytes, type Packer, scratch } from './packer.ts';
import { rows as gather } from './rows.ts';
import { TILE_PACKERS } from './tiles.ts';

/** By the number that params carry. */
const INNER: readonly (readonly [string, Packer])[] = Object.entries({
  fp8,
  mxfp4,
  nvfp4,
  rows: gather,
  ...TILE_PACKERS,
});
const LAYOUTS = Object.keys(LAYOUT_ID) as Layout[];

const whole = scratch();
const values = scratch();
const oneRow = scratch();

/** params for `decoded`: what first makes `layout` of the inputs (null: they are in it), and whether the result is turned. */
export function decodedParams(
  packer: string | null,
  params: readonly number[],
  layout: Layout,
  turned: boolean,
): readonly number[] {
  const inner = INNER.findIndex(([name]) => name === packer);
  if (packer !== null && inner < 0) throw new InternalError('NO_INNER_PACKER', `${packer} cannot be decoded`);
  return [inner, LAYOUT_ID[layout], turned ? 1 : 0, ...params];
}

/** inputs: of the inner packer. The output is float32 [rows, columns], or [columns, rows] when turned. */
export const decoded: Packer = (inputs, rows, columns, out, params = []) => {
  const [inner, layoutId, turned] = params;
  const layout = LAYOUTS.find(name => LAYOUT_ID[name] === layoutId)!;
  const bytes = layoutBytes(layout, rows, columns);
  expectBytes('decoded', 'the output', out.byteLength, rows * columns * 4);
  let packed = inputs[0];
  if (inner >= 0) {
    packed = new Uint8Array(whole(Math.ceil(bytes / 4)).buffer, 0, bytes);
    INNER[inner][1](inputs, rows, columns, packed, params.slice(3));
  }
  expectBytes('decoded', 'the matrix', packed.byteLength, bytes);
  const row = new Float32Array(oneRow(columns).buffer, 0, columns);
  const floats = new Float32Array(values(rows * columns).buffer, 0, rows * columns);
  for (let r = 0; r < rows; r++) {
    decodeRow(layout, packed, rows, columns, r, row);
    if (turned === 0) floats.set(row, r * columns);
    else for (let c = 0; c < columns; c++) floats[c * rows + r] = row[c];
  }
  out.set(new Uint8Array(floats.buffer, 0, rows * columns * 4));
};
