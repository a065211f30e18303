/** The sampler against the plainest reading of its ten steps: the same tokens and log-probabilities, to the last bit. */

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { exp32 } from '../kernels/reference/math.ts';
import { log64 } from '../kernels/scalar.ts';
import type { EffectiveSampling, TokenLogprobs } from './api.ts';
import { Random } from './random.ts';
import { Sampler } from './sampler.ts';

interface Request {
  readonly sampling: EffectiveSampling;
  readonly bias: Readonly<Record<number, number>>;
  readonly promptIds: readonly number[];
  readonly generatedIds: readonly number[];
  readonly logprobs: number | undefined;
}

const sumOf = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0);
const ranked = (logits: Float32Array) => Array.from(logits.keys()).sort((a, b) => logits[b] - logits[a] || a - b);

function weightsOf(logits: Float32Array, temperature: number): Float32Array {
  const largest = Math.max(...logits);
  return logits.map(logit => exp32(Math.fround((logit - largest) / temperature)));
}

/** Steps 2 to 4. */
function adjusted(logits: Float32Array, { sampling, bias, promptIds, generatedIds }: Request): Float32Array {
  const { repetitionPenalty: penalty, presencePenalty, frequencyPenalty } = sampling;
  const result = logits.slice();
  for (const id of penalty === 1 ? [] : new Set([...promptIds, ...generatedIds])) {
    result[id] = result[id] > 0 ? result[id] / penalty : result[id] * penalty;
  }
  for (const id of new Set(generatedIds)) {
    result[id] -= presencePenalty + generatedIds.filter(other => other === id).length * frequencyPenalty;
  }
  for (const [id, value] of Object.entries(bias)) result[Number(id)] += value;
  return result;
}

/** Steps 5 to 10. */
function chosen(logits: Float32Array, { temperature, topK, topP, minP }: EffectiveSampling, random: Random): number {
  if (temperature === 0 || topK === 1) return ranked(logits)[0];
  const weights = weightsOf(logits, temperature);
  const weight = (id: number) => weights[id];
  let left = Array.from(logits.keys()).filter(id => weights[id] > 0);
  const isLimited = topK > 0 && topK < left.length;
  if (isLimited) left = ranked(logits).slice(0, topK);
  if (topP < 1) {
    const total = sumOf(left.map(weight));
    left = ranked(logits).slice(0, left.length);
    let reached = 0;
    left = left.filter(id => {
      const isNeeded = reached < topP * total;
      reached += weights[id];
      return isNeeded;
    });
  }
  left = left.filter(id => weights[id] >= minP);
  const target = random.nextFloat64() * sumOf(left.map(weight));
  let reached = 0;
  return left.find(id => (reached += weights[id]) > target) ?? left[left.length - 1];
}

function reported(logits: Float32Array, count: number, id: number): TokenLogprobs {
  const largest = Math.max(...logits);
  const logSum = log64(sumOf([...weightsOf(logits, 1)]));
  const entry = (each: number) => ({ id: each, logprob: logits[each] - largest - logSum });
  const top = ranked(logits).slice(0, count);
  return { ...entry(id), top: (top.includes(id) ? top : [...top, id]).map(entry) };
}

const TOKENS = 4;

function expectSame(logits: Float32Array, request: Request): void {
  const { sampling, bias, promptIds, generatedIds, logprobs } = request;
  const sampler = new Sampler(sampling, bias, logits.length, logprobs);
  const random = new Random(sampling.seed);
  const changed = adjusted(logits, request);
  for (let i = 0; i < TOKENS; i++) {
    const id = chosen(changed, sampling, random);
    const expected = { id, logprobs: logprobs === undefined ? undefined : reported(logits, logprobs, id) };
    expect(sampler.next(logits, promptIds, generatedIds)).toEqual(expected);
  }
}

