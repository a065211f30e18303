import { join } from 'node:path';
import { expect, test } from 'vitest';
import { comparePolicies, defaultSlots } from '../experts/replay/compare.ts';
import { readTrace } from '../experts/replay/trace-format.ts';
import { traceJson, traceText } from './trace-report.ts';

const FILE = join(import.meta.dirname, '../../test/replay/traces/qwen3-shape.trace');

test('the table fits a terminal and has a line for each policy and number of slots', () => {
  const trace = readTrace(FILE);
  const lines = traceText('a.trace', trace, comparePolicies(trace, defaultSlots(trace))).split('\n');
  expect(lines.filter(line => line.length > 80)).toEqual([]);
  expect(lines.filter(line => /\blfru\b/.test(line))).toHaveLength(4);
  expect(lines.find(line => line.includes('25.0 %'))).toMatch(
    /^ +96 {2}25\.0 % {2}lru +4237 +31\.8 % +43\.1 GB +50\.0 %$/,
  );
});

test('a cut trace says so', () => {
  const trace = { ...readTrace(FILE), isCut: true };
  expect(traceText('a.trace', trace, [])).toContain('ends within a pass');
  expect(traceJson('a.trace', trace, [])).toMatchObject({ cut: true });
});

test('the JSON has counts and rates', () => {
  const trace = readTrace(FILE);
  const json = traceJson('a.trace', trace, comparePolicies(trace, [96])) as { results: { policies: unknown[] }[] };
  expect(json).toMatchObject({
    version: 1,
    file: 'a.trace',
    experts: 128,
    top_k: 8,
    passes: 556,
    requests: 13344,
    cut: false,
  });
  expect(json.results[0]).toMatchObject({ slots: 96, share: 0.25 });
  expect(json.results[0].policies[0]).toEqual({
    policy: 'lru',
    hits: 4237,
    hit_rate: 4237 / 13344,
    bytes_read: expect.any(Number),
    regret: expect.closeTo(1 - 4237 / 8480, 10),
  });
});
