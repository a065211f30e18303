/** Integers of compressed-tensors: symmetric int4 packed into words of 32 bits, and int8 with a scale per row. */

import type { Checkpoint, TensorInfo } from '../../formats/checkpoint-types.ts';
import { GROUP } from '../layouts.ts';
import { KIND_BYTES, NUMBER_KIND } from '../packers/packer.ts';
import { missing, refuse, unsupported } from '../refuse.ts';
import {
  type MatrixSource,
  quantizationConfig,
  requireScaleTensor,
  requireShape,
  rowRange,
  sameShape,
  storedShape,
  type Wanted,
} from './source.ts';

const SCALE_DTYPES = ['F32', 'BF16', 'F16'] as const;
const PER_WORD = 8;

/** `X.weight_packed` I32 [rows, columns / 8] (value k in bits 4k, plus 8), `X.weight_scale`, and often `X.weight_shape`. */
export function packedInt4(checkpoint: Checkpoint, codes: TensorInfo, name: string, wanted: Wanted): MatrixSource {
  const { of, rows, columns, step } = wanted;
  if (sameShape(codes.shape, storedShape(wanted, [of, columns / 4]))) {
    throw unsupported(checkpoint, codes, 'int8 packed into words (pack-quantized)');
  }
  if (columns % PER_WORD !== 0) throw unsupported(checkpoint, codes, `int4 words with ${columns} columns`);
  requireShape(checkpoint, codes, storedShape(wanted, [of, columns / PER_WORD]));
  const scales = checkpoint.tensors.get(`${name}_scale`);
  if (scales === undefined) throw missing(checkpoint, `${name}_scale`, `the scales of int4 tensor "${codes.name}"`);
  const count = scales.shape.at(-1) ?? 0;
  const group = groupOf(checkpoint, codes, scales, columns, count);
  const scalesPerRow = group === 0 ? 1 : Math.ceil(columns / group);
  requireScaleTensor(checkpoint, scales.name, codes, SCALE_DTYPES, storedShape(wanted, [of, scalesPerRow]));
  const kind = NUMBER_KIND[scales.dtype]!;
  const rowBytes = columns / 2;
  const scaleBytes = scalesPerRow * KIND_BYTES[kind];
  const shape = checkpoint.tensors.get(`${name}_shape`);
  return {
    encoding: group === 0 ? 'int4-row' : `int4-g${group}`,
    layout: 'q4g64-f32',
    rows,
    columns,
    ranges: [rowRange(codes, wanted, rowBytes), rowRange(scales, wanted, scaleBytes)],
    fileBytes: rows * (rowBytes + scaleBytes),
    packer: 'int4-row',
    params: [group, kind, step],
    uses: shape ? [codes, scales, shape] : [codes, scales],
  };
}

/** Columns of one scale, 0 for a whole row: config.json lists the sizes, the number of scales says which of them it is. */
function groupOf(
  checkpoint: Checkpoint,
  codes: TensorInfo,
  scales: TensorInfo,
  columns: number,
  count: number,
): number {
  const groups = int4Groups(checkpoint);
  if (groups.some(({ symmetric }) => !symmetric)) throw unsupported(checkpoint, codes, 'int4 with zero points');
  if (count === 1) return 0;
  const fitting = groups.find(({ size }) => size > 0 && Math.ceil(columns / size) === count);
  if (fitting === undefined) {
    const sizes = groups.map(({ size }) => (size > 0 ? `groups of ${size}` : 'rows')).join(', ') || 'no int4 groups';
    const what = `has ${count} scales for ${columns} columns; config.json names ${sizes}`;
    throw refuse(checkpoint, scales, 'SCALES_WRONG_COUNT', what, { expected: sizes, got: count });
  }
  if (fitting.size % GROUP !== 0) throw unsupported(checkpoint, codes, `int4 with groups of ${fitting.size} columns`);
  return fitting.size;
}

/** What config_groups say about 4-bit integers. size 0: a scale per row. */
function int4Groups(checkpoint: Checkpoint): { size: number; symmetric: boolean }[] {
  const groups = Object.values((quantizationConfig(checkpoint).config_groups ?? {}) as Record<string, unknown>);
  const weights = groups.map(group => (group as { weights?: Record<string, unknown> } | null)?.weights ?? {});
  const int4 = weights.filter(each => each.num_bits === 4 && (each.type === undefined || each.type === 'int'));
  return int4.map(each => ({
    size: typeof each.group_size === 'number' && each.group_size > 0 ? each.group_size : 0,
    symmetric: each.symmetric !== false,
  }));
}

/** `X.weight` I8 [rows, columns] and `X.weight_scale` [rows, 1] or [rows]. */
export function int8Matrix(checkpoint: Checkpoint, codes: TensorInfo, wanted: Wanted): MatrixSource {
  const { of, rows, columns, step } = wanted;
  requireShape(checkpoint, codes, storedShape(wanted, [of, columns]));
  const name = `${codes.name}_scale`;
  const shape = checkpoint.tensors.get(name)?.shape ?? [];
  if (shape.every(size => size === 1) && of > 1) {
    throw unsupported(checkpoint, codes, 'int8 with one scale for the whole tensor');
  }
  const flat = sameShape(shape, storedShape(wanted, [of]));
  const expected = storedShape(wanted, flat ? [of] : [of, 1]);
  const scales = requireScaleTensor(checkpoint, name, codes, SCALE_DTYPES, expected);
  const kind = NUMBER_KIND[scales.dtype]!;
  return {
    encoding: 'int8-row',
    layout: 'q8g64-f32',
    rows,
    columns,
    ranges: [rowRange(codes, wanted, columns), rowRange(scales, wanted, KIND_BYTES[kind])],
    fileBytes: rows * (columns + KIND_BYTES[kind]),
    packer: 'int8-row',
    params: [0, kind, step],
    uses: [codes, scales],
  };
}
