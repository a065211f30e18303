import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { LruPolicy } from '../policy.ts';
import { belady } from './belady.ts';
import { replay } from './replay.ts';
import { bruteForce, randomLeases, traceOf } from './test-support.ts';

const LAYERS = 2;
const EXPERTS = 4;

describe("Belady's optimum", () => {
  test('is what trying everything finds', () => {
    fc.assert(
      fc.property(randomLeases(LAYERS, EXPERTS, 12), fc.integer({ min: 1, max: 6 }), (leases, slots) => {
        const best = bruteForce(leases, EXPERTS, slots);
        expect(belady(traceOf(LAYERS, EXPERTS, leases), slots).hits).toBe(best);
      }),
      { numRuns: 1000 },
    );
  });

  test('counts requests, hits and the bytes of what is read', () => {
    const trace = traceOf(2, 4, [
      [0, [0, 1]],
      [1, [2]],
      [0, [1, 3]],
    ]);
    expect(belady(trace, 3)).toEqual({ requests: 5, hits: 1, bytesRead: 3 * 100 + 101 });
  });

  test('keeps what a policy without the future gives up', () => {
    // three in a circle through two slots: least recently used never finds one
    const trace = traceOf(
      1,
      3,
      Array.from({ length: 30 }, (_, i) => [0, [i % 3]] as const),
    );
    expect(replay(trace, 2, facts => new LruPolicy(facts)).hits).toBe(0);
    expect(belady(trace, 2).hits).toBe(14);
  });

  test('goes through leases of more experts than slots in waves, and keeps what comes next', () => {
    const trace = traceOf(1, 4, [
      [0, [0, 1, 2, 3]],
      [0, [2]],
      [0, [0, 1, 2, 3]],
      [0, [0, 3]],
    ]);
    expect(belady(trace, 2).hits).toBe(1 + 2 + 2);
  });
});
