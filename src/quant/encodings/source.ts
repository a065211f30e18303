/** What every encoding answers: where the bytes of a wanted matrix are, and what makes a kernel layout of them. */

import { InternalError } from '../../common/errors.ts';
import type { Checkpoint, Dtype, TensorInfo } from '../../formats/checkpoint-types.ts';
import { type Layout, layoutBytes } from '../layouts.ts';
import type { MatrixRef } from '../refs.ts';
import { missing, refuse, wrongShape } from '../refuse.ts';
import type { Extent } from '../stored.ts';

/** One matrix and where its bytes are: a direct one has one range, a packed one the inputs of its packer. */
export interface MatrixSource {
  readonly encoding: string;
  readonly layout: Layout;
  readonly rows: number;
  readonly columns: number;
  readonly ranges: readonly Extent[];
  /** Bytes in the file that belong to this matrix; `ranges` may hold more, such as every other row of a joint tensor. */
  readonly fileBytes: number;
  readonly packer: string | null;
  /** Numbers that the packer documents. */
  readonly params: readonly number[];
  /** All tensors that were needed. */
  readonly uses: readonly TensorInfo[];
}

/** A matrix [rows, columns] and the rows of the stored one that it consists of. */
export interface Wanted {
  readonly rows: number;
  readonly columns: number;
  /** Stored rows first, first + step, ... of `of`. */
  readonly first: number;
  readonly step: number;
  readonly of: number;
  /** The stored tensor has one more dimension in front: take this matrix. */
  readonly slice: { readonly index: number; readonly of: number } | null;
  readonly transposed: boolean;
}

export function wantedOf(ref: MatrixRef, rows: number, columns: number): Wanted {
  const { first, step, of } = ref.rows ?? { first: 0, step: 1, of: rows };
  const slice = ref.slice ?? null;
  if (first < 0 || step < 1 || first + (rows - 1) * step >= of || (slice && slice.index >= slice.of)) {
    throw new InternalError('BAD_MATRIX_REF', `${ref.name}: ${rows} rows do not lie in ${JSON.stringify(ref)}`);
  }
  return { rows, columns, first, step, of, slice, transposed: ref.transposed === true };
}

/** Shape of the stored tensor when one matrix of it is stored as `matrix`. */
export function storedShape({ slice }: Wanted, matrix: readonly number[]): number[] {
  return slice ? [slice.of, ...matrix] : [...matrix];
}

export function sameShape(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((size, i) => size === b[i]);
}

export function requireShape(checkpoint: Checkpoint, tensor: TensorInfo, expected: readonly number[]): void {
  if (!sameShape(tensor.shape, expected)) throw wrongShape(checkpoint, tensor, expected);
}

/** Refuses a matrix whose rows do not end with a block. */
export function requireBlocks(
  checkpoint: Checkpoint,
  codes: TensorInfo,
  columns: number,
  block: number,
  encoding: string,
): void {
  if (columns % block === 0) return;
  const what = `is ${encoding}, whose rows are blocks of ${block}, but has ${columns} columns`;
  throw refuse(checkpoint, codes, 'TENSOR_WRONG_SHAPE', what, { expected: block, got: columns });
}

export function extentOf(tensor: TensorInfo): Extent {
  return { file: tensor.file, offset: tensor.offset, bytes: tensor.bytes };
}

/** The wanted rows, and those between them, of a tensor that has `rowBytes` per row. */
export function rowRange(tensor: TensorInfo, wanted: Wanted, rowBytes: number): Extent {
  const { rows, first, step, of, slice } = wanted;
  const row = (slice?.index ?? 0) * of + first;
  return { file: tensor.file, offset: tensor.offset + row * rowBytes, bytes: ((rows - 1) * step + 1) * rowBytes };
}

/** The whole of the wanted matrix's part, `bytes` long, of a tensor that may hold several. */
export function sliceRange(tensor: TensorInfo, wanted: Wanted, bytes: number): Extent {
  return { file: tensor.file, offset: tensor.offset + (wanted.slice?.index ?? 0) * bytes, bytes };
}

/** Rows that lie in the file as in memory: as they are where they are contiguous, else gathered. */
export function plainRows(encoding: string, layout: Layout, tensor: TensorInfo, wanted: Wanted): MatrixSource {
  const { rows, columns, step } = wanted;
  const rowBytes = layoutBytes(layout, 1, columns);
  const direct = step === 1 || rows === 1;
  return {
    encoding,
    layout,
    rows,
    columns,
    ranges: [rowRange(tensor, wanted, rowBytes)],
    fileBytes: rows * rowBytes,
    packer: direct ? null : 'rows',
    params: direct ? [] : [rowBytes, step],
    uses: [tensor],
  };
}

/** The tensor of scales `name` of exactly this shape and one of these types; `of` is what it scales. */
export function requireScaleTensor(
  checkpoint: Checkpoint,
  name: string,
  of: TensorInfo,
  dtypes: readonly Dtype[],
  shape: readonly number[],
): TensorInfo {
  const scales = checkpoint.tensors.get(name);
  const expected = dtypes.join(' or ');
  if (scales === undefined) {
    throw missing(
      checkpoint,
      name,
      `the scales of ${of.dtype} tensor "${of.name}": ${expected} of shape [${shape.join(', ')}]`,
    );
  }
  if (!dtypes.includes(scales.dtype)) {
    const what = `holds scales as ${scales.dtype}, expected ${expected}`;
    throw refuse(checkpoint, scales, 'TENSOR_WRONG_DTYPE', what, { expected, got: scales.dtype });
  }
  requireShape(checkpoint, scales, shape);
  return scales;
}

/** `X.weight` -> `X` + ending. */
export function sibling(name: string, ending: string): string {
  return name.replace(/\.weight$/, '') + ending;
}

/** quantization_config of config.json, at its root or of the text model; empty when there is none. */
export function quantizationConfig({ config }: Checkpoint): Readonly<Record<string, unknown>> {
  const isObject = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null;
  if (isObject(config.quantization_config)) return config.quantization_config;
  const text = config.text_config;
  return isObject(text) && isObject(text.quantization_config) ? text.quantization_config : {};
}
