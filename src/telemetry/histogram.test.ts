import { expect, it } from 'vitest';
import {
  BUCKETS,
  bucketOf,
  bucketStart,
  distribution,
  HISTOGRAM_WORDS,
  MAX_RELATIVE_ERROR,
  observe,
} from './histogram.ts';

/** A generator of numbers in [0, 1) that gives the same ones every time. */
function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) | 0;
    return (state >>> 0) / 2 ** 32;
  };
}

it('puts every value into the bucket that holds it', () => {
  for (let bucket = 0; bucket < BUCKETS - 1; bucket++) {
    const start = bucketStart(bucket);
    const end = bucketStart(bucket + 1);
    expect(bucketOf(start)).toBe(bucket);
    expect(bucketOf(end - (end - start) / 1000)).toBe(bucket);
    expect((end - start) / 2 / start).toBeLessThanOrEqual(MAX_RELATIVE_ERROR);
  }
  for (const small of [0, -5, Number.NaN, 0.001, 1]) expect(bucketOf(small)).toBe(0);
  expect(bucketOf(1e300)).toBe(BUCKETS - 1);
});

it.each([
  ['uniform', (random: () => number) => 1 + 1e5 * random()],
  ['over many octaves', (random: () => number) => 2 ** (30 * random())],
  ['two humps', (random: () => number) => (random() < 0.9 ? 50 + random() : 40_000 + 1000 * random())],
])('finds quantiles of random values within its error: %s', (_, draw) => {
  for (let seed = 1; seed <= 5; seed++) {
    const random = randomFrom(seed);
    const values = Array.from({ length: 999 }, () => draw(random));
    const words = new Float64Array(HISTOGRAM_WORDS);
    for (const value of values) observe(words, 0, value);
    const sorted = values.toSorted((a, b) => a - b);
    const exact = (q: number) => sorted[Math.ceil(q * sorted.length) - 1];
    const found = distribution(words);
    expect(found.count).toBe(999);
    for (const [told, is] of [
      [found.p50, exact(0.5)],
      [found.p90, exact(0.9)],
      [found.p99, exact(0.99)],
    ] as const) {
      expect(Math.abs(told! - is) / is).toBeLessThanOrEqual(MAX_RELATIVE_ERROR);
    }
    expect(found.max).toBeGreaterThanOrEqual(sorted.at(-1)!);
    expect(found.max).toBeLessThanOrEqual(sorted.at(-1)! * (1 + 2 * MAX_RELATIVE_ERROR));
    expect(found.mean).toBeCloseTo(values.reduce((a, b) => a + b, 0) / 999, 5);
  }
});

it('is merged by adding and reset by subtracting', () => {
  const [first, second, both] = [0, 1, 2].map(() => new Float64Array(HISTOGRAM_WORDS));
  for (let i = 1; i <= 100; i++) {
    observe(i % 3 === 0 ? first : second, 0, i * i);
    observe(both, 0, i * i);
  }
  const merged = first.map((count, i) => count + second[i]);
  expect(distribution(merged)).toEqual(distribution(both));
  const left = both.map((count, i) => count - first[i]);
  expect(distribution(left)).toEqual(distribution(second));
});

it('counts a value as often as it is told', () => {
  const words = new Float64Array(HISTOGRAM_WORDS);
  observe(words, 0, 10, 3);
  observe(words, 0, 1000, 1);
  expect(distribution(words)).toMatchObject({ count: 4, mean: 257.5 });
  expect(distribution(words).p50).toBeCloseTo(10, 0);
});

it('says nothing when it is empty', () => {
  const none = { count: 0, mean: null, p50: null, p90: null, p99: null, max: null };
  expect(distribution(new Float64Array(HISTOGRAM_WORDS))).toEqual(none);
});
