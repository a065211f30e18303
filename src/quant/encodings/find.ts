/** Which encoding a matrix is stored in: its own tensor's type says, or the tensors that stand in its place. */

import type { Checkpoint } from '../../formats/checkpoint-types.ts';
import { companionsOf, isOfActivations } from '../companions.ts';
import type { MatrixRef } from '../refs.ts';
import { missing, refuse, unsupported } from '../refuse.ts';
import { int8Matrix, packedInt4 } from './compressed.ts';
import { containerMatrix } from './container.ts';
import { FLOAT_DTYPES, floatMatrix } from './floats.ts';
import { fp8Matrix } from './fp8.ts';
import { GGUF_LAYOUT, ggufMatrix } from './gguf.ts';
import { blocksMxfp4, int8Mxfp4, packedMxfp4 } from './mxfp4.ts';
import { nvfp4Matrix } from './nvfp4.ts';
import { sidecarMatrix } from './sidecar.ts';
import { type MatrixSource, sibling, storedShape, type Wanted, wantedOf } from './source.ts';

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
  const { tensors } = checkpoint;
  const tensor = tensors.get(name);
  if (tensor === undefined) return standIn(checkpoint, name, wanted);
  const { dtype } = tensor;
  if (FLOAT_DTYPES[dtype] !== undefined) return floatMatrix(checkpoint, tensor, wanted, stored);
  if (wanted.transposed) throw unsupported(checkpoint, tensor, `${dtype} with rows and columns exchanged`);
  const described = checkpoint.container?.matrices.get(name);
  if (described) return containerMatrix(checkpoint, tensor, described, wanted);
  const blocks = GGUF_LAYOUT[dtype];
  if (blocks !== undefined) return ggufMatrix(checkpoint, tensor, blocks, wanted);
  if (dtype === 'F8_E4M3') return fp8Matrix(checkpoint, tensor, wanted);
  const scaled = tensors.has(`${name}_scale`);
  if (dtype === 'U8' && (scaled || tensors.has(`${name}_scale_2`))) return nvfp4Matrix(checkpoint, tensor, wanted);
  if (dtype === 'I8' && scaled) return int8Matrix(checkpoint, tensor, wanted);
  if (dtype === 'I8' && tensors.has(sibling(name, '.scale'))) return int8Mxfp4(checkpoint, tensor, wanted);
  if (dtype === 'U8' || dtype === 'I8') return sidecarMatrix(checkpoint, tensor, wanted);
  throw unsupported(checkpoint, tensor, dtype);
}

/** The matrix has no tensor of its name: other names say how it is stored. */
function standIn(checkpoint: Checkpoint, name: string, wanted: Wanted): MatrixSource {
  const { tensors } = checkpoint;
  const packed = tensors.get(`${name}_packed`);
  const blocks = tensors.get(`${name}_blocks`);
  const quantised = tensors.get(sibling(name, '.qweight'));
  const found = packed ?? blocks ?? quantised;
  if (found === undefined) {
    const shape = storedShape(wanted, [wanted.of, wanted.columns]);
    throw missing(checkpoint, name, `a matrix of shape [${shape.join(', ')}]`);
  }
  if (wanted.transposed) throw unsupported(checkpoint, found, `${found.dtype} with rows and columns exchanged`);
  if (packed?.dtype === 'I32') return packedInt4(checkpoint, packed, name, wanted);
  if (packed) return packedMxfp4(checkpoint, packed, name, wanted);
  if (blocks) return blocksMxfp4(checkpoint, blocks, name, wanted);
  throw unsupported(checkpoint, found, `${found.dtype} words of GPTQ or AWQ`);
}
