import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readGoldenDomains, readGoldenSamples, readGoldenText } from './golden.ts';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'coli-golden-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const write = (name: string, value: unknown) =>
  writeFileSync(join(folder, name), typeof value === 'string' ? value : JSON.stringify(value));

const DOMAIN = { ppl: 2, nll: 0.69, tokens: 5, predicted_tokens: 4, first_ids: [1, 2] };
const SET = { context: 256, stride: 256, domains: { prose: DOMAIN, ALL_plain: { ppl: 3 } } };
const SAMPLE = {
  prompt: 'a',
  prompt_ids: [1],
  greedy_ids: [7],
  stop_at: null,
  top5: [
    [
      [7, 2.5],
      [8, 1],
    ],
  ],
};

describe('domains', () => {
  test('figures over several domains are left out', () => {
    write('eval.json', SET);
    expect(readGoldenDomains(folder)).toEqual({ window: 256, domains: [{ name: 'prose', ...DOMAIN }] });
  });

  test.each([
    ['a missing field', { ...SET, domains: { prose: { ...DOMAIN, tokens: undefined } } }, /domains\.prose\.tokens/],
    ['overlapping windows', { ...SET, stride: 128 }, /stride 128 with context 256/],
    ['a name that is a path', { ...SET, domains: { '../x': DOMAIN } }, /domains/],
  ])('%s is an error', (_, set, message) => {
    write('eval.json', set);
    expect(() => readGoldenDomains(folder)).toThrow(message);
  });

  test('a text keeps its line ends', () => {
    write('prose.txt', 'a\r\nb\n');
    expect(readGoldenText(folder, 'prose')).toBe('a\r\nb\n');
  });
});

test('a missing text is named', () => {
  expect(() => readGoldenText(folder, 'absent')).toThrow(/absent\.txt does not exist/);
});

describe('samples', () => {
  test('are read', () => {
    write('samples.json', { samples: [SAMPLE] });
    expect(readGoldenSamples(folder)).toEqual([SAMPLE]);
  });

  test('need a row of logits per token', () => {
    write('samples.json', { samples: [{ ...SAMPLE, greedy_ids: [7, 8] }] });
    expect(() => readGoldenSamples(folder)).toThrow(/sample 0 has 1 top5 rows/);
  });
});
