/** What somebody should know before loading with a plan. Codes are stable; docs/formats.md lists them. */

import { formatBytes } from '../common/units.ts';
import type { BudgetFor } from './plan-budget.ts';
import type { PlanFile, PlanWarning } from './plan-schema.ts';

/** A cache that holds less than the experts of so many tokens hardly helps. */
const RECOMMENDED_TOKENS = 2;
/** A SATA solid-state disk; what is slower was not made for this. */
const SLOW_DISK_BYTES_PER_SECOND = 500e6;
/** Shorter passes read every expert again for a few tokens. */
const SHORT_CHUNK = 64;
/** Buffered reads are of use only when this share of the experts can stay in the page cache. */
const PAGE_CACHE_SHARE = 0.1;

export interface WarningFacts {
  readonly plan: Omit<PlanFile, 'warnings' | 'next_step'>;
  /** The budget was worked out, not given. */
  readonly automatic: boolean;
  readonly budgetFor: BudgetFor;
}

export function planWarnings(facts: WarningFacts): PlanWarning[] {
  return [...memoryWarnings(facts), ...cacheWarnings(facts), ...readWarnings(facts), ...shapeWarnings(facts)];
}

function memoryWarnings({ plan: { memory, machine }, automatic }: WarningFacts): PlanWarning[] {
  const warnings: PlanWarning[] = [];
  const { available_bytes: available, cgroup_left_bytes: cgroup } = machine;
  const free = Math.min(available, cgroup ?? available);
  if (memory.total_bytes > free) {
    warnings.push({
      code: 'RAM_ABOVE_AVAILABLE',
      message: `the plan takes ${formatBytes(memory.total_bytes)}, and ${formatBytes(free)} are available now`,
      hint: 'end other programs, or leave --ram out',
    });
  }
  if (automatic && cgroup !== null && cgroup < available) {
    warnings.push({
      code: 'CGROUP_LIMIT',
      message: `a control group leaves ${formatBytes(cgroup)} of the ${formatBytes(available)} that the machine has free`,
      hint: 'raise the memory limit of the container or service',
    });
  }
  return warnings;
}

function cacheWarnings({ plan: { model, experts }, budgetFor }: WarningFacts): PlanWarning[] {
  const { slots, total, slots_per_token: needed } = experts;
  if (slots >= total || slots >= RECOMMENDED_TOKENS * needed) return [];
  const wanted = Math.min(total, RECOMMENDED_TOKENS * needed);
  const budget = budgetFor(wanted);
  const few = slots < needed;
  return [
    {
      code: few ? 'FEWER_SLOTS_THAN_LAYER_TOPK_RATIO' : 'RAM_BELOW_RECOMMENDED',
      message: few
        ? `${slots} expert slots are fewer than the ${needed} experts of one token (${model.moe_layers} layers x ${model.experts_per_token}): hardly any expert is still there when it is needed again`
        : `${slots} expert slots hold the experts of ${(slots / needed).toFixed(1)} tokens; from ${RECOMMENDED_TOKENS} on many are needed again in time`,
      hint: `give ${budget ? `${budget.flags} or more` : 'more --ram'}, or a smaller --ctx`,
    },
  ];
}

function readWarnings({ plan: { machine, memory, experts, ceilings, traffic, model } }: WarningFacts): PlanWarning[] {
  const warnings: PlanWarning[] = [];
  const allFit = experts.slots >= experts.total;
  if (!machine.direct_io) {
    warnings.push({
      code: 'NO_DIRECT_IO',
      message: 'the file system refuses direct reads: experts are read through the page cache and copied',
      hint: 'put the model on a local disk (ext4, xfs, btrfs)',
    });
    const left = Math.min(machine.available_bytes, machine.cgroup_left_bytes ?? machine.available_bytes);
    const all = (traffic.expert_disk_bytes_per_token / model.experts_per_token) * model.experts_per_layer;
    const cache = Math.max(0, left - memory.total_bytes);
    if (!allFit && cache < PAGE_CACHE_SHARE * all) {
      warnings.push({
        code: 'PAGE_CACHE_STARVED',
        message: `reads go through the page cache, and the plan leaves ${formatBytes(cache)} to it`,
        hint: 'give a smaller --ram: the page cache then keeps what the expert slots do not',
      });
    }
  }
  const { disk } = ceilings;
  const speed = disk && (disk.direct ?? disk.buffered);
  if (speed && !allFit && speed.bytes_per_second < SLOW_DISK_BYTES_PER_SECOND) {
    warnings.push({
      code: 'DISK_SLOW',
      message: `the disk gives ${formatBytes(speed.bytes_per_second)}/s in reads of an expert`,
      hint: 'put the model on a faster disk, or give more --ram',
    });
  }
  return warnings;
}

function shapeWarnings({ plan: { settings, experts } }: WarningFacts): PlanWarning[] {
  const warnings: PlanWarning[] = [];
  if (settings.chunk_tokens < Math.min(SHORT_CHUNK, settings.context) && experts.slots < experts.total) {
    warnings.push({
      code: 'SHORT_CHUNK',
      message: `prompts are computed ${settings.chunk_tokens === 1 ? 'one token' : `${settings.chunk_tokens} tokens`} at a time, and experts are read again for each part`,
      hint: 'give more --ram, or a smaller --ctx',
    });
  }
  return warnings;
}

/** Every large model has more than anybody asks for, so this is a note; null: nothing is cut. */
export function contextNote({ model, settings }: Pick<PlanFile, 'model' | 'settings'>): string | null {
  if (settings.context >= model.max_context) return null;
  return `CONTEXT_CUT: the context is ${settings.context} of the ${model.max_context} tokens that the model takes; --ctx gives more, which takes memory from the experts`;
}
