import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  bfloatToFloat,
  EXP_MAX,
  EXP_MIN,
  exp32,
  halfToFloat,
  log32,
  roundEven,
  sigmoid32,
  silu32,
  softplus32,
  tree16,
} from './math.ts';

const f = Math.fround;

describe('exp32', () => {
  test('is within 2 units in the last place of the true value', () => {
    fc.assert(
      fc.property(fc.float({ min: f(-87), max: f(88), noNaN: true }), x => {
        expect(Math.abs(exp32(x) / Math.exp(x) - 1)).toBeLessThan(2 ** -22);
      }),
      { numRuns: 2000, seed: 3 },
    );
  });

  test('ends', () => {
    expect(exp32(0)).toBe(1);
    expect(exp32(-0)).toBe(1);
    expect(exp32(EXP_MAX)).toBeGreaterThan(2e38);
    expect(exp32(EXP_MIN)).toBeGreaterThan(0);
    expect(exp32(f(EXP_MAX + 1e-5))).toBe(Number.POSITIVE_INFINITY);
    expect(exp32(f(EXP_MIN - 1e-5))).toBe(0);
    expect(exp32(Number.NEGATIVE_INFINITY)).toBe(0);
    expect(exp32(Number.POSITIVE_INFINITY)).toBe(Number.POSITIVE_INFINITY);
    expect(exp32(Number.NaN)).toBeNaN();
  });
});

test('silu32 at its ends', () => {
  expect(silu32(0)).toBe(0);
  expect(silu32(200)).toBe(200);
  expect(silu32(-200)).toBe(-0);
  expect(silu32(1)).toBeCloseTo(1 / (1 + Math.exp(-1)), 6);
});

test('sigmoid32 at its ends', () => {
  expect([0, 200, -200].map(sigmoid32)).toEqual([0.5, 1, 0]);
  expect(sigmoid32(Number.NaN)).toBeNaN();
  expect(sigmoid32(-3)).toBeCloseTo(1 / (1 + Math.exp(3)), 7);
});

test('log32 is within 2 units in the last place from 1 on', () => {
  expect(log32(1)).toBe(0);
  fc.assert(
    fc.property(fc.float({ min: 1, max: f(1e9), noNaN: true }), x => {
      expect(Math.abs(log32(x) - Math.log(x))).toBeLessThanOrEqual(2 ** -22 * Math.log(x));
    }),
    { numRuns: 2000, seed: 3 },
  );
});

describe('softplus32', () => {
  test('keeps its accuracy where it is small', () => {
    fc.assert(
      fc.property(fc.float({ min: -80, max: 20, noNaN: true }), x => {
        expect(Math.abs(softplus32(x) / Math.log1p(Math.exp(x)) - 1)).toBeLessThan(2 ** -20);
      }),
      { numRuns: 2000, seed: 3 },
    );
  });

  test('ends', () => {
    expect(softplus32(f(20.5))).toBe(20.5);
    expect(softplus32(200)).toBe(200);
    expect(softplus32(-200)).toBe(0);
    expect(softplus32(Number.POSITIVE_INFINITY)).toBe(Number.POSITIVE_INFINITY);
    expect(softplus32(Number.NaN)).toBeNaN();
  });
});

test('roundEven goes to the even neighbour at a half', () => {
  expect([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 126.5].map(x => roundEven(x) + 0)).toEqual([-2, -2, 0, 0, 2, 2, 126]);
  expect([1.49, 1.51, -1.49, -1.51].map(roundEven)).toEqual([1, 2, -1, -2]);
});

test('tree16 adds halves', () => {
  // Only 2^24 + 1 in the last step is rounded away; every other order keeps the one.
  const lanes = new Float32Array(16);
  lanes[0] = 2 ** 24;
  lanes[1] = 1;
  expect(tree16(lanes)).toBe(2 ** 24);
  // Lanes 0 and 8 meet first, and cancel.
  lanes.fill(0);
  lanes[0] = 2 ** 24;
  lanes[8] = -(2 ** 24);
  lanes[1] = 1;
  expect(tree16(lanes)).toBe(1);
});

test('halfToFloat agrees with the engine on all 65,536 patterns', () => {
  const view = new DataView(new ArrayBuffer(2)) as DataView & { getFloat16(at: number): number };
  for (let h = 0; h < 65536; h++) {
    view.setUint16(0, h);
    if (!Object.is(halfToFloat(h), view.getFloat16(0))) throw new Error(`pattern ${h}`);
  }
});

test('bfloatToFloat moves the bits up', () => {
  expect([0x3f80, 0xbf80, 0x7f80, 0xff80, 0x0001].map(bfloatToFloat)).toEqual([
    1,
    -1,
    Number.POSITIVE_INFINITY,
    Number.NEGATIVE_INFINITY,
    2 ** -133,
  ]);
  expect(bfloatToFloat(0x7fc0)).toBeNaN();
  expect(bfloatToFloat(0x8000)).toBe(-0);
});
