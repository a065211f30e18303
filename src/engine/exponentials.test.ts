import { expect, test } from 'vitest';
import { EXP_MIN, exp32 } from '../kernels/reference/math.ts';
import { weigh } from './exponentials.ts';
import { Random } from './random.ts';

/** e^x of each x by exp32, and the sum. */
function oneByOne(x: Float32Array): { weights: Float32Array; sum: number } {
  const weights = x.map(exp32);
  return { weights, sum: weights.reduce((sum, weight) => sum + weight, 0) };
}

/** Shows at most three x with another weight: a difference of long arrays takes minutes to print. */
function expectSame(x: Float32Array): void {
  const expected = oneByOne(x);
  const weights = new Float32Array(x.length);
  const sum = weigh(x, x.length, 0, 1, weights);
  const different = x.filter((_, i) => !Object.is(weights[i], expected.weights[i]));
  expect([...different.subarray(0, 3)]).toEqual([]);
  expect(sum).toBe(expected.sum);
}

test('every exponent, many fractions: the bits of exp32', () => {
  const random = new Random(1);
  const bits = Int32Array.from({ length: 300_000 }, () => -0x80000000 | (random.nextUint32() % 0x7f800001));
  expectSame(new Float32Array(bits.buffer));
});

test('numbers as logits have them: the bits of exp32', () => {
  const random = new Random(2);
  expectSame(Float32Array.from({ length: 300_000 }, () => -random.nextFloat64() * 90));
});

test('where the power of two changes', () => {
  const centres = Float32Array.from({ length: 126 }, (_, k) => -(k + 0.5) * Math.LN2);
  const bits = new Int32Array(centres.buffer);
  for (let offset = -4; offset <= 4; offset++) expectSame(new Float32Array(bits.map(each => each + offset).buffer));
});

test('the limits', () => {
  const below = new Float32Array(Int32Array.of(new Int32Array(Float32Array.of(EXP_MIN).buffer)[0] + 1).buffer)[0];
  const x = Float32Array.of(0, -0, EXP_MIN, below, -87.7, -88, -89, -1e30, Number.NEGATIVE_INFINITY, -1e-45);
  expectSame(x);
  const weights = new Float32Array(x.length);
  weigh(x, x.length, 0, 1, weights);
  expect([...weights.slice(0, 2)]).toEqual([1, 1]);
  expect(weights[2]).toBeGreaterThan(0);
  expect([...weights.slice(3)]).toEqual([0, 0, 0, 0, 0, 0, 1]);
});

test.each([1, 255, 256, 257, 700])('%i numbers and nothing behind them, in place too', count => {
  const logits = Float32Array.from({ length: 800 }, (_, i) => 3 - (i % 40) / 3);
  const expected = oneByOne(logits.slice(0, count).map(logit => (logit - 3) / 0.7));
  const weights = new Float32Array(800).fill(5);
  expect(weigh(logits, count, 3, 0.7, weights)).toBe(expected.sum);
  expect(weights.slice(0, count)).toEqual(expected.weights);
  expect(new Set(weights.slice(count))).toEqual(new Set([5]));
  weigh(logits, count, 3, 0.7, logits);
  expect(logits.slice(0, count)).toEqual(expected.weights);
});
