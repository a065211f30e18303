import { fileURLToPath } from 'node:url';
import { beforeAll, expect, test } from 'vitest';
import type { PlanFile } from '../engine/api.ts';
import { inspectModel } from '../engine/describe.ts';
import { makePlanFile } from '../engine/plan-document.ts';
import { planText } from './plan-report.ts';
import { infoText } from './report.ts';
import { wrapLine } from './terminal.ts';

const NANO = fileURLToPath(new URL('../../models/nano', import.meta.url));
const OPTIONS = { model: NANO, ram: 2 ** 30, threads: 2, expertSlots: 48, context: 512 };

let plain: PlanFile;
let measured: PlanFile;
beforeAll(async () => {
  plain = await makePlanFile({ options: OPTIONS, colibri: '0', measure: 'none' });
  const speed = { bytes_per_second: 2.5e9, median_read_us: 100, p99_read_us: 200 };
  measured = {
    ...plain,
    ceilings: {
      disk: {
        direct: speed,
        buffered: null,
        record_bytes: 81920,
        depth: 4,
        measured: '2026-01-02T03:04:05Z',
        fresh: false,
      },
      drives: {
        declared: true,
        bytes_per_second: 3.5e9,
        each: [
          { directory: '/m', bytes_per_second: 2.5e9, share: 0.7 },
          { directory: '/n', bytes_per_second: 1e9, share: 0.3 },
        ],
      },
      memory: { bytes_per_second: 50e9, measured: '2026-01-02T03:04:05Z', fresh: true },
      compute: { job_us: 2, layouts: {}, measured: '2026-01-02T03:04:05Z', fresh: true },
    },
    prediction: {
      decode_tokens_per_second: { low: 0.0123, high: 123.4 },
      decode_likely_tokens_per_second: 7.125,
      limited_by: 'disk',
      seconds_per_token: { disk: 0.1, memory: 0.01, compute: 0.01, latency: 0 },
      prefill_tokens_per_second: 33.3,
      prompt_tokens: 512,
      prompt_seconds: 200,
      prefill_limited_by: 'disk',
    },
    warnings: [{ code: 'DISK_SLOW', message: 'it is slow', hint: 'buy another' }],
    next_step: 'more memory',
    notes: ['a note'],
  };
});

const row = (text: string, name: string) =>
  text
    .split('\n')
    .find(line => line.startsWith(`${name} `))
    ?.slice(name.length)
    .trim();

test('what a person wants to know has a row', () => {
  const text = planText(measured, 'plan.json');
  expect(row(text, 'fits')).toBe('yes');
  expect(row(text, 'hits')).toContain('a token uses 24; about 44 % of them are there (25 % to 66 %, an estimate)');
  expect(row(text, 'hits')).toMatch(/1\.11 MB are read for each token in 100 ms$/);
  const replayed = { low: 0.4, likely: 0.5, high: 0.6, source: 'replay', replayed_tokens: 1234 } as const;
  const traffic = { ...measured.traffic, estimated_hit_rate: replayed };
  expect(row(planText({ ...measured, traffic }), 'hits')).toContain(
    'about 50 % of them are there (40 % to 60 %, by a replay of your last texts, 1234 tokens)',
  );
  expect(row(text, 'disk')).toBe('2.50 GB/s direct, 4 reads at a time; measured 2026-01-02');
  expect(row(text, 'drives')).toBe(
    '3.50 GB/s together, by declared speeds: 2.50 GB/s, 70 % from /m; 1.00 GB/s, 30 % from /n',
  );
  expect(row(text, 'machine')).toMatch(/^memory 50\.0 GB\/s, .*, 2 threads; measured now$/);
  expect(row(text, 'speed')).toBe('about 7.13 tok/s (0.0123 to 123); limit: reading experts from the disk');
  expect(row(text, 'prompt')).toBe('512 tokens in 3 min 20 s (33.3 tok/s), after a cold start');
  expect(row(text, 'warning')).toBe('DISK_SLOW: it is slow; buy another');
  expect(row(text, 'note')).toBe('a note');
  expect(row(text, 'next')).toBe('more memory');
  expect(row(text, 'plan')).toBe('written; load with --plan plan.json');
});

test('without measurements the speed is unknown, and nothing stands for a number', () => {
  const text = planText(plain);
  expect(row(text, 'speed')).toMatch(
    /^unknown: neither the disk with 4 reads at a time nor the processor .* has been measured$/,
  );
  for (const name of ['disk', 'drives', 'machine', 'prompt', 'plan']) expect(row(text, name)).toBeUndefined();
  expect(text).not.toMatch(/undefined|NaN|null/);
});

test('no hits are guessed when every expert has its place', async () => {
  const all = await makePlanFile({ options: { ...OPTIONS, expertSlots: 192 }, colibri: '0', measure: 'none' });
  expect(row(planText(all), 'hits')).toBeUndefined();
  expect(row(planText(all), 'experts')).toContain('room for all 192 experts');
});

test('info tells memory in the same words', () => {
  const info = infoText('0', inspectModel(OPTIONS));
  for (const name of ['ceiling', 'in memory', 'experts']) expect(row(planText(plain), name)).toBe(row(info, name));
});

test('the limit is called as run --profile calls it', () => {
  const prediction = { ...measured.prediction!, limited_by: 'compute' as const };
  expect(row(planText({ ...measured, prediction }), 'speed')).toMatch(/; limit: arithmetic$/);
});

test('where no further session fits, nothing is said of its price', () => {
  const told = (fit: number, free: number) =>
    row(
      planText({
        ...plain,
        concurrency: { bytes_per_session: 1e6, sessions_that_fit: fit, sessions_without_losing_slots: free },
      }),
      'sessions',
    );
  expect(told(1, 1)).toBe('1 of 1.00 MB; no more fit');
  expect(told(3, 1)).toBe('1 of 1.00 MB; at most 3 fit; each further one takes places of experts');
  expect(told(3, 2)).toBe('1 of 1.00 MB; at most 3 fit; up to 2 cost no expert its place');
});

test('a first start has room for fewer experts, which is told then and before', () => {
  const { slot_bytes } = plain.memory;
  const told = (memory: Partial<PlanFile['memory']>) => {
    const full = { ...plain.memory, budget_bytes: plain.memory.total_bytes + 1, ...memory };
    return planText({ ...plain, memory: full });
  };
  const first = { ...plain.memory.overhead, first_start: 10.5 * slot_bytes };
  const now = told({ overhead: first, first_start_extra_bytes: 0 });
  expect(row(now, 'experts')).toMatch(/each; about 10 more at later starts$/);
  const none = { ...plain.memory.overhead, first_start: 0 };
  const later = told({ overhead: none, first_start_extra_bytes: 10.5 * slot_bytes });
  expect(row(later, 'experts')).toMatch(/each$/);
  expect(row(later, 'first start')).toMatch(/at least; about 11 experts more have no place then$/);
  // a budget that is not used up has it
  const roomy = { budget_bytes: plain.memory.total_bytes + 20 * slot_bytes };
  expect(row(told({ ...roomy, overhead: first, first_start_extra_bytes: 0 }), 'experts')).toMatch(/each$/);
  expect(row(told({ ...roomy, overhead: none, first_start_extra_bytes: slot_bytes }), 'first start')).toMatch(
    /at least$/,
  );
});

test('a terminal of 80 columns is enough', () => {
  for (const line of planText(measured, '/a/path/of/some/length/to/a/plan.json').split('\n')) {
    for (const part of wrapLine(line, 80).split('\n')) expect(part.length).toBeLessThanOrEqual(80);
  }
});
