/** A plan as people read it: does it fit, how fast will it be, what limits it, what would help. */

import { formatBytes, formatSeconds, sizeFlag } from '../common/units.ts';
import type { PlanFile, PlanSummary } from '../engine/api.ts';
import { unmeasured } from '../engine/plan-advice.ts';
import { memoryRows } from './memory-rows.ts';
import { count, duration, percent, plural, speedFigure, table } from './report.ts';

const LIMITS = {
  disk: 'reading experts from the disk',
  memory: 'reading weights from memory',
  compute: 'arithmetic',
  latency: 'waiting of the threads for each other',
} as const;

/** `out`: where it was written. */
export function planText(plan: PlanFile, out?: string): string {
  const { model, warnings, notes, next_step } = plan;
  const title = `${model.family}, ${count(model.parameters)} parameters, ${formatBytes(model.bytes_on_disk)} on disk`;
  return table([
    ['model', title],
    ['fits', 'yes'],
    ...memoryRows(summaryOf(plan), plan.experts.total, plan.memory.overhead.first_start),
    ...firstStartRows(plan),
    ...hitRows(plan),
    ...speedRows(plan),
    ['sessions', sessions(plan)],
    ...warnings.map(({ code, message, hint }) => ['warning', `${code}: ${message}; ${hint}`]),
    ...notes.map(note => ['note', note]),
    ...(next_step === null ? [] : [['next', next_step]]),
    ...(out === undefined ? [] : [['plan', `written; load with --plan ${out}`]]),
  ]);
}

/** As `coli info` tells it. */
function summaryOf({ memory, settings }: PlanFile): PlanSummary {
  return {
    budget: memory.budget_bytes,
    budgetSource: memory.budget_source,
    total: memory.total_bytes,
    smallestBudget: memory.smallest_budget_bytes,
    resident: memory.resident_bytes,
    kv: memory.kv_bytes,
    scratch: memory.scratch_bytes,
    overhead: memory.overhead_bytes,
    slots: memory.slots_bytes,
    slotBytes: memory.slot_bytes,
    expertSlots: settings.expert_slots,
    chunkTokens: settings.chunk_tokens,
  };
}

/** A budget that this plan just fits is refused at such a start. */
function firstStartRows({ memory }: PlanFile): string[][] {
  const { first_start_extra_bytes: extra, smallest_budget_bytes: smallest, slot_bytes: each } = memory;
  if (extra === 0) return [];
  const beyond = memory.total_bytes + extra - memory.budget_bytes;
  const fewer = beyond <= 0 ? '' : `; about ${plural(Math.ceil(beyond / each), 'expert')} more have no place then`;
  const least = sizeFlag(smallest + extra);
  return [
    [
      'first start',
      `of changed sources, with nothing compiled yet, needs ${formatBytes(extra)} more once: --ram ${least} at least${fewer}`,
    ],
  ];
}

function hitRows({ experts, traffic, prediction }: PlanFile): string[][] {
  if (experts.slots >= experts.total) return [];
  const { low, likely, high, source, replayed_tokens: tokens } = traffic.estimated_hit_rate;
  const read = formatBytes((1 - likely) * traffic.expert_disk_bytes_per_token);
  const seconds = prediction === null ? '' : ` in ${duration(prediction.seconds_per_token.disk)}`;
  const how = source === 'replay' ? `by a replay of your last texts, ${plural(tokens, 'token')}` : 'an estimate';
  const uses = `a token uses ${experts.slots_per_token}; about ${percent(likely)} of them are there (${percent(low)} to ${percent(high)}, ${how})`;
  return [['hits', `${uses}: ${read} are read for each token${seconds}`]];
}

function speedRows(plan: PlanFile): string[][] {
  const { ceilings, prediction, settings } = plan;
  const { disk, memory, compute, drives } = ceilings;
  const when = (fresh: boolean, measured: string) => (fresh ? 'now' : measured.slice(0, 10));
  const rows: string[][] = [];
  if (disk) {
    const direct = disk.direct ? `${speed(disk.direct.bytes_per_second)} direct, ` : '';
    const buffered = disk.buffered ? `${speed(disk.buffered.bytes_per_second)} through the page cache, ` : '';
    rows.push([
      'disk',
      `${direct}${buffered}${disk.depth} reads at a time; measured ${when(disk.fresh, disk.measured)}`,
    ]);
  }
  if (drives) rows.push(['drives', drivesText(drives)]);
  if (memory && compute) {
    const figures = `memory ${speed(memory.bytes_per_second)}, ${settings.kernels}, ${plural(settings.threads, 'thread')}`;
    rows.push(['machine', `${figures}; measured ${when(memory.fresh, memory.measured)}`]);
  }
  if (prediction === null) return [...rows, ['speed', `unknown: ${unmeasured(plan)}`]];
  const { decode_tokens_per_second: range, decode_likely_tokens_per_second: likely } = prediction;
  const prompt = `${plural(prediction.prompt_tokens, 'token')} in ${prediction.prompt_seconds < 60 ? duration(prediction.prompt_seconds) : formatSeconds(prediction.prompt_seconds)}`;
  return [
    ...rows,
    [
      'speed',
      `about ${speedFigure(likely)} tok/s (${speedFigure(range.low)} to ${speedFigure(range.high)}); limit: ${LIMITS[prediction.limited_by]}`,
    ],
    ['prompt', `${prompt} (${speedFigure(prediction.prefill_tokens_per_second)} tok/s), after a cold start`],
  ];
}

function drivesText({ declared, bytes_per_second, each }: NonNullable<PlanFile['ceilings']['drives']>): string {
  const parts = each.map(
    ({ directory, bytes_per_second: own, share }) => `${speed(own)}, ${percent(share)} from ${directory}`,
  );
  return `${speed(bytes_per_second)} together, by ${declared ? 'declared' : 'measured'} speeds: ${parts.join('; ')}`;
}

function sessions({ settings, concurrency, experts }: PlanFile): string {
  const { sessions_that_fit: fit, sessions_without_losing_slots: free, bytes_per_session: each } = concurrency;
  const used = `${settings.sessions} of ${formatBytes(each)}`;
  if (fit <= settings.sessions) return `${used}; no more fit`;
  const cost =
    free > settings.sessions ? `up to ${free} cost no expert its place` : 'each further one takes places of experts';
  const all = experts.slots >= experts.total && free >= fit ? '' : `; ${cost}`;
  return `${used}; at most ${fit} fit${all}`;
}

function speed(bytesPerSecond: number): string {
  return `${formatBytes(bytesPerSecond)}/s`;
}
