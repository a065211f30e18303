import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { PlanError } from '../common/errors.ts';
import { MIB } from '../common/units.ts';
import { readModel } from './model-files.ts';
import { planModel } from './model-plan.ts';

const NANO = fileURLToPath(new URL('../../models/nano', import.meta.url));
const files = readModel({ model: NANO });

/** In MiB; what a refusal of `ram` names, or what its plan does. */
function smallestNamed(ram: number, threads?: number): { accepted: boolean; smallest: number } {
  try {
    const { summary } = planModel(files, { model: NANO, ram, threads });
    return { accepted: true, smallest: Math.ceil(summary.smallestBudget / MIB) };
  } catch (error) {
    if (!(error instanceof PlanError && error.code === 'RAM_TOO_SMALL')) throw error;
    return { accepted: false, smallest: (error.details['smallestBudget'] as number) / MIB };
  }
}

test.each([undefined, 1, 3])('every budget names the same smallest one, and that is true (%s threads)', threads => {
  const { accepted, smallest } = smallestNamed(1024, threads);
  expect(accepted).toBe(false);
  expect(smallestNamed(smallest * MIB, threads).accepted).toBe(true);
  expect(smallestNamed((smallest - 1) * MIB, threads).accepted).toBe(false);
  fc.assert(
    fc.property(fc.integer({ min: 1024, max: 300 * MIB }), ram => {
      const named = smallestNamed(ram, threads);
      expect(named.smallest).toBe(smallest);
      if (ram >= smallest * MIB) expect(named.accepted).toBe(true);
    }),
    { numRuns: 60, seed: 3, examples: [[(smallest + 1) * MIB], [(smallest + 14) * MIB]] },
  );
});

test('a refusal shows how the budget came about, and advises fewer threads only where there are more than one', () => {
  const refuse = (threads?: number) => () => planModel(files, { model: NANO, ram: MIB, threads });
  expect(refuse()).toThrow(/^the budget of 1.05 MB \(given with --ram\) is too small: /);
  expect(refuse()).toThrow(expect.objectContaining({ hint: expect.not.stringContaining('--threads') }));
  expect(refuse(3)).toThrow(expect.objectContaining({ hint: expect.stringContaining('fewer --threads') }));
});
