/** What the commands tell about an answer and about an engine, as text and as JSON. */

import os from 'node:os';
import path from 'node:path';
import { formatBytes, formatSeconds } from '../common/units.ts';
import type { EngineInfo, GenerateStats } from '../engine/api.ts';
import { stripperBytes, stripsTypes } from '../engine/overhead.ts';
import type { KernelChoice } from '../kernels/kernels.ts';
import type { Answer } from './answer.ts';
import { memoryRows, slotShare } from './memory-rows.ts';
import { placementJson, placementText } from './placement-report.ts';

/** Less than this share is not worth a word: what files hold besides the tensors in use. */
const MIN_OTHER_SHARE = 0.005;

/** The statistics of `run --json`, in this order. */
const JSON_STATS = [
  'prefill_tokens',
  'prefill_s',
  'decode_tokens',
  'decode_s',
  'ttft_s',
  'expert_requests',
  'expert_hits',
  'expert_prefetched',
  'expert_prefetch_used',
  'expert_prefetch_late',
  'expert_wasted',
  'expert_warm_hits',
  'expert_guessable',
  'expert_guessed',
  'prefetch_useful_bytes',
  'prefetch_wasted_bytes',
  'prefetch_changes',
  'prefetch_on',
  'bytes_read',
  'read_service_s',
  'read_wait_s',
  'resident_bytes',
  'slot_bytes',
  'max_rss_bytes',
  'kernels',
  'activations',
  'threads',
] as const satisfies readonly (keyof GenerateStats)[];

/**
 * The one object that `run --json` prints; `notes` is what goes to standard error otherwise. `reasoning` is there for models that
 * reason aloud.
 */
export function answerJson(model: string, { start, end }: Answer, notes: readonly string[] = []) {
  return {
    model,
    prompt_ids: start.promptIds,
    token_ids: end.tokenIds,
    text: end.text,
    ...(end.reasoning !== undefined && { reasoning: end.reasoning }),
    finish_reason: end.finishReason,
    seed: start.sampling.seed,
    stop_reason: end.stopReason,
    notes,
    stats: Object.fromEntries(JSON_STATS.map(key => [key, end.stats[key]])),
  };
}

/** "23 tokens, 45.1 tok/s, first after 0.1 s, expert hits 82 %, 12.0 MB read"; `context` in tokens */
export function answerFooter({ start, end }: Answer, context: number): string {
  const { stats, tokenIds, finishReason } = end;
  const parts = [plural(tokenIds.length, 'token')];
  if (stats.decode_tokens > 1 && stats.decode_s > 0) {
    // the first token comes with the prompt
    parts.push(`${((stats.decode_tokens - 1) / stats.decode_s).toFixed(1)} tok/s`);
  }
  parts.push(`first after ${duration(stats.ttft_s)}`, `expert hits ${hitRate(stats)}`);
  parts.push(`${formatBytes(stats.bytes_read)} read`);
  if (stats.activations !== 'int8') parts.push(`${stats.activations} activations`);
  if (finishReason === 'length') {
    const full = start.promptIds.length + tokenIds.length >= context;
    parts.push(full ? `the context of ${context} tokens is full` : 'ended at the token limit');
  }
  if (finishReason === 'cancelled') parts.push('stopped');
  return parts.join(', ');
}

/** Of an answer that was drawn; where the most likely token is always taken, a seed does nothing. */
export function seedFigure({ temperature, seed }: { temperature?: number; seed?: number }): string {
  return temperature === 0 ? '' : `, seed ${seed}`;
}

