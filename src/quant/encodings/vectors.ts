/** Vectors: F32, BF16 or F16 in the file, float32 in memory. They are small and always packed, so that they land aligned. */

import type { Checkpoint } from '../../formats/checkpoint-types.ts';
import { layoutBytes } from '../layouts.ts';
import { NUMBER_KIND } from '../packers/packer.ts';
import type { MatrixRef } from '../refs.ts';
import { missing, unsupported, wrongShape } from '../refuse.ts';
import { FLOAT_DTYPES } from './floats.ts';
import { type MatrixSource, rowRange, sameShape, storedShape, wantedOf } from './source.ts';

/** The vector [length] that `ref` means: `slice` takes one row of a matrix, `rows` takes elements of it. */
export function findVector(
  checkpoint: Checkpoint,
  ref: MatrixRef,
  length: number,
  { stored, plusOne = false }: { readonly stored?: readonly number[]; readonly plusOne?: boolean } = {},
): MatrixSource {
  const wanted = wantedOf(ref, length, 1);
  const tensor = checkpoint.tensors.get(ref.name);
  const own = storedShape(wanted, [wanted.of]);
  if (tensor === undefined) {
    throw missing(checkpoint, ref.name, `F32, BF16 or F16 of shape [${(stored ?? own).join(', ')}]`);
  }
  const encoding = FLOAT_DTYPES[tensor.dtype];
  if (encoding === undefined) throw unsupported(checkpoint, tensor, tensor.dtype);
  if (!sameShape(tensor.shape, own) && !(stored && sameShape(tensor.shape, stored))) {
    throw wrongShape(checkpoint, tensor, stored ?? own);
  }
  const elementBytes = layoutBytes(encoding, 1, 1);
  const simple = wanted.step === 1 && !plusOne;
  return {
    encoding,
    layout: 'f32',
    rows: 1,
    columns: length,
    ranges: [rowRange(tensor, wanted, elementBytes)],
    fileBytes: length * elementBytes,
    packer: simple ? (encoding === 'f32' ? 'copy' : `${encoding}-to-f32`) : 'vector',
    params: simple ? [] : [NUMBER_KIND[tensor.dtype]!, wanted.step, plusOne ? 1 : 0],
    uses: [tensor],
  };
}
