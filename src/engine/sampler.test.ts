import { describe, expect, test } from 'vitest';
import type { EffectiveSampling } from './api.ts';
import { Random } from './random.ts';
import { Sampler } from './sampler.ts';

const NEUTRAL: EffectiveSampling = {
  temperature: 1,
  topP: 1,
  topK: 0,
  minP: 0,
  repetitionPenalty: 1,
  presencePenalty: 0,
  frequencyPenalty: 0,
  seed: 1,
  maxTokens: 100,
};

type Options = Partial<EffectiveSampling> & { bias?: Record<number, number>; logprobs?: number };

function sampler(vocabSize: number, { bias, logprobs, ...sampling }: Options = {}): Sampler {
  return new Sampler({ ...NEUTRAL, ...sampling }, bias, vocabSize, logprobs);
}

/** The distinct tokens that `draws` draws of one sampler give. */
function drawn(logits: number[], options: Options, draws = 400): number[] {
  const s = sampler(logits.length, options);
  const values = Float32Array.from(logits);
  return [...new Set(Array.from({ length: draws }, () => s.next(values, [], []).id))].sort((a, b) => a - b);
}

function greedy(logits: number[], options: Options, promptIds: number[] = [], generatedIds: number[] = []): number {
  const s = sampler(logits.length, { temperature: 0, ...options });
  return s.next(Float32Array.from(logits), promptIds, generatedIds).id;
}

describe('greedy', () => {
  test('temperature 0 takes the largest logit, the lower id of equals', () => {
    expect(greedy([1, 5, 5, 2], {})).toBe(1);
    expect(greedy([-3, -1, -2], {})).toBe(1);
    expect(greedy([7], {})).toBe(0);
  });

  test('top_k 1 is greedy at any temperature (A03)', () => {
    expect(drawn([1, 1, 1, 1], { topK: 1, temperature: 5 })).toEqual([0]);
  });

  test('a tiny temperature is greedy without overflow', () => {
    expect(drawn([1, 3, 2], { temperature: 1e-320 })).toEqual([1]);
  });
});

describe('filters', () => {
  const flat = [0, 0, 0, 0, 0, 0];

  test('top_k keeps the k largest, lower ids first; a huge one is no limit (A03)', () => {
    expect(drawn([0, 3, 3, 3, -1], { topK: 2 })).toEqual([1, 2]);
    expect(drawn(flat, { topK: 9_999_999 })).toEqual([0, 1, 2, 3, 4, 5]);
    expect(drawn(flat, { topK: 6 })).toEqual([0, 1, 2, 3, 4, 5]);
    expect(drawn(flat, { topK: 0 })).toEqual([0, 1, 2, 3, 4, 5]);
  });

  test('top_p keeps the fewest that reach it, at least one', () => {
    const logits = [0.1, 0.5, 0.25, 0.15].map(p => Math.log(p));
    expect(drawn(logits, { topP: 0.4 })).toEqual([1]);
    expect(drawn(logits, { topP: 0.7 })).toEqual([1, 2]);
    expect(drawn(logits, { topP: 0.85 })).toEqual([1, 2, 3]);
    expect(drawn(logits, { topP: 1e-9 })).toEqual([1]);
  });

  test('top_p counts the weights that top_k left', () => {
    const logits = [0.4, 0.3, 0.2, 0.1].map(p => Math.log(p));
    // Of the first two 0.4 / 0.7 = 57 %, so 0.5 keeps one; of all four it would keep two.
    expect(drawn(logits, { topK: 2, topP: 0.5 })).toEqual([0]);
    expect(drawn(logits, { topP: 0.5 })).toEqual([0, 1]);
  });

  test('min_p keeps what is near the most likely token', () => {
    const logits = [0.5, 0.3, 0.15, 0.05].map(p => Math.log(p));
    expect(drawn(logits, { minP: 0.2 })).toEqual([0, 1, 2]);
    expect(drawn(logits, { minP: 0.5 })).toEqual([0, 1]);
    expect(drawn(logits, { minP: 0.5, topK: 3 })).toEqual([0, 1]);
    expect(drawn(logits, { minP: 1 })).toEqual([0]);
  });
});

