import { describe, expect, test } from 'vitest';
import { DEFAULT_POLICY } from '../policies/policies.ts';
import { choosePolicy } from './choose.ts';
import { type Lease, traceOf } from './test-support.ts';

/** Runs through all experts, again and again in stretches: what was used last is what comes next. */
function drifting(passes: number): Lease[] {
  return Array.from({ length: passes }, (_, pass) => {
    const phase = Math.floor(pass / 12) * 5;
    return [0, [(phase + (pass % 4)) % 64]] as const;
  });
}

describe('auto', () => {
  test('is the default without a trace, and with one that is too short', () => {
    expect(choosePolicy(null, 4, 100)).toEqual({ policy: DEFAULT_POLICY, hitRates: {} });
    expect(choosePolicy(traceOf(1, 64, drifting(255)), 4, 100).hitRates).toEqual({});
  });

  test('is what would have found more in the last texts', () => {
    const { policy, hitRates } = choosePolicy(traceOf(1, 64, drifting(3000)), 4, 10_000);
    expect(hitRates.lru).toBeDefined();
    expect(hitRates[DEFAULT_POLICY]).toBeDefined();
    const isClear = hitRates.lru! - hitRates[DEFAULT_POLICY]! >= 0.005;
    expect(policy).toBe(isClear ? 'lru' : DEFAULT_POLICY);
  });

  test('gives up after its time, having seen as much of each', () => {
    let time = 0;
    const ticking = () => time++;
    const { hitRates } = choosePolicy(traceOf(1, 64, drifting(100_000)), 4, 2, ticking);
    expect(Object.keys(hitRates)).toHaveLength(2);
    expect(time).toBeLessThan(6);
  });
});
