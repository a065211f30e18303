/** F8_E4M3 codes with one scale per block of rows and 128 columns, which is a factor although it is called inverse. */

import type { Checkpoint, TensorInfo } from '../../formats/checkpoint-types.ts';
import { FP8_BLOCK } from '../layouts.ts';
import { KIND_BYTES, NUMBER_KIND } from '../packers/packer.ts';
import { refuse, unsupported } from '../refuse.ts';
import {
  type MatrixSource,
  quantizationConfig,
  requireScaleTensor,
  requireShape,
  rowRange,
  sibling,
  sliceRange,
  storedShape,
  type Wanted,
} from './source.ts';

export function fp8Matrix(checkpoint: Checkpoint, codes: TensorInfo, wanted: Wanted): MatrixSource {
  const { of, rows, columns, first, step } = wanted;
  requireShape(checkpoint, codes, storedShape(wanted, [of, columns]));
  const name = scalesName(checkpoint, codes);
  const blockRows = rowsOfBlock(checkpoint, codes);
  const blocks = [Math.ceil(of / blockRows), Math.ceil(columns / FP8_BLOCK)];
  const dtypes = ['F32', 'BF16', 'F8_E8M0'] as const;
  const scales = requireScaleTensor(checkpoint, name, codes, dtypes, storedShape(wanted, blocks));
  const kind = NUMBER_KIND[scales.dtype]!;
  const scaleBytes = blocks[0] * blocks[1] * KIND_BYTES[kind];
  return {
    encoding: 'fp8',
    layout: 'fp8',
    rows,
    columns,
    ranges: [rowRange(codes, wanted, columns), sliceRange(scales, wanted, scaleBytes)],
    fileBytes: rows * columns + Math.ceil((scaleBytes * rows) / of),
    packer: 'fp8',
    params: [blockRows, kind, of, first, step],
    uses: [codes, scales],
  };
}

/** DeepSeek V4 calls them `X.scale`, all others `X.weight_scale_inv`. */
function scalesName(checkpoint: Checkpoint, codes: TensorInfo): string {
  const { tensors } = checkpoint;
  const inverse = `${codes.name}_scale_inv`;
  if (tensors.has(inverse)) return inverse;
  const short = sibling(codes.name, '.scale');
  if (tensors.has(short)) return short;
  const other = tensors.get(`${codes.name}_scale`);
  if (other === undefined) return inverse;
  const what = other.shape.every(size => size === 1)
    ? 'one scale for the whole tensor'
    : `scales [${other.shape.join(', ')}]`;
  throw unsupported(checkpoint, codes, `F8_E4M3 with ${what} ("${other.name}")`);
}

/** The block size is never guessed from shapes: several fit. */
function rowsOfBlock(checkpoint: Checkpoint, codes: TensorInfo): number {
  const size = quantizationConfig(checkpoint).weight_block_size;
  const [blockRows, blockColumns, ...more] = Array.isArray(size) ? size : [];
  const isBlock = Number.isSafeInteger(blockRows) && blockRows > 0 && blockColumns === FP8_BLOCK;
  if (isBlock && more.length === 0) return blockRows;
  const got = size === undefined ? 'none' : JSON.stringify(size).slice(0, 40);
  const what = `is F8_E4M3, for which config.json must state weight_block_size [rows, ${FP8_BLOCK}]; it states ${got}`;
  throw refuse(checkpoint, codes, 'ENCODING_UNSUPPORTED', what, { expected: `[rows, ${FP8_BLOCK}]`, got });
}
