/**
 * The file of a history: read defensively, replaced as a whole. A process adds what it has seen to what the file holds then, under
 * a lock, so no process takes away what another has saved; SIGKILL at any moment leaves the old file or the new one.
 */

import fs from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { codeOf } from '../../common/file-system.ts';
import { isRunning, takeLock } from '../../common/process-lock.ts';
import { replaceFile } from '../../common/whole-file.ts';
import type { Usage } from './heat.ts';
import { type DecodedUsage, decodeUsage, encodeUsage, type UsageOwner, usageFileBytes } from './usage-bytes.ts';

export const LOCK = '.lock';
/** O_NONBLOCK: opening a named pipe would wait for its writer. Windows has neither. */
const READ = fs.constants.O_RDONLY | (fs.constants.O_NOFOLLOW ?? 0) | (fs.constants.O_NONBLOCK ?? 0);
/** Behind the name of the file: what was to become it, or its lock, and the process that wrote it. */
const LEFTOVER = /^(?:\.lock)?\.(\d{1,9})(?:(?:\.[0-9a-f]{8})?\.partial|-\d+)$/;
/** Leftovers are looked for among so many names at most. */
const MAX_ENTRIES = 10_000;

export type UsageRead = DecodedUsage | { readonly kind: 'absent' };

/** Never throws: what cannot be read is foreign. */
export function readUsage(path: string, owner: UsageOwner): UsageRead {
  try {
    const bytes = readAtMost(path, usageFileBytes(owner.shape));
    return decodeUsage(bytes, owner);
  } catch (error) {
    const code = codeOf(error);
    if (code === 'ENOENT' || code === 'ENOTDIR') return { kind: 'absent' };
    return { kind: 'foreign', why: code === 'ELOOP' ? 'is no regular file' : `cannot be read (${code})` };
  }
}

/** The whole file, or a little more than `maxBytes` of a larger one. Throws what the file system says. */
export function readAtMost(path: string, maxBytes: number): Buffer {
  const fd = fs.openSync(path, READ);
  try {
    const stat = fs.fstatSync(fd);
    if (!stat.isFile()) throw Object.assign(new Error('not a file'), { code: 'ELOOP' });
    const bytes = Buffer.alloc(Math.min(stat.size, maxBytes + 1));
    let got = 0;
    for (let n = -1; n !== 0 && got < bytes.length; got += n) n = fs.readSync(fd, bytes, got, bytes.length - got, got);
    return bytes.subarray(0, got);
  } finally {
    fs.closeSync(fd);
  }
}

/** `saved`: the history that the file holds now. `busy`: another process is saving. */
export type UsageSave =
  | { readonly kind: 'saved'; readonly usage: Usage }
  | { readonly kind: 'busy' }
  | { readonly kind: 'foreign'; readonly why: string };

/**
 * Adds `recent` to what the file holds; to `before` where there is no usable file. A foreign file stays as it is. Throws what the
 * file system says.
 */
export function saveUsage(path: string, owner: UsageOwner, before: Usage, recent: Usage): UsageSave {
  const { release } = takeLock(path + LOCK);
  if (release === null) return { kind: 'busy' };
  try {
    const now = readUsage(path, owner);
    if (now.kind === 'foreign') return { kind: 'foreign', why: now.why };
    const usage = now.kind === 'whole' ? now.usage : before;
    usage.add(recent);
    removeLeftovers(path);
    // its partial file has a name of its own: a process that has lost its lock cannot rename what another one writes
    replaceFile(path, encodeUsage(usage, owner.identity));
    return { kind: 'saved', usage };
  } finally {
    release();
  }
}

/** What killed processes left, our own number included: we hold the lock. */
function removeLeftovers(path: string): void {
  const prefix = `${basename(path)}.`;
  const directory = fs.opendirSync(dirname(path));
  try {
    for (let i = 0; i < MAX_ENTRIES; i++) {
      const entry = directory.readSync();
      if (entry === null) break;
      const { name } = entry;
      const pid = name.startsWith(prefix) ? Number(LEFTOVER.exec(name.slice(prefix.length - 1))?.[1]) : 0;
      if (!(pid > 0)) continue;
      if (pid === process.pid || !isRunning({ pid, start: null }))
        fs.rmSync(join(dirname(path), name), { force: true });
    }
  } finally {
    directory.closeSync();
  }
}
