/** In which order tensors are written: so that the files of the source are needed one after the other, and each can go early. */

import { encodeSafetensorsHeader } from '../formats/safetensors-writer.ts';
import { RECORD_ALIGNMENT } from './outputs.ts';
import type { PlannedShard, PlannedTensor } from './types.ts';

/** Options of the writer: part of the bytes, so resuming and checking use the same. */
export const SHARD_OPTIONS = { alignDataTo: RECORD_ALIGNMENT, metadata: { format: 'coli' } };

export function sumBytes(tensors: readonly { readonly bytes: number }[]): number {
  return tensors.reduce((sum, { bytes }) => sum + bytes, 0);
}

/**
 * Shards of at most `shardBytes`, or one tensor. A tensor comes as soon as the last file that it needs is there, and no shard waits
 * for two files: a finished file can then be taken away. Records of experts come before resident tensors, whose sizes are no whole
 * pages, and those of a layer stay in one shard where they fit.
 */
export function planShards(
  resident: readonly PlannedTensor[],
  routed: readonly PlannedTensor[],
  shardBytes: number,
): PlannedShard[] {
  const byFile = Map.groupBy([...routed, ...resident], lastFile);
  const files = [...byFile.keys()].sort((a, b) => a - b);
  const filled = files.flatMap(file => fill(groupsOf(byFile.get(file)!, shardBytes), shardBytes));
  const number = (n: number): string => String(n).padStart(5, '0');
  return filled.map((tensors, i) => {
    const bytes = encodeSafetensorsHeader(tensors, SHARD_OPTIONS).length + sumBytes(tensors);
    const needed = [...new Set(tensors.flatMap(filesOf))].sort((a, b) => a - b);
    return { name: `model-${number(i + 1)}-of-${number(filled.length)}.safetensors`, bytes, tensors, files: needed };
  });
}

function filesOf({ parts }: PlannedTensor): number[] {
  return parts.flatMap(({ record }) => record.extents.map(({ file }) => file));
}

function lastFile(tensor: PlannedTensor): number {
  return Math.max(...filesOf(tensor));
}

/** What is to stay together. */
function groupsOf(tensors: readonly PlannedTensor[], shardBytes: number): PlannedTensor[][] {
  const layers = [...Map.groupBy(tensors, tensor => tensor.layer)];
  return layers.flatMap(([layer, group]) => {
    return layer !== null && sumBytes(group) <= shardBytes ? [group] : group.map(tensor => [tensor]);
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

/** Files that shards from number `from` on need. */
export function filesNeeded(shards: readonly PlannedShard[]): Set<number> {
  return new Set(shards.flatMap(({ files }) => files));
}

/** Most bytes that writing these shards adds to a disk: what has been written, and the files that are held for it. */
export function peakOf(shards: readonly PlannedShard[], heldBytes: (file: number) => number): number {
  let written = 0;
  let peak = 0;
  const last = new Map(shards.flatMap(({ files }, i) => files.map(file => [file, i] as const)));
  const held = new Set<number>();
  for (const [i, { files, bytes }] of shards.entries()) {
    for (const file of files) held.add(file);
    written += bytes;
    peak = Math.max(peak, written + [...held].reduce((sum, file) => sum + heldBytes(file), 0));
    for (const file of held) if (last.get(file) === i) held.delete(file);
  }
  return peak;
}
