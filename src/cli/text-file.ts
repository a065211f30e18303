/** Texts that evaluations measure on. */

import { closeSync, openSync, readSync } from 'node:fs';
import { RequestError } from '../common/errors.ts';
import { decodeUtf8 } from './prompt-input.ts';

/** A text is tokenised as a whole, in up to a hundred times its size of memory; test sets have a few MB. */
const MAX_TEXT_BYTES = 16 * 1024 * 1024;
const READ_BYTES = 1024 * 1024;

/** A UTF-8 file or pipe. Throws RequestError naming the flag that gave it. */
export function readTextFile(file: string, flag: string): string {
  let bytes: Buffer | null;
  try {
    bytes = readAtMost(file, MAX_TEXT_BYTES);
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new RequestError('TEXT_UNREADABLE', `cannot read ${file}: ${reason}`, { hint: `check ${flag}`, cause });
  }
  if (bytes === null) {
    throw new RequestError('TEXT_TOO_LARGE', `${file} has more than ${MAX_TEXT_BYTES} bytes`, {
      hint: 'give a part of it: figures hardly change after a few megabytes',
      details: { file, limit: MAX_TEXT_BYTES },
    });
  }
  return decodeUtf8(bytes, file);
}

/** The whole file or pipe; null, and no more than that read, when it is longer than `limit` bytes. */
function readAtMost(file: string, limit: number): Buffer | null {
  const fd = openSync(file, 'r');
  try {
    const parts: Buffer[] = [];
    for (let bytes = 0; bytes <= limit; ) {
      const part = Buffer.allocUnsafe(READ_BYTES);
      const count = readSync(fd, part);
      if (count === 0) return Buffer.concat(parts);
      parts.push(part.subarray(0, count));
      bytes += count;
    }
    return null;
  } finally {
    closeSync(fd);
  }
}
