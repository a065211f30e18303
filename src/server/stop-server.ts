/** Stopping a server from another process: only one that this user's runtime files name, and only while it is that very process. */

import { setTimeout as sleep } from 'node:timers/promises';
import { RequestError, UsageError } from '../common/errors.ts';
import { isRunning } from '../common/process-lock.ts';
import { type RuntimeEntry, runningServers } from './runtime-file.ts';

const POLL_MS = 50;
/** Beyond the grace: for its last words and for closing the model. */
const EXTRA_MS = 15_000;

/** The server to stop. Throws NO_SERVER, or UsageError SEVERAL_SERVERS. */
export function chooseServer(directory: string, port?: number): RuntimeEntry {
  const all = runningServers(directory);
  const fitting = port === undefined ? all : all.filter(entry => entry.port === port);
  if (fitting.length === 1) return fitting[0];
  const list = all.map(entry => `${entry.port} (${entry.model}, process ${entry.pid})`).join(', ');
  if (fitting.length > 1) {
    throw new UsageError('SEVERAL_SERVERS', `several servers run here: ports ${list}`, {
      hint: 'say which one with --port',
    });
  }
  const where = port === undefined ? 'no server of this user runs here' : `no server of this user runs on port ${port}`;
  throw new RequestError('NO_SERVER', where, {
    hint: all.length > 0 ? `these do: ports ${list}` : 'start one with coli serve',
  });
}

/** Asks it to stop and waits until its process has ended. Throws STOP_FAILED. */
export async function stopServerProcess(entry: RuntimeEntry, extraMs = EXTRA_MS): Promise<void> {
  // the number may belong to another process by now
  if (!isRunning(entry)) return;
  try {
    process.kill(entry.pid, 'SIGTERM');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return;
    throw failed(entry, (error as Error).message);
  }
  const deadline = performance.now() + entry.graceMs + extraMs;
  while (isRunning(entry)) {
    if (performance.now() > deadline) throw failed(entry, 'it still runs');
    await sleep(POLL_MS);
  }
}

function failed({ pid, port }: RuntimeEntry, reason: string): RequestError {
  return new RequestError('STOP_FAILED', `the server on port ${port} (process ${pid}) did not stop: ${reason}`, {
    hint: `kill -9 ${pid} ends it at once`,
    details: { pid, port },
  });
}
