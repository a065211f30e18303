/** Which slots a guess may take, and which only a demand. */

import { expect, test } from 'vitest';
import { zeroCounters } from './counters.ts';
import type { EvictionPolicy } from './policy.ts';
import { Slots } from './slots.ts';
import { FakePool } from './test-support.ts';

const COUNT = 16;
/** An eighth of the slots. */
const SPARE = 2;

/** All slots taken by records of the same number, used in an earlier pass; given up in ascending order. */
function fullSlots() {
  const policy: EvictionPolicy = {
    begin() {},
    use() {},
    fill() {},
    clear() {},
    victim: allowed => Array.from({ length: COUNT }, (_, slot) => slot).find(allowed) ?? -1,
  };
  const pool = new FakePool();
  const places = Array.from({ length: COUNT }, (_, slot) => ({ arena: 0, offset: slot * 4096 }));
  const slots = new Slots(places, 2 * COUNT, pool as never, { readBytes: () => 1 }, policy, zeroCounters());
  for (let slot = 0; slot < COUNT; slot++) {
    slots.load(slot, slot, false);
    pool.complete(pool.unfinished[0]);
    slots.poll(slot);
  }
  slots.newPass();
  return slots;
}

test('a guess takes the slot that is given up next', () => {
  const slots = fullSlots();
  expect(slots.takeSpare(0, 0)).toBe(0);
  expect(slots.record(0)).toBe(-1);
  // empty now
  expect(slots.takeSpare(0, 0)).toBe(0);
});

test('but none that this pass has used', () => {
  const slots = fullSlots();
  slots.use(0);
  slots.inUse[0] = 0;
  expect(slots.takeSpare(0, 0)).toBe(1);
  slots.newPass();
  expect(slots.takeSpare(0, 0)).toBe(0);
});

test('nor one of the coming layer', () => {
  expect(fullSlots().takeSpare(0, 1)).toBe(1);
});

test('and none that is dearer than the first eighth, which a demand may take', () => {
  const slots = fullSlots();
  for (let slot = 0; slot < SPARE; slot++) {
    slots.use(slot);
    slots.inUse[slot] = 0;
  }
  expect(slots.takeSpare(0, 0)).toBe(-1);
  expect(slots.record(SPARE)).toBe(SPARE);
  expect(slots.take(0, SPARE)).toBe(SPARE);
});

test('slots that nobody could have do not count: those in use, and those pinned', () => {
  const slots = fullSlots();
  for (let slot = 0; slot < 4; slot++) slots.use(slot);
  for (let slot = 4; slot < 8; slot++) slots.pinned[slot] = 1;
  expect(slots.takeSpare(0, 0)).toBe(8);
});
