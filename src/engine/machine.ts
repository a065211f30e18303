/** What the machine offers: memory that may be used, and cores. `root` is a directory other than / only in tests. */

import { readFileSync } from 'node:fs';
import os from 'node:os';
import { dirname, join } from 'node:path';
import { formatBytes, MIB } from '../common/units.ts';

export interface MemoryFacts {
  /** MemAvailable of the kernel (free memory elsewhere). */
  readonly availableBytes: number;
  /** What the control groups of this process still allow; null when none sets a limit. */
  readonly cgroupLeftBytes: number | null;
}

/** More lanes than this only wait for memory on any machine measured so far. */
export const MAX_THREADS = 256;
/** Each is a thread with memory of its own; no disk measured so far is faster with more than 32 reads at a time. */
export const MAX_READERS = 256;

/**
 * Reserve that `--ram auto` leaves to everything else: 10 %, and at least so much. Where a control group is the limit, what other programs
 * need is outside it.
 */
const MIN_RESERVE_BYTES = 512 * MIB;
const MIN_CGROUP_RESERVE_BYTES = 64 * MIB;
const RESERVE_SHARE = 0.1;

/** Version 1 writes "no limit" as a huge number: the largest multiple of a page below 2^63. */
const NO_LIMIT_BYTES = 2 ** 60;

export function memoryFacts(root = '/'): MemoryFacts {
  const available = keyedNumber(readText(root, 'proc/meminfo'), /^MemAvailable:\s+(\d+) kB$/m);
  return {
    availableBytes: available === null ? os.freemem() : available * 1024,
    cgroupLeftBytes: cgroupLeft(root),
  };
}

/** Where a version of control groups keeps what, and how the page cache that can be dropped is named there. */
interface Hierarchy {
  readonly mount: string;
  /** All that are there count; the tightest decides. */
  readonly limits: readonly (readonly [file: string, pattern: RegExp])[];
  readonly usage: string;
  readonly droppable: RegExp;
}

const WHOLE_FILE = /^(\d+)$/m;
const V2: Hierarchy = {
  mount: 'sys/fs/cgroup',
  // above the lower of the two a process is not ended, but so slowed down that it might as well be
  limits: [
    ['memory.max', WHOLE_FILE],
    ['memory.high', WHOLE_FILE],
  ],
  usage: 'memory.current',
  droppable: /^inactive_file (\d+)$/m,
};
const V1: Hierarchy = {
  mount: 'sys/fs/cgroup/memory',
  // the second knows of groups around a container that cannot be seen from inside
  limits: [
    ['memory.limit_in_bytes', WHOLE_FILE],
    ['memory.stat', /^hierarchical_memory_limit (\d+)$/m],
  ],
  usage: 'memory.usage_in_bytes',
  droppable: /^total_inactive_file (\d+)$/m,
};

/**
 * Room below the tightest limit of the process's control group and the groups around it, version 2 and 1. Page cache that
 * the kernel would drop at once does not count as used: MemAvailable does not count it either. Swap is no memory to plan with.
 */
function cgroupLeft(root: string): number | null {
  const groups = readText(root, 'proc/self/cgroup') ?? '';
  const v2 = /^0::(\/.*)$/m.exec(groups)?.[1] ?? '/';
  const v1 = /^\d+:(?:[^:\n]*,)?memory(?:,[^:\n]*)?:(\/.*)$/m.exec(groups)?.[1] ?? '/';
  const rooms = [
    ...levels(v2).map(group => room(root, V2, group)),
    ...levels(v1).map(group => room(root, V1, group)),
  ].filter(bytes => bytes !== null);
  return rooms.length > 0 ? Math.min(...rooms) : null;
}

/** "/a/b" -> /a/b, /a, /. A path seen from outside a container may not exist inside; its root then does. */
function levels(group: string): string[] {
  return group === '/' ? ['/'] : [group, ...levels(dirname(group))];
}

function room(root: string, { mount, limits, usage, droppable }: Hierarchy, group: string): number | null {
  const number = (file: string, pattern: RegExp) => keyedNumber(readText(root, join(mount, group, file)), pattern);
  const set = limits
    .map(([file, pattern]) => number(file, pattern))
    .filter(limit => limit !== null && limit < NO_LIMIT_BYTES) as number[];
  const used = number(usage, WHOLE_FILE);
  if (set.length === 0 || used === null) return null;
  const cache = number('memory.stat', droppable) ?? 0;
  return Math.max(0, Math.min(...set) - Math.max(0, used - cache));
}

function readText(root: string, file: string): string | null {
  try {
    return readFileSync(join(root, file), 'utf8');
  } catch {
    return null;
  }
}

function keyedNumber(text: string | null, pattern: RegExp): number | null {
  const match = text === null ? null : pattern.exec(text);
  return match && Number(match[1]);
}

/** min(available, cgroup limit - usage) less the reserve, and how it came about. */
export function automaticBudget(facts: MemoryFacts): { bytes: number; source: string } {
  const base = Math.min(facts.availableBytes, facts.cgroupLeftBytes ?? Number.POSITIVE_INFINITY);
  const least = base < facts.availableBytes ? MIN_CGROUP_RESERVE_BYTES : MIN_RESERVE_BYTES;
  const reserve = Math.max(least, Math.floor(base * RESERVE_SHARE));
  const cgroup =
    facts.cgroupLeftBytes === null ? 'no cgroup limit' : `cgroup leaves ${formatBytes(facts.cgroupLeftBytes)}`;
  return {
    bytes: Math.max(0, base - reserve),
    source: `auto: available ${formatBytes(facts.availableBytes)}, ${cgroup}, less a reserve of ${formatBytes(reserve)}`,
  };
}

/** Physical cores: two hardware threads of one core share the units that the kernels need. */
export function physicalCores(root = '/'): number {
  const cores = new Set<string>();
  for (const block of (readText(root, 'proc/cpuinfo') ?? '').split('\n\n')) {
    const physical = /^physical id\s*:\s*(\d+)$/m.exec(block)?.[1];
    const core = /^core id\s*:\s*(\d+)$/m.exec(block)?.[1];
    if (core !== undefined) cores.add(`${physical}:${core}`);
  }
  // affinity and quotas of a container may allow fewer
  return cores.size > 0 ? Math.min(cores.size, os.availableParallelism()) : os.availableParallelism();
}

/** Threads that this process may run at the same time. */
export function hardwareThreads(): number {
  return os.availableParallelism();
}

/** Highest resident set so far (VmHWM), in bytes. */
export function maxRssBytes(): number {
  return process.resourceUsage().maxRSS * 1024;
}