/** Everything that `:stats` knows about the last answer. */
export function answerStatistics({ start, end }: Answer): string {
  const { stats } = end;
  const rows = [
    [
      'prompt',
      `${start.promptIds.length} tokens, ${stats.prefill_tokens} of them computed in ${duration(stats.prefill_s)}`,
    ],
    ['answer', `${end.tokenIds.length} tokens, ${stats.decode_tokens} decoded in ${duration(stats.decode_s)}`],
    ['experts', `${stats.expert_hits} of ${stats.expert_requests} requests in memory (${hitRate(stats)})`],
    ['read ahead', readAhead(stats)],
    [
      'disk',
      `${formatBytes(stats.bytes_read)} read in ${duration(stats.read_service_s)}, waited ${duration(stats.read_wait_s)}`,
    ],
    [
      'memory',
      `${formatBytes(stats.max_rss_bytes)} peak; weights ${formatBytes(stats.resident_bytes)}, experts ${formatBytes(stats.slot_bytes)}`,
    ],
    ['compute', `${stats.kernels}, ${stats.activations} activations, ${plural(stats.threads, 'thread')}`],
    [
      'sampling',
      `temperature ${start.sampling.temperature}, top_p ${start.sampling.topP}${seedFigure(start.sampling)}`,
    ],
  ];
  return table(rows);
}

/** "12 experts, 3 unused (1.2 MB), 75 % of the next layers' experts guessed" */
function readAhead(stats: GenerateStats): string {
  const { expert_prefetched, expert_wasted, prefetch_wasted_bytes, expert_guessable, expert_guessed } = stats;
  const unused = expert_wasted > 0 ? ` (${formatBytes(prefetch_wasted_bytes)})` : '';
  const recall = ((100 * expert_guessed) / expert_guessable).toFixed(0);
  return (
    `${plural(expert_prefetched, 'expert')}, ${expert_wasted} unused${unused}` +
    (expert_guessable > 0 ? `, guesses name ${recall} % of what is needed` : '')
  );
}

function hitRate({ expert_hits, expert_requests }: GenerateStats): string {
  return expert_requests === 0 ? 'none asked for' : `${((100 * expert_hits) / expert_requests).toFixed(0)} %`;
}

/** "nano (olmoe, 32.0 million parameters)" */
function modelTitle(info: EngineInfo): string {
  return `${path.basename(path.resolve(info.directory))} (${info.family}, ${count(info.parameters)} parameters)`;
}

/** The first lines of a chat. */
export function banner(version: string, info: EngineInfo): string[] {
  const { plan } = info;
  return [
    `colibri ${version}: ${modelTitle(info)}, ${formatBytes(info.bytesOnDisk)} on disk`,
    `memory: weights ${formatBytes(plan.resident)}, context ${formatBytes(plan.kv)} (${info.context} tokens), ` +
      `room for ${slotShare(plan.expertSlots, info.totalExperts)} ${formatBytes(plan.slots)}; experts are read from disk when asked for`,
    `ceiling: ${formatBytes(plan.budget)} (${plan.budgetSource})`,
  ];
}

function machine() {
  const cpus = os.cpus();
  return {
    cpu: cpus[0]?.model.trim() ?? 'unknown',
    logical_cpus: os.availableParallelism(),
    memory_bytes: os.totalmem(),
    memory_available_bytes: process.availableMemory(),
    platform: `${process.platform}-${process.arch}`,
    node: process.version,
  };
}

/** The object of `info --json`; all sizes in bytes. */
export function infoJson(version: string, info: EngineInfo) {
  const { plan } = info;
  return {
    version,
    model: info.directory,
    family: info.family,
    parameters: info.parameters,
    shapes: {
      layers: info.layers,
      hidden_size: info.hiddenSize,
      experts: info.experts,
      experts_per_token: info.topK,
      vocab_size: info.vocabSize,
      max_context: info.maxContext,
    },
    bytes_on_disk: info.bytesOnDisk,
    encodings: info.encodings,
    machine: machine(),
    compute: {
      kernels: info.kernels,
      kernel_note: info.kernelNote,
      activations: info.activations,
      threads: info.threads,
      readers: info.readers,
      direct_io: info.directIo,
    },
    placement: placementJson(info),
    context: info.context,
    plan: {
      budget_bytes: plan.budget,
      budget_source: plan.budgetSource,
      smallest_budget_bytes: plan.smallestBudget,
      total_bytes: plan.total,
      resident_bytes: plan.resident,
      kv_bytes: plan.kv,
      scratch_bytes: plan.scratch,
      overhead_bytes: plan.overhead,
      slots_bytes: plan.slots,
      slot_bytes: plan.slotBytes,
      expert_slots: plan.expertSlots,
      chunk_tokens: plan.chunkTokens,
    },
    notes: info.notes,
  };
}

