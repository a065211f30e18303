/** File names as the hub lists them are text of a stranger, and they become paths on this disk. */

import { HubError } from '../common/errors.ts';
import { quote } from '../formats/files.ts';
import { PARTIAL_SUFFIX } from './partial-file.ts';

/** The largest published repositories have some thousand files. */
export const MAX_FILES = 20_000;
/** Linux takes 4096 for a whole path; the directory above needs its share. */
const MAX_PATH_BYTES = 1024;
/** File systems hold 255 bytes; the name of an unfinished file is longer than that of the file. */
const MAX_PART_BYTES = 255 - PARTIAL_SUFFIX.length;

/** Why this name cannot be a path below a directory, or null. */
export function badFileName(path: string): string | null {
  if (path === '') return 'it is empty';
  if (!path.isWellFormed()) return 'it is not valid Unicode';
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what it looks for
  if (/[\u0000-\u001f\u007f]/.test(path)) return 'it has control characters';
  if (path.includes('\\')) return 'it has a backslash';
  if (path.startsWith('/')) return 'it is an absolute path';
  if (/^[A-Za-z]:/.test(path)) return 'it begins with a drive letter';
  if (Buffer.byteLength(path) > MAX_PATH_BYTES) return `it is longer than ${MAX_PATH_BYTES} bytes`;
  for (const part of path.split('/')) {
    if (part === '' || part === '.' || part === '..') return `it has the part ${quote(part)}`;
    if (Buffer.byteLength(part) > MAX_PART_BYTES) return `it has a part longer than ${MAX_PART_BYTES} bytes`;
    if (part.endsWith(PARTIAL_SUFFIX)) return `names ending in ${PARTIAL_SUFFIX} are those of unfinished downloads`;
  }
  return null;
}

/** Throws HUB_FILE_NAMES for a name that is no relative path. */
export function checkFileName(path: string): void {
  const problem = badFileName(path);
  if (problem) throw refused(`the file name ${quote(path)} is refused: ${problem}`, path);
}

/** Two names that one file would have on some file systems, or a file that is also a directory: throws HUB_FILE_NAMES. */
export function checkCollisions(paths: readonly string[]): void {
  const seen = new Map<string, string>();
  for (const path of paths) {
    const folded = fold(path);
    const other = seen.get(folded);
    if (other !== undefined) {
      throw refused(`${quote(other)} and ${quote(path)} are one name on file systems that ignore case`, path);
    }
    seen.set(folded, path);
  }
  for (const path of paths) {
    const parts = fold(path).split('/');
    for (let n = 1; n < parts.length; n++) {
      const file = seen.get(parts.slice(0, n).join('/'));
      if (file !== undefined) throw refused(`${quote(file)} is a file and also a directory of ${quote(path)}`, path);
    }
  }
}

function fold(path: string): string {
  return path.normalize('NFC').toLowerCase();
}

function refused(what: string, path: string): HubError {
  return new HubError('HUB_FILE_NAMES', what, {
    hint: 'this repository was not made by a normal tool: do not use it, or leave these files out with --include',
    details: { path },
  });
}
