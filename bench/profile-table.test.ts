import { expect, test } from 'vitest';
import { PHASE_NAMES, type Phase } from './profile-clock.ts';
import { type MemorySpeed, memoryLimit } from './profile-memory.ts';
import type { Section } from './profile-subject.ts';
import { limitLines, sectionLines } from './profile-table.ts';

const byPhase = (values: Partial<Record<Phase, number>>) =>
  ({ ...Object.fromEntries(PHASE_NAMES.map(phase => [phase, 0])), ...values }) as Record<Phase, number>;

const SECTION: Section = {
  kind: 'decode',
  tokensPerStep: 1,
  steps: 96,
  phases: byPhase({ qkv: 2, gateUp: 5, syncWait: 1, other: 2 }),
  total: 10,
  plainMs: [7, 9],
  counts: {
    shared: 97,
    alone: 161,
    woken: 1.5,
    commands: 674,
    chunks: 3817,
    weightBytes: byPhase({ qkv: 60e6, gateUp: 200e6 }),
    keyValueBytes: 12e6,
  },
  hitRate: 0.25,
  bytesReadPerStep: 323e6,
};

test('a section: phases with their share and the speed of their weights, and the sum', () => {
  const lines = sectionLines(SECTION);
  expect(lines[0]).toBe('decode, 96 tokens, mean of the middle half:');
  expect(lines.find(line => line.includes('q, k, v'))).toMatch(/ 2\.000 +20\.0 % +30\.0 GB\/s$/);
  expect(lines.find(line => line.includes('waiting for lanes'))).toMatch(/ 1\.000 +10\.0 %$/);
  expect(lines.find(line => line.includes('sum'))).toMatch(/ 10\.000 +100\.0 %$/);
  // phases that did not occur have no line
  expect(lines.filter(line => line.includes(' %')).length).toBe(4 + 1 + 2);
  expect(lines.join('\n')).toContain('without this profiler 7.000 and 9.000 ms: it costs +2.00 ms (+25.00 %)');
  expect(lines.join('\n')).toMatch(/258 jobs \(97 shared .* 1\.5 found one asleep\), 674 commands, 3817 chunks/);
  expect(lines.join('\n')).toContain('25.0 % hits, 323 MB read');
});

test('the limit of memory, from the time without the profiler', () => {
  const text = limitLines(SECTION, 40e9).join('\n');
  expect(text).toContain('weights 260 MB per token at 32.5 GB/s (keys and values 12.0 MB); memory gives 40.0 GB/s');
  expect(text).toContain('125.00 tok/s of 153.85 that memory allows: 81.3 %');
});

test('a chunk of a prompt counts per token', () => {
  const lines = sectionLines({ ...SECTION, kind: 'prefill', tokensPerStep: 10, steps: 3 });
  expect(lines[0]).toBe('prefill, 3 chunks of 10 tokens, mean of the middle half:');
  expect(lines.find(line => line.includes('q, k, v'))).toContain('3.0 GB/s');
});

test('the limit: the fastest way of reading with as many lanes, mean of both readings', () => {
  const speed = (how: string, lanes: number, bytesPerSecond: number): MemorySpeed => ({ how, lanes, bytesPerSecond });
  const first = [speed('a', 1, 99), speed('b', 2, 50), speed('c', 2, 70)];
  expect(memoryLimit([first, [speed('b', 2, 66), speed('c', 2, 60)]], 2)).toEqual({
    bytesPerSecond: 68,
    drifted: false,
  });
  expect(memoryLimit([first, [speed('b', 2, 50)]], 2).drifted).toBe(true);
});
