/** Opens the files of mirrors: those that are the model's own as far as can be told at once; the others are told and left alone. */

import { closeSync, constants, fstatSync, openSync, realpathSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { ColiError } from '../common/errors.ts';
import { formatBytes, KIB, MIB } from '../common/units.ts';
import type { Checkpoint, FileIdentity } from '../formats/checkpoint-types.ts';
import { listNames, readExact } from '../formats/files.ts';
import { closeFiles, type IoMode, type OpenFunction, openFiles } from './open-files.ts';

/** Headers are compared in pieces: some have a hundred megabytes. */
const COMPARE_BYTES = MIB;
/**
 * Of what follows a header so many pieces are compared, from its beginning to the end of the file. Another training of the same model
 * has the same headers, and other bytes nearly everywhere. Damage between the pieces is what hashes are for.
 */
const SAMPLES = 16;
/** Of a file that was once compared as a whole, with what was the model then: a hard disk needs long for every piece. */
const STAGED_SAMPLES = 4;
/** For a whole mirror, not to be felt at a start. Files of a small model are then compared from end to end. */
const SAMPLED_BYTES = 64 * MIB;
const LEAST_SAMPLE_BYTES = 4 * KIB;

/** What the receipt of a mirror says of a file that was compared as a whole. */
export interface StagedFile {
  readonly bytes: number;
  readonly mtimeMs: number;
}

export interface Mirror {
  readonly directory: string;
  /** For each file of the model; -1 = not there, or not the same. */
  readonly descriptors: readonly number[];
  /** Files and bytes of the model that it has. */
  readonly files: number;
  readonly bytes: number;
  readonly direct: boolean;
  /** For each file: it is as it was when all of it was compared, by size and time. */
  readonly staged: readonly boolean[];
  /** Lines to tell: what is not used and why. */
  readonly notes: readonly string[];
  /** What to do about them; a note that harms nothing has nothing here. */
  readonly fixes: readonly string[];
}

/** The model that mirrors are copies of. `headerBytes`: how much of each file must be equal before its tensors may be read. */
export interface Mirrored {
  readonly files: readonly FileIdentity[];
  readonly headerBytes: readonly number[];
  /** The receipt in a directory, by the names of files; empty when there is none. May throw a ColiError. */
  readonly staged?: (directory: string) => ReadonlyMap<string, StagedFile>;
}

/** Every file up to its first tensor: the whole header of safetensors, the whole metadata of GGUF. */
export function mirroredFiles({ files, tensors }: Pick<Checkpoint, 'files' | 'tensors'>): Mirrored {
  const headerBytes = files.map(file => file.bytes);
  for (const { file, offset, bytes } of tensors.values()) {
    if (bytes > 0) headerBytes[file] = Math.min(headerBytes[file], offset);
  }
  return { files, headerBytes };
}

/** Never throws: a mirror that cannot be used is a note. Close the descriptors that are not -1. */
export function openMirrors(
  directories: readonly string[],
  model: Mirrored,
  io: IoMode,
  open: OpenFunction = openSync,
): Mirror[] {
  const seen = new Map<string, string>();
  for (const { path } of model.files) seen.set(realPath(dirname(path)), 'the directory of the model itself');
  return directories.map(directory => {
    const real = realPath(directory);
    const same = seen.get(real);
    seen.set(real, 'given twice');
    if (same !== undefined) return unused(directory, model, same, 'give each --mirror a directory of its own');
    return openMirror(directory, model, io, open);
  });
}

export function closeMirrors(mirrors: readonly Mirror[]): void {
  for (const { descriptors } of mirrors) closeFiles(descriptors.filter(descriptor => descriptor >= 0));
}

function openMirror(directory: string, model: Mirrored, io: IoMode, open: OpenFunction): Mirror {
  const problem = directoryProblem(directory);
  if (problem) return unused(directory, model, problem, 'check the path after --mirror');
  const notes = new Notes(directory);
  const receipt = readStaged(directory, model, notes);
  const descriptors: number[] = [];
  const staged: boolean[] = [];
  const changed: string[] = [];
  let missing = 0;
  let buffered: string | null = null;
  const sampleBytes = Math.max(LEAST_SAMPLE_BYTES, Math.min(MIB, SAMPLED_BYTES / SAMPLES / model.files.length));
  for (const [index, file] of model.files.entries()) {
    descriptors.push(-1);
    const name = basename(file.path);
    const path = join(directory, name);
    const entry = receipt.get(name);
    staged.push(entry !== undefined);
    try {
      const headerBytes = model.headerBytes[index];
      const difference = differenceOf(path, file, headerBytes, open);
      if (difference === MISSING) missing++;
      else if (difference !== null) notes.refuse(`${path}: ${difference}`);
      else if (entry && hasChanged(path, entry)) changed.push(name);
      else {
        const sampled = sampledDifference(
          path,
          file,
          headerBytes,
          { count: entry ? STAGED_SAMPLES : SAMPLES, sampleBytes },
          open,
        );
        if (sampled !== null) notes.refuse(`${path}: ${sampled}`);
        else {
          const opened = openFiles([path], io, open);
          descriptors[index] = opened.descriptors[0];
          buffered ??= opened.note;
        }
      }
    } catch (error) {
      if (isTooManyFiles(error)) {
        // what is left of the limit belongs to the model, and to the program
        closeFiles(descriptors.filter(descriptor => descriptor >= 0));
        const needed = `${model.files.length} are needed`;
        return unused(directory, model, `too many open files (raise ulimit -n; ${needed})`, 'raise ulimit -n');
      }
      notes.refuse(error instanceof ColiError ? error.message : `${path}: ${(error as Error).message}`);
    }
  }
  const usable = model.files.filter((_, index) => descriptors[index] >= 0);
  if (changed.length > 0) {
    const text = `changed since it was staged, and not used: ${listNames(changed)}; see coli mirror verify`;
    notes.add(text, 'coli mirror stage compares what was changed, and copies anew what is damaged');
  }
  if (missing === model.files.length) {
    notes.add('it has no file of the model', 'coli mirror stage copies files there; or check the path after --mirror');
  }
  if (buffered !== null) notes.add(buffered, null);
  if (usable.some(file => sameDevice(join(directory, basename(file.path)), file.path))) {
    notes.add('on the same device as the model: reading from both gains nothing', null);
  }
  const bytes = usable.reduce((sum, file) => sum + file.bytes, 0);
  const { lines, fixes } = notes;
  const direct = buffered === null;
  return { directory, descriptors, files: usable.length, bytes, direct, staged, notes: lines, fixes: [...fixes] };
}

class Notes {
  readonly lines: string[] = [];
  readonly fixes = new Set<string>();
  readonly #directory: string;

  constructor(directory: string) {
    this.#directory = directory;
  }

  add(text: string, fix: string | null): void {
    this.lines.push(`mirror ${this.#directory}: ${text}`);
    if (fix !== null) this.fixes.add(fix);
  }

  refuse(text: string): void {
    this.add(`a file is not used: ${text}`, 'copy again the files that are not used, or remove them from the mirror');
  }
}

/** Without a receipt that can be read, files are what they seem. */
function readStaged(directory: string, { staged }: Mirrored, notes: Notes): ReadonlyMap<string, StagedFile> {
  try {
    return staged?.(directory) ?? new Map();
  } catch (error) {
    if (!(error instanceof ColiError)) throw error;
    notes.add(`its receipt is not used: ${error.message}`, error.hint ?? null);
    return new Map();
  }
}

function hasChanged(path: string, { bytes, mtimeMs }: StagedFile): boolean {
  const stat = statSync(path);
  return stat.size !== bytes || stat.mtimeMs !== mtimeMs;
}

const MISSING = 'not there';

/** How a file differs from the model's as far as its header tells, in words; null = not at all. Throws what reading throws. */
export function differenceOf(
  path: string,
  file: FileIdentity,
  headerBytes: number,
  open: OpenFunction = openSync,
): string | null {
  const stat = statSync(path, { throwIfNoEntry: false });
  if (stat === undefined) return MISSING;
  // before it is opened: opening a pipe waits for ever
  if (!stat.isFile()) return 'not a regular file';
  if (stat.size !== file.bytes) return `it has ${formatSize(stat.size)}, the model's file ${formatSize(file.bytes)}`;
  return withBoth(path, file, open, (copy, original) => {
    if (fstatSync(copy).size !== file.bytes) return 'it changes while it is read';
    const at = firstDifference(original, file.path, copy, path, headerBytes);
    return at < 0 ? null : `its header differs from that of the model's file, first at byte ${at}`;
  });
}

/** The same for the bytes after the header, as far as samples tell. */
function sampledDifference(
  path: string,
  file: FileIdentity,
  headerBytes: number,
  { count, sampleBytes }: { readonly count: number; readonly sampleBytes: number },
  open: OpenFunction,
): string | null {
  const left = new Uint8Array(Math.min(sampleBytes, file.bytes - headerBytes));
  const right = new Uint8Array(left.length);
  const step = (file.bytes - headerBytes - left.length) / (count - 1);
  return withBoth(path, file, open, (copy, original) => {
    for (let i = 0; i < count; i++) {
      const at = headerBytes + Math.floor(i * step);
      readExact(original, left, at, file.path);
      readExact(copy, right, at, path);
      if (Buffer.compare(left, right) === 0) continue;
      return `its weights differ from those of the model's file, within ${left.length} bytes from byte ${at}`;
    }
    return null;
  });
}

function withBoth<T>(
  path: string,
  file: FileIdentity,
  open: OpenFunction,
  use: (copy: number, original: number) => T,
): T {
  const copy = open(path, constants.O_RDONLY);
  try {
    const original = open(file.path, constants.O_RDONLY);
    try {
      return use(copy, original);
    } finally {
      closeSync(original);
    }
  } finally {
    closeSync(copy);
  }
}

function firstDifference(a: number, aPath: string, b: number, bPath: string, bytes: number): number {
  const left = new Uint8Array(Math.min(COMPARE_BYTES, bytes));
  const right = new Uint8Array(left.length);
  for (let at = 0; at < bytes; at += left.length) {
    const length = Math.min(left.length, bytes - at);
    readExact(a, left.subarray(0, length), at, aPath);
    readExact(b, right.subarray(0, length), at, bPath);
    if (Buffer.compare(left.subarray(0, length), right.subarray(0, length)) === 0) continue;
    for (let i = 0; i < length; i++) if (left[i] !== right[i]) return at + i;
  }
  return -1;
}

function unused(directory: string, { files }: Mirrored, why: string, fix: string): Mirror {
  const none = { descriptors: files.map(() => -1), staged: files.map(() => false), files: 0, bytes: 0, direct: true };
  return { directory, ...none, notes: [`mirror ${directory} is not used: ${why}`], fixes: [fix] };
}

/** Both figures exactly where rounding would make them look equal. */
function formatSize(bytes: number): string {
  return bytes < 1000 ? `${bytes} bytes` : `${bytes} bytes (${formatBytes(bytes)})`;
}

function sameDevice(a: string, b: string): boolean {
  return statSync(a, { throwIfNoEntry: false })?.dev === statSync(b, { throwIfNoEntry: false })?.dev;
}

function directoryProblem(path: string): string | null {
  try {
    return statSync(path).isDirectory() ? null : 'it is not a directory';
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    return code === 'ENOENT' ? 'there is no such directory' : message;
  }
}

function realPath(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}

function isTooManyFiles(error: unknown): boolean {
  const codes = [error, (error as Error).cause].map(each => (each as NodeJS.ErrnoException | undefined)?.code);
  return codes.some(code => code === 'EMFILE' || code === 'ENFILE');
}
