/** Decides everything before the first write: whatever can be refused is refused here, from headers alone. */

import { ConvertError } from '../common/errors.ts';
import { alignUp } from '../common/units.ts';
import { openCheckpoint } from '../formats/checkpoint.ts';
import type { Checkpoint } from '../formats/checkpoint-types.ts';
import { listNames } from '../formats/files.ts';
import { encodeSafetensorsHeader } from '../formats/safetensors-writer.ts';
import type { DenseTensor, TensorTable } from '../models/family.ts';
import { type ModelRecords, resolveRecords } from '../models/records.ts';
import { familyOf } from '../models/registry.ts';
import { isTileLayout, type Layout, layoutBytes } from '../quant/layouts.ts';
import { type ExpertNames, encodingTable } from '../quant/resolve.ts';
import type { StoredRecord } from '../quant/stored.ts';
import { findCompanions } from './companions.ts';
import { checkDestination, type Destination } from './destination.ts';
import { requireNotBusy } from './lock.ts';
import { newState } from './state.ts';
import type {
  ConversionPlan,
  ConvertOptions,
  ConvertParameters,
  PlannedClass,
  PlannedPart,
  PlannedShard,
  PlannedTensor,
} from './types.ts';

/** Expert records start and end at multiples of this, in the file and in length: what O_DIRECT wants. */
export const RECORD_ALIGNMENT = 4096;
/** Small enough to copy and to hash in a minute, large enough that a big model has some hundred files at most. */
const SHARD_BYTES = 4e9;

const EXPERT_LAYOUT = { q4g64: 'q4g64', q8: 'q8g64', bf16: 'bf16' } as const;
const DENSE_LAYOUT = { q8: 'q8g64', bf16: 'bf16' } as const;
const ROLES = ['gate', 'up', 'down'];

/** Options of the writer: part of the bytes, so resuming and checking use the same. */
export const SHARD_OPTIONS = { alignDataTo: RECORD_ALIGNMENT, metadata: { format: 'coli' } };

/** Opens the source, resolves every tensor and the destination. Writes nothing. */
export function planConversion(options: ConvertOptions): ConversionPlan {
  const { experts, dense, writer, shardBytes } = parametersOf(options);
  requireKnown('experts', experts, EXPERT_LAYOUT);
  requireKnown('dense', dense, DENSE_LAYOUT);
  const checkpoint = openCheckpoint(options.source);
  const family = familyOf(checkpoint.config);
  const config = family.parseConfig(checkpoint.config);
  const parts = { mtp: family.hasMtp(config) };
  const table = family.tensors(config, parts);
  const found = resolveRecords(checkpoint, table, family.shape(config, parts), Number.POSITIVE_INFINITY);

  const resident = table.dense.map(tensor => planDense(tensor, recordOf(found, tensor), dense));
  const routed = table.experts.map((names, i) => planExpert(names, expertRecord(found, table, i), experts));
  const shards = planShards(resident, routed, shardBytes);
  const classes = planClasses(table, resident, routed);
  const totalBytes = sumBytes(shards);
  const weights = classes.reduce((sum, each) => sum + each.weights, 0);
  requireNotBusy(options.destination);
  const destination = planDestination(options, checkpoint, shards);

  return {
    source: checkpoint.directory,
    family: family.modelType,
    experts,
    dense,
    checkpoint,
    table,
    writer,
    classes,
    shards,
    leftOut: [...checkpoint.tensors.keys()].filter(name => table.ignored.some(pattern => pattern.test(name))),
    notes: notesOf(classes, checkpoint),
    weights,
    bitsPerWeight: (sumBytes(classes) * 8) / weights,
    totalBytes,
    sourceBytes: checkpoint.bytesOnDisk,
    ...destination,
  };
}

/** The part of the plan that depends on what lies in the destination: made again once the destination is locked. */
export function planDestination(
  options: ConvertOptions,
  checkpoint: Checkpoint,
  shards: readonly PlannedShard[],
): Destination & Pick<ConversionPlan, 'copied' | 'absent'> {
  const companions = findCompanions(checkpoint.directory);
  const fresh = newState(checkpoint, parametersOf(options));
  const { copied, absent } = companions;
  return { copied, absent, ...checkDestination(options, checkpoint, shards, companions, fresh) };
}

/** Everything besides the source that decides the bytes. */
function parametersOf({ experts, dense, writer = 'coli', shardBytes = SHARD_BYTES }: ConvertOptions) {
  return { experts, dense, writer, shardBytes };
}

function requireKnown(flag: keyof ConvertParameters, value: string, known: Readonly<Record<string, string>>): void {
  if (Object.hasOwn(known, value)) return;
  throw new ConvertError('BAD_ENCODING', `${flag} cannot be ${value}; it is one of ${Object.keys(known).join(', ')}`, {
    details: { flag, got: value },
  });
}

function recordOf(found: ModelRecords, tensor: DenseTensor): StoredRecord {
  const [index] = found.dense.get(tensor.name)!;
  return found.records[index];
}

