/** Running the program while its memory is watched from outside, and disk space for large models. */

import { spawn } from 'node:child_process';
import { readFileSync, statfsSync } from 'node:fs';
import { tmpdir } from 'node:os';

export interface Watched {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
  /** VmHWM as the kernel told it while the process lived. */
  readonly maxRssBytes: number;
}

const POLL_MS = 15;

/** Runs Node with these arguments and looks at its highest resident set until it is gone. */
export function runWatched(args: readonly string[], env: Record<string, string>): Promise<Watched> {
  const child = spawn(process.execPath, args, {
    env: { ...process.env, COLI_MODEL: '', NO_COLOR: '1', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let stdout = '';
  let stderr = '';
  child.stdout.on('data', data => {
    stdout += data;
  });
  child.stderr.on('data', data => {
    stderr += data;
  });
  let maxRssBytes = 0;
  const look = () => {
    maxRssBytes = Math.max(maxRssBytes, highWaterMark(child.pid!));
  };
  const timer = setInterval(look, POLL_MS);
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', status => {
      clearInterval(timer);
      resolve({ status, stdout, stderr, maxRssBytes });
    });
  });
}

/** VmHWM in bytes; 0 when the process has no memory any more. */
export function highWaterMark(pid: number | 'self'): number {
  try {
    return Number(/^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) * 1024;
  } catch {
    return 0;
  }
}

const TMPFS_MAGIC = 0x01021994;

/** A directory on a real disk with so much room, or why there is none. */
export function diskWithRoom(bytes: number): { directory: string } | { reason: string } {
  for (const directory of [tmpdir(), '.']) {
    const { type, bavail, bsize } = statfsSync(directory);
    if (type !== TMPFS_MAGIC && bavail * bsize >= bytes) return { directory };
  }
  return { reason: `needs ${Math.round(bytes / 1e9)} GB of free disk` };
}
