/**
 * From the tensor table of a checkpoint to the way a matrix comes into memory (stored.ts). Only headers are looked at.
 * Whatever does not fit exactly is refused with the tensor, what was expected and what is there.
 */

import { alignUp } from '../common/units.ts';
import type { Checkpoint, Dtype, TensorInfo } from '../formats/checkpoint-types.ts';
import { type FloatLayout, type Layout, layoutBytes, TILE_BYTES } from './layouts.ts';
import { missing, refuse, unsupported, wrongShape } from './refuse.ts';
import { extentOf, requireScales, resolveSidecar } from './sidecar.ts';
import type { Extent, PackStep, StoredPart, StoredRecord } from './stored.ts';

const FLOAT_DTYPES: Partial<Record<Dtype, FloatLayout>> = { F32: 'f32', BF16: 'bf16', F16: 'f16' };

/** Packed parts start at multiples of this: a cache line, and enough for any vector load. */
const PACK_ALIGNMENT = 64;

/** One matrix and where its bytes are: a direct one has one range, a packed one the inputs of its packer. */
interface MatrixSource {
  readonly encoding: string;
  readonly layout: Layout;
  readonly rows: number;
  readonly columns: number;
  readonly ranges: readonly Extent[];
  readonly packer: string | null;
}

/** The names under which a routed expert may be stored (models/family.ts: TensorTable). */
export interface ExpertNames {
  readonly layer: number;
  readonly expert: number;
  readonly gate: string;
  readonly up: string;
  readonly down: string;
  readonly record: string;
  readonly merged: string;
  readonly mergedScales: string;
}

/** gate and up are [expertWidth, hiddenSize], down is [hiddenSize, expertWidth]. */
export interface ExpertShape {
  readonly hiddenSize: number;
  readonly expertWidth: number;
}

const ROLES = ['gate', 'up', 'down'] as const;

function shapesOf({ hiddenSize, expertWidth }: ExpertShape): { rows: number; columns: number }[] {
  const wide = { rows: expertWidth, columns: hiddenSize };
  return [wide, wide, { rows: hiddenSize, columns: expertWidth }];
}

/** A matrix [rows, columns] that may be in any supported encoding. */
export function resolveMatrix(checkpoint: Checkpoint, name: string, rows: number, columns: number): StoredRecord {
  const hash = checkpoint.container?.sha256.get(name) ?? null;
  return recordOf(name, [findMatrix(checkpoint, name, rows, columns)], hash);
}

/** A matrix that must be F32, BF16 or F16 (the router: a quantised one would change which experts are chosen). */
export function resolveFloatMatrix(checkpoint: Checkpoint, name: string, rows: number, columns: number): StoredRecord {
  const tensor = checkpoint.tensors.get(name);
  if (tensor !== undefined && FLOAT_DTYPES[tensor.dtype] === undefined) {
    const what = `is ${tensor.dtype}, expected F32, BF16 or F16`;
    throw refuse(checkpoint, tensor, 'TENSOR_WRONG_DTYPE', what, { expected: 'F32, BF16, F16', got: tensor.dtype });
  }
  return resolveMatrix(checkpoint, name, rows, columns);
}

/** A vector [length] as float32, always packed so that it lands aligned (norms are small). */
export function resolveVector(checkpoint: Checkpoint, name: string, length: number): StoredRecord {
  const tensor = checkpoint.tensors.get(name);
  if (tensor === undefined) throw missing(checkpoint, name, `F32, BF16 or F16 of shape [${length}]`);
  const layout = FLOAT_DTYPES[tensor.dtype];
  if (layout === undefined) throw unsupported(checkpoint, tensor, tensor.dtype);
  if (tensor.shape.length !== 1 || tensor.shape[0] !== length) throw wrongShape(checkpoint, tensor, [length]);
  const packer = layout === 'f32' ? 'copy' : `${layout}-to-f32`;
  const ranges = [extentOf(tensor)];
  const source = { encoding: layout, layout: 'f32' as const, rows: 1, columns: length, ranges, packer };
  return recordOf(name, [source], checkpoint.container?.sha256.get(name) ?? null);
}

/** A routed expert in whichever form the checkpoint has it: parts gate, up, down. */
export function resolveExpert(checkpoint: Checkpoint, names: ExpertNames, shape: ExpertShape): StoredRecord {
  const label = `layer ${names.layer} expert ${names.expert}`;
  const record = checkpoint.tensors.get(names.record);
  const merged = checkpoint.tensors.get(names.merged);
  const gate = checkpoint.tensors.get(names.gate);
  const present = [record, merged, gate].filter(tensor => tensor !== undefined);
  if (present.length > 1) {
    const what = `and "${present[1].name}" both hold ${label}`;
    throw refuse(checkpoint, present[0], 'EXPERT_STORED_TWICE', what, {
      hint: 'files of two versions of a model are mixed in one directory: keep one of them',
    });
  }
  if (record) {
    const sources = containerParts(checkpoint, record, shape);
    return recordOf(label, sources, checkpoint.container?.sha256.get(record.name) ?? null, extentOf(record));
  }
  if (merged) return recordOf(label, mergedParts(checkpoint, merged, names.mergedScales, shape), null);
  const shapes = shapesOf(shape);
  const sources = ROLES.map((role, i) => findMatrix(checkpoint, names[role], shapes[i].rows, shapes[i].columns));
  return recordOf(label, sources, null);
}

