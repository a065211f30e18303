/**
 * Integer tensors with a float32 `.qs` sidecar, as the C engine's containers hold them. The encoding is not written down
 * in the file: it follows from the byte count of the weights and the number of scales against the true shape. Forms that
 * fit equally well and would decode differently are refused by name.
 */

import type { ModelFileError } from '../../common/errors.ts';
import type { Checkpoint, TensorInfo } from '../../formats/checkpoint-types.ts';
import { GROUP, type TileLayout } from '../layouts.ts';
import { missing, refuse, unsupported, wrongShape } from '../refuse.ts';
import { type MatrixSource, rowRange, type Wanted } from './source.ts';

/** One of the forms: what it takes for `rows` x `columns`, and the layout it is packed into (null: known but not read). */
interface Form {
  readonly name: string;
  readonly layout: TileLayout | null;
  weightBytes(rows: number, columns: number): number;
  scales(rows: number, columns: number): number;
}

const perRow = (rows: number): number => rows;
const perGroup = (rows: number, columns: number): number => rows * Math.ceil(columns / GROUP);
const nibbles = (rows: number, columns: number): number => rows * Math.ceil(columns / 2);
const bytes = (rows: number, columns: number): number => rows * columns;

const INT8_ROW: Form = { name: 'int8-row', layout: 'q8g64-f32', weightBytes: bytes, scales: perRow };
const INT4_ROW: Form = { name: 'int4-row', layout: 'q4g64-f32', weightBytes: nibbles, scales: perRow };
const INT4_G64: Form = { name: 'int4-g64', layout: 'q4g64-f32', weightBytes: nibbles, scales: perGroup };

const OTHERS: readonly Form[] = [
  { name: 'int2-row', layout: 'q4g64-f32', weightBytes: (o, i) => o * Math.ceil(i / 4), scales: perRow },
  { name: 'int3-g64', layout: 'q4g64-f32', weightBytes: (o, i) => o * Math.ceil(i / 64) * 24, scales: perGroup },
  { name: 'e8-iq3-lattice', layout: null, weightBytes: (o, i) => o * Math.ceil(i / 256) * 98, scales: () => 1 },
  {
    name: 'fp8-e4m3-b128',
    layout: null,
    weightBytes: bytes,
    scales: (o, i) => Math.ceil(o / 128) * Math.ceil(i / 128),
  },
  // 64 is what the C engine ships, so a scale count that 64 explains is never taken for one of these.
  ...[16, 32, 48, 80, 96, 112, 128, 256].map(size => ({
    name: `int4-g${size}`,
    layout: null,
    weightBytes: nibbles,
    scales: (o: number, i: number) => o * Math.ceil(i / size),
  })),
];

function formsThatFit(rows: number, columns: number, weightBytes: number, scales: number): Form[] {
  const fits = (form: Form): boolean =>
    form.weightBytes(rows, columns) === weightBytes && form.scales(rows, columns) === scales;
  const forms = [INT8_ROW, INT4_ROW].filter(fits);
  // With one group per row the two are the same bytes and the same values.
  if (fits(INT4_G64) && !forms.includes(INT4_ROW)) forms.push(INT4_G64);
  for (const other of OTHERS.filter(fits)) {
    if (other.name.startsWith('int4-') && (forms.includes(INT4_ROW) || forms.includes(INT4_G64))) continue;
    // The C engine's own rule: without a stamp, one byte per weight is int8-row.
    if (other.name === 'fp8-e4m3-b128' && forms.includes(INT8_ROW)) continue;
    forms.push(other);
  }
  return forms;
}

/** The float32 tensor `name` of exactly `count` elements (any shape); `of` is the tensor it belongs to. */
export function requireScales(checkpoint: Checkpoint, of: TensorInfo, name: string, count: number | null): TensorInfo {
  const scales = checkpoint.tensors.get(name);
  if (scales === undefined) {
    throw missing(checkpoint, name, `the F32 scales of ${of.dtype} tensor "${of.name}"`);
  }
  if (scales.dtype !== 'F32') {
    const what = `holds scales as ${scales.dtype}, expected F32`;
    throw refuse(checkpoint, scales, 'TENSOR_WRONG_DTYPE', what, { expected: 'F32', got: scales.dtype });
  }
  if (count !== null && scales.bytes !== count * 4) {
    const what = `holds ${scales.bytes / 4} scales, expected ${count}`;
    throw refuse(checkpoint, scales, 'SCALES_WRONG_COUNT', what, { expected: count, got: scales.bytes / 4 });
  }
  return scales;
}

