/** Reads ahead of single experts, as the look-ahead asks for them, and the budget that limits them. */

import { describe, expect, test } from 'vitest';
import { LookAheadBudget } from './look-ahead-budget.ts';
import type { Prefetch } from './look-ahead-switch.ts';
import { begin, type FakeStore, fakeStore } from './test-support.ts';

const EXPERTS = 16;

/** Guesses experts of a layer, the likeliest first; a call of wantsGuesses comes before, as in a forward pass. */
function guess({ store }: Pick<FakeStore, 'store'>, layer: number, experts: readonly number[]): void {
  if (store.wantsGuesses()) store.guess(layer, Int32Array.from(experts), experts.length);
}

/** A store that has timed a read, so that it reads one guess per layer; layer 0 was asked for `asked` experts in this pass. */
function warmStore(layers: number, slots: number, asked = 4): FakeStore {
  const fake = fakeStore(layers, EXPERTS, slots);
  fake.lease(0, [15]);
  fake.lease(
    0,
    Array.from({ length: asked }, (_, i) => i),
  );
  return fake;
}

const aheadRecords = ({ pool }: FakeStore) =>
  [...pool.requests.values()].filter(request => request.ahead).map(request => request.record);

describe('a guessed expert', () => {
  test('is read at low priority, and promoted when its layer asks for it', () => {
    const fake = warmStore(2, 8);
    const { store, pool, lease, record } = fake;
    guess(fake, 1, [3, 4]);
    expect(aheadRecords(fake)).toEqual([record(1, 3)]);
    const [ticket] = pool.unfinished;
    lease(1, [3, 4]);
    expect(pool.promoted).toEqual([ticket]);
    expect(store.counters).toMatchObject({ prefetched: 1, wasted: 0, hits: 1, aheadHits: 1, aheadLate: 1 });
  });

  test('that has arrived is no wait any more', () => {
    const fake = warmStore(2, 8);
    guess(fake, 1, [3]);
    fake.pool.complete(fake.pool.unfinished[0]);
    fake.lease(1, [3]);
    expect(fake.store.counters).toMatchObject({ aheadHits: 1, aheadLate: 0, usefulBytes: 1000, wastedBytes: 0 });
  });

  test('that is in memory or under way is not read again: the next likely one is', () => {
    const fake = warmStore(2, 10);
    fake.lease(1, [5]);
    fake.lease(0, [0, 1, 2, 3]);
    guess(fake, 1, [5, 6, 7]);
    expect(aheadRecords(fake)).toEqual([fake.record(1, 6)]);
    guess(fake, 1, [5, 6, 7]);
    expect(aheadRecords(fake)).toEqual([6, 7].map(expert => fake.record(1, expert)));
    fake.store.settle();
  });

  test('takes no slot that this pass has used, nor one in use', () => {
    const fake = warmStore(2, 4);
    guess(fake, 1, [3]);
    expect(fake.store.counters.prefetched).toBe(0);
    begin(fake.store, 0, [0, 1]);
    // experts 2 and 3 of the pass before may go
    guess(fake, 1, [3]);
    expect(fake.store.counters.prefetched).toBe(1);
    expect([0, 1].map(expert => fake.store.isResident(0, expert))).toEqual([true, true]);
    fake.store.end();
    fake.store.settle();
  });

  test('that its layer does not want is called off, or wasted once it was begun, and then an ordinary expert', () => {
    const fake = warmStore(3, 12, 8);
    const { store, pool, lease } = fake;
    for (const expert of [1, 2, 3]) guess(fake, 1, [expert]);
    const [first, second] = pool.unfinished;
    pool.complete(first);
    pool.start(second);
    lease(1, [9]);
    expect(store.counters).toMatchObject({ prefetched: 2, wasted: 2 });
    store.settle();
    expect([1, 2, 3, 9].map(expert => store.isResident(1, expert))).toEqual([true, true, false, true]);
    lease(1, [1, 2]);
    expect(store.counters).toMatchObject({ wasted: 2, usefulBytes: 0, wastedBytes: 2000 });
  });

  test('of a later layer survives the layers before it, but not the pass', () => {
    const fake = warmStore(3, 12);
    guess(fake, 2, [7]);
    fake.pool.start(fake.pool.unfinished[0]);
    fake.lease(1, [1]);
    expect(fake.store.counters).toMatchObject({ prefetched: 1, wasted: 0 });
    fake.lease(0, [0]);
    expect(fake.store.counters).toMatchObject({ prefetched: 1, wasted: 1 });
    fake.store.settle();
  });

  test('waits while a demand has no slot', () => {
    const fake = warmStore(2, 4);
    begin(fake.store, 0, [4, 5, 6, 7, 8]);
    guess(fake, 1, [3]);
    expect(fake.store.counters.prefetched).toBe(0);
    fake.store.end();
    fake.store.settle();
  });

  test('that cannot be read harms nobody: the demand reads it anew', () => {
    for (const asked of ['after it failed', 'before it failed'] as const) {
      const fake = warmStore(2, 8);
      const { store, pool, lease, record } = fake;
      pool.broken.add(record(1, 3));
      guess(fake, 1, [3]);
      if (asked === 'after it failed') pool.complete(pool.unfinished[0]);
      let served = 0;
      pool.pick = ([ticket]) => {
        if (pool.submitted.filter(each => each === record(1, 3)).length > 1) pool.broken.clear();
        return ticket;
      };
      lease(1, [3], () => served++);
      expect(served, asked).toBe(1);
      expect(store.counters, asked).toMatchObject({ prefetched: 1, wasted: 1, aheadHits: 0, usefulBytes: 0, hits: 0 });
      expect(store.counters.hits + store.counters.misses).toBe(store.counters.requests);
      pool.broken.add(record(1, 3));
    }
  });

  test('is counted in the recall, in memory or not', () => {
    const fake = warmStore(2, 12);
    fake.lease(1, [5]);
    fake.lease(0, [0, 1, 2, 3]);
    guess(fake, 1, [5, 6, 7, 8]);
    fake.lease(1, [5, 6, 9]);
    expect(fake.store.counters).toMatchObject({ guessable: 3, guessed: 2 });
    fake.lease(0, [0]);
    fake.lease(1, [5, 6, 9]);
    expect(fake.store.counters).toMatchObject({ guessable: 3, guessed: 2 });
    fake.store.settle();
  });
});

