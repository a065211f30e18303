/** Files that name a process: who holds a lock, and whether that very process still runs. */

import { randomInt } from 'node:crypto';
import fs from 'node:fs';

/** `start` tells a process from a later one of the same number; null where the system does not say. */
export interface ProcessId {
  readonly pid: number;
  readonly start: string | null;
}

/** `holder` is null when the process that has the lock could not be read. */
export type LockAttempt =
  | { readonly release: () => void }
  | { readonly release: null; readonly holder: ProcessId | null };

/**
 * Takes the lock at `path`, also from a process that is gone; `release` gives it back. A process holds a lock once:
 * a second attempt of its own finds it taken. Throws what the file system says when the file cannot be written.
 */
export function takeLock(path: string): LockAttempt {
  const left = readText(path);
  const holder = holderOf(left);
  if (holder !== null && isRunning(holder)) return { release: null, holder };
  // somebody else may have taken it over by now
  if (left !== null && readText(path) === left) fs.rmSync(path, { force: true });
  const own = JSON.stringify(processId());
  try {
    publish(path, own);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    return { release: null, holder: readHolder(path) };
  }
  return {
    release: () => {
      // the directory may be another one by now
      if (readText(path) === own) fs.rmSync(path, { force: true });
    },
  };
}

/** The file appears with its content, so that nobody finds it empty and takes it for one that a power cut has left. */
function publish(path: string, text: string): void {
  // a process of another container may have our number
  const draft = `${path}.${process.pid}-${randomInt(2 ** 32)}`;
  try {
    // a full disk leaves an empty one
    fs.writeFileSync(draft, text, { flag: 'wx', mode: 0o600 });
    link(draft, path, text);
  } finally {
    fs.rmSync(draft, { force: true });
  }
}

function link(draft: string, path: string, text: string): void {
  try {
    fs.linkSync(draft, path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') throw error;
    // a file system without links
    fs.writeFileSync(path, text, { flag: 'wx', mode: 0o600 });
  }
}

/** The process that has the lock and still runs, or null. */
export function runningHolder(path: string): ProcessId | null {
  const holder = readHolder(path);
  return holder !== null && isRunning(holder) ? holder : null;
}

/** `left`: by a process that is gone; whoever comes next takes it over. `blocked`: no file, so nobody ever gets the lock. */
export function lockState(path: string): 'free' | 'held' | 'left' | 'blocked' {
  try {
    const stat = fs.lstatSync(path, { throwIfNoEntry: false });
    if (stat === undefined) return 'free';
    if (!stat.isFile()) return 'blocked';
  } catch {
    // a place that may not be looked at says so when the lock is written
    return 'free';
  }
  return runningHolder(path) === null ? 'left' : 'held';
}

/** This process, as lock files name it. */
export function processId(): ProcessId {
  return { pid: process.pid, start: startOf(process.pid) };
}

/** Whether this very process runs, and no later one of the same number. */
export function isRunning({ pid, start }: ProcessId): boolean {
  try {
    process.kill(pid, 0);
  } catch (error) {
    // EPERM: it runs, as another user
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return false;
  }
  return start === null || start === startOf(pid);
}

/** Null when there is no lock, or one that a power cut left without its content. */
function readHolder(path: string): ProcessId | null {
  return holderOf(readText(path));
}

function holderOf(text: string | null): ProcessId | null {
  try {
    const { pid, start } = JSON.parse(text ?? 'null');
    const valid = Number.isSafeInteger(pid) && pid > 0 && (start === null || typeof start === 'string');
    return valid ? { pid, start } : null;
  } catch {
    return null;
  }
}

/** Null also for a place that cannot be read: it says so when the lock is written. */
function readText(path: string): string | null {
  try {
    // reading a pipe would wait for its writer
    return fs.statSync(path).isFile() ? fs.readFileSync(path, 'utf8') : null;
  } catch {
    return null;
  }
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
