/** The C engine's OLMoE form: int8 rows of gate, up and down in one flat tensor, their scales in another. */

import type { Checkpoint, TensorInfo } from '../../formats/checkpoint-types.ts';
import { refuse, wrongShape } from '../refuse.ts';
import { requireScales } from './sidecar.ts';
import type { MatrixSource } from './source.ts';

export function mergedExpert(
  checkpoint: Checkpoint,
  merged: TensorInfo,
  scalesName: string,
  shapes: readonly { readonly rows: number; readonly columns: number }[],
): MatrixSource[] {
  const total = shapes.reduce((sum, { rows, columns }) => sum + rows * columns, 0);
  if (merged.dtype !== 'I8') {
    const what = `is ${merged.dtype}, expected I8 (merged expert)`;
    throw refuse(checkpoint, merged, 'TENSOR_WRONG_DTYPE', what, { expected: 'I8', got: merged.dtype });
  }
  if (merged.shape.length !== 1 || merged.bytes !== total) throw wrongShape(checkpoint, merged, [total]);
  const scaleCount = shapes.reduce((sum, each) => sum + each.rows, 0);
  const scales = requireScales(checkpoint, merged, scalesName, scaleCount);
  let weightOffset = merged.offset;
  let scaleOffset = scales.offset;
  return shapes.map(({ rows, columns }) => {
    const weights = { file: merged.file, offset: weightOffset, bytes: rows * columns };
    const factors = { file: scales.file, offset: scaleOffset, bytes: rows * 4 };
    weightOffset += weights.bytes;
    scaleOffset += factors.bytes;
    return {
      encoding: 'int8-row',
      layout: 'q8g64-f32',
      rows,
      columns,
      ranges: [weights, factors],
      fileBytes: weights.bytes + factors.bytes,
      packer: 'int8-row',
      params: [0, 0, 1],
      uses: [merged, scales],
    };
  });
}
