/**
 * What was measured on this machine, kept between starts in the program's cache directory. A convenience: a file that cannot be read
 * or written is as good as none.
 */

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { cacheDirectory } from '../common/user-directories.ts';
import { replaceFile } from '../common/whole-file.ts';
import { readJsonFile } from '../formats/json.ts';

const FILE = 'measurements.json';
const VERSION = 1;
/** Disks times sizes of records, and kernels times numbers of threads: a machine has a handful. The oldest go first. */
const MAX_ENTRIES = 64;
/** So many entries have less than a tenth of this. */
const MAX_BYTES = 2 ** 20;

/** Slower and faster than any machine: whoever divides by these numbers or adds them up gets numbers. */
const bytesPerSecond = z.number().min(1e3).max(1e15);
const macsPerSecond = z.number().min(1e3).max(1e18);
/** A quarter of an hour. */
const us = z.number().min(0).max(1e9);
const speed = z.object({ bytesPerSecond, medianReadUs: us, p99ReadUs: us });

const disk = z.object({
  kind: z.literal('disk'),
  /** Device, file system, size of records and reads in flight: see diskKey. */
  key: z.string().max(1024),
  /** ISO 8601. */
  measured: z.iso.datetime(),
  recordBytes: z
    .number()
    .min(1)
    .max(2 ** 40),
  depth: z
    .number()
    .min(1)
    .max(2 ** 20),
  /** Null where direct reads are refused. */
  direct: speed.nullable(),
  /** Through the page cache as it was. */
  buffered: speed.nullable(),
});

const compute = z.object({
  kind: z.literal('compute'),
  /** Processor, kernels and lanes: see computeKey. */
  key: z.string().max(1024),
  measured: z.iso.datetime(),
  /** Highest rate at which the lanes together read weights from memory. */
  memoryBytesPerSecond: bytesPerSecond,
  /** What starting the lanes and waiting for them costs. */
  jobUs: us.positive(),
  /** By layout of weights. */
  layouts: z.record(
    z.string().max(64),
    z.object({
      /** One row, weights from memory. */
      streamedBytesPerSecond: bytesPerSecond,
      /** One row, weights in the caches of the processor; and many rows at once. */
      macsPerSecond,
      batchedMacsPerSecond: macsPerSecond,
    }),
  ),
});

export type DiskEntry = z.infer<typeof disk>;
export type ComputeEntry = z.infer<typeof compute>;
export type Entry = DiskEntry | ComputeEntry;

const entry = z.union([disk, compute]);
const file = z.object({ version: z.literal(VERSION), entries: z.array(z.unknown()).max(MAX_ENTRIES) });

/** Everything stored that can have been measured, oldest first; nothing when the file is absent, damaged or of another version. */
export function storedMeasurements(directory = cacheDirectory()): readonly Entry[] {
  try {
    const { entries } = file.parse(readJsonFile(join(directory, FILE), MAX_BYTES));
    return entries.map(one => entry.safeParse(one).data).filter(one => one !== undefined);
  } catch {
    return [];
  }
}

/** Puts an entry in the place of an older one of its kind and key. False when it cannot be written. */
export function storeMeasurement(entry: Entry, directory = cacheDirectory()): boolean {
  const others = storedMeasurements(directory).filter(({ kind, key }) => kind !== entry.kind || key !== entry.key);
  const entries = [...others, entry].slice(-MAX_ENTRIES);
  try {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    replaceFile(join(directory, FILE), `${JSON.stringify({ version: VERSION, entries })}\n`);
    return true;
  } catch {
    return false;
  }
}