test('a store with room for every expert, or told not to, asks for nothing', () => {
  const wants = (slots: number, prefetch: Prefetch) => {
    const { store, lease } = fakeStore(2, EXPERTS, slots, prefetch);
    lease(0, [0, 1]);
    lease(1, [0, 1]);
    store.readAhead(1);
    const { prefetched } = store.counters;
    store.settle();
    return [store.wantsGuesses(), prefetched > 0];
  };
  expect(wants(2 * EXPERTS, 'on')).toEqual([false, true]);
  expect(wants(6, 'off')).toEqual([false, false]);
  expect(wants(6, 'on')).toEqual([true, true]);
});

test('what may be read ahead can be said anew, but never makes a store guess that has room for all', () => {
  const { store } = warmStore(2, 8);
  expect([store.prefetch, store.wantsGuesses(), store.looksAhead]).toEqual(['on', true, true]);
  store.prefetch = 'off';
  expect([store.prefetch, store.wantsGuesses(), store.looksAhead]).toEqual(['off', false, false]);
  store.readAhead(1);
  expect(store.counters.prefetched).toBe(0);
  const whole = warmStore(2, 2 * EXPERTS).store;
  whole.prefetch = 'on';
  expect(whole.wantsGuesses()).toBe(false);
});

describe('the budget', () => {
  const budgetAfter = (gapMs: number, readMs: number) => {
    const budget = new LookAheadBudget();
    budget.observeGap(gapMs);
    budget.observeRead(readMs);
    return budget;
  };

  test('is what the disk can read in the gap: at least one, at most four', () => {
    expect(new LookAheadBudget().reads).toBe(0);
    expect([0.1, 1, 2, 3, 100].map(gap => budgetAfter(gap, 1).reads)).toEqual([1, 1, 2, 3, 4]);
    expect(budgetAfter(1, 50).reads).toBe(1);
  });

  test('follows the machine', () => {
    const budget = budgetAfter(4, 1);
    for (let i = 0; i < 100; i++) budget.observeRead(4);
    expect(budget.reads).toBe(1);
  });

  test('is at most half of what the token has asked for', () => {
    const budget = budgetAfter(4, 1);
    expect(budget.holds(100)).toBe(false);
    for (let i = 0; i < 4; i++) budget.observeUse(100);
    for (const _ of [1, 2]) {
      expect(budget.holds(100)).toBe(true);
      budget.observeGuess(100);
    }
    expect(budget.holds(100)).toBe(false);
    budget.newPass();
    for (let i = 0; i < 2; i++) budget.observeUse(100);
    expect(budget.holds(100)).toBe(true);
  });
});
