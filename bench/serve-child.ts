/** `coli serve` as a process of its own, and what the kernel says about it. */

import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const PROGRAM = fileURLToPath(new URL('../bin/coli.js', import.meta.url));
/** A model of several GB is read in seconds, on a busy machine in a minute. */
const START_LIMIT_MS = 300_000;
/** Clock ticks per second in /proc/PID/stat, on every Linux. */
const TICKS = 100;

export interface ServeProcess {
  readonly pid: number;
  readonly port: number;
  /** What it wrote after its start: lines of the log from `warn` up. */
  readonly complaints: readonly string[];
  /** Sends SIGTERM and waits; resolves to the exit code, or the signal's name. */
  stop(): Promise<number | string>;
}

/** Starts a server on a free port of 127.0.0.1 and waits until its model is loaded. */
export async function startServe(flags: readonly string[], nodeFlags: readonly string[] = []): Promise<ServeProcess> {
  const args = [...nodeFlags, PROGRAM, 'serve', '--port', '0', '--log-level', 'warn', ...flags];
  const { COLI_MODEL: _, ...env } = process.env;
  // a `coli stop` of somebody else shall not find it
  const runtime = mkdtempSync(join(tmpdir(), 'coli-serve-'));
  const child = spawn(process.execPath, args, {
    // as by the launcher, whose end a server sees: it ends with this process, however that ends
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    env: { ...env, NO_COLOR: '1', XDG_RUNTIME_DIR: runtime, COLI_LAUNCHED: '1' },
  });
  const ended = new Promise<number | string>(resolve => {
    child.once('close', (code, signal) => {
      rmSync(runtime, { recursive: true, force: true });
      resolve(signal ?? code!);
    });
  });
  const { port, complaints } = await listening(child);
  return {
    pid: child.pid!,
    port,
    complaints,
    stop: () => {
      child.kill('SIGTERM');
      return ended;
    },
  };
}

function listening(child: ChildProcess): Promise<{ port: number; complaints: string[] }> {
  return new Promise((resolve, reject) => {
    const complaints: string[] = [];
    let port = 0;
    let rest = '';
    const fail = (why: string) => reject(new Error(`the server did not start (${why}): ${complaints.join('\n')}`));
    const timer = setTimeout(() => {
      child.kill('SIGKILL');
      fail('too slow');
    }, START_LIMIT_MS);
    child.once('close', (code, signal) => {
      clearTimeout(timer);
      complaints.push(`it ended with ${signal ?? code}`);
      fail('it ended');
    });
    child.stderr!.on('data', data => {
      const lines = (rest + data).split('\n');
      rest = lines.pop()!;
      for (const line of lines) {
        port ||= Number(/"msg":"Listening on http:\/\/127\.0\.0\.1:(\d+)/.exec(line)?.[1] ?? 0);
        complaints.push(line);
        if (!line.includes('"msg":"Ready: ')) continue;
        // what it says of its start is no complaint
        complaints.length = 0;
        clearTimeout(timer);
        resolve({ port, complaints });
      }
    });
  });
}

export interface ProcessMemory {
  readonly rssBytes: number;
  /** The highest RSS so far. */
  readonly peakBytes: number;
}

export function memoryOf(pid: number): ProcessMemory {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const kib = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(status)?.[1] ?? 0) * 1024;
  return { rssBytes: kib('VmRSS'), peakBytes: kib('VmHWM') };
}

/** Seconds of processor time since the start, all threads together. */
export function processorSeconds(pid: number): number {
  const [, fields] = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ');
  const [user, system] = fields.split(' ').slice(11, 13);
  return (Number(user) + Number(system)) / TICKS;
}

/** Begins to watch; the result tells which share of all processors other programs than `pids` have used since. */
export function othersClock(pids: readonly number[]): () => number {
  const read = () => {
    const times = readFileSync('/proc/stat', 'utf8').split('\n', 1)[0].split(/ +/).slice(1, 9).map(Number);
    const all = times.reduce((sum, time) => sum + time, 0) / TICKS;
    const idle = (times[3] + times[4]) / TICKS;
    return { all, busy: all - idle - pids.reduce((sum, pid) => sum + processorSeconds(pid), 0) };
  };
  const before = read();
  return () => {
    const now = read();
    return (now.busy - before.busy) / (now.all - before.all);
  };
}
