/**
 * The engine against what transformers computed for the same tiny checkpoints, on the fastest kernels: all-kernels.test.ts shows for the
 * same packs that WebAssembly and the reference kernels give their bits.
 */

import { describe, expect, test } from 'vitest';
import { evalOracle } from '../../src/eval/oracle.ts';
import { hasPrediction } from '../../src/eval/reference.ts';
import { ALL_PACKS, packDirectory, TEST_RAM_BYTES } from '../support/packs.ts';

describe.each(ALL_PACKS)('$name', ({ name: pack, topK }) => {
  test.each([
    { name: 'all experts in memory', expertSlots: undefined },
    { name: 'one slot per top-k, one lane, one reader', expertSlots: topK, threads: 1, readers: 1 },
  ])('agrees with exact activations: $name', async ({ name: _, ...options }) => {
    const report = await evalOracle(packDirectory(pack), {
      activations: 'exact',
      ...options,
      ram: TEST_RAM_BYTES,
      context: 512,
    });
    expect(report.firstDifference).toBeNull();
    expect(report.passed).toBe(true);
    expect(report.maxLogitDifference).toBeLessThanOrEqual(report.tolerance);
    expect(report.hiddenDifferences.every(difference => difference !== null)).toBe(true);
    expect(report.routerMismatches).toBe(0);
    expect(report.selectionMismatches ?? 0).toBe(0);
    expect(report.prediction !== null).toBe(hasPrediction(packDirectory(pack)));
    if (report.prediction) expect(report.prediction.maxLogitDifference).toBeLessThanOrEqual(report.tolerance);
    expect(report.greedy.length).toBe(3);
    for (const sample of report.greedy) expect(sample.matching).toBe(48);
  });
});

test('a wrong reference is noticed: the comparison can fail', async () => {
  // integer activations are a different computation: close, but not within the tolerance of exact ones
  const report = await evalOracle(packDirectory('olmoe-int4g64'), {
    activations: 'int8',
    ram: TEST_RAM_BYTES,
    context: 512,
  });
  expect(report.passed).toBe(false);
  expect(report.firstDifference).toMatch(/layer 0/);
});
