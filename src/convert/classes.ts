/** The plan as people read it: tensors of one purpose together, and what is worth knowing before starting. */

import type { Checkpoint } from '../formats/checkpoint-types.ts';
import { listNames } from '../formats/files.ts';
import { encodingTable } from '../quant/resolve.ts';
import { sumBytes } from './shards.ts';
import type { PlannedClass, PlannedRole, PlannedTensor } from './types.ts';

const FLOATS = ['f32', 'bf16', 'f16'];

export function planClasses(tensors: readonly PlannedTensor[]): PlannedClass[] {
  return [...Map.groupBy(tensors, tensor => tensor.role)].map(([role, group]) => {
    const weights = group.reduce((sum, { parts }) => sum + parts.reduce((n, p) => n + p.rows * p.columns, 0), 0);
    const bytes = sumBytes(group);
    const from = encodingsOf(group);
    const to = [...new Set(group.flatMap(({ parts }) => matrices(parts).map(part => part.layout)))].join(', ');
    return { role, tensors: group.length, weights, from, to, bitsPerWeight: (bytes * 8) / weights, bytes };
  });
}

function encodingsOf(tensors: readonly PlannedTensor[]): string {
  const records = tensors.map(({ parts: [{ record }] }) => ({ ...record, parts: matrices(record.parts) }));
  return Object.keys(encodingTable(records)).join(', ');
}

/** Without the biases of experts. */
function matrices<T extends { readonly rows: number }>(parts: readonly T[]): readonly T[] {
  return parts.length === 1 ? parts : parts.slice(0, 3);
}

export function notesOf(tensors: readonly PlannedTensor[], checkpoint: Checkpoint): string[] {
  const notes: string[] = [];
  const changes = [...requantised(tensors)].map(([change, roles]) => `${[...roles].join(', ')} (${change})`);
  if (changes.length > 0) notes.push(`already quantised in the source, which nothing undoes: ${changes.join('; ')}`);
  if (checkpoint.ignoredFiles.length > 0) {
    notes.push(`files that the index does not name are not read: ${listNames(checkpoint.ignoredFiles)}`);
  }
  return notes;
}

/** "int8-row -> q8g64" -> what it happens to. */
function requantised(tensors: readonly PlannedTensor[]): Map<string, Set<PlannedRole>> {
  const changes = new Map<string, Set<PlannedRole>>();
  for (const { role, parts } of tensors) {
    for (const { record, part, layout } of parts) {
      const own = record.parts[part];
      if (FLOATS.includes(own.layout) || own.layout === layout) continue;
      const change = `${own.encoding} -> ${layout}`;
      changes.set(change, (changes.get(change) ?? new Set()).add(role));
    }
  }
  return changes;
}
