/** Opens model files for reading past the page cache, where the file system allows it. */

import { closeSync, constants, openSync, readSync } from 'node:fs';
import { StorageError } from '../common/errors.ts';
import { PAGE } from './record-table.ts';

/** `auto` prefers direct reads and falls back to the page cache; `direct` refuses to fall back. */
export type IoMode = 'auto' | 'direct' | 'buffered';

export type OpenFunction = (path: string, flags: number) => number;

export interface OpenedFiles {
  readonly descriptors: readonly number[];
  /** True: no read of any file goes through the page cache. */
  readonly direct: boolean;
  /** What fell back and why, in one line; null when nothing did. */
  readonly note: string | null;
}

/** Errors: FILE_OPEN_FAILED, DIRECT_IO_REFUSED. Nothing stays open after an error. */
export function openFiles(paths: readonly string[], mode: IoMode, open: OpenFunction = openSync): OpenedFiles {
  const descriptors: number[] = [];
  const refused: { path: string; reason: string }[] = [];
  try {
    for (const path of paths) {
      const direct = mode === 'buffered' ? null : openDirect(path, open);
      if (typeof direct === 'number') {
        descriptors.push(direct);
        continue;
      }
      descriptors.push(openBuffered(path, open));
      if (direct) refused.push({ path, reason: direct.refused });
    }
    if (mode === 'direct' && refused.length > 0) {
      const { path, reason } = refused[0];
      throw new StorageError('DIRECT_IO_REFUSED', `${path}: the file system refuses direct reads (${reason})`, {
        details: { file: path, errno: reason },
        hint: 'use automatic or buffered reads, or move the model to a local disk',
      });
    }
  } catch (error) {
    closeFiles(descriptors);
    throw error;
  }
  return { descriptors, direct: mode !== 'buffered' && refused.length === 0, note: noteOf(refused, paths.length) };
}

export function closeFiles(descriptors: readonly number[]): void {
  for (const descriptor of descriptors) closeSync(descriptor);
}

/** A descriptor, or why direct reads cannot be had. Some file systems accept the flag and refuse the first read. */
function openDirect(path: string, open: OpenFunction): number | { refused: string } {
  if (constants.O_DIRECT === undefined) return { refused: 'not offered by this system' };
  let descriptor: number;
  try {
    descriptor = open(path, constants.O_RDONLY | constants.O_DIRECT);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EINVAL' || code === 'ENOTSUP') return { refused: code };
    throw openFailed(path, error);
  }
  try {
    readSync(descriptor, new Uint8Array(new WebAssembly.Memory({ initial: 1 }).buffer), 0, PAGE, 0);
    return descriptor;
  } catch (error) {
    closeSync(descriptor);
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EINVAL' || code === 'ENOTSUP') return { refused: code };
    throw openFailed(path, error);
  }
}

function openBuffered(path: string, open: OpenFunction): number {
  try {
    return open(path, constants.O_RDONLY);
  } catch (error) {
    throw openFailed(path, error);
  }
}

function openFailed(path: string, error: unknown): StorageError {
  const { code, message } = error as NodeJS.ErrnoException;
  return new StorageError('FILE_OPEN_FAILED', `${path} cannot be opened: ${message}`, {
    details: { file: path, errno: code },
    cause: error,
    hint: 'check that the file exists and may be read',
  });
}

function noteOf(refused: readonly { path: string; reason: string }[], files: number): string | null {
  if (refused.length === 0) return null;
  const which = refused.length === files ? 'the model files' : `${refused.length} of ${files} files`;
  const { path, reason } = refused[0];
  return `direct reads are refused for ${which} (${reason}, ${path}): reading through the page cache`;
}