function usesSidecars({ tensors }: Checkpoint): boolean {
  return [...tensors.keys()].some(name => name.endsWith('.qs'));
}

/** Without scales a U8 tensor can only be tiles of a container, and only coli.index.json says which and of what shape. */
function notDescribed(checkpoint: Checkpoint, weight: TensorInfo): ModelFileError {
  const index = checkpoint.container ? 'coli.index.json does not list it' : 'there is no coli.index.json';
  const what = `is U8 without scales "${weight.name}.qs", as in a coli container, but ${index}`;
  return refuse(checkpoint, weight, 'MATRIX_NOT_DESCRIBED', what, {
    hint: 'coli.index.json is missing or belongs to another model: copy the whole container again',
  });
}

/** Finds out how a U8 or I8 tensor with scales holds the matrix. */
export function sidecarMatrix(checkpoint: Checkpoint, weight: TensorInfo, wanted: Wanted): MatrixSource {
  const { of, columns, slice } = wanted;
  const scalesName = `${weight.name}.qs`;
  if (weight.dtype === 'U8' && !checkpoint.tensors.has(scalesName) && !usesSidecars(checkpoint)) {
    throw notDescribed(checkpoint, weight);
  }
  const scales = requireScales(checkpoint, weight, scalesName, null);
  const matrices = slice?.of ?? 1;
  const shape = slice ? weight.shape.slice(1) : weight.shape;
  if ((slice && weight.shape[0] !== slice.of) || (shape.length > 1 && shape[0] !== of)) {
    const what = `has ${shape[0]} rows (shape [${weight.shape.join(', ')}]), expected ${of}`;
    throw refuse(checkpoint, weight, 'TENSOR_WRONG_SHAPE', what, { expected: of, got: weight.shape });
  }
  const form = formOf(checkpoint, weight, of, columns, weight.bytes / matrices, scales.bytes / 4 / matrices);
  requireRows(checkpoint, scales, [...(slice ? [slice.of] : []), of], form.scales(1, columns));
  return sidecarRows(form, weight, scales, wanted);
}

/** Scales are a flat list, or have the dimensions `rows` and then those of one row. */
function requireRows(checkpoint: Checkpoint, scales: TensorInfo, rows: readonly number[], perRow: number): void {
  const { shape } = scales;
  if (shape.length <= 1 || rows.every((size, i) => shape[i] === size)) return;
  throw wrongShape(checkpoint, scales, [...rows, perRow]);
}

/** The one readable form that the sizes allow. */
function formOf(
  checkpoint: Checkpoint,
  weight: TensorInfo,
  rows: number,
  columns: number,
  weightBytes: number,
  count: number,
): Form {
  const got = `${weightBytes} bytes with ${count} scales`;
  const forms = formsThatFit(rows, columns, weightBytes, count).filter(
    form => weight.dtype === 'U8' || form === INT8_ROW,
  );
  if (forms.length === 0) {
    const needs = [INT8_ROW, INT4_ROW, INT4_G64]
      .map(form => `${form.name} ${form.weightBytes(rows, columns)} with ${form.scales(rows, columns)}`)
      .join(', ');
    const what = `has ${got} as ${weight.dtype}, which is no known encoding of [${rows}, ${columns}] (${needs})`;
    throw refuse(checkpoint, weight, 'ENCODING_UNKNOWN', what, { expected: needs, got });
  }
  const [form] = forms;
  if (forms.length > 1) {
    const names = forms.map(each => each.name).join(' or ');
    const what = `has ${got}: for [${rows}, ${columns}] that is ${names}, and the file does not say which`;
    throw refuse(checkpoint, weight, 'ENCODING_AMBIGUOUS', what, {
      got: names,
      hint: 'use the BF16 files of this model, or another quantisation of it',
    });
  }
  if (form.layout === null) throw unsupported(checkpoint, weight, form.name);
  return form;
}

/** The wanted rows of codes and of their scales, which both go row by row. */
function sidecarRows(form: Form, weight: TensorInfo, scales: TensorInfo, wanted: Wanted): MatrixSource {
  const { rows, columns, step } = wanted;
  const rowBytes = form.weightBytes(1, columns);
  const scaleBytes = form.scales(1, columns) * 4;
  return {
    encoding: form.name,
    layout: form.layout!,
    rows,
    columns,
    ranges: [rowRange(weight, wanted, rowBytes), rowRange(scales, wanted, scaleBytes)],
    fileBytes: rows * (rowBytes + scaleBytes),
    packer: form.name,
    params: [form.scales === perRow ? 0 : GROUP, 0, step],
    uses: [weight, scales],
  };
}
