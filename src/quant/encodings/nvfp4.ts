/**
 * NVFP4 as modelopt writes it: e2m1 nibbles in `X.weight`, an e4m3 scale per 16 columns in `X.weight_scale`, and one float32
 * factor for the tensor in `X.weight_scale_2`. Other writers store its reciprocal, which is larger than 1: that is refused.
 */

import type { Checkpoint, TensorInfo } from '../../formats/checkpoint-types.ts';
import { readFloat32 } from '../../formats/read-number.ts';
import { BLOCKS } from '../layouts.ts';
import { isReciprocal } from '../packers/blocks.ts';
import { missing, refuse, wrongShape } from '../refuse.ts';
import type { Extent } from '../stored.ts';
import {
  type MatrixSource,
  requireBlocks,
  requireScaleTensor,
  requireShape,
  rowRange,
  storedShape,
  type Wanted,
} from './source.ts';

const BLOCK = BLOCKS.nvfp4.columns;

/**
 * Global scales that are looked at before anything is loaded. All tensors of a checkpoint follow one convention, and a model can
 * have 60,000 of them; the packer looks at every one.
 */
const CHECKED_EARLY = 64;
const checked = new WeakMap<Checkpoint['tensors'], number>();

export function nvfp4Matrix(checkpoint: Checkpoint, codes: TensorInfo, wanted: Wanted): MatrixSource {
  const { of, rows, columns, step } = wanted;
  requireBlocks(checkpoint, codes, columns, BLOCK, 'NVFP4');
  requireShape(checkpoint, codes, storedShape(wanted, [of, columns / 2]));
  const shape = storedShape(wanted, [of, columns / BLOCK]);
  const scales = requireScaleTensor(checkpoint, `${codes.name}_scale`, codes, ['F8_E4M3'], shape);
  const [factor, factorRange] = globalScale(checkpoint, codes, wanted);
  const early = checked.get(checkpoint.tensors) ?? 0;
  if (early < CHECKED_EARLY) {
    checked.set(checkpoint.tensors, early + 1);
    const value = readFloat32(checkpoint, factorRange);
    if (isReciprocal(value)) {
      const what = `is ${value}: the global scale of NVFP4 must be a factor below 1, this is its reciprocal`;
      throw refuse(checkpoint, factor, 'SCALE_RECIPROCAL', what, {
        expected: 'below 1',
        got: value,
        hint: 'use the files that modelopt wrote, or the BF16 files of this model',
      });
    }
  }
  return {
    encoding: 'nvfp4',
    layout: 'nvfp4',
    rows,
    columns,
    ranges: [rowRange(codes, wanted, columns / 2), rowRange(scales, wanted, columns / BLOCK), factorRange],
    fileBytes: rows * (columns / 2 + columns / BLOCK) + 4,
    packer: 'nvfp4',
    params: [step],
    uses: [codes, scales, factor],
  };
}

/** One for the tensor, or one for each matrix in it. */
function globalScale(checkpoint: Checkpoint, codes: TensorInfo, { slice }: Wanted): [TensorInfo, Extent] {
  const name = `${codes.name}_scale_2`;
  const factor = checkpoint.tensors.get(name);
  if (factor === undefined) throw missing(checkpoint, name, `the F32 global scale of NVFP4 tensor "${codes.name}"`);
  if (factor.dtype !== 'F32') {
    const what = `holds a scale as ${factor.dtype}, expected F32`;
    throw refuse(checkpoint, factor, 'TENSOR_WRONG_DTYPE', what, { expected: 'F32', got: factor.dtype });
  }
  const count = factor.bytes / 4;
  if (count === 1) return [factor, { file: factor.file, offset: factor.offset, bytes: 4 }];
  if (slice === null || count !== slice.of || factor.shape[0] !== slice.of) {
    throw wrongShape(checkpoint, factor, slice ? [slice.of] : []);
  }
  return [factor, { file: factor.file, offset: factor.offset + slice.index * 4, bytes: 4 }];
}
