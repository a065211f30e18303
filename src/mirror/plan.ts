/** What a mirror should hold: files by usefulness, as far as budget and free space go. Reads, never writes. */

import fs from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { StorageError } from '../common/errors.ts';
import { modelIdentity } from '../engine/identity.ts';
import { type Receipt, readReceipt, requireModel } from '../engine/mirror-receipt.ts';
import type { ModelFiles } from '../engine/model-files.ts';
import { UsageHistory } from '../engine/usage.ts';
import { usageMode } from '../engine/usage-mode.ts';
import { differenceOf, mirroredFiles } from '../storage/mirror-files.ts';
import { chooseFiles, fileGroups } from './choose.ts';
import type { MirrorPlan, PlannedFile } from './types.ts';

export interface MirrorOptions {
  readonly files: ModelFiles;
  readonly directory: string;
  /** Most bytes of the model in the mirror; default: what the drive holds. */
  readonly budgetBytes?: number;
  readonly reserveBytes: number;
  /** `off`, or a file with a history of use; default: the usual place. */
  readonly usage?: string;
  /** Test hook: free bytes of the file system of a directory. */
  readonly freeBytes?: (directory: string) => number;
}

interface Found {
  readonly state: PlannedFile['state'] | 'foreign';
  /** Of a foreign one: what is different. */
  readonly why?: string;
}

/** Throws SAME_DIRECTORY, MIRROR_UNUSABLE, MIRROR_RECEIPT_BAD, MIRROR_OTHER_MODEL, NO_EXPERTS. */
export function planMirror(options: MirrorOptions): MirrorPlan {
  const { files, reserveBytes, budgetBytes = null } = options;
  const { checkpoint } = files;
  const directory = resolve(options.directory);
  const base = existingParent(directory);
  requireOtherDirectory(directory, files);
  const receipt = readReceipt(directory);
  requireModel(receipt, modelIdentity(files), directory);
  const notes: string[] = [];
  const found = findFiles(directory, files, receipt);
  found.forEach(({ state, why }, index) => {
    if (state === 'foreign') notes.push(`${basename(checkpoint.files[index].path)} there is left as it is: ${why}`);
  });
  const { counts, tokens } = usageCounts(options, notes);

  const sizes = checkpoint.files.map(file => file.bytes);
  const indexes = sizes.map((_, index) => index);
  const have = indexes.filter(index => found[index].state === 'verified' || found[index].state === 'there');
  const haveBytes = have.reduce((sum, index) => sum + sizes[index], 0);
  const freeBytes = (options.freeBytes ?? freeBytesOf)(base);
  const space = Math.max(0, freeBytes - reserveBytes);
  const within = budgetBytes === null ? Number.POSITIVE_INFINITY : Math.max(0, budgetBytes - haveBytes);
  const barred = new Set(indexes.filter(index => found[index].state === 'foreign'));
  const choice = chooseFiles(fileGroups(files, counts), sizes, Math.min(space, within), have, barred);

  const chosen = choice.files.map(
    (index): PlannedFile => ({
      name: basename(checkpoint.files[index].path),
      bytes: sizes[index],
      state: found[index].state as PlannedFile['state'],
    }),
  );
  const copyBytes = chosen.reduce((sum, file) => sum + (file.state === 'copy' ? file.bytes : 0), 0);
  if (isSameDevice(base, checkpoint.files[0].path)) {
    notes.push('the mirror would be on the same device as the model: reading from both gains nothing');
  }
  return {
    model: checkpoint.directory,
    directory,
    budgetBytes,
    reserveBytes,
    freeBytes,
    projectedFreeBytes: freeBytes - copyBytes,
    usageTokens: tokens,
    files: chosen,
    modelFiles: sizes.length,
    totalBytes: copyBytes + haveBytes,
    copyBytes,
    expertShare: choice.share,
    limit: choice.isLimited ? (within < space ? 'budget' : 'space') : null,
    foreign: [...barred].map(index => basename(checkpoint.files[index].path)),
    notes,
  };
}

/** The directory of a model is never written to. */
export function requireOtherDirectory(directory: string, { checkpoint }: ModelFiles): void {
  const real = realPath(directory);
  for (const { path } of checkpoint.files) {
    if (realPath(dirname(path)) !== real && dirname(realPath(path)) !== real) continue;
    throw new StorageError('SAME_DIRECTORY', `${directory} is where the model itself lies`, {
      hint: 'give a directory on another drive',
      details: { directory, file: path },
    });
  }
}

/** What is in the directory, for every file of the model. */
function findFiles(directory: string, { checkpoint }: ModelFiles, receipt: Receipt | null): Found[] {
  const { files, headerBytes } = mirroredFiles(checkpoint);
  const known = new Map(receipt?.files.map(file => [file.name, file]));
  return files.map((file, index): Found => {
    const name = basename(file.path);
    const path = join(directory, name);
    const stat = fs.lstatSync(path, { throwIfNoEntry: false });
    if (stat === undefined) return { state: 'copy' };
    if (!stat.isFile()) return { state: 'foreign', why: 'it is not a regular file' };
    const entry = known.get(name);
    if (entry && stat.size === file.bytes && entry.bytes === file.bytes && entry.mtimeMs === stat.mtimeMs) {
      return { state: 'verified' };
    }
    const why = differenceOf(path, file, headerBytes[index]);
    if (why === null) return { state: 'there' };
    // what this program has put there it may replace
    return entry ? { state: 'copy' } : { state: 'foreign', why };
  });
}

function usageCounts({ files, usage }: MirrorOptions, notes: string[]) {
  const mode = usageMode(usage);
  if (mode !== 'off') {
    const history = new UsageHistory(files, mode === 'on' ? 'read' : mode, line => notes.push(line));
    const { counts, tokens } = history.total();
    if (counts.some(count => count > 0)) return { counts, tokens };
  }
  return { counts: null, tokens: 0 };
}

/** The directory itself or what is there of its path. Throws MIRROR_UNUSABLE when a file is in the way. */
export function existingParent(directory: string): string {
  let path = directory;
  while (!fs.existsSync(path)) path = dirname(path);
  if (fs.statSync(path).isDirectory()) return path;
  throw new StorageError('MIRROR_UNUSABLE', `${path} is not a directory`, {
    hint: 'give a directory on another drive; it is made if it is not there',
    details: { directory, path },
  });
}

function freeBytesOf(directory: string): number {
  const { bavail, bsize } = fs.statfsSync(directory);
  return bavail * bsize;
}

function isSameDevice(a: string, b: string): boolean {
  return fs.statSync(a).dev === fs.statSync(b).dev;
}

function realPath(path: string): string {
  try {
    return fs.realpathSync(path);
  } catch {
    return resolve(path);
  }
}
