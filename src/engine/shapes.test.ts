import { expect, test } from 'vitest';
import type { EngineOptions, GenerateRequest, Prompt, ScoreRequest } from './api.ts';
import { checkOptions, checkPromptShape, checkRequest, checkScoreRequest } from './shapes.ts';

const GOOD: Required<EngineOptions> = {
  model: '/model',
  plan: 'plan.json',
  ram: 'auto',
  threads: 2,
  context: 100,
  kernels: 'wasm',
  prefetch: 'off',
  expertSlots: 8,
  expertShare: 0.5,
  activations: 'exact',
  chunk: 16,
  readers: 2,
  io: 'direct',
  mirrors: ['/mirror'],
  driveSpeeds: [7, 3.5],
  verify: true,
  slots: 2,
  kv: 'bf16',
  kvDir: '/kv',
  kvDirBytes: 1e9,
  constraints: true,
  mtp: true,
  usage: 'read',
  trace: '/trace',
  policy: 'lru',
  scoredTokens: 8,
  reserveBytes: 0,
};

const refusal = (check: () => void) => {
  try {
    check();
  } catch (error) {
    return error as { code: string; message: string };
  }
  return null;
};

const badOption = (field: string, value: unknown) => refusal(() => checkOptions({ ...GOOD, [field]: value }));

test('options of the right types pass, also those that are left out', () => {
  checkOptions(GOOD);
  checkOptions({ model: 'm' });
  for (const field of Object.keys(GOOD)) if (field !== 'model') expect(badOption(field, undefined)).toBeNull();
});

test.each(Object.keys(GOOD))('no wrong type is taken for a default: %s', field => {
  const list = Array.isArray(GOOD[field as keyof typeof GOOD]) ? [[]] : [];
  for (const value of [null, {}, list, Symbol('x'), 10n, () => 1]) {
    expect(badOption(field, value)).toMatchObject({
      code: 'BAD_PARAMETER',
      message: expect.stringMatching(`^${field} must be `),
    });
  }
});

test.each([
  ['model', ''],
  ['model', 5],
  ['ram', 'abc'],
  ['ram', Number.NaN],
  ['ram', Number.POSITIVE_INFINITY],
  ['expertSlots', Number.NaN],
  ['expertSlots', '8'],
  ['expertShare', 0],
  ['expertShare', 1.5],
  ['chunk', 0],
  ['chunk', 1.5],
  ['readers', 0],
  ['io', 'mmap'],
  ['mirrors', ['']],
  ['mirrors', '/mirror'],
  ['driveSpeeds', [-1]],
  ['driveSpeeds', ['7']],
  ['kernels', 'fast'],
  ['prefetch', true],
  ['activations', 'int4'],
  ['kv', 'f16'],
  ['verify', 'yes'],
  ['kvDirBytes', -1],
  ['reserveBytes', Number.NaN],
])('%s cannot be %s', (field, value) => {
  expect(badOption(field, value)).toMatchObject({ code: 'BAD_PARAMETER' });
});

test.each([
  [undefined],
  [null],
  ['text'],
  [[]],
  [{}],
  [{ ids: 'abc' }],
  [{ ids: null }],
  [{ text: null }],
  [{ text: ['a'] }],
  [{ messages: {} }],
  [{ messages: [], tools: {} }],
  [{ messages: [], variables: [] }],
  [{ messages: [], continueFinal: 1 }],
])('is no prompt: %j', prompt => {
  expect(refusal(() => checkPromptShape(prompt as Prompt))).toMatchObject({ code: 'BAD_PARAMETER' });
});

test('prompts in all forms pass', () => {
  const prompts: Prompt[] = [
    { ids: [] },
    { text: '' },
    { messages: [], tools: [], variables: {}, continueFinal: false },
  ];
  for (const prompt of prompts) checkPromptShape(prompt);
});

test.each([
  [undefined],
  [5],
  [{ ignoreEos: 1 }],
  [{ constraint: 'json' }],
  [{ constraint: {} }],
  [{ constraint: { grammar: 'x' } }],
  [{ constraint: { grammar: { kind: 'json_object' }, after: 7 } }],
])('is no request: %j', request => {
  expect(refusal(() => checkRequest(request as unknown as GenerateRequest))).toMatchObject({ code: 'BAD_PARAMETER' });
});

test('what is scored is a list of ids of the model', () => {
  const code = (request: unknown) => refusal(() => checkScoreRequest(request as ScoreRequest, 10))?.code;
  expect(code({ ids: [0, 9], next: 9 })).toBeUndefined();
  expect([undefined, {}, { ids: '12' }].map(code)).toEqual(['BAD_PARAMETER', 'BAD_PARAMETER', 'BAD_PARAMETER']);
  const bad = [{ ids: [10] }, { ids: [1.5] }, { ids: [1], next: -1 }];
  expect(bad.map(code)).toEqual(['BAD_TOKEN_ID', 'BAD_TOKEN_ID', 'BAD_TOKEN_ID']);
});
