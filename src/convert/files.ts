/** Files of a conversion appear under their name only when they are whole and on the disk. */

import fs from 'node:fs';
import { join } from 'node:path';
import { ColiError, ConvertError } from '../common/errors.ts';
import { syncDirectory } from '../common/whole-file.ts';

export const PARTIAL = '.partial';
/** Directory inside the destination for files of the source while they are needed. */
export const DOWNLOADS = 'coli.source';

/** `name.partial` -> `name`, both in `directory`; the file itself was synced by whoever wrote it. */
export function publish(directory: string, name: string): void {
  fs.renameSync(join(directory, name + PARTIAL), join(directory, name));
  syncDirectory(directory);
}

/** Writes a small file whole: partial, fsync, rename. */
export function writeWhole(directory: string, name: string, content: string | Uint8Array): void {
  const fd = fs.openSync(join(directory, name + PARTIAL), 'w');
  try {
    fs.writeFileSync(fd, content);
    fs.fsyncSync(fd);
  } finally {
    fs.closeSync(fd);
  }
  publish(directory, name);
}

const UNUSABLE_HINTS: Readonly<Record<string, string>> = {
  EACCES: 'check the permissions of the directory, or give another destination',
  EPERM: 'check the permissions of the directory, or give another destination',
  EROFS: 'the file system is read-only: give a destination on another one',
  ENOSPC: 'free some space, then give the same command again to continue',
  EDQUOT: 'free some space, then give the same command again to continue',
  ENAMETOOLONG: 'give a destination with a shorter name',
};

/** What the file system refuses about a destination, as DESTINATION_UNUSABLE; any other error as it is. */
export function destinationError(destination: string, error: unknown): unknown {
  const { code, syscall, message } = error as NodeJS.ErrnoException;
  if (error instanceof ColiError || code === undefined || syscall === undefined) return error;
  return new ConvertError('DESTINATION_UNUSABLE', `${destination} cannot be written: ${message}`, {
    hint: UNUSABLE_HINTS[code] ?? 'give a destination that does not exist yet, in a directory that does',
    details: { destination, errno: code },
    cause: error,
  });
}

export function jsonText(value: unknown): string {
  return `${JSON.stringify(value, null, 1)}\n`;
}
