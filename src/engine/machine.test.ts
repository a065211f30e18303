import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { GIB, MIB } from '../common/units.ts';
import { automaticBudget, maxRssBytes, memoryFacts, physicalCores } from './machine.ts';

const roots: string[] = [];

/** A directory that plays the root of a file system. */
function machine(files: Record<string, string>): string {
  const root = mkdtempSync(join(os.tmpdir(), 'coli-machine-'));
  roots.push(root);
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, name)), { recursive: true });
    writeFileSync(join(root, name), text);
  }
  return root;
}

afterEach(() => {
  for (const root of roots.splice(0)) rmSync(root, { recursive: true });
});

const MEMINFO = 'MemTotal:       24684124 kB\nMemFree:         1000000 kB\nMemAvailable:    8388608 kB\n';

function v2(limit: string, usage: number, group = '/', stat = 'anon 1\n'): Record<string, string> {
  return {
    [join('sys/fs/cgroup', group, 'memory.max')]: `${limit}\n`,
    [join('sys/fs/cgroup', group, 'memory.current')]: `${usage}\n`,
    [join('sys/fs/cgroup', group, 'memory.stat')]: stat,
  };
}

function v1(limit: number | string, usage: number, group = '/', stat = 'cache 1\n'): Record<string, string> {
  return {
    [join('sys/fs/cgroup/memory', group, 'memory.limit_in_bytes')]: `${limit}\n`,
    [join('sys/fs/cgroup/memory', group, 'memory.usage_in_bytes')]: `${usage}\n`,
    [join('sys/fs/cgroup/memory', group, 'memory.stat')]: stat,
  };
}

describe('memory', () => {
  test('MemAvailable in bytes, no control group', () => {
    const root = machine({ 'proc/meminfo': MEMINFO });
    expect(memoryFacts(root)).toEqual({ availableBytes: 8 * GIB, cgroupLeftBytes: null });
  });

  test('swap is not available memory', () => {
    const root = machine({ 'proc/meminfo': `${MEMINFO}SwapTotal: 99999999 kB\nSwapFree: 99999999 kB\n` });
    expect(memoryFacts(root).availableBytes).toBe(8 * GIB);
  });

  test('free memory where there is no /proc', () => {
    const { availableBytes } = memoryFacts(machine({}));
    expect(availableBytes).toBeGreaterThan(0);
    expect(availableBytes).toBeLessThanOrEqual(os.totalmem());
  });

  test.each([
    ['version 2, a container that sees only itself', { 'proc/self/cgroup': '0::/\n', ...v2(`${2 * GIB}`, GIB) }, GIB],
    ['version 2 without a limit', { 'proc/self/cgroup': '0::/\n', ...v2('max', GIB) }, null],
    [
      'version 2, the tightest of several levels counts',
      {
        'proc/self/cgroup': '0::/user.slice/app.scope\n',
        ...v2('max', 5 * GIB, '/user.slice/app.scope'),
        ...v2(`${6 * GIB}`, 5 * GIB, '/user.slice'),
        ...v2(`${16 * GIB}`, 8 * GIB),
      },
      GIB,
    ],
    [
      'version 2, a path that exists only outside the container',
      { 'proc/self/cgroup': '0::/../../docker/abc\n', ...v2(`${3 * GIB}`, GIB) },
      2 * GIB,
    ],
    [
      'version 2, page cache that can be dropped is not used memory',
      {
        'proc/self/cgroup': '0::/\n',
        ...v2(`${2 * GIB}`, 2 * GIB, '/', `anon 5\ninactive_file ${GIB}\nactive_file 9\n`),
      },
      GIB,
    ],
    [
      'version 1 in its own group',
      { 'proc/self/cgroup': '5:devices:/x\n4:memory:/jobs/one\n0::/\n', ...v1(2 * GIB, GIB, '/jobs/one') },
      GIB,
    ],
    ['version 1 without a limit', { 'proc/self/cgroup': '4:memory:/\n', ...v1('9223372036854771712', GIB) }, null],
    [
      'version 1, controllers mounted together, page cache',
      {
        'proc/self/cgroup': '3:cpu,memory:/\n',
        ...v1(2 * GIB, 2 * GIB, '/', `inactive_file 7\ntotal_inactive_file ${512 * MIB}\n`),
      },
      512 * MIB,
    ],
    [
      'version 2, slowed down before the limit',
      {
        'proc/self/cgroup': '0::/job\n',
        ...v2(`${8 * GIB}`, GIB, '/job'),
        'sys/fs/cgroup/job/memory.high': `${3 * GIB}\n`,
      },
      2 * GIB,
    ],
    [
      'version 2, slowed down although nothing is the most',
      { 'proc/self/cgroup': '0::/\n', ...v2('max', GIB), 'sys/fs/cgroup/memory.high': `${3 * GIB}\n` },
      2 * GIB,
    ],
    [
      'version 2, three levels of which the middle one is tightest although it has the most',
      {
        'proc/self/cgroup': '0::/a/b/c\n',
        ...v2(`${4 * GIB}`, GIB, '/a/b/c'),
        ...v2(`${9 * GIB}`, 8 * GIB, '/a/b'),
        ...v2(`${30 * GIB}`, 9 * GIB, '/a'),
      },
      GIB,
    ],
    [
      'version 1, a limit around the container that cannot be seen inside',
      {
        'proc/self/cgroup': '4:memory:/\n',
        ...v1('9223372036854771712', GIB, '/', `hierarchical_memory_limit ${5 * GIB}\ntotal_inactive_file 0\n`),
      },
      4 * GIB,
    ],
    [
      'swap that a group may use is no room',
      {
        'proc/self/cgroup': '0::/\n',
        ...v2(`${2 * GIB}`, GIB),
        'sys/fs/cgroup/memory.swap.max': 'max\n',
        'sys/fs/cgroup/memory.swap.current': '0\n',
      },
      GIB,
    ],
    ['more used than allowed', { 'proc/self/cgroup': '0::/\n', ...v2(`${GIB}`, 2 * GIB) }, 0],
    ['files that say nothing', { 'proc/self/cgroup': 'nonsense\n', ...v2('', GIB) }, null],
  ])('%s', (_, files, left) => {
    expect(memoryFacts(machine({ 'proc/meminfo': MEMINFO, ...files })).cgroupLeftBytes).toBe(left);
  });
});

