/** Pieces of matrices: read, brought into a kernel layout, and written as another. What runs in the threads of a conversion. */

import { ColiError } from '../common/errors.ts';
import { readExact, withFile } from '../formats/files.ts';
import { decodeRow, scalesFinite } from '../quant/decode.ts';
import { floatBitsToBfloats } from '../quant/floats.ts';
import { isTileLayout, type Layout, layoutBytes } from '../quant/layouts.ts';
import { PACKERS } from '../quant/pack.ts';
import { quantiseMatrix } from '../quant/quantise.ts';

/** Plain data: it crosses to other threads. */
export interface EncodeJob {
  readonly inputs: readonly { readonly path: string; readonly offset: number; readonly bytes: number }[];
  /** Makes `from` of the inputs; null when the one input is in it. */
  readonly pack: { readonly packer: string; readonly params?: readonly number[] } | null;
  readonly from: Layout;
  readonly to: Layout;
  readonly rows: number;
  readonly columns: number;
}

/** The bytes of the piece in its target layout. Throws NOT_FINITE with row and column of the piece (null: a scale). */
export function encodeJob(job: EncodeJob): Uint8Array {
  const { from, to, rows, columns } = job;
  const bytes = packedBytes(job);
  if (from === to && isTileLayout(from)) {
    if (scalesFinite(from, bytes, rows, columns)) return bytes;
    throw new ColiError('NOT_FINITE', 'a scale is not finite', { details: { row: null, column: null } });
  }
  const values = decodeRows(from, bytes, rows, columns);
  if (from !== to) return encodeRows(to, values, rows, columns);
  requireFinite(values, columns);
  return bytes;
}

function packedBytes({ inputs, pack, from, rows, columns }: EncodeJob): Uint8Array {
  const read = inputs.map(({ path, offset, bytes }) =>
    withFile(path, fd => {
      const target = new Uint8Array(bytes);
      readExact(fd, target, offset, path);
      return target;
    }),
  );
  if (pack === null) return read[0];
  const out = new Uint8Array(layoutBytes(from, rows, columns));
  PACKERS[pack.packer](read, rows, columns, out, pack.params);
  return out;
}

export function decodeRows(layout: Layout, bytes: Uint8Array, rows: number, columns: number): Float32Array {
  const values = new Float32Array(rows * columns);
  for (let row = 0; row < rows; row++) {
    decodeRow(layout, bytes, rows, columns, row, values.subarray(row * columns, (row + 1) * columns));
  }
  return values;
}

/** float32 rows in an output layout; NOT_FINITE when a weight is NaN or infinite. */
export function encodeRows(layout: Layout, values: Float32Array, rows: number, columns: number): Uint8Array {
  if (layout === 'q4g64' || layout === 'q8g64') {
    const out = new Uint8Array(layoutBytes(layout, rows, columns));
    quantiseMatrix(layout, values, rows, columns, out);
    return out;
  }
  requireFinite(values, columns);
  if (layout === 'f32') return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  const halves = new Uint16Array(values.length);
  floatBitsToBfloats(new Uint32Array(values.buffer, values.byteOffset, values.length), halves);
  return new Uint8Array(halves.buffer);
}

function requireFinite(values: Float32Array, columns: number): void {
  for (let i = 0; i < values.length; i++) {
    if (Math.abs(values[i]) < Number.POSITIVE_INFINITY) continue;
    const row = Math.floor(i / columns);
    const column = i % columns;
    throw new ColiError('NOT_FINITE', `weight (${row}, ${column}) is ${values[i]}`, { details: { row, column } });
  }
}
