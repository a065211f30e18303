import { expect, test } from 'vitest';
import type { PlanSummary } from '../engine/api.ts';
import { memoryJson, memoryWarning } from './memory-report.ts';

const plan: PlanSummary = {
  budget: 2000,
  budgetSource: 'given with --ram',
  total: 1900,
  smallestBudget: 1000,
  resident: 300,
  kv: 200,
  scratch: 100,
  overhead: 700,
  slots: 600,
  slotBytes: 60,
  expertSlots: 10,
  chunkTokens: 64,
};

test('what was planned and what was taken', () => {
  expect(memoryJson(plan, 1900)).toEqual({
    planned: {
      total_bytes: 1900,
      resident_bytes: 300,
      kv_bytes: 200,
      scratch_bytes: 100,
      overhead_bytes: 700,
      slots_bytes: 600,
    },
    max_rss_bytes: 1900,
    warning: null,
  });
  expect(memoryWarning(plan, 1900)).toBeNull();
});

test('more than the plan is a warning with a code, in both forms', () => {
  expect(memoryJson(plan, 1901).warning).toMatchObject({ code: 'PLAN_EXCEEDED' });
  expect(memoryWarning(plan, 1901)).toMatch(/^WARNING PLAN_EXCEEDED: memory reached 1.90 kB, and the plan had 1.90 kB/);
});

test('without a figure it is that of this process', () => {
  expect(memoryJson(plan).max_rss_bytes).toBeGreaterThan(2 ** 20);
});