describe('the automatic budget', () => {
  test.each([
    // available, cgroup leaves, budget
    [100 * GIB, null, 90 * GIB],
    [100 * GIB, 20 * GIB, 18 * GIB],
    [8 * GIB, 100 * GIB, 8 * GIB - Math.floor(0.1 * 8 * GIB)],
    [4 * GIB, null, 4 * GIB - 512 * MIB],
    [4 * GIB, 2 * GIB, 2 * GIB - Math.floor(0.1 * 2 * GIB)],
    [4 * GIB, 381 * MIB, 317 * MIB],
    // the machine has no more than the control group allows: others need their part of it
    [2 * GIB, 2 * GIB, 2 * GIB - 512 * MIB],
    [2 * GIB, 4 * GIB, 2 * GIB - 512 * MIB],
    [4 * GIB, 50 * MIB, 0],
    // exactly where a tenth is 512 MiB
    [5 * GIB, null, 5 * GIB - 512 * MIB],
    [300 * MIB, null, 0],
  ])('%i available, %s in the control group -> %i', (availableBytes, cgroupLeftBytes, bytes) => {
    expect(automaticBudget({ availableBytes, cgroupLeftBytes }).bytes).toBe(bytes);
  });

  test('says how it came about', () => {
    const { source } = automaticBudget({ availableBytes: 4 * GIB, cgroupLeftBytes: 2 * GIB });
    expect(source).toBe('auto: available 4.29 GB, cgroup leaves 2.15 GB, less a reserve of 215 MB');
    expect(automaticBudget({ availableBytes: 4 * GIB, cgroupLeftBytes: null }).source).toContain('no cgroup limit');
  });
});

describe('physical cores', () => {
  const cpuinfo = (cores: [number, number][]) =>
    cores.map(([p, c], i) => `processor\t: ${i}\nphysical id\t: ${p}\ncore id\t\t: ${c}\n`).join('\n');

  test('threads of one core count once', () => {
    const root = machine({
      'proc/cpuinfo': cpuinfo([
        [0, 0],
        [0, 0],
      ]),
    });
    expect(physicalCores(root)).toBe(1);
  });

  test('never more than the process may use', () => {
    const root = machine({ 'proc/cpuinfo': cpuinfo(Array.from({ length: 512 }, (_, i) => [i >> 8, i & 255])) });
    expect(physicalCores(root)).toBe(os.availableParallelism());
  });

  test('a machine that names no cores', () => {
    expect(physicalCores(machine({ 'proc/cpuinfo': 'processor\t: 0\n' }))).toBe(os.availableParallelism());
    expect(physicalCores(machine({}))).toBe(os.availableParallelism());
  });
});

test('the highest resident set is in bytes', () => {
  expect(maxRssBytes()).toBeGreaterThanOrEqual(process.memoryUsage.rss() / 2);
  expect(maxRssBytes()).toBeLessThan(64 * GIB);
});