/** Why these kernels run. `choice`: what `--kernels` asked for. */
function whyKernels({ kernels, kernelNote }: EngineInfo, choice: KernelChoice): string {
  if (kernelNote) return kernelNote;
  if (choice === kernels) return `${kernels}, as asked for`;
  return `${kernels}, the fastest${choice === 'auto' ? '' : ` ${choice} kernels`} that this machine can run`;
}

/** `strips`: what only a first start from source needs is a part of the smallest budget. */
export function infoText(
  version: string,
  info: EngineInfo,
  kernels: KernelChoice = 'auto',
  strips: boolean = stripsTypes(),
): string {
  const { plan } = info;
  const first = stripperBytes({ lanes: info.threads, readers: info.readers, strips });
  const host = machine();
  const encodings = Object.entries(info.encodings).map(([name, bytes]) => `${name} ${formatBytes(bytes)}`);
  const other = info.bytesOnDisk - Object.values(info.encodings).reduce((sum, bytes) => sum + bytes, 0);
  if (other > MIN_OTHER_SHARE * info.bytesOnDisk)
    encodings.push(`other ${formatBytes(other)} (headers, gaps, unused tensors)`);
  return table([
    ['colibri', version],
    ['model', info.directory],
    ['family', `${info.family}, ${count(info.parameters)} parameters`],
    [
      'shapes',
      `${info.layers} layers, hidden ${info.hiddenSize}, ${info.experts} experts per layer, ${info.topK} per token, vocabulary ${info.vocabSize}`,
    ],
    ['context', `${info.context} tokens of at most ${info.maxContext}`],
    ['on disk', `${formatBytes(info.bytesOnDisk)}: ${encodings.join(', ')}`],
    [
      'machine',
      `${host.cpu}, ${host.logical_cpus} CPUs, ${formatBytes(host.memory_bytes)} memory (${formatBytes(host.memory_available_bytes)} available), ${host.platform}, Node ${host.node}`,
    ],
    [
      'compute',
      `${info.kernels}, ${info.activations} activations, ${plural(info.threads, 'thread')}, ${plural(info.readers, 'reader')}, ${info.directIo ? 'direct' : 'buffered'} reads`,
    ],
    ['kernels', whyKernels(info, kernels)],
    ['placement', placementText(info)],
    ...memoryRows(plan, info.totalExperts, first),
    ...info.notes.filter(note => note !== info.kernelNote).map(note => ['note', note]),
  ]);
}

/** 0.123 -> "12 %" */
export function percent(share: number, digits = 0): string {
  return `${(100 * share).toFixed(digits)} %`;
}

/** Tokens per second, three digits: "0.42", "12.3", "2330". */
export function speedFigure(tokensPerSecond: number): string {
  if (tokensPerSecond >= 100) return Math.round(tokensPerSecond).toString();
  return tokensPerSecond.toPrecision(tokensPerSecond < 0.01 ? 1 : 3);
}

/** 32037120 -> "32.0 million" */
export function count(n: number): string {
  if (n >= 1e9) return `${(n / 1e9).toFixed(1)} billion`;
  return n >= 1e6 ? `${(n / 1e6).toFixed(1)} million` : String(n);
}

/** Below a second in milliseconds: "53 ms". */
export function duration(seconds: number): string {
  const ms = Math.round(1000 * seconds);
  return ms < 1000 ? `${ms} ms` : formatSeconds(seconds);
}

export function plural(n: number, noun: string): string {
  return `${n} ${noun}${n === 1 ? '' : 's'}`;
}

/** Two columns, the first as wide as its widest cell. */
export function table(rows: readonly (readonly string[])[]): string {
  const width = Math.max(...rows.map(row => row[0].length));
  return rows.map(([name, value]) => `${name.padEnd(width)}  ${value}`).join('\n');
}
