/** What a process took, held against its plan. */

import { formatBytes } from '../common/units.ts';
import type { PlanSummary } from '../engine/api.ts';
import { maxRssBytes } from '../engine/machine.ts';
import { note } from './output.ts';

/** The field `memory` of `run --json`: the plan by what it is for, and what was really taken (VmHWM). */
export function memoryJson(plan: PlanSummary, takenBytes = maxRssBytes()) {
  return {
    planned: {
      total_bytes: plan.total,
      resident_bytes: plan.resident,
      kv_bytes: plan.kv,
      scratch_bytes: plan.scratch,
      overhead_bytes: plan.overhead,
      slots_bytes: plan.slots,
    },
    max_rss_bytes: takenBytes,
    warning: takenBytes > plan.total ? { code: 'PLAN_EXCEEDED', message: exceeded(plan, takenBytes) } : null,
  };
}

/** A line when a process took more than its plan; null when it kept to it. */
export function memoryWarning(plan: PlanSummary, takenBytes = maxRssBytes()): string | null {
  return takenBytes > plan.total ? `WARNING PLAN_EXCEEDED: ${exceeded(plan, takenBytes)}` : null;
}

/** At the end of a command. */
export function tellMemory(plan: PlanSummary, quiet: boolean): void {
  const warning = memoryWarning(plan);
  if (warning !== null) note(warning, quiet);
}

function exceeded({ total }: PlanSummary, takenBytes: number): string {
  return `memory reached ${formatBytes(takenBytes)}, and the plan had ${formatBytes(total)}: please report this, with the output of coli plan --json`;
}
