import { expect, test } from 'vitest';
import { Usage } from './heat.ts';
import { chooseSwaps, hottest, MAX_SWAPS, score } from './pins.ts';

/** One layer whose experts have this heat; all were used `age` tokens ago. */
function usageOf(heats: readonly number[], age = 1000): Usage {
  const usage = new Usage({ layers: 1, experts: heats.length, topK: 1 });
  usage.tokens = 10_000;
  for (const [i, heat] of heats.entries()) if (heat > 0) usage.set(i, heat, heat, age);
  return usage;
}

test('the hottest come first, equals by number, and what was never used not at all', () => {
  expect(hottest(usageOf([3, 0, 9, 3, 1]), 10)).toEqual([2, 0, 3, 4]);
  expect(hottest(usageOf([3, 0, 9, 3, 1]), 2)).toEqual([2, 0]);
});

test('the score is heat, and among equals youth', () => {
  const usage = usageOf([2, 2, 2]);
  usage.set(1, 2, 2, 5);
  usage.set(2, 2, 2, 0);
  expect([0, 1, 2].map(i => score(usage, i))).toEqual([512, 762, 767]);
});

test('a swap must win by a quarter and four units of heat', () => {
  expect(chooseSwaps(usageOf([16, 24]), [0])).toEqual([]);
  expect(chooseSwaps(usageOf([16, 24.1]), [0])).toEqual([{ out: 0, in: 1 }]);
  expect(chooseSwaps(usageOf([0, 4]), [0])).toEqual([]);
  expect(chooseSwaps(usageOf([0, 4.1]), [0])).toEqual([{ out: 0, in: 1 }]);
  expect(chooseSwaps(usageOf([0, 4.1]), [])).toEqual([]);
});

test('the coldest goes for the hottest, and never more than so many', () => {
  const usage = usageOf([1, 2, 3, 4, 5, 6, 900, 910, 920, 930, 940, 950]);
  const swaps = chooseSwaps(usage, [5, 4, 3, 2, 1, 0]);
  expect(swaps).toEqual([
    { out: 0, in: 11 },
    { out: 1, in: 10 },
    { out: 2, in: 9 },
    { out: 3, in: 8 },
  ]);
  expect(swaps).toHaveLength(MAX_SWAPS);
});

test('after its swaps a stock is at rest', () => {
  const usage = usageOf([1, 2, 30, 20]);
  let pinned = [0, 1];
  for (const swap of chooseSwaps(usage, pinned)) pinned = [...pinned.filter(i => i !== swap.out), swap.in];
  expect(pinned).toEqual([2, 3]);
  expect(chooseSwaps(usage, pinned)).toEqual([]);
});
