import { describe, expect, test } from 'vitest';
import { MAX_SEED, Random, randomSeed, splitMix64 } from './random.ts';

describe('known answers', () => {
  test('SplitMix64 from seeds 0 and 1234567', () => {
    expect(splitMix64(0, 4).map(x => x.toString(16))).toEqual([
      'e220a8397b1dcdaf',
      '6e789e6aa1b965f4',
      '6c45d188009454f',
      'f88bb8a8724c81ec',
    ]);
    expect(splitMix64(1234567, 2)).toEqual([6457827717110365317n, 3203168211198807973n]);
  });

  test('xoshiro128** from the state 1, 2, 3, 4', () => {
    const random = new Random(0);
    random.setState([1, 2, 3, 4]);
    expect(Array.from({ length: 10 }, () => random.nextUint32())).toEqual([
      11520, 0, 5927040, 70819200, 2031721883, 1637235492, 1287239034, 3734860849, 3729100597, 4258142804,
    ]);
  });

  test('the first numbers of a seed never change', () => {
    const random = new Random(42);
    expect([random.nextFloat64(), random.nextFloat64(), random.nextFloat64()]).toMatchInlineSnapshot(`
      [
        0.4137016681565887,
        0.003983993377814743,
        0.6500837027638867,
      ]
    `);
    const last = new Random(MAX_SEED);
    expect(last.nextUint32()).toMatchInlineSnapshot(`1233166643`);
  });
});

test('numbers stay in [0, 1) with a mean near one half', () => {
  const random = new Random(7);
  let sum = 0;
  for (let i = 0; i < 20_000; i++) {
    const x = random.nextFloat64();
    expect(x >= 0 && x < 1).toBe(true);
    sum += x;
  }
  expect(Math.abs(sum / 20_000 - 0.5)).toBeLessThan(0.01);
});

test('neighbouring seeds give unrelated numbers', () => {
  const firsts = Array.from({ length: 100 }, (_, seed) => new Random(seed).nextFloat64());
  expect(new Set(firsts.map(x => Math.floor(x * 10))).size).toBe(10);
});

test('a random seed is an integer that JSON carries exactly', () => {
  for (let i = 0; i < 1000; i++) {
    const seed = randomSeed();
    expect(Number.isSafeInteger(seed) && seed >= 0 && seed <= MAX_SEED).toBe(true);
  }
});
