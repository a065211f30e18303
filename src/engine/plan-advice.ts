/** The one thing that would help most, as far as arithmetic can tell. */

import { formatBytes, sizeFlag } from '../common/units.ts';
import type { PlanFile } from './plan-schema.ts';

/** Encodings of four bits and less take about so many bytes a weight. */
const SMALL_WEIGHT_BYTES = 0.75;

export function nextStep(plan: Omit<PlanFile, 'next_step'>): string | null {
  const { prediction, experts, memory, machine, traffic } = plan;
  if (prediction === null) return 'coli plan --measure: without measured speeds nothing is predicted';
  const first = plan.warnings.find(({ code }) => code === 'RAM_ABOVE_AVAILABLE' || code === 'NO_DIRECT_IO');
  if (first) return first.hint;
  const missing = (experts.total - experts.slots) * memory.slot_bytes;
  if (prediction.limited_by === 'disk') {
    const free = Math.min(machine.available_bytes, machine.cgroup_left_bytes ?? machine.available_bytes);
    const all = memory.total_bytes + missing;
    if (all <= free) return `--ram ${sizeFlag(all)}: every expert then stays in memory`;
    const weight = traffic.expert_disk_bytes_per_token / traffic.expert_weights_per_token;
    if (weight > SMALL_WEIGHT_BYTES) {
      return `coli convert: experts of 4 bits are ${(weight / 0.53).toFixed(1)} times smaller, and as much less is read`;
    }
    return `more memory: ${formatBytes(missing)} more would hold every expert; or a faster disk`;
  }
  if (prediction.limited_by === 'memory') return null;
  if (prediction.limited_by === 'compute' && plan.settings.threads < machine.logical_cpus) {
    return `--threads ${machine.logical_cpus}: multiplying takes longest`;
  }
  return null;
}