const MAX_SIZE = 400;
/** Evenly spread, which fc.float is not. */
const real = (min: number, max: number) => fc.nat(1_000_000).map(n => min + ((max - min) * n) / 1_000_000);
const shape = fc.oneof(
  fc.constant(real(-8, 8)),
  fc.constant(fc.oneof({ weight: 19, arbitrary: real(-15, 0) }, { weight: 1, arbitrary: real(10, 20) })), // peaked
  fc.constant(real(0, 0.01)), // flat
  fc.constant(fc.integer({ min: -3, max: 3 })), // ties
  fc.constant(fc.constantFrom(0, -0, 1e-45, -1e-45)),
  fc.constant(real(-100, 0)), // weights near the smallest, and of 0
  fc.constant(real(-1e30, 1e30)),
);
const anyLogits = shape
  .chain(logit => fc.array(logit, { minLength: 1, maxLength: MAX_SIZE, size: 'max' }))
  .map(values => Float32Array.from(values));

const oftenOff = <T>(off: T, arbitrary: fc.Arbitrary<T>) => fc.oneof(fc.constant(off), arbitrary);
const share = fc.double({ min: 1e-9, max: 1, noNaN: true });
const anySampling: fc.Arbitrary<EffectiveSampling> = fc.record({
  temperature: fc.constantFrom(0, 1e-320, 1e-3, 0.2, 0.7, 1, 1.5, 20, 1e300),
  topK: oftenOff(0, fc.oneof(fc.nat(8), fc.nat(MAX_SIZE + 5), fc.constant(9_999_999))),
  topP: oftenOff(1, fc.oneof(share, fc.constantFrom(0.9, 0.95, 0.999, 1 - 1e-12, 1 - 2 ** -53, 5e-324))),
  minP: oftenOff(0, fc.oneof(share, fc.constantFrom(1e-6, 0.05, 1))),
  repetitionPenalty: oftenOff(1, fc.double({ min: 0.5, max: 2, noNaN: true })),
  presencePenalty: oftenOff(0, fc.double({ min: -2, max: 2, noNaN: true })),
  frequencyPenalty: oftenOff(0, fc.double({ min: -2, max: 2, noNaN: true })),
  seed: fc.nat(),
  maxTokens: fc.constant(1),
});

test('any logits, any settings', () => {
  const cases = anyLogits.chain(logits => {
    const ids = fc.array(fc.nat(logits.length - 1), { maxLength: 12 });
    const bias = fc.dictionary(fc.nat(logits.length - 1).map(String), fc.integer({ min: -100, max: 100 }), {
      maxKeys: 3,
    });
    const logprobs = oftenOff(undefined, fc.nat(20));
    const request = fc.record({
      sampling: anySampling,
      bias: oftenOff({}, bias),
      promptIds: ids,
      generatedIds: ids,
      logprobs,
    });
    return fc.tuple(fc.constant(logits), request as fc.Arbitrary<Request>);
  });
  fc.assert(
    fc.property(cases, ([logits, request]) => expectSame(logits, request)),
    { numRuns: 3000 },
  );
});

const NEUTRAL: EffectiveSampling = {
  temperature: 1,
  topP: 1,
  topK: 0,
  minP: 0,
  repetitionPenalty: 1,
  presencePenalty: 0,
  frequencyPenalty: 0,
  seed: 1,
  maxTokens: 1,
};

function expectSameFor(logits: Float32Array, sampling: Partial<EffectiveSampling>): void {
  for (let seed = 0; seed < 5; seed++) {
    const request = { bias: {}, promptIds: [], generatedIds: [], logprobs: undefined };
    expectSame(logits, { ...request, sampling: { ...NEUTRAL, ...sampling, seed } });
  }
}

test.each([{}, { topP: 0.95 }, { topP: 0.3 }, { topK: 40 }, { topK: 3000, topP: 0.9 }, { minP: 0.1 }])(
  'a vocabulary of several blocks: %o',
  sampling => {
    const random = new Random(8);
    const logits = Float32Array.from({ length: 5000 }, () => random.nextFloat64() * 12);
    expectSameFor(logits, sampling);
    expectSameFor(logits, { ...sampling, temperature: 0.05 });
  },
);

test('top_k that leaves out nothing but weights of 0 is no limit: the draw goes by id, not by rank', () => {
  const logits = Float32Array.of(0, 0.5, -500, 1, -600);
  for (const topK of [2, 3, 4]) expectSameFor(logits, { topK });
});
