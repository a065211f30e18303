/** One conversion at a time into a directory: `coli.convert.lock` names the process that writes there. */

import fs from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod';
import { ConvertError } from '../common/errors.ts';

export const LOCK_FILE = 'coli.convert.lock';

/** `start` tells a process from a later one of the same number; null where the system does not say. */
const Holder = z.strictObject({ pid: z.int().positive(), start: z.string().nullable() });
type Holder = z.infer<typeof Holder>;

/** Takes the lock, also from a process that is gone, and returns what gives it back. Throws CONVERT_BUSY. */
export function lockDestination(directory: string): () => void {
  const path = join(directory, LOCK_FILE);
  const left = fs.existsSync(path);
  requireNotBusy(directory);
  if (left) fs.rmSync(path, { force: true });
  const own = JSON.stringify({ pid: process.pid, start: startOf(process.pid) } satisfies Holder);
  try {
    fs.writeFileSync(path, own, { flag: 'wx' });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') throw busy(directory, holderOf(path)?.pid);
    throw error;
  }
  return () => fs.rmSync(path, { force: true });
}

/** Throws CONVERT_BUSY when a process that still runs holds the lock. */
export function requireNotBusy(directory: string): void {
  const holder = holderOf(join(directory, LOCK_FILE));
  if (holder !== null && isRunning(holder)) throw busy(directory, holder.pid);
}

/** Null when there is no lock, or one that a power cut left without its content. */
function holderOf(path: string): Holder | null {
  try {
    return Holder.parse(JSON.parse(fs.readFileSync(path, 'utf8')));
  } catch {
    // a place that cannot be used says so when the lock is written
    return null;
  }
}

function isRunning({ pid, start }: Holder): boolean {
  try {
    process.kill(pid, 0);
  } catch (error) {
    // EPERM: it runs, as another user
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return false;
  }
  return start === null || start === startOf(pid);
}

/** When a process was started, in ticks since the system's own start; null where /proc does not tell. */
function startOf(pid: number): string | null {
  try {
    const stat = fs.readFileSync(`/proc/${pid}/stat`, 'utf8');
    // the name in parentheses may hold anything; behind it are fields 3 (state) and 22 (start)
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    // ended, and only not yet collected by its parent
    return fields[0] === 'Z' ? 'ended' : (fields[19] ?? null);
  } catch {
    return null;
  }
}

function busy(directory: string, pid?: number): ConvertError {
  const who = pid === undefined ? 'another process' : `process ${pid}`;
  return new ConvertError('CONVERT_BUSY', `${directory} is being written by a conversion in ${who}`, {
    hint: 'wait until it has finished, or stop it and give the command again to continue',
    details: { destination: directory, pid: pid ?? null },
  });
}
