/** Which drive a record is read from: the model's own or a mirror. A pure function, so that every read of a record agrees. */

import type { RecordTable } from './record-table.ts';

/** Drives are numbered: the model's own is 0, mirrors follow in the order in which they were given. */
export const PRIMARY = 0;
/** More copies of one model than this are a disk array's business. */
export const MAX_MIRRORS = 4;

/** 32 mixed bits of a record's number (the finalizer of MurmurHash3): neighbours and strides spread evenly. */
export function mixed(record: number): number {
  let h = record | 0;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}

/**
 * The drive of a record. `weights`: one for each drive, such as its bytes per second; `has`: one bit for each drive that has
 * all files of the record. The primary has every record; it also takes those whose drives have no weight.
 */
export function driveOf(record: number, weights: readonly number[], has: number): number {
  const all = has | (1 << PRIMARY);
  let total = 0;
  for (let drive = 0; drive < weights.length; drive++) if (all & (1 << drive)) total += weights[drive];
  let rest = (mixed(record) / 2 ** 32) * total;
  for (let drive = 0; drive < weights.length; drive++) {
    if (!(all & (1 << drive)) || weights[drive] === 0) continue;
    if (rest < weights[drive]) return drive;
    rest -= weights[drive];
  }
  return PRIMARY;
}

/** For every record the drives that have all its files, as bits. `hasFile(drive, file)` is asked for mirrors only. */
export function drivesOfRecords(
  table: RecordTable,
  drives: number,
  hasFile: (drive: number, file: number) => boolean,
): Uint8Array {
  const has = new Uint8Array(table.records).fill(1 << PRIMARY);
  for (let record = 0; record < table.records; record++) {
    for (let drive = 1; drive < drives; drive++) {
      if (everyFile(table, record, file => hasFile(drive, file))) has[record] |= 1 << drive;
    }
  }
  return has;
}

/** Whether `holds` is true of all files that a record lies in. */
export function everyFile(table: RecordTable, record: number, holds: (file: number) => boolean): boolean {
  const first = table.firstExtent(record);
  for (let extent = first; extent < first + table.extentCount(record); extent++) {
    if (!holds(table.file(extent))) return false;
  }
  return true;
}