/** Encoding -> bytes on disk, for reports. */
export function encodingTable(records: Iterable<StoredRecord>): Record<string, number> {
  const table: Record<string, number> = {};
  for (const record of records) {
    for (const part of record.parts) table[part.encoding] = (table[part.encoding] ?? 0) + part.fileBytes;
  }
  return table;
}

function findMatrix(checkpoint: Checkpoint, name: string, rows: number, columns: number): MatrixSource {
  const tensor = checkpoint.tensors.get(name);
  if (tensor === undefined) throw missing(checkpoint, name, `a matrix of shape [${rows}, ${columns}]`);
  const layout = FLOAT_DTYPES[tensor.dtype];
  if (layout !== undefined) {
    const { shape } = tensor;
    if (shape.length !== 2 || shape[0] !== rows || shape[1] !== columns) {
      throw wrongShape(checkpoint, tensor, [rows, columns]);
    }
    if (checkpoint.tensors.has(`${name}.qs`)) {
      throw refuse(checkpoint, tensor, 'ENCODING_AMBIGUOUS', `is ${tensor.dtype} but also has scales "${name}.qs"`);
    }
    return { encoding: layout, layout, rows, columns, ranges: [extentOf(tensor)], packer: null };
  }
  const described = checkpoint.container?.matrices.get(name);
  if (described) {
    const found = containerPart(checkpoint, tensor, { ...described, offset: 0 }, rows, columns);
    if (found.ranges[0].bytes !== tensor.bytes) {
      throw wrongBytes(checkpoint, tensor, found.ranges[0].bytes, `${described.encoding} of [${rows}, ${columns}]`);
    }
    return found;
  }
  if (tensor.dtype === 'U8' || tensor.dtype === 'I8') {
    const sidecar = resolveSidecar(checkpoint, tensor, rows, columns);
    return { ...sidecar, rows, columns, packer: sidecar.encoding };
  }
  throw unsupported(checkpoint, tensor, tensor.dtype);
}

function wrongBytes(checkpoint: Checkpoint, tensor: TensorInfo, expected: number, what: string) {
  const message = `has ${tensor.bytes} bytes, expected ${expected} (${what})`;
  return refuse(checkpoint, tensor, 'TENSOR_WRONG_SIZE', message, { expected, got: tensor.bytes });
}

/** One matrix inside a U8 tensor of our container, checked against the shape that config.json asks for. */
function containerPart(
  checkpoint: Checkpoint,
  tensor: TensorInfo,
  described: { encoding: string; rows: number; columns: number; offset: number },
  rows: number,
  columns: number,
): MatrixSource {
  const { encoding, offset } = described;
  if (tensor.dtype !== 'U8') {
    const what = `is ${tensor.dtype}, expected U8 (coli.index.json describes it as ${encoding})`;
    throw refuse(checkpoint, tensor, 'TENSOR_WRONG_DTYPE', what, { expected: 'U8', got: tensor.dtype });
  }
  if (!isKnownLayout(encoding)) throw unsupported(checkpoint, tensor, encoding);
  if (described.rows !== rows || described.columns !== columns) {
    const got = [described.rows, described.columns];
    const what = `is [${got.join(', ')}] according to coli.index.json, expected [${rows}, ${columns}]`;
    throw refuse(checkpoint, tensor, 'TENSOR_WRONG_SHAPE', what, { expected: [rows, columns], got });
  }
  const bytes = layoutBytes(encoding, rows, columns);
  if (!Number.isSafeInteger(offset) || offset < 0 || offset + bytes > tensor.bytes) {
    const what = `has ${tensor.bytes} bytes, but coli.index.json puts ${bytes} bytes at ${offset}`;
    throw refuse(checkpoint, tensor, 'TENSOR_WRONG_SIZE', what, { expected: offset + bytes, got: tensor.bytes });
  }
  const ranges = [{ file: tensor.file, offset: tensor.offset + offset, bytes }];
  return { encoding, layout: encoding, rows, columns, ranges, packer: null };
}

function isKnownLayout(encoding: string): encoding is Layout {
  return encoding in TILE_BYTES || Object.values(FLOAT_DTYPES).includes(encoding as FloatLayout);
}

