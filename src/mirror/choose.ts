/** Which files of a model to copy first: those that serve the most expert reads per byte. */

import type { ModelFiles } from '../engine/model-files.ts';

/** Experts that need the same files; `bytes`: what is read of them, weighted by how often each is used. */
export interface FileGroup {
  /** Numbers of the files, ascending. */
  readonly files: readonly number[];
  readonly bytes: number;
}

/** `counts`: uses of expert e of layer l at l * experts + e; null = every expert counts the same. */
export function fileGroups(
  { records, shape, table }: Pick<ModelFiles, 'records' | 'shape' | 'table'>,
  counts: ArrayLike<number> | null,
): FileGroup[] {
  const groups = new Map<string, { files: number[]; bytes: number }>();
  records.firstExpert.forEach((firstRecord, layer) => {
    for (let expert = 0; firstRecord >= 0 && expert < shape.experts; expert++) {
      const record = firstRecord + expert;
      const first = table.firstExtent(record);
      const files = new Set<number>();
      for (let i = 0; i < table.extentCount(record); i++) files.add(table.file(first + i));
      const sorted = [...files].sort((a, b) => a - b);
      const key = sorted.join();
      const group = groups.get(key) ?? { files: sorted, bytes: 0 };
      // layers beyond those of the history are prediction heads
      group.bytes += table.readBytes(record) * (counts ? (counts[layer * shape.experts + expert] ?? 0) : 1);
      groups.set(key, group);
    }
  });
  return [...groups.values()];
}

export interface Choice {
  /** In the order in which they were chosen. */
  readonly files: readonly number[];
  /** Part of all expert bytes whose files are chosen. */
  readonly share: number;
  /** Something useful did not fit. */
  readonly isLimited: boolean;
}

/**
 * Greedy: again and again the files that let the mirror serve the most bytes for each byte of theirs, while they fit into
 * `roomBytes`. `have` is there already and costs nothing; `barred` may not be chosen. Equal ones: in the order of the files.
 */
export function chooseFiles(
  groups: readonly FileGroup[],
  sizes: readonly number[],
  roomBytes: number,
  have: readonly number[] = [],
  barred: ReadonlySet<number> = new Set(),
): Choice {
  const chosen = new Set(have);
  let room = roomBytes;
  const missing = ({ files }: FileGroup) => files.filter(file => !chosen.has(file));
  const cost = (files: readonly number[]) => files.reduce((sum, file) => sum + sizes[file], 0);
  let isLimited = false;
  for (;;) {
    let best: { files: number[]; worth: number } | null = null;
    isLimited = false;
    for (const group of groups) {
      const files = missing(group);
      if (files.length === 0 || group.bytes === 0 || files.some(file => barred.has(file))) continue;
      const bytes = cost(files);
      if (bytes > room) {
        isLimited = true;
        continue;
      }
      const worth = gain(groups, chosen, files) / bytes;
      if (best === null || worth > best.worth) best = { files, worth };
    }
    if (best === null) break;
    for (const file of best.files) chosen.add(file);
    room -= cost(best.files);
  }
  const all = groups.reduce((sum, { bytes }) => sum + bytes, 0);
  const served = gain(groups, chosen, []);
  return { files: [...chosen], share: all === 0 ? 0 : served / all, isLimited };
}

/** Bytes of the groups that need one of `more` and nothing that would then be missing; without `more`, of all that are served. */
function gain(groups: readonly FileGroup[], chosen: ReadonlySet<number>, more: readonly number[]): number {
  let bytes = 0;
  for (const group of groups) {
    const isNew = more.length === 0 || group.files.some(file => more.includes(file));
    if (isNew && group.files.every(file => chosen.has(file) || more.includes(file))) bytes += group.bytes;
  }
  return bytes;
}
