/** A planned part cut into pieces that threads can encode, in the order of their bytes. */

import { type ColiError, InternalError, ModelFileError } from '../common/errors.ts';
import type { Checkpoint } from '../formats/checkpoint-types.ts';
import { quote } from '../formats/files.ts';
import { layoutBytes, TILE_ROWS } from '../quant/layouts.ts';
import { resolveRef } from '../quant/resolve.ts';
import type { Extent, StoredRecord } from '../quant/stored.ts';
import type { EncodeJob } from './encode.ts';
import type { PlannedPart } from './types.ts';

/** Weights per piece: 4 MiB as float32, so that a vocabulary matrix never has to be in memory. */
const PIECE_WEIGHTS = 2 ** 20;

export interface Piece {
  readonly part: PlannedPart;
  /** First row of the part that is in it. */
  readonly from: number;
  readonly job: EncodeJob;
}

/** `pathOf`: where a file of the source can be read. `weights`: about so many per piece. */
export function* piecesOf(
  checkpoint: Checkpoint,
  part: PlannedPart,
  pathOf: (file: number) => string,
  weights = PIECE_WEIGHTS,
): Generator<Piece> {
  const { rows, columns } = part;
  const step = pieceRows(part, weights);
  for (let from = 0; from < rows; from += step) {
    const count = Math.min(step, rows - from);
    yield { part, from, job: jobOf(checkpoint, part, from, count, columns, pathOf) };
  }
}

/** What is packed comes whole, unless its encoding can be asked for some rows. */
function pieceRows({ record, part, sliceable, rows, columns }: PlannedPart, weights: number): number {
  if (record.parts[part].source === null && sliceable === undefined) return rows;
  return Math.max(1, Math.floor(weights / columns / TILE_ROWS)) * TILE_ROWS;
}

function jobOf(
  checkpoint: Checkpoint,
  part: PlannedPart,
  from: number,
  count: number,
  columns: number,
  pathOf: (file: number) => string,
): EncodeJob {
  const { layout, source } = part.record.parts[part.part];
  const common = { from: layout, to: part.layout, rows: count, columns };
  const inputOf = ({ file, offset, bytes }: Extent) => ({ path: pathOf(file), offset, bytes });
  if (source) {
    const begin = layoutBytes(layout, from, columns);
    const bytes = layoutBytes(layout, count, columns);
    return { ...common, inputs: [inputOf(slice(part.record, source, begin, bytes))], pack: null };
  }
  const { record, index } = packedPiece(checkpoint, part, from, count);
  const step = record.packs[index];
  if (step.rows !== count) throw new InternalError('BAD_PIECE', `${record.name}: ${step.rows} rows, wanted ${count}`);
  const inputs = step.inputs.map(input => inputOf(slice(record, input, 0, input.bytes)));
  return { ...common, inputs, pack: { packer: step.packer, params: step.params } };
}

function packedPiece(checkpoint: Checkpoint, part: PlannedPart, from: number, count: number) {
  const { record, part: index, sliceable, rows: of, columns } = part;
  if (count === of || sliceable === undefined) return { record, index };
  const rows = { first: from, step: 1, of };
  return { record: resolveRef(checkpoint, { name: sliceable, rows }, count, columns), index: 0 };
}

function slice(record: StoredRecord, at: { extent: number; offset: number }, from: number, bytes: number): Extent {
  const extent = record.extents[at.extent];
  return { file: extent.file, offset: extent.offset + at.offset + from, bytes };
}

/** NOT_FINITE of a piece, told with the tensor and the place in it. */
export function notFinite({ part, from }: Piece, cause: ColiError): ModelFileError {
  const { role, record } = part;
  const { row, column } = cause.details;
  const place = row === null ? 'a scale of the' : `${role} weight (${from + Number(row)}, ${column})`;
  const what = row === null ? `${place} ${role} weights is not finite` : `${place} is not a finite number`;
  return new ModelFileError('WEIGHT_NOT_FINITE', `${quote(record.name)}: ${what}`, {
    hint: 'the source is damaged: download this shard again',
    details: { tensor: record.name, row: row === null ? null : from + Number(row), column },
    cause,
  });
}
