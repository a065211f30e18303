/** The one thing that would help most, as far as arithmetic can tell. */

import { formatBytes } from '../common/units.ts';
import type { BudgetFor } from './plan-budget.ts';
import type { PlanFile } from './plan-schema.ts';

/** Encodings of four bits and less take about so many bytes a weight. */
const SMALL_WEIGHT_BYTES = 0.75;

export function nextStep(plan: Omit<PlanFile, 'next_step'>, budgetFor: BudgetFor): string | null {
  const { prediction, experts, memory, machine, traffic } = plan;
  if (prediction === null) return `coli plan --measure: ${unmeasured(plan)}, so no speed is predicted`;
  const first = plan.warnings.find(({ code }) => code === 'RAM_ABOVE_AVAILABLE' || code === 'NO_DIRECT_IO');
  if (first) return first.hint;
  if (prediction.limited_by === 'disk') {
    const free = Math.min(machine.available_bytes, machine.cgroup_left_bytes ?? machine.available_bytes);
    const all = budgetFor(experts.total);
    if (all && all.bytes <= free) return `${all.flags}: every expert then stays in memory`;
    const weight = traffic.expert_disk_bytes_per_token / traffic.expert_weights_per_token;
    if (weight > SMALL_WEIGHT_BYTES) {
      return `coli convert: experts of 4 bits are ${(weight / 0.53).toFixed(1)} times smaller, and as much less is read`;
    }
    const missing = all ? all.bytes - memory.total_bytes : (experts.total - experts.slots) * memory.slot_bytes;
    return `more memory: ${formatBytes(missing)} more would hold every expert; or a faster disk`;
  }
  if (prediction.limited_by === 'memory') return null;
  if (prediction.limited_by === 'compute' && plan.settings.threads < machine.logical_cpus) {
    return `--threads ${machine.logical_cpus}: arithmetic takes longest`;
  }
  return null;
}

/** What of it has not been measured: other settings may have been. */
export function unmeasured({ ceilings, settings }: Pick<PlanFile, 'ceilings' | 'settings'>): string {
  const disk = `the disk with ${settings.readers} ${settings.readers === 1 ? 'read' : 'reads'} at a time`;
  const processor = `the processor with ${settings.kernels} and ${settings.threads} ${settings.threads === 1 ? 'thread' : 'threads'}`;
  const both = ceilings.disk === null && ceilings.compute === null;
  if (both) return `neither ${disk} nor ${processor} has been measured`;
  return `${ceilings.disk === null ? disk : processor} has not been measured`;
}