describe('penalties', () => {
  test('presence and frequency count the answer only, repetition prompt and answer (A07)', () => {
    const logits = [2, 1.5];
    expect(greedy(logits, { presencePenalty: 1 }, [0], [])).toBe(0);
    expect(greedy(logits, { presencePenalty: 1 }, [], [0])).toBe(1);
    expect(greedy(logits, { frequencyPenalty: 1 }, [0, 0, 0], [])).toBe(0);
    expect(greedy(logits, { frequencyPenalty: 0.3 }, [], [0])).toBe(0);
    expect(greedy(logits, { frequencyPenalty: 0.3 }, [], [0, 0])).toBe(1);
    expect(greedy(logits, { repetitionPenalty: 1.5 }, [0], [])).toBe(1);
    expect(greedy(logits, { repetitionPenalty: 1.5 }, [], [0])).toBe(1);
  });

  test('repetition lowers negative logits too, once per distinct token', () => {
    expect(greedy([-1, -1.5], { repetitionPenalty: 2 }, [0], [])).toBe(1);
    // Once: 2 / 1.2 = 1.67 stays ahead of 1.5; twice would give 1.39.
    expect(greedy([2, 1.5], { repetitionPenalty: 1.2 }, [0, 0], [0])).toBe(0);
  });

  test('nothing is remembered from one call to the next', () => {
    const s = sampler(2, { temperature: 0, repetitionPenalty: 2, presencePenalty: 1, frequencyPenalty: 1 });
    const logits = Float32Array.of(2, 1.5);
    expect(s.next(logits, [0], [0, 0]).id).toBe(1);
    expect(s.next(logits, [], []).id).toBe(0);
    expect([...logits]).toEqual([2, 1.5]);
  });

  test('logit bias moves a token and a foreign id is refused', () => {
    expect(greedy([1, 0], { bias: { 1: 2 } })).toBe(1);
    expect(greedy([1, 0], { bias: { 0: -100 } })).toBe(1);
    expect(() => sampler(2, { bias: { 2: 1 } })).toThrow(expect.objectContaining({ code: 'BAD_PARAMETER' }));
  });
});

describe('seed', () => {
  const logits = Float32Array.from({ length: 50 }, (_, i) => (i * 7) % 11);
  const run = (seed: number) => {
    const s = sampler(50, { seed });
    return Array.from({ length: 20 }, () => s.next(logits, [], []).id);
  };

  test('the same seed gives the same tokens for ever', () => {
    expect(run(1234)).toEqual(run(1234));
    expect(run(1234)).toMatchInlineSnapshot(`
      [
        31,
        3,
        14,
        47,
        31,
        14,
        36,
        47,
        36,
        47,
        47,
        31,
        14,
        36,
        3,
        36,
        17,
        25,
        28,
        36,
      ]
    `);
  });

  test('different seeds give different tokens on a flat distribution (A09)', () => {
    const firsts = Array.from(
      { length: 20 },
      (_, seed) => sampler(1000, { seed }).next(new Float32Array(1000), [], []).id,
    );
    expect(new Set(firsts).size).toBeGreaterThan(15);
  });

  test('one number of the generator per token', () => {
    const random = new Random(5);
    const s = sampler(1000, { seed: 5 });
    const flat = new Float32Array(1000);
    for (let i = 0; i < 20; i++) expect(s.next(flat, [], []).id).toBe(Math.floor(random.nextFloat64() * 1000));
  });

  test('draws follow the weights', () => {
    const s = sampler(2, { seed: 3 });
    const skewed = Float32Array.of(Math.log(3), 0);
    let zeros = 0;
    for (let i = 0; i < 4000; i++) if (s.next(skewed, [], []).id === 0) zeros++;
    expect(Math.abs(zeros / 4000 - 0.75)).toBeLessThan(0.03);
  });
});

describe('log-probabilities (A11)', () => {
  test('are those of the untouched logits and sum to one', () => {
    const s = sampler(4, { logprobs: 4, temperature: 0, bias: { 3: 50 }, repetitionPenalty: 2 });
    const { id, logprobs } = s.next(Float32Array.of(1, 2, 3, 0), [2], []);
    expect(id).toBe(3);
    expect(logprobs?.top.map(t => t.id)).toEqual([2, 1, 0, 3]);
    const sum = logprobs!.top.reduce((total, t) => total + Math.exp(t.logprob), 0);
    expect(sum).toBeCloseTo(1, 6);
    const reference = [1, 2, 3, 0].map(x => x - Math.log(Math.exp(1) + Math.exp(2) + Math.exp(3) + 1));
    for (const t of logprobs!.top) expect(t.logprob).toBeCloseTo(reference[t.id], 6);
  });

  test('the chosen token is always in its own table', () => {
    const logits = Float32Array.of(3, 2, 1, 0);
    const biased = sampler(4, { logprobs: 2, temperature: 0, bias: { 3: 50 } }).next(logits, [], []);
    expect(biased.logprobs?.top.map(t => t.id)).toEqual([0, 1, 3]);
    expect(biased.logprobs).toMatchObject({ id: 3, logprob: biased.logprobs!.top[2].logprob });
    const alone = sampler(4, { logprobs: 0, temperature: 0 }).next(logits, [], []);
    expect(alone.logprobs?.top.map(t => t.id)).toEqual([0]);
  });

  test('ties go to lower ids, and nothing is reported unless asked', () => {
    const logits = Float32Array.of(1, 1, 1, 1);
    expect(
      sampler(4, { logprobs: 2, temperature: 0 })
        .next(logits, [], [])
        .logprobs?.top.map(t => t.id),
    ).toEqual([0, 1]);
    expect(sampler(4).next(logits, [], []).logprobs).toBeUndefined();
  });
});

