/**
 * From the tensor table of a checkpoint to the way a tensor comes into memory (stored.ts). Only headers are looked at.
 * Whatever does not fit exactly is refused with the tensor, what was expected and what is there.
 */

import type { Checkpoint } from '../formats/checkpoint-types.ts';
import { companionsOf, isStored } from './companions.ts';
import { containerPart } from './encodings/container.ts';
import { findMatrix } from './encodings/find.ts';
import { FLOAT_DTYPES } from './encodings/floats.ts';
import { type HeadStep, headsRecord } from './encodings/heads.ts';
import { mergedExpert } from './encodings/merged.ts';
import { extentOf, type MatrixSource } from './encodings/source.ts';
import { findVector } from './encodings/vectors.ts';
import { recordOf } from './record.ts';
import type { ExpertForm, ExpertNames, MatrixRef } from './refs.ts';
import { refuse } from './refuse.ts';
import type { StoredRecord } from './stored.ts';

export { encodingTable } from './record.ts';
export type { ExpertNames } from './refs.ts';

/** gate and up are [expertWidth, hiddenSize], down is [hiddenSize, expertWidth]. */
export interface ExpertShape {
  readonly hiddenSize: number;
  readonly expertWidth: number;
}

const ROLES = ['gate', 'up', 'down'] as const;
const BIAS_ROLES = ['gateBias', 'upBias', 'downBias'];

function shapesOf({ hiddenSize, expertWidth }: ExpertShape): { rows: number; columns: number }[] {
  const wide = { rows: expertWidth, columns: hiddenSize };
  return [wide, wide, { rows: hiddenSize, columns: expertWidth }];
}

/** Things about a resident tensor that few have. */
export interface DenseOptions {
  /** Shape in the file, where it is not the usual one. */
  readonly stored?: readonly number[];
  /** Of vectors: 1 is added to every element. */
  readonly plusOne?: boolean;
}

/** A matrix [rows, columns] that may be in any supported encoding. */
export function resolveMatrix(
  checkpoint: Checkpoint,
  name: string,
  rows: number,
  columns: number,
  { stored }: DenseOptions = {},
): StoredRecord {
  return resolveRef(checkpoint, { name }, rows, columns, stored);
}

/** The same of a part of a tensor. */
export function resolveRef(
  checkpoint: Checkpoint,
  ref: MatrixRef,
  rows: number,
  columns: number,
  stored?: readonly number[],
): StoredRecord {
  const hash = ref.rows || ref.slice ? null : (checkpoint.container?.sha256.get(ref.name) ?? null);
  return recordOf(ref.name, [findMatrix(checkpoint, ref, rows, columns, stored)], hash);
}

/** A matrix that must be F32, BF16 or F16 (the router: a quantised one would change which experts are chosen). */
export function resolveFloatMatrix(
  checkpoint: Checkpoint,
  name: string,
  rows: number,
  columns: number,
  options: DenseOptions = {},
): StoredRecord {
  const tensor = checkpoint.tensors.get(name);
  if (tensor !== undefined && FLOAT_DTYPES[tensor.dtype] === undefined) {
    const what = `is ${tensor.dtype}, expected F32, BF16 or F16`;
    throw refuse(checkpoint, tensor, 'TENSOR_WRONG_DTYPE', what, { expected: 'F32, BF16, F16', got: tensor.dtype });
  }
  return resolveMatrix(checkpoint, name, rows, columns, options);
}

/** A vector [length] as float32, always packed so that it lands aligned (vectors are small). */
export function resolveVector(
  checkpoint: Checkpoint,
  name: string,
  length: number,
  options: DenseOptions = {},
): StoredRecord {
  const source = findVector(checkpoint, { name }, length, options);
  return recordOf(name, [source], checkpoint.container?.sha256.get(name) ?? null);
}

