import fc from 'fast-check';
import { expect, test } from 'vitest';
import { LruPolicy } from './policy.ts';

function order(policy: LruPolicy): number[] {
  const slots: number[] = [];
  for (let slot = policy.first(); slot >= 0; slot = policy.after(slot)) slots.push(slot);
  return slots;
}

test('gives up slots in the order of a plain list that moves what is used to its end, what is demoted to its beginning', () => {
  const uses = fc.integer({ min: 1, max: 12 }).chain(slots => {
    const use = fc.record({ slot: fc.nat(slots - 1), isDemoted: fc.boolean() });
    return fc.tuple(fc.constant(slots), fc.array(use, { maxLength: 60 }));
  });
  fc.assert(
    fc.property(uses, ([slots, touched]) => {
      const policy = new LruPolicy(slots);
      const list = Array.from({ length: slots }, (_, slot) => slot);
      for (const { slot, isDemoted } of touched) {
        if (isDemoted) policy.demote(slot);
        else policy.touch(slot);
        list.splice(list.indexOf(slot), 1);
        if (isDemoted) list.unshift(slot);
        else list.push(slot);
        expect(order(policy)).toEqual(list);
      }
    }),
  );
});
