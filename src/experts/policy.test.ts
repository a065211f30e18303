import fc from 'fast-check';
import { expect, test } from 'vitest';
import { LruPolicy } from './policy.ts';

/** All slots, the first to be given up first. */
function order(policy: LruPolicy): number[] {
  const slots: number[] = [];
  policy.victim(slot => {
    slots.push(slot);
    return false;
  });
  return slots;
}

const policyOf = (slots: number) => new LruPolicy({ slots, experts: slots, firstRecord: [0] });

test('gives up slots in the order of a plain list that moves what is used to its end, what is emptied to its beginning', () => {
  const uses = fc.integer({ min: 1, max: 12 }).chain(slots => {
    const use = fc.record({ slot: fc.nat(slots - 1), call: fc.constantFrom('use', 'fill', 'clear') });
    return fc.tuple(fc.constant(slots), fc.array(use, { maxLength: 60 }));
  });
  fc.assert(
    fc.property(uses, ([slots, calls]) => {
      const policy = policyOf(slots);
      const list = Array.from({ length: slots }, (_, slot) => slot);
      for (const { slot, call } of calls) {
        if (call === 'fill') policy.fill(slot, 0, false);
        else policy[call](slot);
        list.splice(list.indexOf(slot), 1);
        if (call === 'clear') list.unshift(slot);
        else list.push(slot);
        expect(order(policy)).toEqual(list);
      }
    }),
  );
});

test('in a flood new experts are given up first, but for one in sixteen', () => {
  const policy = policyOf(3);
  for (let slot = 0; slot < 3; slot++) policy.fill(slot, slot, false);
  policy.begin(0, 4);
  policy.fill(1, 7, false);
  expect(order(policy)).toEqual([1, 0, 2]);
  for (let fills = 5; fills < 16; fills++) policy.fill(1, 7, false);
  policy.fill(1, 7, false);
  expect(order(policy)).toEqual([0, 2, 1]);
  // what was there is kept when it is asked for; what was read ahead is new
  policy.use(0);
  policy.fill(2, 8, true);
  policy.use(2);
  expect(order(policy)).toEqual([2, 1, 0]);
});

test('takes the first that is allowed, also when asking empties it', () => {
  const policy = policyOf(4);
  expect(policy.victim(slot => slot === 2)).toBe(2);
  expect(
    policy.victim(slot => {
      policy.clear(slot);
      return slot === 3;
    }),
  ).toBe(3);
  expect(policy.victim(() => false)).toBe(-1);
});
