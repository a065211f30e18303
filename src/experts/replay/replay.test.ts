import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { makePolicy, POLICY_NAMES } from '../policies/policies.ts';
import { belady } from './belady.ts';
import { comparePolicies, defaultSlots } from './compare.ts';
import { replay } from './replay.ts';
import { headerOf, randomLeases, traceOf } from './test-support.ts';
import { TraceBuilder } from './trace.ts';

const LAYERS = 3;
const EXPERTS = 5;

describe('a replay', () => {
  test.each(POLICY_NAMES)('with %s never finds more than the optimum, and reads what it does not find', name => {
    fc.assert(
      fc.property(randomLeases(LAYERS, EXPERTS, 60), fc.integer({ min: 1, max: 14 }), (leases, slots) => {
        const trace = traceOf(LAYERS, EXPERTS, leases);
        const result = replay(trace, slots, makePolicy(name), undefined, name === 'pin');
        expect(result.hits).toBeLessThanOrEqual(belady(trace, slots).hits);
        expect(result.requests).toBe(trace.ids.length);
        const misses = result.requests - result.hits;
        expect(result.bytesRead).toBeGreaterThanOrEqual(misses * 100);
        expect(result.bytesRead).toBeLessThanOrEqual(misses * 102);
      }),
      { numRuns: 300 },
    );
  });

  test.each(POLICY_NAMES)('with %s and a slot for each expert reads each once, as the optimum does', name => {
    fc.assert(
      fc.property(randomLeases(LAYERS, EXPERTS, 40), leases => {
        const trace = traceOf(LAYERS, EXPERTS, leases);
        const result = replay(trace, LAYERS * EXPERTS, makePolicy(name));
        expect(result).toEqual(belady(trace, LAYERS * EXPERTS));
        const distinct = new Set(leases.flatMap(([layer, ids]) => ids.map(id => `${layer} ${id}`)));
        expect(result.requests - result.hits).toBe(distinct.size);
      }),
    );
  });

  test('leaves out layers that do not route', () => {
    const header = { ...headerOf(3, 4), expertBytes: [0, 50, 70] };
    const trace = new TraceBuilder(header).add(1, 1, [0, 3]).add(2, 1, [3]).add(1, 1, [3]).build();
    for (const result of [belady(trace, 3), replay(trace, 3, makePolicy('lru'))]) {
      expect(result).toEqual({ requests: 4, hits: 1, bytesRead: 170 });
    }
  });
});

describe('pins in a replay', () => {
  test('keep the hottest through long texts of other experts, and never find more than the optimum', () => {
    // eight hot experts, then long stretches of others, again and again
    const leases = Array.from({ length: 6000 }, (_, i) => {
      const isHot = i % 1600 < 700;
      return [0, [isHot ? i % 8 : 8 + (i % 56)]] as const;
    });
    const trace = traceOf(1, 64, leases);
    const plain = replay(trace, 32, makePolicy('pin'));
    const pinned = replay(trace, 32, makePolicy('pin'), undefined, true);
    expect(pinned.hits).toBeGreaterThan(plain.hits);
    expect(pinned.hits).toBeLessThanOrEqual(belady(trace, 32).hits);
  });
});

describe('the comparison', () => {
  const trace = traceOf(
    2,
    10,
    Array.from({ length: 600 }, (_, i) => [i % 2, [(i * 7) % 3, 3 + ((i * i) % 7)]] as const),
  );

  test('has every policy and the optimum at each number of slots, and says how much each misses', () => {
    const told: number[] = [];
    const results = comparePolicies(trace, [4, 9], (done, total) => {
      told.push(done / total);
    });
    expect(results.map(({ slots }) => slots)).toEqual([4, 9]);
    for (const { policies } of results) {
      expect(policies.map(({ policy }) => policy)).toEqual([...POLICY_NAMES, 'belady']);
      const best = policies.at(-1)!;
      for (const { hits, regret } of policies) expect(regret).toBeCloseTo(1 - hits / best.hits, 12);
    }
    expect(told.toSorted((a, b) => a - b)).toEqual(told);
    expect(told.at(-1)).toBeLessThanOrEqual(1);
  });

  test('looks at a tenth to three quarters of the experts where nobody says how many, but at no fewer than a row needs', () => {
    expect(defaultSlots(trace)).toEqual([2, 5, 10, 15]);
    expect(defaultSlots({ ...trace, header: { ...trace.header, topK: 6 } })).toEqual([6, 10, 15]);
  });
});
