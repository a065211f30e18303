/** The tensors of the container: which ones, in which encoding, made of what. */

import { alignUp } from '../common/units.ts';
import type { Checkpoint } from '../formats/checkpoint-types.ts';
import { type DenseTensor, isVector, type ModelShape, type TensorTable } from '../models/family.ts';
import { resolveDense } from '../models/records.ts';
import { type Layout, layoutBytes } from '../quant/layouts.ts';
import { type ExpertNames, resolveExpert } from '../quant/resolve.ts';
import type { StoredRecord } from '../quant/stored.ts';
import { denseLayout, expertLayout } from './roles.ts';
import type { ConvertParameters, PlannedPart, PlannedTensor } from './types.ts';

/** Expert records start and end at multiples of this, in the file and in length: what O_DIRECT wants. */
export const RECORD_ALIGNMENT = 4096;
/** Biases are used as activations are, which kernels want at whole vectors. */
const BIAS_ALIGNMENT = 64;

const ROLES = ['gate', 'up', 'down', 'gateBias', 'upBias', 'downBias'];
const MATRICES = 3;

const FLOAT_DTYPES: Readonly<Partial<Record<Layout, 'F32' | 'BF16' | 'F16'>>> = {
  f32: 'F32',
  bf16: 'BF16',
  f16: 'F16',
};

/** Resident tensors as the files have them: what is made of one on loading is left to loading. */
export function planResident(
  checkpoint: Checkpoint,
  table: TensorTable,
  { dense }: ConvertParameters,
): PlannedTensor[] {
  const stored = new Map(table.dense.map(tensor => asStored(checkpoint, tensor)).map(each => [each.name, each]));
  return [...stored.values()].map(tensor => planDense(tensor, resolveDense(checkpoint, tensor), dense));
}

/** `shape`: of the main model; layers after its last belong to the prediction head. */
export function planRouted(
  checkpoint: Checkpoint,
  table: TensorTable,
  shape: ModelShape,
  { experts }: ConvertParameters,
): PlannedTensor[] {
  return table.experts.map(names => {
    const record = resolveExpert(checkpoint, names, table);
    return planExpert(names, record, names.layer >= shape.layers, experts);
  });
}

function asStored({ tensors }: Checkpoint, { from, load, stored, ...made }: DenseTensor): DenseTensor {
  if (from === undefined) return { ...made, ...(stored && { stored }) };
  // taken apart already, as GGUF files have it
  if (tensors.has(made.name)) return made;
  if (load === undefined || load.step === 'plus-one') return { ...made, name: from, ...(stored && { stored }) };
  const { heads, keyDim, valueDim } = load;
  const columns = load.step === 'head-keys' ? made.rows / heads : made.columns;
  return { ...made, name: from, rows: heads * (keyDim + valueDim), columns };
}

function planPart(role: string, layout: Layout, record: StoredRecord, part: number, offset: number): PlannedPart {
  const { rows, columns } = record.parts[part];
  return { role, layout, rows, columns, offset, bytes: layoutBytes(layout, rows, columns), record, part };
}

function planDense(tensor: DenseTensor, record: StoredRecord, dense: ConvertParameters['dense']): PlannedTensor {
  const { name, role, rows, columns, stored } = tensor;
  const layout = denseLayout(role, record.parts[0].layout, dense);
  const part = planPart(role, layout, record, 0, 0);
  const parts = [stored || isVector(tensor) ? part : { ...part, sliceable: name }];
  const common = { name, role, bytes: part.bytes, parts, layer: null };
  const dtype = FLOAT_DTYPES[layout];
  if (dtype === undefined) return { ...common, dtype: 'U8', shape: [part.bytes] };
  return { ...common, dtype, shape: stored ?? (isVector(tensor) ? [columns] : [rows, columns]) };
}

function planExpert(
  names: ExpertNames,
  record: StoredRecord,
  isPrediction: boolean,
  experts: ConvertParameters['experts'],
): PlannedTensor {
  const parts: PlannedPart[] = [];
  let end = 0;
  for (const [i, { layout: own }] of record.parts.entries()) {
    const isBias = i >= MATRICES;
    const offset = isBias ? alignUp(end, BIAS_ALIGNMENT) : end;
    const layout = isBias ? 'f32' : expertLayout(own, isPrediction, experts);
    parts.push(planPart(ROLES[i], layout, record, i, offset));
    end = offset + parts[i].bytes;
  }
  const bytes = alignUp(end, RECORD_ALIGNMENT);
  const role = isPrediction ? 'prediction experts' : 'experts';
  return { name: names.record, role, dtype: 'U8', shape: [bytes], bytes, parts, layer: names.layer };
}
