/** Reading model files: every read of this folder goes through here, so sizes are checked before memory is taken. */

import fs from 'node:fs';
import { ColiError, ModelFileError, StorageError } from '../common/errors.ts';
import type { FileIdentity } from './checkpoint-types.ts';

/** Node refuses a single read of 2 GiB or more; half of that keeps clear of the limit. */
export const MAX_READ_BYTES = 2 ** 30;

/** Names in messages come from untrusted files: real tensor and file names are shorter than this. */
const QUOTE_CHARACTERS = 160;

/** A name or value from a file, quoted and clipped for a message; control and direction characters become escapes. */
export function quote(text: string): string {
  const clipped = text.length > QUOTE_CHARACTERS ? `${text.slice(0, QUOTE_CHARACTERS)}...` : text;
  return JSON.stringify(clipped).replace(
    /[\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g,
    c => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** At most `limit` names for a message, with the number of those left out. */
export function listNames(names: readonly string[], limit = 5): string {
  const shown = names.slice(0, limit).map(quote).join(', ');
  return names.length > limit ? `${shown} and ${names.length - limit} more` : shown;
}

const UNREADABLE_HINTS: Readonly<Record<string, string>> = {
  EACCES: 'check the permissions of the file and of the directories above it',
  EPERM: 'check the permissions of the file and of the directories above it',
  ELOOP: 'the link leads back to itself: replace it by the real file or directory',
  ENAMETOOLONG: 'give a shorter path',
};

/**
 * Opens a regular file for reading, hands its descriptor and size to `use`, and closes it.
 * Pipes, devices and directories are refused before they are opened (opening a pipe would wait for ever).
 */
export function withFile<T>(path: string, use: (fd: number, stat: fs.Stats) => T): T {
  let fd: number;
  try {
    if (!fs.statSync(path).isFile()) {
      throw new ModelFileError('NOT_A_FILE', `${path} is not a regular file`, {
        hint: 'put the real file, or a link to it, in its place',
        details: { file: path },
      });
    }
    fd = fs.openSync(path, 'r');
  } catch (error) {
    throw unreadable(path, error);
  }
  try {
    return use(fd, fs.fstatSync(fd));
  } finally {
    fs.closeSync(fd);
  }
}

/** Fills `target` from `position`, in reads of at most MAX_READ_BYTES; a file that ends early is an error. */
export function readExact(fd: number, target: Uint8Array, position: number, path: string): void {
  let got = 0;
  while (got < target.length) {
    const want = Math.min(target.length - got, MAX_READ_BYTES);
    let count: number;
    try {
      count = fs.readSync(fd, target, got, want, position + got);
    } catch (error) {
      throw unreadable(path, error);
    }
    if (count === 0) {
      throw new ModelFileError('FILE_SHORT', `${path} ended at byte ${position + got} while it was being read`, {
        hint: 'something is still writing this file; wait for it, or download the file again',
        details: { file: path, offset: position, expected: target.length, got },
      });
    }
    got += count;
  }
}

/** Whole content of a small file. `maxBytes` is compared with the size on disk before anything is allocated. */
export function readSmallFile(path: string, maxBytes: number): Uint8Array {
  return withFile(path, (fd, stat) => {
    if (stat.size > maxBytes) {
      throw new ModelFileError('FILE_TOO_LARGE', `${path} has ${stat.size} bytes; the limit is ${maxBytes}`, {
        hint: 'this is not the file that its name promises; download it again from a source you trust',
        details: { file: path, expected: maxBytes, got: stat.size },
      });
    }
    const bytes = new Uint8Array(stat.size);
    readExact(fd, bytes, 0, path);
    return bytes;
  });
}

/** What `assertUnchanged` will compare; symlinks are followed, the path is kept as given. */
export function readIdentity(path: string): FileIdentity {
  return reading(path, () => identityOf(path, fs.statSync(path)));
}

export function identityOf(path: string, stat: fs.Stats): FileIdentity {
  return { path, bytes: stat.size, mtimeMs: stat.mtimeMs, inode: stat.ino };
}

/** Throws MODEL_CHANGED when a file was replaced, rewritten, cut or removed since its identity was read. */
export function assertUnchanged(files: readonly FileIdentity[]): void {
  for (const before of files) {
    const stat = statOf(before.path);
    if (stat === undefined) throw changed(before.path, 'it is gone', {});
    const now = identityOf(before.path, stat);
    const facts = (['bytes', 'mtimeMs', 'inode'] as const).filter(field => now[field] !== before[field]);
    if (facts.length === 0) continue;
    const label = { bytes: 'size', mtimeMs: 'modification time (ms)', inode: 'inode' };
    const what = facts.map(field => `${label[field]} was ${before[field]}, is ${now[field]}`).join('; ');
    throw changed(before.path, what, { before, now });
  }
}

function changed(path: string, what: string, details: Record<string, unknown>): StorageError {
  return new StorageError('MODEL_CHANGED', `${path} changed while the model was in use: ${what}`, {
    hint: 'restore the file or load the model again; results of this request cannot be trusted',
    details: { file: path, ...details },
  });
}

/** Runs `read` for `path`; what the file system refuses becomes FILE_MISSING or FILE_UNREADABLE with the file and a hint. */
export function reading<T>(path: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw unreadable(path, error);
  }
}

/** Follows links; undefined when nothing is there. */
export function statOf(path: string): fs.Stats | undefined {
  return reading(path, () => fs.statSync(path, { throwIfNoEntry: false }));
}

/** Sorted names in a directory. */
export function namesIn(directory: string): string[] {
  return reading(directory, () => fs.readdirSync(directory).sort());
}

/** True for a link whose target is gone too: reading it then fails by name instead of passing as "not there". */
export function isThere(path: string): boolean {
  try {
    return fs.lstatSync(path, { throwIfNoEntry: false }) !== undefined;
  } catch (error) {
    // nothing lies below a file
    if ((error as NodeJS.ErrnoException).code === 'ENOTDIR') return false;
    throw unreadable(path, error);
  }
}

function unreadable(path: string, error: unknown): Error {
  if (error instanceof ColiError) return error;
  const code = (error as NodeJS.ErrnoException).code;
  if (code === 'ENOENT') {
    const link = fs.lstatSync(path, { throwIfNoEntry: false }) !== undefined;
    const what = link ? 'is a link to a file that does not exist' : 'does not exist';
    return new ModelFileError('FILE_MISSING', `${path} ${what}`, {
      hint: 'download this file again',
      details: { file: path },
      cause: error,
    });
  }
  return new ModelFileError('FILE_UNREADABLE', `${path} cannot be read: ${(error as Error).message}`, {
    hint: UNREADABLE_HINTS[code ?? ''] ?? 'check the disk and the path',
    details: { file: path, errno: code },
    cause: error,
  });
}

/** What the file system says to writing, as DISK_FULL or WRITE_FAILED. `position`: of the byte that was to be written. */
export function unwritable(path: string, error: unknown, position?: number): StorageError {
  const { code, message } = error as NodeJS.ErrnoException;
  const full = code === 'ENOSPC' || code === 'EDQUOT';
  const place = position === undefined ? '' : ` at byte ${position}`;
  return new StorageError(full ? 'DISK_FULL' : 'WRITE_FAILED', `${path} cannot be written${place}: ${message}`, {
    hint: full
      ? 'free some space, then give the same command again to continue'
      : 'check the permissions of the directory and the disk',
    details: { file: path, offset: position, errno: code },
    cause: error,
  });
}
