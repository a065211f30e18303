/** One conversion at a time into a directory: `coli.convert.lock` names the process that writes there. */

import { join } from 'node:path';
import { ConvertError } from '../common/errors.ts';
import { runningHolder, takeLock } from '../common/process-lock.ts';

export const LOCK_FILE = 'coli.convert.lock';

/** Takes the lock, also from a process that is gone, and returns what gives it back. Throws CONVERT_BUSY. */
export function lockDestination(directory: string): () => void {
  const attempt = takeLock(join(directory, LOCK_FILE));
  if (attempt.release === null) throw busy(directory, attempt.holder?.pid);
  return attempt.release;
}

/** Throws CONVERT_BUSY when a process that still runs holds the lock. */
export function requireNotBusy(directory: string): void {
  const holder = runningHolder(join(directory, LOCK_FILE));
  if (holder !== null) throw busy(directory, holder.pid);
}

function busy(directory: string, pid?: number): ConvertError {
  const who = pid === undefined ? 'another process' : `process ${pid}`;
  return new ConvertError('CONVERT_BUSY', `${directory} is being written by a conversion in ${who}`, {
    hint: 'wait until it has finished, or stop it and give the command again to continue',
    details: { destination: directory, pid: pid ?? null },
  });
}
