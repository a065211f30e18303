/**
 * Tensors that belong to a matrix: its scales, or what holds it under another name. A matrix asked for as `X.weight` may be
 * stored as `X.weight_packed`, with `X.weight_scale`; a fused one asked for as `X` as `X_blocks` and `X_scales`.
 */

import type { Checkpoint, TensorInfo } from '../formats/checkpoint-types.ts';

type Tensors = Checkpoint['tensors'];

/** After the whole name of the matrix. */
const SUFFIX = /(?:\.qs|_scale_inv|_scale|_scale_2|_global_scale|_packed|_shape|_zero_point|_g_idx|_blocks|_scales)$/;
/** In place of `.weight`. */
const SIBLING = /\.(?:scale|qweight|qzeros|scales|g_idx|input_scale|input_global_scale|activation_scale)$/;
/** Of activations, which are never quantised by them here: they do not change what the weights are. */
const OF_ACTIVATIONS = /\.(?:input_scale|input_global_scale|activation_scale)$/;
/** Names under which the codes themselves may lie, after the matrix's name or in place of `.weight`. */
const HOLDERS = ['_packed', '_blocks'];

/** Name of the matrix that a tensor called `name` may belong to; null when its name says nothing of the kind. */
export function matrixOfCompanion(name: string): string | null {
  // before the suffixes: `.input_scale` ends like one of them
  const sibling = SIBLING.exec(name);
  if (sibling) return `${name.slice(0, sibling.index)}.weight`;
  const suffix = SUFFIX.exec(name);
  return suffix ? name.slice(0, suffix.index) : null;
}

export function isOfActivations(name: string): boolean {
  return OF_ACTIVATIONS.test(name);
}

const tables = new WeakMap<Tensors, Map<string, TensorInfo[]>>();

/** Every tensor whose name says that it belongs to the matrix `name`. */
export function companionsOf({ tensors }: Checkpoint, name: string): readonly TensorInfo[] {
  let table = tables.get(tensors);
  if (table === undefined) {
    table = new Map();
    for (const tensor of tensors.values()) {
      const matrix = matrixOfCompanion(tensor.name);
      if (matrix === null) continue;
      const known = table.get(matrix);
      if (known) known.push(tensor);
      else table.set(matrix, [tensor]);
    }
    tables.set(tensors, table);
  }
  return table.get(name) ?? [];
}

/** Whether the checkpoint holds the matrix `name` under any of the names that it may have. */
export function isStored(checkpoint: Checkpoint, name: string): boolean {
  if (checkpoint.tensors.has(name)) return true;
  if (HOLDERS.some(holder => checkpoint.tensors.has(name + holder))) return true;
  return name.endsWith('.weight') && checkpoint.tensors.has(name.replace(/weight$/, 'qweight'));
}
