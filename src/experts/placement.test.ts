/** Experts that are read because they were hot, and experts that stay. */

import { expect, test } from 'vitest';
import { begin, fakeStore } from './test-support.ts';

const EXPERTS = 8;

test('a hot expert is read into an empty slot, behind demands, and then is there', () => {
  const { store, pool, lease, record } = fakeStore(2, EXPERTS, 4);
  expect(store.warm(0, 3)).toBe(true);
  expect(store.warm(0, 3)).toBe(false);
  const [ticket] = pool.unfinished;
  expect(pool.requests.get(ticket)).toMatchObject({ record: record(0, 3), ahead: true });
  expect(store.collect()).toBe(1);
  pool.complete(ticket);
  expect(store.collect()).toBe(0);
  expect(store.isResident(0, 3)).toBe(true);
  lease(0, [3, 4]);
  lease(0, [3]);
  expect(store.counters).toMatchObject({ warmed: 1, warmHits: 1, hits: 2, misses: 1, prefetched: 0, aheadHits: 0 });
});

test('nothing is given up for a hot expert', () => {
  const { store, lease } = fakeStore(2, EXPERTS, 2);
  lease(0, [0, 1]);
  expect(store.warm(1, 3)).toBe(false);
  expect(store.isResident(0, 0)).toBe(true);
});

test('a hot expert that is asked for while it is read is a read ahead that came late', () => {
  const { store, pool, lease } = fakeStore(2, EXPERTS, 4);
  store.warm(0, 3);
  const [ticket] = pool.unfinished;
  lease(0, [3]);
  expect(pool.promoted).toEqual([ticket]);
  expect(store.counters).toMatchObject({ warmed: 0, warmHits: 0, prefetched: 1, aheadHits: 1, aheadLate: 1 });
});

test('a hot expert that nobody asks for is no waste, and goes when room is needed', () => {
  const { store, pool, lease } = fakeStore(2, EXPERTS, 2);
  store.warm(0, 3);
  pool.complete(pool.unfinished[0]);
  store.settle();
  expect(store.isResident(0, 3)).toBe(true);
  lease(1, [0, 1]);
  expect(store.isResident(0, 3)).toBe(false);
  expect(store.counters).toMatchObject({ warmed: 1, warmHits: 0, wasted: 0 });
});

test('a hot expert that cannot be read fails nothing; asked for, it is read again', () => {
  const { store, pool, lease, record } = fakeStore(2, EXPERTS, 4);
  pool.broken.add(record(0, 3));
  store.warm(0, 3);
  pool.complete(pool.unfinished[0]);
  expect(store.collect()).toBe(0);
  expect(store.isResident(0, 3)).toBe(false);
  expect(store.counters.warmed).toBe(0);
  pool.broken.clear();
  lease(0, [3]);
  expect(store.isResident(0, 3)).toBe(true);
});

test('a request that ends calls off hot experts that no reader has begun', () => {
  const { store, pool } = fakeStore(2, EXPERTS, 4);
  store.warm(0, 3);
  store.settle();
  expect(pool.unfinished).toEqual([]);
  expect(store.counters.warmed).toBe(0);
  expect(store.warm(0, 3)).toBe(true);
  pool.complete(pool.unfinished[0]);
  store.collect();
});

test('a pinned expert stays from when it is read until it is let go', () => {
  const { store, lease } = fakeStore(2, EXPERTS, 3);
  store.pin(0, 3, true);
  lease(0, [3, 4, 5]);
  for (let round = 0; round < 3; round++) lease(1, [0, 1, 2, 3, 4, 5]);
  expect(store.isResident(0, 3)).toBe(true);
  lease(0, [3]);
  expect(store.counters.pinnedHits).toBe(1);
  store.pin(0, 3, false);
  lease(1, [0, 1, 2]);
  lease(1, [3, 4, 5]);
  expect(store.isResident(0, 3)).toBe(false);
});

test('what is in memory is pinned where it is, and a slot is not pinned for what comes after', () => {
  const { store, pool, lease, record } = fakeStore(1, EXPERTS, 2);
  lease(0, [0]);
  store.pin(0, 0, true);
  lease(0, [1]);
  lease(0, [2]);
  expect([0, 1, 2].map(expert => store.isResident(0, expert))).toEqual([true, false, true]);
  // a pinned expert whose read fails leaves its slot to others
  store.pin(0, 0, false);
  lease(0, [1, 2]);
  store.pin(0, 5, true);
  pool.broken.add(record(0, 5));
  expect(() => lease(0, [5])).toThrow();
  lease(0, [6, 7]);
  expect([6, 7].map(expert => store.isResident(0, expert))).toEqual([true, true]);
});

test('a lease of more experts than there are free slots comes through beside pinned ones', () => {
  const { store, lease } = fakeStore(1, EXPERTS, 4);
  for (const expert of [0, 1, 2]) store.pin(0, expert, true);
  lease(0, [0, 1, 2]);
  const seen: number[] = [];
  lease(0, [0, 1, 2, 3, 4, 5, 6, 7], expert => seen.push(expert));
  expect(seen.sort()).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
  expect([0, 1, 2].map(expert => store.isResident(0, expert))).toEqual([true, true, true]);
  begin(store, 0, [7]);
  store.end();
});
