/** Which --ram holds more experts. Found by planning again: a larger budget may also mean longer passes and more threads. */

import { alignUp, MIB, sizeFlag } from '../common/units.ts';
import type { EngineOptions } from './api.ts';
import type { ModelFiles } from './model-files.ts';
import { type PlannedModel, planModel } from './model-plan.ts';

/** Each length of a pass can take places once; there are ten of them. */
const MAX_TRIES = 12;

export interface Budget {
  readonly bytes: number;
  /** As they are typed; where slots were limited, that goes too. */
  readonly flags: string;
}

/** Null where none was found. */
export type BudgetFor = (slots: number) => Budget | null;

/** `options`: without a plan. */
export function budgetFinder(files: ModelFiles, options: EngineOptions, { summary }: PlannedModel): BudgetFor {
  const isLimited = options.expertSlots !== undefined || options.expertShare !== undefined;
  const free = { ...options, expertSlots: undefined, expertShare: undefined };
  return slots => {
    const missing = Math.max(0, slots - summary.expertSlots) * summary.slotBytes;
    let bytes = alignUp(Math.max(summary.total + missing, summary.smallestBudget), MIB);
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const { slotCount } = planModel(files, { ...free, ram: bytes });
      if (slotCount >= slots) {
        // the budget has room, and only the flag keeps experts out
        if (isLimited && bytes <= summary.budget) return { bytes, flags: `--expert-slots ${slots}` };
        return { bytes, flags: `--ram ${sizeFlag(bytes)}${isLimited ? ' --expert-slots 100%' : ''}` };
      }
      bytes = alignUp(bytes + (slots - slotCount) * summary.slotBytes, MIB);
    }
    return null;
  };
}