/** Records of experts follow the resident ones in the order of the table. */
function expertRecord(found: ModelRecords, table: TensorTable, index: number): StoredRecord {
  return found.records[found.records.length - table.experts.length + index];
}

function planPart(role: string, layout: Layout, record: StoredRecord, part: number, offset: number): PlannedPart {
  const { rows, columns } = record.parts[part];
  return { role, layout, rows, columns, offset, bytes: layoutBytes(layout, rows, columns), record, part };
}

function planDense(tensor: DenseTensor, record: StoredRecord, dense: ConvertParameters['dense']): PlannedTensor {
  const { name, role, rows, columns } = tensor;
  const layout = role === 'router' || role === 'norm' ? 'f32' : DENSE_LAYOUT[dense];
  const part = planPart(role, layout, record, 0, 0);
  const shape = role === 'norm' ? [columns] : [rows, columns];
  if (isTileLayout(layout)) {
    return { name, dtype: 'U8', shape: [part.bytes], bytes: part.bytes, parts: [part], layer: null };
  }
  return { name, dtype: layout === 'f32' ? 'F32' : 'BF16', shape, bytes: part.bytes, parts: [part], layer: null };
}

function planExpert(names: ExpertNames, record: StoredRecord, experts: ConvertParameters['experts']): PlannedTensor {
  const parts: PlannedPart[] = [];
  let end = 0;
  for (const [i, role] of ROLES.entries()) {
    parts.push(planPart(role, EXPERT_LAYOUT[experts], record, i, end));
    end += parts[i].bytes;
  }
  const bytes = alignUp(end, RECORD_ALIGNMENT);
  return { name: names.record, dtype: 'U8', shape: [bytes], bytes, parts, layer: names.layer };
}

function sumBytes(tensors: readonly { readonly bytes: number }[]): number {
  return tensors.reduce((sum, { bytes }) => sum + bytes, 0);
}

/** Resident tensors first, in shards of their own; then the records, a layer in one shard where it fits. */
function planShards(
  resident: readonly PlannedTensor[],
  routed: readonly PlannedTensor[],
  shardBytes: number,
): PlannedShard[] {
  const layers = [...Map.groupBy(routed, tensor => tensor.layer).values()];
  const groups = layers.flatMap(layer => (sumBytes(layer) <= shardBytes ? [layer] : layer.map(tensor => [tensor])));
  const alone = resident.map(tensor => [tensor]);
  const filled = [...fill(alone, shardBytes), ...fill(groups, shardBytes)];
  const number = (n: number): string => String(n).padStart(5, '0');
  return filled.map((tensors, i) => {
    const bytes = encodeSafetensorsHeader(tensors, SHARD_OPTIONS).length + sumBytes(tensors);
    return { name: `model-${number(i + 1)}-of-${number(filled.length)}.safetensors`, bytes, tensors };
  });
}

/** Groups in order, each whole, into shards of at most `shardBytes` (or one group, when that is larger). */
function fill(groups: readonly (readonly PlannedTensor[])[], shardBytes: number): PlannedTensor[][] {
  const shards: PlannedTensor[][] = [];
  let used = Number.POSITIVE_INFINITY;
  for (const group of groups) {
    const bytes = sumBytes(group);
    if (used + bytes > shardBytes) {
      shards.push([]);
      used = 0;
    }
    shards.at(-1)!.push(...group);
    used += bytes;
  }
  return shards;
}

function planClasses(
  table: TensorTable,
  resident: readonly PlannedTensor[],
  routed: readonly PlannedTensor[],
): PlannedClass[] {
  const byRole = new Map<PlannedClass['role'], PlannedTensor[]>();
  for (const [i, { role }] of table.dense.entries()) {
    const tensors = byRole.get(role);
    if (tensors) tensors.push(resident[i]);
    else byRole.set(role, [resident[i]]);
  }
  if (routed.length > 0) byRole.set('experts', [...routed]);
  return [...byRole].map(([role, tensors]) => {
    const weights = tensors.reduce((sum, { parts }) => sum + parts.reduce((n, p) => n + p.rows * p.columns, 0), 0);
    const bytes = sumBytes(tensors);
    const from = Object.keys(encodingTable(tensors.map(tensor => tensor.parts[0].record))).join(', ');
    const to = tensors[0].parts[0].layout;
    return { role, tensors: tensors.length, weights, from, to, bitsPerWeight: (bytes * 8) / weights, bytes };
  });
}

const FLOATS = ['f32', 'bf16', 'f16'];

function notesOf(classes: readonly PlannedClass[], checkpoint: Checkpoint): string[] {
  const notes: string[] = [];
  for (const { role, from, to } of classes) {
    const quantised = from.split(', ').filter(encoding => !FLOATS.includes(encoding) && encoding !== to);
    if (quantised.length > 0) {
      notes.push(
        `${role}: the source is already quantised (${quantised.join(', ')}); ${to} cannot bring back what it lost`,
      );
    }
  }
  if (checkpoint.ignoredFiles.length > 0) {
    notes.push(`files that the index does not name are not read: ${listNames(checkpoint.ignoredFiles)}`);
  }
  return notes;
}
