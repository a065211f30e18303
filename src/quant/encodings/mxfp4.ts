/** MXFP4: e2m1 nibbles, the low one of the even column, with one power of two per 32 columns. */

import type { Checkpoint, TensorInfo } from '../../formats/checkpoint-types.ts';
import { BLOCKS } from '../layouts.ts';
import { refuse, unsupported } from '../refuse.ts';
import {
  type MatrixSource,
  requireBlocks,
  requireScaleTensor,
  requireShape,
  rowRange,
  sibling,
  storedShape,
  type Wanted,
} from './source.ts';

const BLOCK = BLOCKS.mxfp4.columns;
const SCALE_DTYPES = ['U8', 'F8_E8M0'] as const;

/** compressed-tensors: `X.weight_packed` [rows, columns / 2], `X.weight_scale` [rows, columns / 32]. */
export function packedMxfp4(checkpoint: Checkpoint, codes: TensorInfo, name: string, wanted: Wanted): MatrixSource {
  if (checkpoint.tensors.get(`${name}_scale`)?.dtype === 'F8_E4M3') {
    throw unsupported(checkpoint, codes, 'NVFP4 of compressed-tensors (its global scale is a divisor)');
  }
  return mxfp4Matrix(checkpoint, codes, `${name}_scale`, wanted);
}

/** DeepSeek V4: I8 `X.weight` [rows, columns / 2] and `X.scale` [rows, columns / 32]. */
export function int8Mxfp4(checkpoint: Checkpoint, codes: TensorInfo, wanted: Wanted): MatrixSource {
  return mxfp4Matrix(checkpoint, codes, sibling(codes.name, '.scale'), wanted);
}

/** gpt-oss: `X_blocks` [experts, rows, columns / 32, 16] and `X_scales` [experts, rows, columns / 32]. */
export function blocksMxfp4(checkpoint: Checkpoint, codes: TensorInfo, name: string, wanted: Wanted): MatrixSource {
  return mxfp4Matrix(checkpoint, codes, `${name}_scales`, wanted, [wanted.of, wanted.columns / BLOCK, BLOCK / 2]);
}

function mxfp4Matrix(
  checkpoint: Checkpoint,
  codes: TensorInfo,
  scalesName: string,
  wanted: Wanted,
  shape: readonly number[] = [wanted.of, wanted.columns / 2],
): MatrixSource {
  const { of, rows, columns, step } = wanted;
  requireBlocks(checkpoint, codes, columns, BLOCK, 'MXFP4');
  if (codes.dtype !== 'U8' && codes.dtype !== 'I8') {
    const what = `is ${codes.dtype}, expected U8 (MXFP4 codes)`;
    throw refuse(checkpoint, codes, 'TENSOR_WRONG_DTYPE', what, { expected: 'U8', got: codes.dtype });
  }
  requireShape(checkpoint, codes, storedShape(wanted, shape));
  const scaleShape = storedShape(wanted, [of, columns / BLOCK]);
  const scales = requireScaleTensor(checkpoint, scalesName, codes, SCALE_DTYPES, scaleShape);
  return {
    encoding: 'mxfp4',
    layout: 'mxfp4',
    rows,
    columns,
    ranges: [rowRange(codes, wanted, columns / 2), rowRange(scales, wanted, columns / BLOCK)],
    fileBytes: rows * (columns / 2 + columns / BLOCK),
    packer: 'mxfp4',
    params: [step],
    uses: [codes, scales],
  };
}
