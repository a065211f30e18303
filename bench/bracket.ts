/** A measurement that depends on the disk stands between two readings of the disk, and counts only when they agree. */

import type { ModelFiles } from '../src/engine/model-files.ts';
import { measureRecords } from '../src/storage/iobench.ts';

/** Readings before and after may differ by this share of the larger one. */
const MAX_DRIFT = 0.15;
const MAX_TRIES = 5;
/** Long enough to pass the bursts that virtual disks allow. */
const READING_BYTES = 1e9;

export interface Bracketed<T> {
  readonly value: T;
  /** Bytes per second before and after. */
  readonly before: number;
  readonly after: number;
  readonly accepted: boolean;
}

/** What the disk gives for random experts of this model with `depth` reads in flight, in bytes per second. */
export async function diskCeiling({ checkpoint, records, shape, table }: ModelFiles, depth: number): Promise<number> {
  const experts = shape.moeLayers.flatMap(layer =>
    Array.from({ length: shape.experts }, (_, e) => records.firstExpert[layer] + e),
  );
  const reading = await measureRecords({
    files: checkpoint.files,
    table,
    records: Int32Array.from(experts),
    depth,
    direct: true,
    totalBytes: READING_BYTES,
  });
  return reading.bytesPerSecond;
}

/** Runs `measure` between readings until `wanted` runs are accepted or MAX_TRIES are spent. */
export async function bracket<T>(
  wanted: number,
  reading: () => Promise<number>,
  measure: () => Promise<T>,
): Promise<Bracketed<T>[]> {
  const runs: Bracketed<T>[] = [];
  let before = await reading();
  for (let i = 0; i < Math.max(wanted, MAX_TRIES); i++) {
    const value = await measure();
    const after = await reading();
    const accepted = Math.abs(before - after) <= MAX_DRIFT * Math.max(before, after);
    runs.push({ value, before, after, accepted });
    before = after;
    if (runs.filter(run => run.accepted).length >= wanted) break;
  }
  return runs;
}
