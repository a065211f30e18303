/** What a plan tells about the model: sizes of records, bytes by role, and what one token has to move and to multiply. */

import { KV_BLOCK } from '../kernels/kernels.ts';
import { rowBlockBytes } from '../layers/row-memory.ts';
import type { DenseTensor } from '../models/family.ts';
import type { StoredPart } from '../quant/stored.ts';
import type { RecordTable } from '../storage/record-table.ts';
import type { ModelFiles } from './model-files.ts';
import type { Settings } from './model-plan.ts';
import type { PlanFile } from './plan-schema.ts';

/** Weights of one layout that every token uses. */
export interface Work {
  readonly bytes: number;
  readonly macs: number;
}

/** What one decoded token costs; `work` by layout. */
export interface Traffic {
  readonly denseBytes: number;
  readonly expertBytes: number;
  /** Of the experts, as they are read from disk. */
  readonly expertDiskBytes: number;
  /** Numbers, biases included. */
  readonly expertWeights: number;
  /** Keys, values and states that are read. */
  readonly kvBytes: number;
  readonly work: ReadonlyMap<string, Work>;
}

type Files = Pick<ModelFiles, 'records' | 'table' | 'tensors' | 'shape'>;

/** Bytes as placed, of all resident tensors. */
export function residentByRole({ records, table, tensors }: Files): Record<string, number> {
  const byRole: Record<string, number> = {};
  for (const { name, role, mtp } of tensors.dense) {
    const key = mtp ? 'prediction' : role;
    byRole[key] = (byRole[key] ?? 0) + placedBytes(table, records.dense.get(name) ?? []);
  }
  return byRole;
}

function placedBytes(table: RecordTable, indices: readonly number[]): number {
  return indices.reduce((sum, index) => sum + table.placedBytes(index), 0);
}

/** Of each layer that routes. */
export function expertSizes({ records, table, shape }: Files): PlanFile['experts']['layers'] {
  return records.firstExpert.flatMap((first, layer) => {
    if (first < 0) return [];
    const indices = Array.from({ length: shape.experts }, (_, expert) => first + expert);
    const disk_bytes = spreadOf(indices.map(index => table.readBytes(index)));
    const placed_bytes = spreadOf(indices.map(index => table.placedBytes(index)));
    return [{ layer, experts: shape.experts, disk_bytes, placed_bytes }];
  });
}

function spreadOf(sizes: number[]): { min: number; median: number; max: number } {
  sizes.sort((a, b) => a - b);
  return { min: sizes[0], median: sizes[sizes.length >> 1], max: sizes[sizes.length - 1] };
}

/** `tokens`: length of the conversation, which decides how many keys are read. */
export function trafficOf(files: ModelFiles, settings: Pick<Settings, 'kv'>, tokens: number): Traffic {
  const work = new Map<string, { bytes: number; macs: number }>();
  const add = (part: StoredPart, bytes: number, share = 1): void => {
    const sum = work.get(part.layout) ?? { bytes: 0, macs: 0 };
    work.set(part.layout, { bytes: sum.bytes + bytes * share, macs: sum.macs + part.rows * part.columns * share });
  };
  const { records, table, shape } = files;
  let denseBytes = 0;
  for (const tensor of usedByEveryToken(files.tensors.dense)) {
    for (const index of records.dense.get(tensor.name) ?? []) {
      add(records.records[index].parts[0], table.placedBytes(index));
      denseBytes += table.placedBytes(index);
    }
  }
  let expertBytes = 0;
  let expertDiskBytes = 0;
  let expertWeights = 0;
  for (const [layer, first] of records.firstExpert.entries()) {
    if (first < 0 || layer >= shape.layers) continue;
    for (let expert = 0; expert < shape.experts; expert++) {
      const { parts } = records.records[first + expert];
      const share = shape.topK / shape.experts;
      const matrices = parts.reduce((sum, part) => sum + part.rows * part.columns, 0);
      for (const part of parts) {
        add(part, (table.placedBytes(first + expert) * part.rows * part.columns) / matrices, share);
      }
      expertWeights += matrices * share;
      expertBytes += table.placedBytes(first + expert) * share;
      expertDiskBytes += table.readBytes(first + expert) * share;
    }
  }
  return {
    denseBytes,
    expertBytes,
    expertDiskBytes,
    expertWeights,
    kvBytes: kvBytesRead(files, settings, tokens),
    work,
  };
}

/** Of the embedding a token needs one row, unless it is the head too. The prediction head is for its check alone. */
function usedByEveryToken(dense: readonly DenseTensor[]): readonly DenseTensor[] {
  const main = dense.filter(({ mtp }) => !mtp);
  const hasHead = main.some(({ role }) => role === 'head');
  return main.filter(({ role }) => role !== 'embedding' || !hasHead);
}

function kvBytesRead({ family, config, parts }: ModelFiles, { kv }: Pick<Settings, 'kv'>, tokens: number): number {
  return family.states(config, parts).reduce((sum, state) => {
    // a recurrent matrix is read and written
    if (state.kind === 'fixed') return sum + state.floats * 8;
    const seen = state.window > 0 ? Math.min(state.window, tokens) : tokens;
    return sum + (seen * rowBlockBytes(state, kv)) / KV_BLOCK;
  }, 0);
}

/** Bytes that each further token keeps; what a session keeps however long it is comes on top. */
export function bytesPerToken({ family, config, parts }: ModelFiles, { kv }: Pick<Settings, 'kv'>): number {
  return family.states(config, parts).reduce((sum, state) => {
    return state.kind === 'rows' && state.window === 0 ? sum + rowBlockBytes(state, kv) / KV_BLOCK : sum;
  }, 0);
}