function containerParts(checkpoint: Checkpoint, record: TensorInfo, shape: ExpertShape): MatrixSource[] {
  const described = checkpoint.container?.experts.get(record.name);
  if (described === undefined) {
    throw refuse(checkpoint, record, 'RECORD_NOT_DESCRIBED', 'is an expert record that coli.index.json does not list', {
      hint: 'coli.index.json is missing or belongs to another model: copy the whole container again',
    });
  }
  const roles = described.parts.map(part => part.role);
  if (roles.join() !== ROLES.join()) {
    const what = `has parts ${roles.join(', ')} in coli.index.json, expected ${ROLES.join(', ')}`;
    throw refuse(checkpoint, record, 'RECORD_BAD_PARTS', what, { expected: ROLES, got: roles });
  }
  const shapes = shapesOf(shape);
  let end = record.offset;
  return described.parts.map((part, i) => {
    const source = containerPart(checkpoint, record, part, shapes[i].rows, shapes[i].columns);
    const [range] = source.ranges;
    if (range.offset < end) {
      const what = `has overlapping parts in coli.index.json: ${part.role} begins at ${part.offset}`;
      throw refuse(checkpoint, record, 'RECORD_BAD_PARTS', what, { got: part.offset });
    }
    end = range.offset + range.bytes;
    return source;
  });
}

/** The C engine's OLMoE form: int8 rows of gate, up and down in one flat tensor, their scales in another. */
function mergedParts(
  checkpoint: Checkpoint,
  merged: TensorInfo,
  scalesName: string,
  shape: ExpertShape,
): MatrixSource[] {
  const shapes = shapesOf(shape);
  const total = shapes.reduce((sum, { rows, columns }) => sum + rows * columns, 0);
  if (merged.dtype !== 'I8') {
    const what = `is ${merged.dtype}, expected I8 (merged expert)`;
    throw refuse(checkpoint, merged, 'TENSOR_WRONG_DTYPE', what, { expected: 'I8', got: merged.dtype });
  }
  if (merged.shape.length !== 1 || merged.bytes !== total) throw wrongShape(checkpoint, merged, [total]);
  const rows = shapes.reduce((sum, each) => sum + each.rows, 0);
  const scales = requireScales(checkpoint, merged, scalesName, rows);
  let weightOffset = merged.offset;
  let scaleOffset = scales.offset;
  return shapes.map(each => {
    const weights = { file: merged.file, offset: weightOffset, bytes: each.rows * each.columns };
    const factors = { file: scales.file, offset: scaleOffset, bytes: each.rows * 4 };
    weightOffset += weights.bytes;
    scaleOffset += factors.bytes;
    return { ...each, encoding: 'int8-row', layout: 'q8g64-f32', ranges: [weights, factors], packer: 'int8-row' };
  });
}

/** Neighbouring ranges of a file become one extent, so an expert whose matrices follow each other is one read. */
function mergeRanges(ranges: readonly Extent[]): Extent[] {
  const sorted = [...ranges].sort((a, b) => a.file - b.file || a.offset - b.offset);
  const extents: { file: number; offset: number; bytes: number }[] = [];
  for (const range of sorted) {
    const last = extents.at(-1);
    if (last && last.file === range.file && last.offset + last.bytes === range.offset) last.bytes += range.bytes;
    else extents.push({ ...range });
  }
  return extents;
}

/** `whole`: read this extent instead of the parts' own ranges (a container record with its padding, as it is hashed). */
function recordOf(
  name: string,
  sources: readonly MatrixSource[],
  sha256: string | null,
  whole: Extent | null = null,
): StoredRecord {
  const extents = whole ? [whole] : mergeRanges(sources.flatMap(source => source.ranges));
  const place = (range: Extent) => {
    const extent = extents.findIndex(
      each => each.file === range.file && range.offset >= each.offset && range.offset < each.offset + each.bytes,
    );
    return { extent, offset: range.offset - extents[extent].offset };
  };
  const packed = sources.some(source => source.packer !== null);
  const parts = sources.map(({ encoding, layout, rows, columns, ranges }): StoredPart => {
    const fileBytes = ranges.reduce((sum, range) => sum + range.bytes, 0);
    return { encoding, layout, rows, columns, fileBytes, source: packed ? null : place(ranges[0]) };
  });
  const packs: PackStep[] = [];
  let target = 0;
  for (const source of packed ? sources : []) {
    const { layout, rows, columns } = source;
    const bytes = layoutBytes(layout, rows, columns);
    const inputs = source.ranges.map(range => ({ ...place(range), bytes: range.bytes }));
    packs.push({ packer: source.packer ?? 'copy', rows, columns, inputs, target, bytes });
    target = alignUp(target + bytes, PACK_ALIGNMENT);
  }
  return { name, extents, parts, packs, sha256 };
}