describe('non-finite logits', () => {
  test.each([Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY])('%s is refused', value => {
    for (const temperature of [0, 1]) {
      for (let token = 0; token < 3; token++) {
        const logits = Float32Array.of(-3.4e38, 0, 3.4e38);
        logits[token] = value;
        expect(() => sampler(3, { temperature }).next(logits, [], [])).toThrow(
          expect.objectContaining({
            code: 'NON_FINITE_LOGITS',
            name: 'NumericError',
            details: { token, value: `${value}` },
          }),
        );
      }
    }
  });

  test('the largest numbers there are are not', () => {
    const most = 3.4028234663852886e38;
    expect(sampler(3, { temperature: 0 }).next(Float32Array.of(-most, 0, most), [], []).id).toBe(2);
  });

  test('so is an overflow by a penalty', () => {
    const s = sampler(2, { temperature: 0, repetitionPenalty: 1e-30 });
    expect(() => s.next(Float32Array.of(1e20, 0), [0], [])).toThrow(
      expect.objectContaining({ code: 'NON_FINITE_LOGITS' }),
    );
  });
});

test('a vocabulary of 150,000 is selected from, not sorted', () => {
  const size = 150_000;
  const random = new Random(9);
  const logits = Float32Array.from({ length: size }, () => random.nextFloat64() * 20);
  const order = Array.from(logits.keys()).sort((a, b) => logits[b] - logits[a] || a - b);
  const first = new Set(order.slice(0, 40));
  const s = sampler(size, { topK: 40, temperature: 3 });
  for (let i = 0; i < 30; i++) expect(first.has(s.next(logits, [], []).id)).toBe(true);
});

describe('a mask', () => {
  /** Distinct tokens drawn when only `allowed` may come. */
  function drawnWith(logits: number[], allowed: number[], options: Options = {}): number[] {
    const { bias, logprobs, ...sampling } = options;
    const s = new Sampler({ ...NEUTRAL, ...sampling }, bias, logits.length, logprobs, true);
    const mask = new Int32Array((logits.length + 31) >> 5);
    for (const id of allowed) mask[id >> 5] |= 1 << (id & 31);
    const values = Float32Array.from(logits);
    const ids = Array.from({ length: 400 }, () => s.next(values, [], [], mask).id);
    expect([...values]).toEqual([...Float32Array.from(logits)]);
    return [...new Set(ids)].sort((a, b) => a - b);
  }
  const flat = new Array(70).fill(0);

  test('leaves only what it allows, whatever the filters', () => {
    const options: Options[] = [{}, { topK: 5 }, { topK: 60 }, { topP: 0.9 }, { topK: 50, topP: 0.5 }, { minP: 0.5 }];
    for (const option of options) {
      const ids = drawnWith(flat, [0, 31, 32, 69], option);
      expect([0, 31, 32, 69]).toEqual(expect.arrayContaining(ids));
      if (option.topP === undefined) expect(ids, JSON.stringify(option)).toEqual([0, 31, 32, 69]);
    }
    expect(drawnWith(flat, [63], { temperature: 1e-30 })).toEqual([63]);
  });

  test('holds at any temperature', () => {
    for (const temperature of [1e30, 1e38, 1e300]) {
      for (const filter of [{}, { topK: 3 }, { topP: 0.99 }, { topK: 3, topP: 0.5 }]) {
        expect([1, 2]).toEqual(expect.arrayContaining(drawnWith([9, 0, 1, 8, 7], [1, 2], { temperature, ...filter })));
      }
    }
  });

  test('the best allowed token is taken greedily, also when all logits are far below the forbidden ones', () => {
    expect(drawnWith([9, -1e30, -1e31, 8], [1, 2], { temperature: 0 })).toEqual([1]);
    expect(drawnWith([9, -1e30, -1e31, 8], [1, 2], { temperature: 1 })).toEqual([1]);
  });

  test('log-probabilities stay those of the untouched logits', () => {
    const s = new Sampler({ ...NEUTRAL, temperature: 0 }, undefined, 2, 1, true);
    const { id, logprobs } = s.next(Float32Array.of(0, 0), [], [], Int32Array.of(0b10));
    expect(id).toBe(1);
    expect(logprobs!.logprob).toBeCloseTo(Math.log(0.5), 6);
  });

  test('a mask without any token is an error', () => {
    expect(() => drawnWith(flat, [])).toThrow(expect.objectContaining({ code: 'CONSTRAINT_FAILED' }));
  });
});
