import { expect, test } from 'vitest';
import { fakeStore } from '../test-support.ts';
import { Usage } from './heat.ts';
import { Placement, pinCount } from './placement.ts';

const LAYERS = 2;
const EXPERTS = 8;
const SHAPE = { layers: LAYERS, experts: EXPERTS, topK: 1 };

/** Every expert is hotter than the next; layer 1 than layer 0 for the same expert. */
function history(tokens = 10_000): Usage {
  const usage = new Usage(SHAPE);
  usage.tokens = tokens;
  for (let expert = 0; expert < EXPERTS; expert++) {
    usage.set(expert, 1, 100 - 10 * expert, 0);
    usage.set(EXPERTS + expert, 1, 105 - 10 * expert, 0);
  }
  return usage;
}

/** A disk that is done with everything when it is looked at. */
function fillAll(placement: Placement, pool: ReturnType<typeof fakeStore>['pool']): number {
  let most = 0;
  while (placement.fill()) {
    most = Math.max(most, pool.unfinished.length);
    for (const ticket of pool.unfinished) pool.complete(ticket);
  }
  return most;
}

test('empty slots are filled with the hottest, so many at a time', () => {
  const { store, pool, record } = fakeStore(LAYERS, EXPERTS, 5);
  const placement = new Placement(store, { usage: history(), pins: false, reads: 2 });
  expect(fillAll(placement, pool)).toBe(2);
  expect(pool.submitted).toEqual([record(1, 0), record(0, 0), record(1, 1), record(0, 1), record(1, 2)]);
  expect(placement.fill()).toBe(false);
  expect(placement.pinned).toBe(0);
});

test('what is there is not read, and what requests have filled is left alone', () => {
  const { store, pool, lease, record } = fakeStore(LAYERS, EXPERTS, 4);
  const placement = new Placement(store, { usage: history(), pins: false, reads: 1 });
  lease(0, [0, 6]);
  fillAll(placement, pool);
  expect(pool.submitted).toEqual([record(0, 0), record(0, 6), record(1, 0), record(1, 1)]);
  lease(0, [7]);
  expect(placement.fill()).toBe(false);
});

test('a disk that fails ends nothing', () => {
  const { store, pool, record } = fakeStore(LAYERS, EXPERTS, 3);
  pool.broken.add(record(1, 0));
  const placement = new Placement(store, { usage: history(), pins: false, reads: 2 });
  fillAll(placement, pool);
  expect(store.isResident(1, 0)).toBe(false);
  expect([store.isResident(0, 0), store.isResident(1, 1)]).toEqual([true, true]);
});

test('without a history nothing is read, with little nothing is pinned', () => {
  const { store } = fakeStore(LAYERS, EXPERTS, 8);
  expect(new Placement(store, { usage: new Usage(SHAPE), pins: true, reads: 1 }).fill()).toBe(false);
  expect(new Placement(store, { usage: history(511), pins: true, reads: 1 }).pinned).toBe(0);
  expect(new Placement(store, { usage: history(512), pins: true, reads: 1 }).pinned).toBe(1);
});

test('the hottest are pinned, and stay from when they are asked for', () => {
  const { store, lease } = fakeStore(LAYERS, EXPERTS, 8);
  new Placement(store, { usage: history(), pins: true, reads: 1 });
  lease(1, [0]);
  for (let round = 0; round < 3; round++) for (const layer of [0, 1]) lease(layer, [1, 2, 3, 4, 5, 6, 7]);
  expect(store.isResident(1, 0)).toBe(true);
});

test('a pin goes for an expert that has become much hotter, and that is counted', () => {
  const { store, lease } = fakeStore(LAYERS, EXPERTS, 8);
  const placement = new Placement(store, { usage: history(), pins: true, reads: 1 });
  placement.exchange(history());
  expect(store.counters.pinSwaps).toBe(0);
  const later = history();
  later.set(5, 1, 1000, 0);
  placement.exchange(later);
  placement.exchange(later);
  expect(store.counters.pinSwaps).toBe(1);
  lease(0, [5]);
  lease(1, [0]);
  for (let round = 0; round < 3; round++) for (const layer of [1, 0]) lease(layer, [1, 2, 3, 4, 6, 7]);
  expect([store.isResident(0, 5), store.isResident(1, 0)]).toEqual([true, false]);
});

test('pins leave room for what a token uses', () => {
  const shape = { layers: 10, experts: 64, topK: 4 };
  expect([39, 40, 41, 44, 80, 640].map(slots => pinCount(slots, shape))).toEqual([0, 0, 1, 4, 10, 80]);
});
