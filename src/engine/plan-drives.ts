/** How fast experts come from the model's drive and its mirrors together, for a plan. */

import { statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { readIdentity } from '../formats/files.ts';
import { closeMirrors, type Mirror, openMirrors } from '../storage/mirror-files.ts';
import { driveOf, drivesOfRecords, PRIMARY } from '../storage/mirror-route.ts';
import type { EngineOptions } from './api.ts';
import { type DiskMeasureWish, diskSpeed } from './disk-measure.ts';
import type { DiskEntry } from './measurements.ts';
import { mirrorOptions } from './mirrors.ts';
import { expertRecords, type ModelFiles } from './model-files.ts';
import type { PlanFile } from './plan-schema.ts';

export type PlanDrives = NonNullable<PlanFile['ceilings']['drives']>;

type Wishes = Pick<EngineOptions, 'mirrors' | 'driveSpeeds' | 'io'>;

/** As the engine reads; null where that is not measured. */
export function readSpeed({ direct, buffered }: Pick<DiskEntry, 'direct' | 'buffered'>, { io }: Wishes) {
  return io === 'buffered' ? buffered : (direct ?? buffered);
}

/** Looks at the mirrors as a start does. Throws RequestError for too many and for speeds that do not fit them. */
export function planMirrors(files: ModelFiles, options: Wishes): readonly Mirror[] {
  const wanted = mirrorOptions(options, files, undefined);
  if (!wanted) return [];
  const mirrors = openMirrors(wanted.directories, { ...wanted, files: files.checkpoint.files }, options.io ?? 'auto');
  closeMirrors(mirrors);
  return mirrors;
}

/** `own`: speed of the model's drive. Null without a mirror that has experts, and while a speed is not known. */
export async function drivesTogether(
  files: ModelFiles,
  options: Wishes,
  mirrors: readonly Mirror[],
  own: number | null,
  wish: DiskMeasureWish | null,
): Promise<PlanDrives | null> {
  const has = drivesOfRecords(files.table, mirrors.length + 1, (drive, file) => hasFile(mirrors[drive - 1], file));
  const experts = expertRecords(files);
  if (!experts.some(record => has[record] !== 1 << PRIMARY)) return null;
  const speeds: (number | null)[] = options.driveSpeeds?.map(speed => speed * 1e9) ?? [own];
  for (let drive = speeds.length; drive <= mirrors.length; drive++) {
    const records = experts.filter(record => has[record] & (1 << drive));
    speeds.push(await mirrorSpeed(files, options, mirrors[drive - 1], records, wish));
  }
  if (!speeds.every(speed => speed !== null)) return null;
  const bytes = new Array<number>(speeds.length).fill(0);
  for (const record of experts) bytes[driveOf(record, speeds, has[record])] += files.table.readBytes(record);
  const total = bytes.reduce((sum, each) => sum + each, 0);
  const directories = [files.checkpoint.directory, ...mirrors.map(({ directory }) => directory)];
  const devices = options.driveSpeeds
    ? directories.map((_, drive) => drive)
    : [files.checkpoint.files[0].path, ...directories.slice(1)].map(deviceOf);
  return {
    declared: options.driveSpeeds !== undefined,
    bytes_per_second: total / longest(devices, bytes, speeds),
    each: directories.map((directory, drive) => ({
      directory,
      bytes_per_second: speeds[drive],
      share: bytes[drive] / total,
    })),
  };
}

/** Seconds until the last device is done; drives that are one device wait for each other. */
function longest(devices: readonly (number | null)[], bytes: readonly number[], speeds: readonly number[]): number {
  const seconds = new Map<number | null, number>();
  for (const [drive, device] of devices.entries()) {
    if (bytes[drive] > 0) seconds.set(device, (seconds.get(device) ?? 0) + bytes[drive] / speeds[drive]);
  }
  return Math.max(...seconds.values());
}

function deviceOf(path: string): number | null {
  return statSync(path, { throwIfNoEntry: false })?.dev ?? null;
}

function hasFile(mirror: Mirror, file: number): boolean {
  return mirror.descriptors[file] >= 0;
}

/** 0 for one without experts; null: not measured. */
async function mirrorSpeed(
  files: ModelFiles,
  options: Wishes,
  mirror: Mirror,
  records: Int32Array,
  wish: DiskMeasureWish | null,
): Promise<number | null> {
  if (records.length === 0) return 0;
  if (wish === null) return null;
  const copies = files.checkpoint.files.map((file, index) =>
    hasFile(mirror, index) ? readIdentity(join(mirror.directory, basename(file.path))) : file,
  );
  const copy = { ...files, checkpoint: { ...files.checkpoint, files: copies } };
  const found = await diskSpeed(copy, { ...wish, records });
  return found && (readSpeed(found.entry, options)?.bytesPerSecond ?? null);
}
