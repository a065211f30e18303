/** Files that appear under their name whole or not at all, whenever the process is killed or the power fails. */

import { randomBytes } from 'node:crypto';
import fs from 'node:fs';
import { dirname } from 'node:path';

/**
 * Puts a file in the place of an older one. What is written first lies beside it, as NAME.PID.RANDOM.partial: the number says who may have
 * left it; another thread, or a process of another container, may have the same.
 */
export function replaceFile(path: string, content: string | Uint8Array): void {
  const partial = `${path}.${process.pid}.${randomBytes(4).toString('hex')}.partial`;
  try {
    const fd = fs.openSync(partial, 'wx', 0o600);
    try {
      const bytes = typeof content === 'string' ? Buffer.from(content) : content;
      for (let at = 0; at < bytes.length; ) at += fs.writeSync(fd, bytes, at, bytes.length - at, at);
      fs.fsyncSync(fd);
    } finally {
      fs.closeSync(fd);
    }
    fs.renameSync(partial, path);
  } catch (error) {
    fs.rmSync(partial, { force: true });
    throw error;
  }
  syncDirectory(dirname(path));
}

/** Makes a rename (or removal) in the directory survive a power cut. */
export function syncDirectory(directory: string): void {
  const fd = fs.openSync(directory, 'r');
  try {
    fs.fsyncSync(fd);
  } finally {
    fs.closeSync(fd);
  }
}
