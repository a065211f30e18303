/** Blocks of GGUF files: kernels read them as they are. */

import type { Checkpoint, Dtype, TensorInfo } from '../../formats/checkpoint-types.ts';
import { BLOCKS, type BlockLayout } from '../layouts.ts';
import { type MatrixSource, plainRows, requireBlocks, requireShape, storedShape, type Wanted } from './source.ts';

export const GGUF_LAYOUT: Readonly<Partial<Record<Dtype, BlockLayout>>> = {
  Q4_0: 'q4_0',
  Q5_0: 'q5_0',
  Q5_1: 'q5_1',
  Q8_0: 'q8_0',
  Q4_K: 'q4_k',
  Q5_K: 'q5_k',
  Q6_K: 'q6_k',
  IQ4_NL: 'iq4_nl',
  MXFP4: 'mxfp4-gguf',
  Q4_1: 'q4_1',
  Q2_K: 'q2_k',
  Q3_K: 'q3_k',
  IQ4_XS: 'iq4_xs',
};

export function ggufMatrix(
  checkpoint: Checkpoint,
  tensor: TensorInfo,
  layout: BlockLayout,
  wanted: Wanted,
): MatrixSource {
  requireShape(checkpoint, tensor, storedShape(wanted, [wanted.of, wanted.columns]));
  requireBlocks(checkpoint, tensor, wanted.columns, BLOCKS[layout].columns, tensor.dtype);
  return plainRows(layout, layout, tensor, wanted);
}
