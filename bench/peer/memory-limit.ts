/** A control group that bounds the memory of one child process, its page cache included; version 1 or 2, Linux only. */

import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

export interface MemoryLimit {
  /** A process joins by writing its id here. */
  readonly joinFile: string;
  /** How often the kernel killed a process of the group for memory. */
  kills(): number;
  /** Only when all processes have ended. */
  remove(): void;
}

/** The figure is missing, and this is why. */
export class NoLimit extends Error {}

interface Version {
  readonly base: string;
  readonly limit: string;
  readonly swap: string;
  /** File that has a line `oom_kill N`. */
  readonly events: string;
}

const V1: Version = {
  base: 'memory',
  limit: 'memory.limit_in_bytes',
  swap: 'memory.memsw.limit_in_bytes',
  events: 'memory.oom_control',
};
const V2: Version = { base: '', limit: 'memory.max', swap: 'memory.swap.max', events: 'memory.events' };

/** Makes the group. Throws NoLimit with the reason where this machine or this user cannot. `root` is another one in tests. */
export function limitMemory(name: string, bytes: number, root = '/sys/fs/cgroup'): MemoryLimit {
  const version = versionOf(root);
  const group = join(root, version.base, name);
  let made = false;
  try {
    mkdirSync(group);
    made = true;
    writeFileSync(join(group, version.limit), String(bytes));
    const set = Number(readFileSync(join(group, version.limit), 'utf8'));
    if (!(set <= bytes && set > bytes - 65536)) throw new Error(`the limit became ${set}`);
    const swap = join(group, version.swap);
    if (existsSync(swap)) writeFileSync(swap, version === V1 ? String(bytes) : '0');
  } catch (error) {
    if (made) rmdirSync(group);
    throw new NoLimit(`no control group with ${bytes} bytes: ${(error as Error).message}`, { cause: error });
  }
  return {
    joinFile: join(group, 'cgroup.procs'),
    kills: () => Number(/^oom_kill (\d+)$/m.exec(readFileSync(join(group, version.events), 'utf8'))?.[1] ?? 0),
    remove: () => rmdirSync(group),
  };
}

function versionOf(root: string): Version {
  if (existsSync(join(root, V1.base, V1.limit))) return V1;
  const delegated = join(root, 'cgroup.subtree_control');
  if (existsSync(delegated) && /\bmemory\b/.test(readFileSync(delegated, 'utf8'))) return V2;
  throw new NoLimit(`no control group below ${root} can bound memory`);
}

/** Drops the pages of these files from the page cache, where they would be memory that no limit counts. */
export function dropFromCache(paths: readonly string[]): void {
  for (const path of paths) {
    execFileSync('dd', [`if=${path}`, 'iflag=nocache', 'count=0', 'status=none']);
  }
}