/** A routed expert in whichever form the checkpoint has it: parts gate, up, down, then their biases if it has some. */
export function resolveExpert(checkpoint: Checkpoint, names: ExpertNames, shape: ExpertShape): StoredRecord {
  const label = `layer ${names.layer} expert ${names.expert}`;
  const { tensors } = checkpoint;
  const record = tensors.get(names.record);
  const merged = names.merged && tensors.get(names.merged.weights);
  const all = names.forms;
  const forms = all.filter(form => formHolder(checkpoint, form, all) !== null);
  const holders = forms.map(form => formHolder(checkpoint, form, all)!);
  const held = [record?.name, merged?.name, ...holders].filter(name => name !== undefined);
  if (held.length > 1) throw storedTwice(checkpoint, held, label);
  if (record) {
    const sources = recordParts(checkpoint, names, shape);
    return recordOf(label, sources, checkpoint.container?.sha256.get(record.name) ?? null, extentOf(record));
  }
  if (merged) return recordOf(label, mergedExpert(checkpoint, merged, names.merged!.scales, shapesOf(shape)), null);
  const form = forms[0] ?? all[0];
  const shapes = shapesOf(shape);
  const sources = ROLES.map((role, i) => findMatrix(checkpoint, form[role], shapes[i].rows, shapes[i].columns));
  const { biases } = form;
  if (biases) {
    for (const [i, role] of ROLES.entries()) sources.push(findVector(checkpoint, biases[role], shapes[i].rows));
  }
  return recordOf(label, sources, null);
}

/**
 * Name of a matrix of an expert that is there in this form, null when there is none. Two forms may use the same names, one of
 * them transposed: floats are then meant by the transposed one, every other encoding by the other.
 */
export function formHolder(checkpoint: Checkpoint, form: ExpertForm, all: readonly ExpertForm[]): string | null {
  for (const role of ROLES) {
    const { name, transposed = false } = form[role];
    if (!isStored(checkpoint, name)) continue;
    const twin = all.some(other => other[role].name === name && (other[role].transposed ?? false) !== transposed);
    const dtype = checkpoint.tensors.get(name)?.dtype;
    const isFloat = dtype !== undefined && FLOAT_DTYPES[dtype] !== undefined;
    // the first matrix that is there decides for all
    return !twin || isFloat === transposed ? name : null;
  }
  return null;
}

function storedTwice(checkpoint: Checkpoint, held: readonly string[], label: string) {
  const { file } = checkpoint.tensors.get(held[0]) ?? companionsOf(checkpoint, held[0])[0];
  return refuse(checkpoint, { name: held[0], file }, 'EXPERT_STORED_TWICE', `and "${held[1]}" both hold ${label}`, {
    got: held,
    hint: 'files of two versions of a model are mixed in one directory: keep one of them',
  });
}

/** The parts of a record of our container. */
function recordParts(checkpoint: Checkpoint, names: ExpertNames, shape: ExpertShape): MatrixSource[] {
  const record = checkpoint.tensors.get(names.record)!;
  const described = checkpoint.container?.experts.get(record.name);
  if (described === undefined) {
    throw refuse(checkpoint, record, 'RECORD_NOT_DESCRIBED', 'is an expert record that coli.index.json does not list', {
      hint: 'coli.index.json is missing or belongs to another model: copy the whole container again',
    });
  }
  const biases = names.forms.some(form => form.biases !== undefined);
  const expected: readonly string[] = biases ? [...ROLES, ...BIAS_ROLES] : ROLES;
  const roles = described.parts.map(part => part.role);
  if (roles.join() !== expected.join()) {
    const what = `has parts ${roles.join(', ')} in coli.index.json, expected ${expected.join(', ')}`;
    throw refuse(checkpoint, record, 'RECORD_BAD_PARTS', what, { expected, got: roles });
  }
  const matrices = shapesOf(shape);
  const shapes = [...matrices, ...matrices.map(({ rows }) => ({ rows: 1, columns: rows }))];
  let end = record.offset;
  return described.parts.map((part, i) => {
    const source = containerPart(checkpoint, record, part, shapes[i].rows, shapes[i].columns);
    if (i >= ROLES.length && source.layout !== 'f32') {
      const what = `has ${part.role} as ${source.layout}, expected f32`;
      throw refuse(checkpoint, record, 'RECORD_BAD_PARTS', what, { expected: 'f32', got: source.layout });
    }
    const [range] = source.ranges;
    if (range.offset < end) {
      const what = `has overlapping parts in coli.index.json: ${part.role} begins at ${part.offset}`;
      throw refuse(checkpoint, record, 'RECORD_BAD_PARTS', what, { got: part.offset });
    }
    end = range.offset + range.bytes;
    return source;
  });
}

/** The key or value part of kv_b_proj, split by heads: a matrix [rows, columns] as the step says. */
export function resolveHeads(
  checkpoint: Checkpoint,
  name: string,
  load: HeadStep,
  rows: number,
  columns: number,
): StoredRecord {
  return headsRecord(checkpoint, name, load, load.step === 'head-keys' ? rows / load.heads : columns);
}
