import { expect, test } from 'vitest';
import type { Profile } from '../tune/profile.ts';
import type { Sample } from '../tune/search.ts';
import { trialText, tuneText } from './tune-report.ts';

const sample = (tokensPerSecond: number): Sample => ({ tokensPerSecond, p99Ms: 1, hitRate: 0.5, digest: 'd' });

const trial = (knob: string, value: string | number, speeds: readonly [number, number][], reason: string) => ({
  knob,
  value,
  metric: 'decode' as const,
  kept: reason === 'faster',
  reason,
  gain: speeds.length === 0 ? null : speeds[0][1] / speeds[0][0] - 1,
  before: speeds.map(([before]) => sample(before)),
  after: speeds.map(([, after]) => sample(after)),
});

test('a trial is one line of at most 80 columns, whose speeds and gain agree', () => {
  const lines = [
    trial('readers', 8, [[4.1, 4.62]], 'faster'),
    trial('expertShare', 0.75, [[13211, 12521]], 'slow tokens slower'),
    trial('chunk', 1024, [[12948, 13758]], 'not in every pair'),
    trial('threads', 1, [[77.7, 2156]], 'faster'),
    trial('policy', 'pin', [], 'no time left'),
  ].map(trialText);
  expect(lines).toEqual([
    'keep  8 readers                4.10 -> 4.62 tok/s    +12.7 %  faster',
    'drop  75 % of the expert slots 13211 -> 12521 tok/s   -5.2 %  slow tokens slower',
    'drop  prompt in chunks of 1024 12948 -> 13758 tok/s   +6.3 %  not in every pair',
    'keep  1 thread                 77.7 -> 2156 tok/s     x 27.7  faster',
    '-     policy pin               no time left',
  ]);
  for (const line of lines) expect(line.length).toBeLessThanOrEqual(80);
});

const profile = (change: Partial<Profile>): Profile => ({
  version: 1,
  key: 'k',
  created_at: '2026-11-30T00:00:00.000Z',
  program: '0.1.0',
  model: 'm',
  machine: 'm',
  budget_bytes: 4e9,
  complete: true,
  settings: {},
  together: [],
  trials: [],
  ...change,
});

test('the last comparison is told with its figures, and counted among the runs', () => {
  const settings = { readers: 8, io: 'buffered' } as const;
  const runs = { before: [sample(10)], after: [sample(14)] };
  const text = tuneText(profile({ settings, together: [{ settings, kept: true, gain: 0.4, ...runs }] }), '/p', 60);
  expect(text).toContain('2 runs in');
  expect(text).toContain('together   buffered reads, 8 readers\n           10.0 -> 14.0 tok/s    +40.0 %: they stay');
  expect(text).toContain('kept       buffered reads, 8 readers');
});

test('settings that were never measured together are told to be so', () => {
  const text = tuneText(profile({ settings: { readers: 8, io: 'buffered' }, complete: false }), '/p', 60);
  expect(text).toContain('there was no time to measure them together');
  expect(tuneText(profile({ settings: { readers: 8 } }), '/p', 60)).not.toContain('no time');
});
