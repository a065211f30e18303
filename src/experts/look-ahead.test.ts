/** Reads ahead of single experts, as the look-ahead asks for them, and the budget that limits them. */

import { describe, expect, test } from 'vitest';
import { LookAheadBudget } from './look-ahead-budget.ts';
import { begin, fakeStore } from './test-support.ts';

const EXPERTS = 16;

describe('a guessed expert', () => {
  test('is read at low priority, and promoted when its layer asks for it', () => {
    const { store, pool, lease, record } = fakeStore(2, EXPERTS, 6);
    lease(0, [0], () => expect(store.prefetch(1, 3)).toBe(true));
    expect(pool.submitted.at(-1)).toBe(record(1, 3));
    const [ticket] = pool.unfinished;
    expect(pool.requests.get(ticket)?.ahead).toBe(true);
    lease(1, [3, 4]);
    expect(pool.promoted).toEqual([ticket]);
    expect(store.counters).toMatchObject({ prefetched: 1, wasted: 0, hits: 1, misses: 2 });
  });

  test('that is in memory or under way is not read again', () => {
    const { store, lease } = fakeStore(2, EXPERTS, 6);
    lease(1, [5]);
    expect(store.prefetch(1, 5)).toBe(false);
    expect(store.prefetch(1, 6)).toBe(true);
    expect(store.prefetch(1, 6)).toBe(false);
    expect(store.counters.prefetched).toBe(1);
    store.settle();
  });

  test('never takes a slot that is in use', () => {
    const { store, lease } = fakeStore(2, EXPERTS, 2);
    begin(store, 0, [0, 1]);
    expect(store.prefetch(1, 3)).toBe(false);
    store.end();
    lease(0, [0, 1], () => {});
    expect(store.prefetch(1, 3)).toBe(true);
    store.settle();
  });

  test('of the layer that is being served is refused', () => {
    const { store, lease } = fakeStore(2, EXPERTS, 6);
    lease(1, [0], () => expect(store.prefetch(1, 3)).toBe(false));
    expect(store.prefetch(1, 3)).toBe(true);
    store.settle();
  });

  test('that its layer does not want is called off, or wasted once it was begun, and then an ordinary expert', () => {
    const { store, pool, lease } = fakeStore(3, EXPERTS, 8);
    lease(0, [0], () => {
      for (const expert of [1, 2, 3]) store.prefetch(1, expert);
    });
    const [first, second] = pool.unfinished;
    pool.complete(first);
    pool.start(second);
    lease(1, [9]);
    expect(store.counters).toMatchObject({ prefetched: 2, wasted: 2 });
    store.settle();
    expect([1, 2, 3, 9].map(expert => store.isResident(1, expert))).toEqual([true, true, false, true]);
    lease(1, [1, 2]);
    expect(store.counters).toMatchObject({ hits: 2, wasted: 2 });
  });

  test('of a later layer survives the layers before it', () => {
    const { store, lease } = fakeStore(3, EXPERTS, 8);
    lease(0, [0], () => store.prefetch(2, 7));
    lease(1, [1]);
    lease(2, [7]);
    expect(store.counters).toMatchObject({ prefetched: 1, wasted: 0, hits: 1 });
  });
});

test('a store with room for every expert, or told not to, asks for nothing', () => {
  const reads = (slots: number, lookAhead: boolean) => {
    const { store, lease } = fakeStore(2, EXPERTS, slots, lookAhead);
    lease(0, [0, 1]);
    lease(1, [0, 1]);
    return store.lookAheadReads();
  };
  expect(reads(2 * EXPERTS, true)).toBe(0);
  expect(reads(6, false)).toBe(0);
  expect(reads(6, true)).toBeGreaterThan(0);
});

describe('the budget', () => {
  const budgetAfter = (gapMs: number, readMs: number) => {
    const budget = new LookAheadBudget();
    budget.observeGap(gapMs);
    budget.observeRead(readMs);
    return budget;
  };

  test('is what the disk can read in the gap: at least one, at most four', () => {
    expect(new LookAheadBudget().reads()).toBe(0);
    expect([0.1, 1, 2, 3, 100].map(gap => budgetAfter(gap, 1).reads())).toEqual([1, 1, 2, 3, 4]);
    expect(budgetAfter(1, 50).reads()).toBe(1);
  });

  test('follows the machine', () => {
    const budget = budgetAfter(4, 1);
    for (let i = 0; i < 100; i++) budget.observeRead(4);
    expect(budget.reads()).toBe(1);
  });

  test('ends when guesses are wrong, tries again now and then, and comes back', () => {
    const budget = budgetAfter(2, 1);
    for (let i = 0; i < 20; i++) budget.observeGuess(false);
    const tries = Array.from({ length: 640 }, () => budget.reads());
    expect(tries.filter(n => n > 0)).toEqual(Array(10).fill(1));
    for (let i = 0; i < 40; i++) budget.observeGuess(true);
    expect(budget.reads()).toBe(2);
  });
});
