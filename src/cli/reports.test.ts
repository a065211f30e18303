import { expect, test } from 'vitest';
import type { ConversionPlan, ConversionReport } from '../convert/types.ts';
import { doneText, planJson, planText, progressLabel, reportJson } from './convert-report.ts';
import { oracleJson, oracleText, perplexityJson, perplexityText } from './eval-report.ts';

const PLAN = {
  source: '/in',
  destination: '/out',
  family: 'olmoe',
  experts: 'q4g64',
  dense: 'q8',
  classes: [
    { role: 'experts', tensors: 192, weights: 28e6, from: 'bf16', to: 'q4g64', bitsPerWeight: 4.4375, bytes: 15.7e6 },
  ],
  shards: [{ name: 'model-00001-of-00001.safetensors', bytes: 19.8e6, tensors: [] }],
  copied: ['config.json'],
  made: [],
  absent: ['LICENSE'],
  leftOut: [],
  notes: ['a note'],
  bitsPerWeight: 4.93,
  totalBytes: 19.8e6,
  sourceBytes: 64.1e6,
  finishedShards: ['model-00001-of-00001.safetensors'],
  repo: null,
  fetchBytes: 0,
  peakBytes: 19.9e6,
  neededBytes: 87.1e6,
  freeBytes: 1e9,
} as unknown as ConversionPlan;

const ESTIMATE = { seconds: 90, threads: 2 };
const REPORT: ConversionReport = {
  plan: PLAN,
  kept: ['a'],
  written: ['b'],
  bytes: 19.8e6,
  fetchedBytes: 0,
  seconds: 1.5,
};

test('the plan names encodings, bits per weight, sizes, space and what an earlier run left', () => {
  const text = planText(PLAN, ESTIMATE);
  expect(text).toContain('bf16 -> q4g64  15.7 MB   4.44 bits/weight  192 tensors');
  expect(text).toContain('87.1 MB needed, 1.00 GB free');
  expect(text).toMatch(/in all +19.8 MB in 1 file, 4.93 bits per weight/);
  expect(text).toMatch(/time +1 min 30 s of arithmetic \(2 threads, measured here\)/);
  expect(text).toMatch(/continues +1 file of an earlier run/);
  expect(text).toMatch(/note +a note/);
  expect(planJson(PLAN, ESTIMATE)).toMatchObject({
    total_bytes: 19.8e6,
    classes: [{ role: 'experts', bits_per_weight: 4.4375 }],
  });
});

test('what a GGUF file has in its metadata is made, not copied', () => {
  const plan = { ...PLAN, copied: ['LICENSE'], made: ['config.json', 'tokenizer.json'] };
  const text = planText(plan, ESTIMATE);
  expect(text).toMatch(/^made +config\.json, tokenizer\.json \(from the metadata\)$/m);
  expect(text).toMatch(/^copied +LICENSE$/m);
  expect(planJson(plan, ESTIMATE)).toMatchObject({ copied: ['LICENSE'], made: ['config.json', 'tokenizer.json'] });
});

test('no line of a plan is longer than a terminal, but for a path that is', () => {
  const destination = `/out/${'a long path '.repeat(9)}end`;
  const names = Array.from({ length: 9 }, (_, i) => `a tokenizer file ${i}.json`);
  const [{ ...experts }] = PLAN.classes;
  const classes = [
    experts,
    { ...experts, role: 'shared experts', from: 'Q4_K, Q5_K, Q6_K, Q8_0, F32', tensors: 12345 },
  ];
  const repo = { id: 'organisation/model', revision: 'a-branch-with-a-long-name', commit: '0123456789'.repeat(4) };
  const plan = {
    ...PLAN,
    ...{
      source: 'organisation/a-model-with-a-name-that-is-long',
      destination,
      repo,
      classes,
      family: 'qwen3_5_moe_text',
    },
    ...{ copied: names, made: names, absent: names, notes: ['words of a note '.repeat(20)] },
    ...{
      totalBytes: 123e9,
      fetchBytes: 456e9,
      peakBytes: 789e9,
      neededBytes: 789e9,
      freeBytes: 999e9,
      sourceBytes: 456e9,
    },
  } as ConversionPlan;
  const lines = planText(plan, { seconds: 7199, threads: 16 }).split('\n');
  expect(lines.filter(line => line.length > 80)).toEqual([`destination     ${destination}`]);
  // a name is not broken, and nothing of a note is lost
  for (const name of names) expect(lines.filter(line => line.includes(name))).toHaveLength(3);
  expect(lines.join(' ').match(/words\s+of\s+a\s+note/g)).toHaveLength(20);
  expect(lines.every(line => line === line.trimEnd() && !line.includes('\u0000'))).toBe(true);
});

test('progress names the file without what makes the line long', () => {
  expect(progressLabel('fetch', 'org/model/model-00001-of-00008.safetensors')).toBe(
    'in all (fetch model-00001-of-00008):',
  );
  expect(progressLabel('fetch', `${'x'.repeat(90)}.gguf`)).toHaveLength(36);
});

test('the report tells what was written and what was kept', () => {
  expect(doneText(REPORT)).toBe('wrote /out: 19.8 MB, 1 file, 1 kept from an earlier run, in 1.5 s');
  expect(reportJson(REPORT, ESTIMATE)).toMatchObject({ written: ['b'], kept: ['a'], seconds: 1.5 });
});

test('an oracle report names the first difference', () => {
  const same = {
    passed: true,
    tolerance: 1e-4,
    maxLogitDifference: 2e-5,
    hiddenDifferences: [1e-6, null],
    routerMismatches: 0,
    selectionMismatches: null,
    prediction: null,
    greedy: [{ promptTokens: 24, matching: 48, total: 48 }],
    firstDifference: null,
    kernels: 'wasm-relaxed',
    activations: 'exact',
  } as const;
  expect(oracleText(same)).toContain('same as the reference');
  expect(oracleText(same)).toContain('layer 0 1.00e-6, layer 1 not in the pack');
  expect(oracleText(same)).not.toMatch(/indexer|prediction/);
  const prediction = { maxLogitDifference: 3e-5, hiddenDifference: null };
  const more = { ...same, selectionMismatches: 2, prediction };
  expect(oracleText(more)).toMatch(/indexer +2 choices differ\nprediction +largest difference 3\.00e-5/);
  expect(oracleJson('m', more)).toMatchObject({ selection_mismatches: 2, prediction: { max_logit_difference: 3e-5 } });
  const different = { ...same, passed: false, firstDifference: 'layer 1: 3 tokens choose other experts' };
  expect(oracleText(different)).toContain('DIFFERENT, first at layer 1: 3 tokens');
  expect(oracleJson('m', different)).toMatchObject({ passed: false, first_difference: different.firstDifference });
});

test('a perplexity report', () => {
  const report = {
    ppl: 1.8533,
    pplInterval: { low: 1.7, high: 2 },
    nll: 0.617,
    bitsPerByte: 0.25,
    tokens: 10,
    predictedTokens: 9,
    bytes: 40,
    window: 256,
    kernels: 'wasm-relaxed',
    activations: 'int8',
  } as const;
  expect(perplexityText(report)).toContain('1.8533');
  expect(perplexityText(report)).toContain('wasm-relaxed, int8 activations');
  expect(perplexityJson('m', 't', report)).toMatchObject({ ppl: 1.8533, bits_per_byte: 0.25, predicted_tokens: 9 });
});
