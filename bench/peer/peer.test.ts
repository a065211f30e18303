import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { librariesWithoutRepacking } from './addon.ts';
import { limitMemory } from './memory-limit.ts';
import { bytesPerToken } from './models.ts';
import { readOptions, threadCounts } from './options.ts';
import { bestOf, type Pair, type Section, sectionLines, summarise, type Trial } from './report.ts';
import { contextTokens, type LlamaConfig } from './work.ts';

const scratch = mkdtempSync(join(tmpdir(), 'coli-peer-test-'));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

describe('options', () => {
  test('defaults measure everything', () => {
    expect(readOptions([], 2)).toEqual({
      shape: 'olmoe',
      pairs: 3,
      threads: 2,
      threadCounts: [1, 2],
      kernels: 'auto',
      measures: ['decode', 'prefill', 'limited'],
      readAheadKb: null,
      json: false,
    });
  });

  test('what is given is taken', () => {
    const args = '--shape small --pairs 5 --threads 1 --kernels wasm --only limited --read-ahead 512 --json'.split(' ');
    expect(readOptions(args, 8)).toMatchObject({
      shape: 'small',
      pairs: 5,
      threads: 1,
      kernels: 'wasm',
      measures: ['limited'],
      readAheadKb: 512,
      json: true,
    });
  });

  test.each([
    [['--shape', 'large'], '--shape large: possible are olmoe, small'],
    [['--only', 'toString'], '--only toString: possible are decode, prefill, limited'],
    [['--pairs', '0'], '--pairs 0 is not a positive whole number'],
    [['--threads', '1.5'], '--threads 1.5 is not a positive whole number'],
    [['--run', '3'], 'Unknown option'],
  ])('%j is refused', (args, message) => {
    expect(() => readOptions(args)).toThrow(message);
  });

  test('many processors are tried with a few counts', () => {
    expect(threadCounts(1)).toEqual([1]);
    expect(threadCounts(3)).toEqual([1, 2, 3]);
    expect(threadCounts(24)).toEqual([1, 2, 3, 4, 8, 16, 24]);
  });
});

const config: LlamaConfig = { threads: 1, flashAttention: true, loading: 'mmap', repack: true };
const trial = (tokensPerSecond: number | null, why: string | null = null): Trial => ({ config, tokensPerSecond, why });
const pair = (ours: number, llama: number): Pair => ({ ours, llama, sameTop: true });

describe('report', () => {
  test('the fastest way that worked counts', () => {
    expect(bestOf([trial(3), trial(null, 'killed'), trial(5), trial(4)])?.tokensPerSecond).toBe(5);
    expect(bestOf([trial(null, 'killed')])).toBeNull();
  });

  test('the ratio is the median over pairs', () => {
    // a quiet moment made both of the second pair fast
    expect(summarise([pair(10, 5), pair(90, 30), pair(12, 8)])).toEqual({
      ours: 12,
      llama: 8,
      ratio: 2,
      lowest: 1.5,
      highest: 3,
    });
  });

  const section: Section = {
    measure: 'limited',
    missing: null,
    threads: 2,
    limitBytes: 1.5e9,
    notes: ['a note'],
    trials: [
      trial(1.234),
      { config: { ...config, threads: 2, loading: 'read' }, tokensPerSecond: null, why: 'killed' },
    ],
    ours: [{ threads: 1, tokensPerSecond: 12.34 }],
    pairs: [pair(10, 5), { ours: 9, llama: 3, sameTop: false }],
    about: { ours: ['wasm'], llama: ['AVX2 = 1'] },
  };

  test('a section tells every run', () => {
    expect(sectionLines(section)).toEqual([
      'decode, memory for a part of the experts: 1.50 GB each',
      '  a note',
      '  llama.cpp, 1 thread, flash attention, mmap, repacked: 1.23 tok/s',
      '  llama.cpp, 2 threads, flash attention, read, repacked: killed',
      '  ours, 1 thread: 12.3 tok/s',
      '  pair: ours 10.0, llama.cpp 5.00 tok/s, ratio 2.00',
      '  pair: ours 9.00, llama.cpp 3.00 tok/s, ratio 3.00',
      '  median: ours 9.50 (2 threads), llama.cpp 4.00 tok/s at its best, ratio 2.50 (2.00 to 3.00)',
      '  same most likely token in 1 of 2 pairs',
      '  ours: wasm',
      '  llama.cpp: AVX2 = 1',
    ]);
  });

  test('a figure that is missing says why', () => {
    const lines = sectionLines({ ...section, pairs: [], missing: 'no control group' });
    expect(lines.at(-1)).toBe('  missing: no control group');
    expect(lines.join()).not.toContain('median');
  });
});

