/** Reading any stored matrix as float32 rows, piece by piece, and encoding rows for the container. */

import { ColiError, ModelFileError } from '../common/errors.ts';
import type { Checkpoint } from '../formats/checkpoint-types.ts';
import { quote, readExact, withFile } from '../formats/files.ts';
import { decodeRow } from '../quant/decode.ts';
import { floatBitsToBfloats } from '../quant/floats.ts';
import { isTileLayout, type Layout, layoutBytes, TILE_ROWS } from '../quant/layouts.ts';
import { PACKERS } from '../quant/pack.ts';
import { quantiseMatrix } from '../quant/quantise.ts';
import type { Extent, StoredRecord } from '../quant/stored.ts';
import type { PlannedPart } from './types.ts';

/** Weights per piece: 4 MiB as float32, so that a vocabulary matrix never has to be in memory. */
const PIECE_WEIGHTS = 2 ** 20;

function readRange(checkpoint: Checkpoint, { file, offset, bytes }: Extent): Uint8Array {
  const { path } = checkpoint.files[file];
  return withFile(path, fd => {
    const target = new Uint8Array(bytes);
    readExact(fd, target, offset, path);
    return target;
  });
}

function slice(record: StoredRecord, at: { extent: number; offset: number }, from: number, bytes: number): Extent {
  const extent = record.extents[at.extent];
  return { file: extent.file, offset: extent.offset + at.offset + from, bytes };
}

/** The bytes of one part in its layout, limited to rows `from`..`from + count` (from: a multiple of 16). */
function partBytes(checkpoint: Checkpoint, record: StoredRecord, index: number, from: number, count: number) {
  const { layout, columns, source } = record.parts[index];
  const begin = layoutBytes(layout, from, columns);
  const bytes = layoutBytes(layout, count, columns);
  if (source) return readRange(checkpoint, slice(record, source, begin, bytes));
  const step = record.packs[index];
  const inputs = step.inputs.map(input => readRange(checkpoint, slice(record, input, 0, input.bytes)));
  const out = new Uint8Array(step.bytes);
  PACKERS[step.packer](inputs, step.rows, step.columns, out, step.params);
  return out.subarray(begin, begin + bytes);
}

/** Rows per piece. What is packed on load comes whole: its inputs cannot be cut by rows in general. */
function pieceRows(record: StoredRecord, index: number): number {
  const { rows, columns, source } = record.parts[index];
  if (source === null) return rows;
  return Math.max(1, Math.floor(PIECE_WEIGHTS / columns / TILE_ROWS)) * TILE_ROWS;
}

/** The bytes of a planned part in its target layout, in order. Chunks are valid until the next one is taken. */
export function* encodePart(checkpoint: Checkpoint, planned: PlannedPart): Generator<Uint8Array> {
  const { record, part: index, layout, rows, columns } = planned;
  const stored = record.parts[index];
  const step = pieceRows(record, index);
  for (let from = 0; from < rows; from += step) {
    const count = Math.min(step, rows - from);
    const bytes = partBytes(checkpoint, record, index, from, count);
    if (stored.layout === layout && isTileLayout(layout)) {
      yield bytes;
      continue;
    }
    const values = decodeRows(stored.layout, bytes, count, columns);
    try {
      yield encodeRows(layout, values, count, columns);
    } catch (error) {
      throw error instanceof ColiError && error.code === 'NOT_FINITE' ? notFinite(planned, from, error) : error;
    }
  }
}

function decodeRows(layout: Layout, bytes: Uint8Array, rows: number, columns: number): Float32Array {
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

function notFinite(planned: PlannedPart, from: number, cause: ColiError): ModelFileError {
  const row = from + Number(cause.details.row);
  const what = `${planned.role} weight (${row}, ${cause.details.column}) is not a finite number`;
  return new ModelFileError('WEIGHT_NOT_FINITE', `${quote(planned.record.name)}: ${what}`, {
    hint: 'the source is damaged: download this shard again',
    details: { tensor: planned.record.name, row, column: cause.details.column },
    cause,
  });
}
