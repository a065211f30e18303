/** Copies of the model on other drives: what of them is used, how reads are divided, and what is told about it. */

import { NumericError, RequestError } from '../common/errors.ts';
import type { Place } from '../compute/arenas.ts';
import type { MirrorOptions } from '../storage/drives.ts';
import { closeMirrors, type Mirror, mirroredFiles, openMirrors } from '../storage/mirror-files.ts';
import { probeDrives } from '../storage/mirror-probe.ts';
import { MAX_MIRRORS } from '../storage/mirror-route.ts';
import type { ReadPool } from '../storage/read-pool.ts';
import type { EngineOptions } from './api.ts';
import { stagedFiles } from './mirror-receipt.ts';
import { expertRecords, type ModelFiles } from './model-files.ts';

type Wishes = Pick<EngineOptions, 'mirrors' | 'driveSpeeds' | 'io'>;

/** For the pool; undefined without mirrors. Throws RequestError for too many mirrors and for speeds that do not fit them. */
export function mirrorOptions(
  { mirrors = [], driveSpeeds }: Wishes,
  { checkpoint }: Pick<ModelFiles, 'checkpoint'>,
  onLoss: MirrorOptions['onLoss'],
): MirrorOptions | undefined {
  checkMirrorOptions(mirrors, driveSpeeds);
  if (mirrors.length === 0) return undefined;
  const { headerBytes } = mirroredFiles(checkpoint);
  return { directories: mirrors, headerBytes, staged: stagedFiles, onLoss };
}

function checkMirrorOptions(mirrors: readonly string[], speeds: readonly number[] | undefined): void {
  if (mirrors.length > MAX_MIRRORS) {
    throw new RequestError('BAD_MIRRORS', `${mirrors.length} mirrors; possible are up to ${MAX_MIRRORS}`, {
      hint: 'give the fastest ones',
      details: { mirrors },
    });
  }
  if (speeds === undefined) return;
  if (mirrors.length === 0) {
    throw new RequestError('BAD_DRIVE_SPEEDS', '--drive-speeds needs --mirror: without one all comes from one drive', {
      hint: 'name the other drives with --mirror DIR, or leave --drive-speeds out',
      details: { speeds, mirrors },
    });
  }
  const fits = speeds.length === mirrors.length + 1;
  if (fits && speeds.every(speed => speed >= 0) && speeds.some(speed => speed > 0)) return;
  throw new RequestError(
    'BAD_DRIVE_SPEEDS',
    `--drive-speeds ${speeds.join(',')}: give one for the model's drive and one for each --mirror (${mirrors.length}), not all 0`,
    {
      hint: 'they are in GB/s, the drive of the model first; without the flag they are measured',
      details: { speeds, mirrors },
    },
  );
}

/** Divides the records among the drives, by declared speeds or measured ones; gives lines about it. `slots`: still unused. */
export function divideReads(
  pool: ReadPool,
  files: ModelFiles,
  { driveSpeeds }: Wishes,
  slots: readonly Place[],
): string[] {
  const { mirrors } = pool.drives;
  if (!mirrors.some(mirror => mirror.files > 0)) return mirrorNotes(mirrors, files);
  const experts = [...expertRecords(files)];
  const speeds = driveSpeeds?.map(speed => speed * 1e9) ?? probeDrives(pool, { records: experts, places: slots });
  pool.drives.route(speeds);
  const shares = pool.drives.shares(experts);
  const how = driveSpeeds ? 'declared' : 'measured';
  const told = (drive: number) => `${(speeds[drive] / 1e9).toFixed(2)} GB/s, ${(shares[drive] * 100).toFixed(0)} %`;
  const parts = mirrors.map(({ directory }, i) => `${told(i + 1)} from ${directory}`);
  const line = `expert reads by ${how} speed: ${told(0)} from the model's own drive, ${parts.join(', ')}`;
  return [...mirrorNotes(mirrors, files), line];
}

/** The same for a model that is only looked at: opens and closes the files of the mirrors. */
export function inspectMirrors(options: Wishes, files: ModelFiles): string[] {
  const wanted = mirrorOptions(options, files, undefined);
  if (!wanted) return [];
  const model = { ...wanted, files: files.checkpoint.files };
  const mirrors = openMirrors(wanted.directories, model, options.io ?? 'auto');
  closeMirrors(mirrors);
  return mirrorNotes(mirrors, files);
}

/** Weights that came from a mirror may be the reason for a value that is not finite. */
export function withMirrorHint(error: unknown): unknown {
  if (!(error instanceof NumericError)) return error;
  const { code, message, hint, details } = error;
  const mirrors = 'or a mirror is damaged: try without --mirror, and see coli mirror verify';
  return new NumericError(code, message, { hint: hint ? `${hint}; ${mirrors}` : mirrors, details, cause: error });
}

function mirrorNotes(mirrors: readonly Mirror[], { checkpoint }: ModelFiles): string[] {
  const all = checkpoint.files.length;
  return mirrors.flatMap(({ directory, files, notes }) => {
    const has = files > 0 ? [`mirror ${directory} has ${files} of the ${all} files of the model`] : [];
    return [...has, ...notes];
  });
}
