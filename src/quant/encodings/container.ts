/** Matrices of our own containers: U8 tensors whose content coli.index.json describes. */

import type { Checkpoint, TensorInfo } from '../../formats/checkpoint-types.ts';
import { isTileLayout, LAYOUT_ID, type Layout, layoutBytes, TILE_ROWS } from '../layouts.ts';
import { refuse, unsupported } from '../refuse.ts';
import type { MatrixSource, Wanted } from './source.ts';

interface Described {
  readonly encoding: string;
  readonly rows: number;
  readonly columns: number;
  readonly offset: number;
}

/** One matrix inside a U8 tensor, checked against the shape that config.json asks for. */
export function containerPart(
  checkpoint: Checkpoint,
  tensor: TensorInfo,
  described: Described,
  rows: number,
  columns: number,
): MatrixSource {
  const { encoding, offset } = described;
  if (tensor.dtype !== 'U8') {
    const what = `is ${tensor.dtype}, expected U8 (coli.index.json describes it as ${encoding})`;
    throw refuse(checkpoint, tensor, 'TENSOR_WRONG_DTYPE', what, { expected: 'U8', got: tensor.dtype });
  }
  if (!isKnownLayout(encoding)) throw unsupported(checkpoint, tensor, encoding);
  if (described.rows !== rows || described.columns !== columns) {
    const got = [described.rows, described.columns];
    const what = `is [${got.join(', ')}] according to coli.index.json, expected [${rows}, ${columns}]`;
    throw refuse(checkpoint, tensor, 'TENSOR_WRONG_SHAPE', what, { expected: [rows, columns], got });
  }
  const bytes = layoutBytes(encoding, rows, columns);
  if (!Number.isSafeInteger(bytes) || !Number.isSafeInteger(offset) || offset < 0 || offset + bytes > tensor.bytes) {
    const what = `has ${tensor.bytes} bytes, but coli.index.json puts ${bytes} bytes at ${offset}`;
    throw refuse(checkpoint, tensor, 'TENSOR_WRONG_SIZE', what, { expected: offset + bytes, got: tensor.bytes });
  }
  const ranges = [{ file: tensor.file, offset: tensor.offset + offset, bytes }];
  return {
    encoding,
    layout: encoding,
    rows,
    columns,
    ranges,
    fileBytes: bytes,
    packer: null,
    params: [],
    uses: [tensor],
  };
}

/** A matrix that has a tensor of its own; some of its rows where a cut between panels gives them. */
export function containerMatrix(
  checkpoint: Checkpoint,
  tensor: TensorInfo,
  described: Omit<Described, 'offset'>,
  wanted: Wanted,
): MatrixSource {
  const { of, columns, rows, first, step } = wanted;
  const whole = containerPart(checkpoint, tensor, { ...described, offset: 0 }, of, columns);
  if (whole.fileBytes !== tensor.bytes) {
    const what = `has ${tensor.bytes} bytes, expected ${whole.fileBytes} (${described.encoding} of [${of}, ${columns}])`;
    throw refuse(checkpoint, tensor, 'TENSOR_WRONG_SIZE', what, { expected: whole.fileBytes, got: tensor.bytes });
  }
  if (rows === of) return whole;
  const { layout } = whole;
  const unit = isTileLayout(layout) ? TILE_ROWS : 1;
  if (step !== 1 || first % unit !== 0 || (rows % unit !== 0 && first + rows !== of) || wanted.slice) {
    const what = `is ${layout}, of which rows ${first} to ${first + rows - 1} cannot be taken alone`;
    throw refuse(checkpoint, tensor, 'ROWS_NOT_SEPARABLE', what, {
      expected: `multiples of ${unit} rows`,
      hint: 'convert the model again from its published files',
    });
  }
  const bytes = layoutBytes(layout, rows, columns);
  const offset = tensor.offset + layoutBytes(layout, first, columns);
  return { ...whole, rows, ranges: [{ file: tensor.file, offset, bytes }], fileBytes: bytes };
}

function isKnownLayout(encoding: string): encoding is Layout {
  return Object.hasOwn(LAYOUT_ID, encoding);
}
