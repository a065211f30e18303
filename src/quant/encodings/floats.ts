/** F32, BF16 and F16 tensors: rows as they are, gathered, or turned. */

import type { Checkpoint, Dtype, TensorInfo } from '../../formats/checkpoint-types.ts';
import { type FloatLayout, layoutBytes } from '../layouts.ts';
import { wrongShape } from '../refuse.ts';
import {
  type MatrixSource,
  plainRows,
  requireShape,
  sameShape,
  sliceRange,
  storedShape,
  type Wanted,
} from './source.ts';

export const FLOAT_DTYPES: Readonly<Partial<Record<Dtype, FloatLayout>>> = { F32: 'f32', BF16: 'bf16', F16: 'f16' };

/** `stored`: shape in the file, where it is not the matrix's own. */
export function floatMatrix(
  checkpoint: Checkpoint,
  tensor: TensorInfo,
  wanted: Wanted,
  stored: readonly number[] | null,
): MatrixSource {
  const layout = FLOAT_DTYPES[tensor.dtype]!;
  const { of, columns, rows, first, step, transposed } = wanted;
  const own = storedShape(wanted, transposed ? [columns, of] : [of, columns]);
  if (stored === null || !sameShape(tensor.shape, stored)) {
    if (!sameShape(tensor.shape, own)) throw wrongShape(checkpoint, tensor, stored ?? own);
  }
  if (!transposed) return plainRows(layout, layout, tensor, wanted);
  requireShape(checkpoint, tensor, own);
  const elementBytes = layoutBytes(layout, 1, 1);
  return {
    encoding: layout,
    layout,
    rows,
    columns,
    ranges: [sliceRange(tensor, wanted, of * columns * elementBytes)],
    fileBytes: rows * columns * elementBytes,
    packer: 'transpose',
    params: [elementBytes, of, first, step],
    uses: [tensor],
  };
}
