/** The rows about memory that `coli info` and `coli plan` have in common. */

import { formatBytes, sizeFlag } from '../common/units.ts';
import type { PlanSummary } from '../engine/api.ts';

/** "all 192 experts", "96 of 192 experts" */
export function slotShare(slots: number, total: number): string {
  return slots >= total ? `all ${total} experts` : `${slots} of ${total} experts`;
}

/** Names and values of a table. `firstStartBytes`: what later starts do not need. */
export function memoryRows(plan: PlanSummary, totalExperts: number, firstStartBytes: number): string[][] {
  const onlyNow =
    firstStartBytes === 0 ? '' : ` (${formatBytes(firstStartBytes)} of it only for a first start from source)`;
  const parts = [
    `weights ${formatBytes(plan.resident)}`,
    `context ${formatBytes(plan.kv)}`,
    `scratch ${formatBytes(plan.scratch)}`,
    `runtime ${formatBytes(plan.overhead)}`,
    `experts ${formatBytes(plan.slots)}`,
  ];
  return [
    [
      'ceiling',
      `${formatBytes(plan.budget)} (${plan.budgetSource}); the smallest possible is --ram ${sizeFlag(plan.smallestBudget)}${onlyNow}`,
    ],
    ['in memory', `${formatBytes(plan.total)}: ${parts.join(', ')}`],
    [
      'experts',
      `room for ${slotShare(plan.expertSlots, totalExperts)} at ${formatBytes(plan.slotBytes)} each${laterSlots(plan, totalExperts, firstStartBytes)}`,
    ],
  ];
}

/** Whoever asks again at the next start finds another number. */
function laterSlots(
  { budget, total, slotBytes, expertSlots }: PlanSummary,
  all: number,
  firstStartBytes: number,
): string {
  const more = Math.min(all - expertSlots, Math.floor(firstStartBytes / slotBytes));
  // with more than one slot left over, something else than memory limits them
  return more <= 0 || budget - total >= slotBytes ? '' : `; about ${more} more at later starts`;
}
