/** Files of a conversion appear under their name only when they are whole and on the disk. */

import fs from 'node:fs';
import { join } from 'node:path';

export const PARTIAL = '.partial';

/** Makes a rename (or removal) in `directory` survive a power cut. */
export function syncDirectory(directory: string): void {
  const fd = fs.openSync(directory, 'r');
  try {
    fs.fsyncSync(fd);
  } finally {
    fs.closeSync(fd);
  }
}

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

export function jsonText(value: unknown): string {
  return `${JSON.stringify(value, null, 1)}\n`;
}
