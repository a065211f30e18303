import fc from 'fast-check';
import { expect, test } from 'vitest';
import { LruPolicy } from './policy.ts';

function order(policy: LruPolicy): number[] {
  const slots: number[] = [];
  for (let slot = policy.first(); slot >= 0; slot = policy.after(slot)) slots.push(slot);
  return slots;
}

test('gives up slots in the order of a plain list that moves what is used to its end', () => {
  const uses = fc.integer({ min: 1, max: 12 }).chain(slots => {
    return fc.tuple(fc.constant(slots), fc.array(fc.nat(slots - 1), { maxLength: 60 }));
  });
  fc.assert(
    fc.property(uses, ([slots, touched]) => {
      const policy = new LruPolicy(slots);
      const list = Array.from({ length: slots }, (_, slot) => slot);
      for (const slot of touched) {
        policy.touch(slot);
        list.push(...list.splice(list.indexOf(slot), 1));
        expect(order(policy)).toEqual(list);
      }
    }),
  );
});
