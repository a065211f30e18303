import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { FrequencyPolicy } from './frequency.ts';

const anything = () => true;

/** A policy over layers of ten experts, with a cache around it that does what the store does. */
function cache(slots: number, layers: number) {
  const firstRecord = Array.from({ length: layers }, (_, layer) => 3 + 10 * layer);
  const policy = new FrequencyPolicy({ slots, experts: 10, firstRecord });
  const recordIn = new Array<number>(slots).fill(-1);
  return {
    policy,
    recordIn,
    /** Asks for experts of a layer; returns the records that were given up. */
    lease(layer: number, ...experts: number[]): number[] {
      const gone: number[] = [];
      const wanted = experts.map(expert => firstRecord[layer] + expert);
      policy.begin(layer, wanted.length);
      for (const record of wanted) if (recordIn.includes(record)) policy.use(recordIn.indexOf(record));
      for (const record of wanted) {
        if (recordIn.includes(record)) continue;
        const slot = policy.victim(candidate => !wanted.includes(recordIn[candidate]));
        if (recordIn[slot] >= 0) {
          gone.push(recordIn[slot]);
          policy.clear(slot);
        }
        recordIn[slot] = record;
        policy.fill(slot, record, false);
      }
      return gone;
    },
  };
}

describe('frequency and recency', () => {
  test('free slots are filled first', () => {
    const { lease, recordIn } = cache(3, 1);
    expect(lease(0, 1, 2)).toEqual([]);
    expect(lease(0, 5)).toEqual([]);
    expect(recordIn).toEqual([4, 5, 8]);
  });

  test('what was used often stays when something newer was used once', () => {
    const { lease } = cache(2, 1);
    for (let pass = 0; pass < 20; pass++) lease(0, 1);
    lease(0, 2);
    // least recently used would give up expert 1 here only if it had not been used since; it goes by use, not by age
    expect(lease(0, 3)).toEqual([3 + 2]);
  });

  test('what was used often long ago goes in the end', () => {
    const { lease, recordIn } = cache(3, 1);
    for (let pass = 0; pass < 10; pass++) lease(0, 1);
    for (let pass = 0; pass < 400; pass++) lease(0, pass % 2 === 0 ? 2 : 4);
    lease(0, 5);
    expect(recordIn).not.toContain(3 + 1);
  });

  test('of two as often used, that of the layer which comes later goes', () => {
    const { lease } = cache(4, 4);
    for (let pass = 0; pass < 10; pass++) for (let layer = 0; layer < 4; layer++) lease(layer, 0);
    // the layer itself comes last of all
    expect(lease(1, 7)).toEqual([13]);
  });

  test('what was read ahead stays until its layer has come, and no longer', () => {
    const { policy, lease, recordIn } = cache(2, 3);
    lease(0, 1);
    const slot = policy.victim(anything);
    policy.fill(slot, 23 + 9, true);
    recordIn[slot] = 23 + 9;
    expect(lease(1, 2)).toEqual([3 + 1]);
    expect(lease(2, 4)).toEqual([23 + 9]);
  });

  test('every slot is asked about once before there is none, whatever was asked before', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 700 }), fc.nat(20), (slots, filled) => {
        const policy = new FrequencyPolicy({ slots, experts: 1000, firstRecord: [0] });
        policy.begin(0, 1);
        for (let slot = 0; slot < slots - Math.min(filled, slots - 1); slot++) policy.fill(slot, slot, false);
        for (let round = 0; round < 3; round++) {
          const asked: number[] = [];
          expect(
            policy.victim(slot => {
              asked.push(slot);
              return false;
            }),
          ).toBe(-1);
          expect(asked.toSorted((a, b) => a - b)).toEqual(Array.from({ length: slots }, (_, slot) => slot));
        }
      }),
    );
  });

  test('the search remembers other candidates, but none that was used since', () => {
    const slots = 2000;
    const policy = new FrequencyPolicy({ slots, experts: 5000, firstRecord: [0] });
    policy.begin(0, 1);
    for (let slot = 0; slot < slots; slot++) policy.fill(slot, slot, false);
    policy.begin(0, 1);
    const first = policy.victim(anything);
    const second = policy.victim(anything);
    policy.fill(first, 3000, false);
    policy.fill(second, 3001, false);
    const third = policy.victim(anything);
    policy.use(third === slots - 1 ? 0 : third + 1);
    const fourth = policy.victim(anything);
    expect(new Set([first, second, third, fourth]).size).toBe(4);
    expect(fourth).not.toBe(third === slots - 1 ? 0 : third + 1);
  });

  test('a hundred thousand passes leave no number that is none', () => {
    const { lease } = cache(2, 1);
    for (let pass = 0; pass < 100_000; pass++) lease(0, pass % 3);
    for (let pass = 0; pass < 20; pass++) lease(0, 1);
    lease(0, 2);
    expect(lease(0, 3)).toEqual([3 + 2]);
  });
});
