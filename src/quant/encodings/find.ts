/** Which encoding a matrix is stored in: its own tensor's type says, or the tensors that stand in its place. */

import type { Checkpoint } from '../../formats/checkpoint-types.ts';
import { companionsOf, isOfActivations } from '../companions.ts';
import type { MatrixRef } from '../refs.ts';
import { missing, refuse, unsupported } from '../refuse.ts';
import { containerMatrix } from './container.ts';
import { FLOAT_DTYPES, floatMatrix } from './floats.ts';
import { sidecarMatrix } from './sidecar.ts';
import { type MatrixSource, storedShape, type Wanted, wantedOf } from './source.ts';

/** The matrix [rows, columns] that `ref` means. `stored`: shape in the file of a float tensor, where it is another one. */
export function findMatrix(
  checkpoint: Checkpoint,
  ref: MatrixRef,
  rows: number,
  columns: number,
  stored: readonly number[] | null = null,
): MatrixSource {
  const wanted = wantedOf(ref, rows, columns);
  const source = encodedMatrix(checkpoint, ref.name, wanted, stored);
  for (const tensor of companionsOf(checkpoint, ref.name)) {
    if (source.uses.includes(tensor) || isOfActivations(tensor.name)) continue;
    const [first] = source.uses;
    const what = `is ${first.dtype} but also has "${tensor.name}", which ${source.encoding} does not need`;
    throw refuse(checkpoint, first, 'ENCODING_AMBIGUOUS', what, {
      got: tensor.name,
      hint: 'files of two versions of a model are mixed, or this is an encoding that is not supported: use the BF16 files',
    });
  }
  return source;
}

function encodedMatrix(
  checkpoint: Checkpoint,
  name: string,
  wanted: Wanted,
  stored: readonly number[] | null,
): MatrixSource {
  const tensor = checkpoint.tensors.get(name);
  if (tensor === undefined) {
    throw missing(
      checkpoint,
      name,
      `a matrix of shape [${storedShape(wanted, [wanted.of, wanted.columns]).join(', ')}]`,
    );
  }
  if (FLOAT_DTYPES[tensor.dtype] !== undefined) return floatMatrix(checkpoint, tensor, wanted, stored);
  if (wanted.transposed) throw unsupported(checkpoint, tensor, `${tensor.dtype} with rows and columns exchanged`);
  const described = checkpoint.container?.matrices.get(name);
  if (described) return containerMatrix(checkpoint, tensor, described, wanted);
  if (tensor.dtype === 'U8' || tensor.dtype === 'I8') return sidecarMatrix(checkpoint, tensor, wanted);
  throw unsupported(checkpoint, tensor, tensor.dtype);
}