test('bytes of a token: dense weights once, the experts that it uses, floats', () => {
  const shape = { layers: 2, experts: 4, topK: 1, hiddenSize: 64, expertWidth: 32, heads: 1, vocabSize: 100 };
  const weights = 2 * 4 * 64 * 64 + 101 * 64 + 2 * 3 * 64 * 32;
  expect(bytesPerToken(shape, 4)).toBe(weights / 2 + (2 * (4 + 4) * 64 + 64) * 4);
});

test('the context holds the longer of warm-up and measurement', () => {
  expect(contextTokens({ warmTokens: 256, warmSingles: 1, promptTokens: 1, decodeTokens: 1 })).toBe(512);
  expect(contextTokens({ warmTokens: 1, warmSingles: 0, promptTokens: 32, decodeTokens: 224 })).toBe(256);
});

describe('memory limit', () => {
  const rootOf = (name: string, files: Record<string, string>) => {
    for (const [file, content] of Object.entries(files)) {
      mkdirSync(join(scratch, name, file, '..'), { recursive: true });
      writeFileSync(join(scratch, name, file), content);
    }
    return join(scratch, name);
  };

  test('version 1', () => {
    const root = rootOf('v1', { 'memory/memory.limit_in_bytes': '0', 'cgroup.subtree_control': 'memory' });
    const limit = limitMemory('group', 8192, root);
    expect(readFileSync(join(root, 'memory/group/memory.limit_in_bytes'), 'utf8')).toBe('8192');
    expect(limit.joinFile).toBe(join(root, 'memory/group/cgroup.procs'));
    writeFileSync(join(root, 'memory/group/memory.oom_control'), 'under_oom 0\noom_kill 3\n');
    expect(limit.kills()).toBe(3);
  });

  test('version 2', () => {
    const root = rootOf('v2', { 'cgroup.subtree_control': 'cpu memory pids\n' });
    const limit = limitMemory('group', 8192, root);
    expect(readFileSync(join(root, 'group/memory.max'), 'utf8')).toBe('8192');
    writeFileSync(join(root, 'group/memory.events'), 'low 0\noom 9\noom_kill 1\n');
    expect(limit.kills()).toBe(1);
  });

  test('without a memory controller there is a reason and no group', () => {
    const root = rootOf('none', { 'cgroup.subtree_control': 'cpu hugetlb' });
    expect(() => limitMemory('group', 8192, root)).toThrow('can bound memory');
    expect(() => limitMemory('group', 8192, join(scratch, 'nowhere'))).toThrow('can bound memory');
  });

  test('a group that is there already is not taken', () => {
    const root = rootOf('taken', { 'memory/memory.limit_in_bytes': '0', 'memory/group/cgroup.procs': '1' });
    expect(() => limitMemory('group', 8192, root)).toThrow('no control group with 8192 bytes: EEXIST');
    expect(readFileSync(join(root, 'memory/group/cgroup.procs'), 'utf8')).toBe('1');
  });
});

test('copies of the CPU libraries differ in one name', () => {
  const binaries = join(scratch, 'binaries');
  mkdirSync(binaries);
  writeFileSync(join(binaries, 'libggml-cpu-x64.so'), 'ab\0ggml_backend_dev_get_extra_bufts\0c');
  writeFileSync(join(binaries, 'libllama.so'), 'not copied');
  const folder = librariesWithoutRepacking(binaries);
  try {
    expect(readFileSync(join(folder, 'libggml-cpu-x64.so'), 'latin1')).toBe('ab\0xgml_backend_dev_get_extra_bufts\0c');
    expect(() => readFileSync(join(folder, 'libllama.so'))).toThrow('ENOENT');
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  writeFileSync(join(binaries, 'libggml-cpu-new.so'), 'another way');
  expect(() => librariesWithoutRepacking(binaries)).toThrow('libggml-cpu-new.so does not offer');
});
