/** How fast this disk gives the experts of a model, read as the engine reads them: stored, or measured now. */

import { statfsSync, statSync } from 'node:fs';
import { hostname } from 'node:os';
import { MIB } from '../common/units.ts';
import { type DiskMeasure, measureRecords } from '../storage/iobench.ts';
import { closeFiles, openFiles } from '../storage/open-files.ts';
import { type DiskEntry, storedMeasurements, storeMeasurement } from './measurements.ts';
import { expertRecords, type ModelFiles } from './model-files.ts';

/** A short measurement is for a first look; a long one is asked for. Seconds of direct reads, and of reads through the page cache. */
const SHORT = { direct: 0.4, buffered: 0.2 };
const LONG = { direct: 2, buffered: 1 };
/** As an expert cache is: into a few megabytes the same disk gives a third less. */
const SHORT_DESTINATION_BYTES = 128 * MIB;
const LONG_DESTINATION_BYTES = 512 * MIB;

export interface DiskMeasureWish {
  /** `stored`: null when nothing is. `short`: measured where nothing is stored. `fresh`: measured at length whatever is stored. */
  readonly when: 'stored' | 'short' | 'fresh';
  readonly readers: number;
  /** Which to read; all experts. */
  readonly records?: Int32Array;
  /** Cache directory; another one in tests. */
  readonly directory?: string;
  readonly onProgress?: (doneSeconds: number, totalSeconds: number) => void;
}

export interface Found<T> {
  readonly entry: T;
  readonly fresh: boolean;
}

/** What stays the same as long as a measurement can be believed: the device of a file, its file system, and how it is read. */
function diskKey(path: string, recordBytes: number, readers: number): string {
  const { dev } = statSync(path);
  const { type, blocks, bsize } = statfsSync(path);
  // records of about one size read alike
  const sizeClass = Math.round(2 * Math.log2(recordBytes));
  return [hostname(), dev, type.toString(16), blocks * bsize, `2^${sizeClass / 2}`, readers].join(' ');
}

/** Largest read of an expert, in bytes. */
function expertReadBytes({ table }: Pick<ModelFiles, 'table'>, records: Int32Array): number {
  let most = 0;
  for (const record of records) most = Math.max(most, table.readBytes(record));
  return most;
}

/** Null when nothing is stored and nothing may be measured. Throws StorageError when files cannot be read. */
export async function diskSpeed(files: ModelFiles, wish: DiskMeasureWish): Promise<Found<DiskEntry> | null> {
  const { when, readers, directory, records = expertRecords(files) } = wish;
  const recordBytes = expertReadBytes(files, records);
  const { path } = files.checkpoint.files[files.table.file(files.table.firstExtent(records[0]))];
  const key = diskKey(path, recordBytes, readers);
  const stored = storedMeasurements(directory).find(entry => entry.kind === 'disk' && entry.key === key);
  if (stored?.kind === 'disk' && when !== 'fresh') return { entry: stored, fresh: false };
  if (when === 'stored') return null;
  const entry = await measure(files, { ...wish, records }, key, recordBytes);
  storeMeasurement(entry, directory);
  return { entry, fresh: true };
}

async function measure(
  files: ModelFiles,
  { when, readers, records, onProgress = () => {} }: DiskMeasureWish & { readonly records: Int32Array },
  key: string,
  recordBytes: number,
): Promise<DiskEntry> {
  const paths = files.checkpoint.files.map(file => file.path);
  const opened = openFiles(paths, 'auto');
  closeFiles(opened.descriptors);
  const seconds = when === 'fresh' ? LONG : SHORT;
  const total = (opened.direct ? seconds.direct : 0) + seconds.buffered;
  const one = (direct: boolean) =>
    measureRecords({
      files: files.checkpoint.files,
      table: files.table,
      records,
      depth: readers,
      direct,
      seconds: direct ? seconds.direct : seconds.buffered,
      destinationBytes: when === 'fresh' ? LONG_DESTINATION_BYTES : SHORT_DESTINATION_BYTES,
      // not the order of the last measurement, whose pages may still be cached
      seed: Date.now() >>> 0,
    });
  onProgress(0, total);
  const direct = opened.direct ? await one(true) : null;
  onProgress(total - seconds.buffered, total);
  const buffered = await one(false);
  onProgress(total, total);
  return {
    kind: 'disk',
    key,
    measured: new Date().toISOString(),
    recordBytes,
    depth: readers,
    direct: direct && speedOf(direct),
    buffered: speedOf(buffered),
  };
}

function speedOf({ bytesPerSecond, medianReadUs, p99ReadUs }: DiskMeasure) {
  return { bytesPerSecond, medianReadUs, p99ReadUs };
}
