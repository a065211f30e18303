/** What the machine offers: memory that may be used, and cores. */

import { readFileSync } from 'node:fs';
import os from 'node:os';
import { GIB, MIB } from '../common/units.ts';

export interface MemoryFacts {
  /** MemAvailable of the kernel (free memory elsewhere). */
  readonly availableBytes: number;
  /** What the control group still allows; null when it sets no limit. */
  readonly cgroupLeftBytes: number | null;
}

/** Reserve that `--ram auto` leaves to everything else: max(512 MiB, 10 %). */
const MIN_RESERVE_BYTES = 512 * MIB;
const RESERVE_SHARE = 0.1;

function readNumber(path: string): number | null {
  try {
    const value = Number(readFileSync(path, 'utf8').trim());
    return Number.isFinite(value) ? value : null;
  } catch {
    return null;
  }
}

export function memoryFacts(): MemoryFacts {
  let available = os.freemem();
  try {
    const match = /^MemAvailable:\s+(\d+) kB$/m.exec(readFileSync('/proc/meminfo', 'utf8'));
    if (match) available = Number(match[1]) * 1024;
  } catch {
    // not Linux: free memory has to do
  }
  return { availableBytes: available, cgroupLeftBytes: cgroupLeft() };
}

/** Room below the limit of this process's control group, version 2 or 1. */
function cgroupLeft(): number | null {
  const v2 = ['/sys/fs/cgroup/memory.max', '/sys/fs/cgroup/memory.current'];
  const v1 = ['/sys/fs/cgroup/memory/memory.limit_in_bytes', '/sys/fs/cgroup/memory/memory.usage_in_bytes'];
  for (const [limitPath, usagePath] of [v2, v1]) {
    const limit = readNumber(limitPath);
    const usage = readNumber(usagePath);
    // version 1 writes "no limit" as a huge number
    if (limit !== null && usage !== null && limit < 2 ** 60) return Math.max(0, limit - usage);
  }
  return null;
}

/** min(available, cgroup limit - usage) - max(512 MiB, 10 %), and how it came about. */
export function automaticBudget(facts: MemoryFacts): { bytes: number; source: string } {
  const base = Math.min(facts.availableBytes, facts.cgroupLeftBytes ?? Number.POSITIVE_INFINITY);
  const reserve = Math.max(MIN_RESERVE_BYTES, Math.floor(base * RESERVE_SHARE));
  const gib = (bytes: number) => `${(bytes / GIB).toFixed(2)} GiB`;
  const cgroup = facts.cgroupLeftBytes === null ? 'no cgroup limit' : `cgroup leaves ${gib(facts.cgroupLeftBytes)}`;
  return {
    bytes: Math.max(0, base - reserve),
    source: `auto: available ${gib(facts.availableBytes)}, ${cgroup}, reserve ${gib(reserve)}`,
  };
}

/** Physical cores: two hardware threads of one core share the units that the kernels need. */
export function physicalCores(): number {
  try {
    const cores = new Set<string>();
    for (const block of readFileSync('/proc/cpuinfo', 'utf8').split('\n\n')) {
      const physical = /^physical id\s*:\s*(\d+)$/m.exec(block)?.[1];
      const core = /^core id\s*:\s*(\d+)$/m.exec(block)?.[1];
      if (core !== undefined) cores.add(`${physical}:${core}`);
    }
    if (cores.size > 0) return Math.min(cores.size, os.availableParallelism());
  } catch {
    // fall through
  }
  return os.availableParallelism();
}

/** Highest resident set so far (VmHWM), in bytes. */
export function maxRssBytes(): number {
  return process.resourceUsage().maxRSS * 1024;
}
