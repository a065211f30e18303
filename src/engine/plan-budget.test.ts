import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { MIB, parseSize } from '../common/units.ts';
import type { EngineOptions } from './api.ts';
import { readModel } from './model-files.ts';
import { planModel } from './model-plan.ts';
import { budgetFinder } from './plan-budget.ts';

const NANO = fileURLToPath(new URL('../../models/nano', import.meta.url));
const files = readModel({ model: NANO });

function planned(options: Partial<EngineOptions>) {
  return planModel(files, { model: NANO, threads: 1, ...options });
}

test('a budget that is found holds what was asked for, although it also makes passes longer', () => {
  // from the smallest budget on, where a few MiB more double the passes
  const smallest = planned({}).summary.smallestBudget;
  const broken: number[] = [];
  for (let ram = smallest; ram < smallest + 12 * MIB; ram += MIB) {
    const now = planned({ ram });
    const { bytes, flags } = budgetFinder(files, { model: NANO, threads: 1, ram }, now)(192)!;
    expect(planned({ ram: bytes }).slotCount).toBe(192);
    expect(parseSize(flags.slice('--ram '.length))).toBe(bytes);
    const { total, slotBytes } = now.summary;
    const plain = Math.ceil((total + (192 - now.slotCount) * slotBytes) / MIB) * MIB;
    if (planned({ ram: plain }).slotCount < 192) broken.push(ram);
  }
  // else this test would show nothing
  expect(broken).not.toEqual([]);
});

test('slots that were limited are set free by the flags that are told', () => {
  for (const limit of [{ expertSlots: 48 }, { expertShare: 0.5 }]) {
    const { smallestBudget } = planned({ ram: 1024 * MIB, ...limit }).summary;
    const options = { model: NANO, threads: 1, ram: smallestBudget, ...limit };
    const { bytes, flags } = budgetFinder(files, options, planModel(files, options))(192)!;
    expect(flags).toMatch(/^--ram \d+M --expert-slots 100%$/);
    expect(bytes).toBeGreaterThan(smallestBudget);
    expect(planned({ ram: bytes, expertShare: 1 }).slotCount).toBe(192);
  }
});

test('where only the flag keeps experts out of a budget with room for them, no other budget is told', () => {
  const options = { model: NANO, threads: 1, ram: 1024 * MIB, expertSlots: 20 };
  const { flags } = budgetFinder(files, options, planModel(files, options))(48)!;
  expect(flags).toBe('--expert-slots 48');
  expect(planned({ ...options, expertSlots: 48 }).slotCount).toBe(48);
});

test('more than there are is in no budget', () => {
  expect(budgetFinder(files, { model: NANO }, planned({}))(193)).toBeNull();
});
