/**
 * Whether another thread of this process still lives. An 'exit' event cannot reach a thread that waits on shared memory, so
 * the waiting one asks the system instead.
 */

import { existsSync, readlinkSync } from 'node:fs';

/** The system's id of the calling thread, or 0 where it cannot be found out. */
export function osThreadId(): number {
  try {
    return Number(readlinkSync('/proc/thread-self').split('/').at(-1));
  } catch {
    return 0;
  }
}

/** False only when the thread is known to be gone. */
export function threadLives(id: number): boolean {
  return id === 0 || existsSync(`/proc/self/task/${id}`);
}
