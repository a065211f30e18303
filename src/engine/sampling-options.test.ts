import { describe, expect, test } from 'vitest';
import {
  checkSampling,
  resolveSampling,
  type SamplingRequest,
  unsupportedGenerationSettings,
} from './sampling-options.ts';

const SEED = () => 77;
const resolve = (request: object, file: Record<string, unknown> | null = null, room = 1000) =>
  resolveSampling(request as SamplingRequest, file, room, SEED);

describe('defaults', () => {
  test('nothing given: temperature 1, top_p 1, the rest of the context, a fresh seed', () => {
    expect(resolve({})).toEqual({
      temperature: 1,
      topP: 1,
      topK: 0,
      minP: 0,
      repetitionPenalty: 1,
      presencePenalty: 0,
      frequencyPenalty: 0,
      seed: 77,
      maxTokens: 1000,
    });
  });

  test('generation_config comes before them, the request before the file (A09)', () => {
    const file = { temperature: 0.6, top_p: 0.9, top_k: 20, min_p: 0.1, repetition_penalty: 1.1, max_new_tokens: 64 };
    expect(resolve({}, file)).toMatchObject({
      temperature: 0.6,
      topP: 0.9,
      topK: 20,
      minP: 0.1,
      repetitionPenalty: 1.1,
      maxTokens: 64,
    });
    const request = { temperature: 0, topP: 0.5, topK: 0, minP: 0, repetitionPenalty: 1, maxTokens: 3, seed: 5 };
    expect(resolve(request, file)).toMatchObject(request);
  });

  test('do_sample false is greedy unless the request gives a temperature', () => {
    const file = { do_sample: false, temperature: 0.6 };
    expect(resolve({}, file).temperature).toBe(0);
    expect(resolve({ temperature: 1 }, file).temperature).toBe(1);
    expect(resolve({}, { do_sample: true, temperature: 0.6 }).temperature).toBe(0.6);
  });

  test('null is the default, in the request and in the file (A05)', () => {
    expect(resolve({ temperature: null, topK: null, seed: null }, { top_p: null })).toMatchObject({
      temperature: 1,
      topK: 0,
      topP: 1,
      seed: 77,
    });
  });
});

describe('max_tokens', () => {
  test('0 is allowed (L07), and the room left is the most (L09)', () => {
    expect(resolve({ maxTokens: 0 }).maxTokens).toBe(0);
    expect(resolve({ maxTokens: 10 ** 12 }, null, 42).maxTokens).toBe(42);
    expect(resolve({}, { max_new_tokens: 500 }, 42).maxTokens).toBe(42);
    expect(resolve({ maxTokens: 5 }, null, 0).maxTokens).toBe(0);
  });
});

describe('refused, naming the parameter', () => {
  test.each([
    ['temperature', { temperature: -1 }],
    ['temperature', { temperature: '0.7' }],
    ['temperature', { temperature: Number.NaN }],
    ['temperature', { temperature: Number.POSITIVE_INFINITY }],
    ['temperature', { temperature: true }],
    ['top_k', { topK: -1 }],
    ['top_k', { topK: 1.5 }],
    ['top_p', { topP: 0 }],
    ['top_p', { topP: 1.01 }],
    ['min_p', { minP: -0.1 }],
    ['min_p', { minP: 2 }],
    ['repetition_penalty', { repetitionPenalty: 0 }],
    ['repetition_penalty', { repetitionPenalty: 5e-324 }],
    ['repetition_penalty', { repetitionPenalty: 101 }],
    ['presence_penalty', { presencePenalty: 2.1 }],
    ['frequency_penalty', { frequencyPenalty: -3 }],
    ['seed', { seed: -1 }],
    ['seed', { seed: 2 ** 53 }],
    ['seed', { seed: 0.5 }],
    ['max_tokens', { maxTokens: -1 }],
    ['max_tokens', { maxTokens: 1.5 }],
    ['logprobs', { logprobs: 21 }],
    ['logit_bias', { logitBias: { x: 1 } }],
    ['logit_bias', { logitBias: { 1: 101 } }],
    ['logit_bias', { logitBias: { 1: Number.NaN } }],
    ['logit_bias', { logitBias: [1] }],
    ['logit_bias', { logitBias: Object.fromEntries(Array.from({ length: 1025 }, (_, i) => [i, 0])) }],
  ])('%s %j', (parameter, request) => {
    const error = expect.objectContaining({
      name: 'RequestError',
      code: 'BAD_PARAMETER',
      message: expect.stringContaining(parameter),
      details: { parameter },
    });
    expect(() => checkSampling(request as SamplingRequest)).toThrow(error);
    expect(() => resolve(request)).toThrow(error);
  });

  test('the ends of the ranges are accepted', () => {
    checkSampling({ temperature: 0, topP: 1, topK: 9_999_999, minP: 1, seed: 2 ** 53 - 1, logprobs: 20, maxTokens: 0 });
    checkSampling({ temperature: 1e30, presencePenalty: -2, frequencyPenalty: 2, seed: 0, logitBias: { 5: -100 } });
  });

  test('a wrong generation_config is an error with its path, unless the request overrides it', () => {
    const error = expect.objectContaining({ name: 'ConfigError', details: { path: 'top_k' } });
    expect(() => resolve({}, { top_k: '50' })).toThrow(error);
    expect(resolve({ topK: 3 }, { top_k: '50' }).topK).toBe(3);
    expect(() => resolve({}, { do_sample: 'no' })).toThrow(expect.objectContaining({ details: { path: 'do_sample' } }));
  });

  test('a long value is not repeated at length', () => {
    const long = { temperature: 'x'.repeat(10_000) as unknown as number };
    expect(() => checkSampling(long)).toThrow(/^.{0,120}$/);
  });
});

test('settings of generation_config that would change the output are named', () => {
  const file = { num_beams: 4, no_repeat_ngram_size: 0, typical_p: null, suppress_tokens: [1], temperature: 1 };
  expect(unsupportedGenerationSettings(file)).toEqual(['num_beams', 'suppress_tokens']);
  expect(unsupportedGenerationSettings(null)).toEqual([]);
});

test('so is every setting that is not known to be harmless', () => {
  const file = {
    stop_strings: ['x'],
    exponential_decay_length_penalty: [5, 1.1],
    watermarking_config: {},
    max_length: 20,
    toString: 1,
    renormalize_logits: false,
    eos_token_id: 1,
    transformers_version: '5.0.0',
    max_new_tokens: 5,
  };
  expect(unsupportedGenerationSettings(file)).toEqual([
    'stop_strings',
    'exponential_decay_length_penalty',
    'watermarking_config',
    'max_length',
    'toString',
  ]);
});
