import fc from 'fast-check';
import { expect, test } from 'vitest';
import { log64 } from './scalar.ts';

const view = new DataView(new ArrayBuffer(8));
/** Distance in units in the last place: doubles of one sign are ordered as their bits. */
function ulps(a: number, b: number): number {
  const key = (x: number) => {
    view.setFloat64(0, x);
    const bits = view.getBigInt64(0);
    return bits < 0n ? -(bits & 0x7fffffffffffffffn) : bits;
  };
  const distance = key(a) - key(b);
  return Number(distance < 0n ? -distance : distance);
}

test('log64 is within 2 ulp of Math.log over every magnitude', () => {
  const positive = fc.double({ min: Number.MIN_VALUE, noNaN: true, noDefaultInfinity: true });
  fc.assert(
    fc.property(positive, x => {
      expect(ulps(log64(x), Math.log(x))).toBeLessThanOrEqual(2);
    }),
    { numRuns: 3000 },
  );
});

test('log64 is within 2 ulp around 1, where cancellation would show', () => {
  for (let i = -4000; i <= 4000; i++) {
    for (const step of [2 ** -53, 1e-9, 1e-4]) {
      const x = 1 + i * step;
      if (x > 0) expect(ulps(log64(x), Math.log(x))).toBeLessThanOrEqual(2);
    }
  }
});

test('log64 of the special values', () => {
  expect(log64(1)).toBe(0);
  expect(log64(0)).toBe(Number.NEGATIVE_INFINITY);
  expect(log64(Number.POSITIVE_INFINITY)).toBe(Number.POSITIVE_INFINITY);
  expect(log64(-1)).toBeNaN();
  expect(log64(Number.NaN)).toBeNaN();
  expect(ulps(log64(Number.MIN_VALUE), Math.log(Number.MIN_VALUE))).toBeLessThanOrEqual(2);
});
