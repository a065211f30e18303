import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Mean, quantile, shareInterval } from './statistics.ts';

test('mean and standard error are those of the values', () => {
  const values = fc.array(fc.double({ min: -1e3, max: 1e3, noNaN: true }), { minLength: 2, maxLength: 50 });
  fc.assert(
    fc.property(values, list => {
      const mean = new Mean();
      for (const value of list) mean.add(value);
      const average = list.reduce((a, b) => a + b, 0) / list.length;
      const variance = list.reduce((sum, value) => sum + (value - average) ** 2, 0) / (list.length - 1);
      expect(mean.mean).toBeCloseTo(average, 6);
      expect(mean.error).toBeCloseTo(Math.sqrt(variance / list.length), 6);
      expect(mean.interval.low).toBeLessThanOrEqual(mean.mean);
      expect(mean.interval.high).toBeGreaterThanOrEqual(mean.mean);
    }),
  );
});

test('one value has no error', () => {
  const mean = new Mean();
  mean.add(3);
  expect([mean.mean, mean.error]).toEqual([3, 0]);
});

test('Wilson intervals of known shares', () => {
  // Newcombe 1998, table I: 81 of 263 and 0 of 20
  const large = shareInterval(81, 263);
  expect(large.low).toBeCloseTo(0.2553, 4);
  expect(large.high).toBeCloseTo(0.3662, 4);
  const none = shareInterval(0, 20);
  expect(none.low).toBe(0);
  expect(none.high).toBeCloseTo(0.1611, 4);
  expect(shareInterval(0, 0)).toEqual({ low: 0, high: 1 });
});

test('quantiles', () => {
  const values = [5, 1, 4, 2, 3];
  expect([0, 0.2, 0.5, 0.99, 1].map(q => quantile(values, q))).toEqual([1, 1, 3, 5, 5]);
  expect(quantile([], 0.5)).toBeNaN();
});
