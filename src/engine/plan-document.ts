/** Makes the plan of a model on this machine: headers and, unless they are stored, short measurements; nothing is loaded. */

import os from 'node:os';
import { PlanError, UsageError } from '../common/errors.ts';
import { selectKernels } from '../kernels/select.ts';
import type { Layout } from '../quant/layouts.ts';
import type { Mirror } from '../storage/mirror-files.ts';
import { closeFiles, openFiles } from '../storage/open-files.ts';
import type { EngineOptions } from './api.ts';
import { computeSpeed } from './compute-measure.ts';
import { type DiskMeasureWish, diskSpeed, type Found } from './disk-measure.ts';
import { modelIdentity } from './identity.ts';
import { memoryFacts } from './machine.ts';
import type { ComputeEntry, DiskEntry } from './measurements.ts';
import { type ModelFiles, readModel } from './model-files.ts';
import { MAX_SLOTS, type PlannedModel, planModel } from './model-plan.ts';
import { firstStartExtra } from './overhead.ts';
import { nextStep } from './plan-advice.ts';
import { budgetFinder } from './plan-budget.ts';
import { drivesTogether, type PlanDrives, planMirrors, readSpeed } from './plan-drives.ts';
import { bytesPerToken, expertSizes, residentByRole, type Traffic, trafficOf } from './plan-facts.ts';
import { hitRates } from './plan-hits.ts';
import { withPlan } from './plan-options.ts';
import {
  type HitRates,
  limitOf,
  promptTime,
  type Shape,
  type Speeds,
  type TokenTime,
  tokenTime,
} from './plan-prediction.ts';
import { PLAN_VERSION, type PlanFile, planSchema } from './plan-schema.ts';
import { contextNote, planWarnings } from './plan-warnings.ts';

/** The hit rates for which every plan has a row. */
const HIT_RATES = [0, 0.25, 0.5, 0.75, 0.9, 0.97];
/** What predictions are made for unless told otherwise: a page of text. */
const DEFAULT_PROMPT_TOKENS = 512;

export interface PlanWish {
  readonly options: EngineOptions;
  /** Version of the program. */
  readonly colibri: string;
  /** `none`: no speeds at all. `stored`: only what was measured before. `short`: measured where nothing is stored. `fresh`: anew. */
  readonly measure: 'none' | 'stored' | 'short' | 'fresh';
  /** Length of the prompt whose time is estimated, and of the conversation in which a token is decoded. */
  readonly promptTokens?: number;
  /** Where measurements are kept; the program's cache directory. */
  readonly directory?: string;
  readonly onProgress?: (what: string, done: number, total: number) => void;
}

/** Throws what opening the model would: PlanError RAM_TOO_SMALL when the budget cannot hold it. And UsageError for `promptTokens`. */
export async function makePlanFile(wish: PlanWish): Promise<PlanFile> {
  const options = withPlan(wish.options);
  const files = readModel(options);
  const planned = planModel(files, options);
  const { settings } = planned;
  const kernels = selectKernels(options.kernels ?? 'auto');
  const opened = openFiles(
    files.checkpoint.files.map(file => file.path),
    // what is not wanted may still be possible
    options.io === 'direct' ? 'direct' : 'auto',
  );
  closeFiles(opened.descriptors);
  const mirrors = planMirrors(files, options);
  const promptTokens = promptLength(wish.promptTokens, settings.context, files.shape.maxContext);
  const traffic = trafficOf(files, settings, promptTokens);
  const shape = { ...files.shape, moeLayers: mainMoeLayers(files) };
  const hits = hitRates(files, options, { slots: planned.slotCount, moeLayers: shape.moeLayers });
  const found = await measured(wish, files, planned, kernels, traffic, mirrors);
  const { disk, compute, drives } = found;
  const speeds = speedsOf(found, options);
  const at = (hitRate: number) => speeds && tokenTime(traffic, shape, speeds, hitRate);
  const facts = {
    version: PLAN_VERSION,
    colibri: wish.colibri,
    created: new Date().toISOString(),
    model: modelPart(files),
    settings: settingsPart(planned, options, kernels.name),
    machine: machinePart(opened.direct),
    memory: memoryPart(files, planned),
    state: statePart(files, planned),
    experts: expertsPart(files, planned, shape),
    traffic: {
      dense_bytes_per_token: Math.round(traffic.denseBytes),
      expert_bytes_per_token: Math.round(traffic.expertBytes),
      expert_disk_bytes_per_token: Math.round(traffic.expertDiskBytes),
      expert_weights_per_token: Math.round(traffic.expertWeights),
      kv_bytes_per_token: Math.round(traffic.kvBytes),
      conversation_tokens: promptTokens,
      at_hit_rates: HIT_RATES.map(hit_rate => ({
        hit_rate,
        disk_bytes_per_token: Math.round((1 - hit_rate) * traffic.expertDiskBytes),
        tokens_per_second: rangeOf(at(hit_rate), at(hit_rate)),
      })),
      estimated_hit_rate: hits,
    },
    ceilings: { ...ceilingsPart(disk, compute, traffic), drives },
    prediction: speeds && predictionPart(traffic, shape, speeds, hits, planned, promptTokens),
    concurrency: concurrencyPart(files, { ...options, expertSlots: wish.options.expertSlots }, planned),
    notes: [...planned.notes, kernels.warning, opened.note, ...mirrors.flatMap(({ notes }) => notes)].filter(
      note => note !== null,
    ),
  } as const satisfies Omit<PlanFile, 'warnings' | 'next_step'>;
  if (drives === null && mirrors.some(({ files: count }) => count > 0)) {
    facts.notes.push(
      'the mirrors are not in the prediction: they have no expert, or their speed has not been measured',
    );
  }
  const { policy = 'auto' } = options;
  if (policy !== 'auto' && hits.source === 'estimate' && facts.experts.slots < facts.experts.total) {
    facts.notes.push(
      `policy ${policy}: changes nothing here; hits are estimated alike for all until texts are remembered`,
    );
  }
  const cut = options.context === undefined ? contextNote(facts) : null;
  if (cut !== null) facts.notes.push(cut);
  const automatic = options.plan === undefined && (options.ram ?? 'auto') === 'auto';
  const { chunk, threads } = wish.options;
  const budgetFor = budgetFinder(files, { ...options, plan: undefined, chunk, threads }, planned);
  const warnings = planWarnings({ plan: facts, automatic, budgetFor });
  // what is written can be read again
  return planSchema.parse({ ...facts, warnings, next_step: nextStep({ ...facts, warnings }, budgetFor) });
}

function promptLength(wanted: number | undefined, context: number, maxContext: number): number {
  if (wanted === undefined) return Math.min(DEFAULT_PROMPT_TOKENS, context);
  if (wanted <= context) return wanted;
  throw new UsageError('BAD_FLAG', `--prompt-tokens ${wanted} is more than the context of ${context} tokens`, {
    hint: wanted <= maxContext ? `give --ctx ${wanted} or more` : `this model takes up to ${maxContext}`,
  });
}

function mainMoeLayers({ shape }: ModelFiles): number {
  return shape.moeLayers.filter(layer => layer < shape.layers).length;
}

interface Measured {
  readonly disk: Found<DiskEntry> | null;
  readonly compute: Found<ComputeEntry> | null;
  readonly drives: PlanDrives | null;
}

async function measured(
  { measure, directory, options, onProgress = () => {} }: PlanWish,
  files: ModelFiles,
  { settings }: PlannedModel,
  kernels: ReturnType<typeof selectKernels>,
  traffic: Traffic,
  mirrors: readonly Mirror[],
): Promise<Measured> {
  if (measure === 'none') {
    return { disk: null, compute: null, drives: await drivesTogether(files, options, mirrors, null, null) };
  }
  const diskWish: DiskMeasureWish = {
    when: measure,
    readers: settings.readers,
    directory,
    onProgress: (done, total) => onProgress('disk', done, total),
  };
  const disk = await diskSpeed(files, diskWish);
  const own = disk && (readSpeed(disk.entry, options)?.bytesPerSecond ?? null);
  const drives = await drivesTogether(files, options, mirrors, own, diskWish);
  const compute = await computeSpeed({
    when: measure,
    kernels,
    lanes: settings.lanes,
    exact: options.activations === 'exact',
    layouts: [...traffic.work.keys()] as Layout[],
    directory,
    onProgress: (done, total) => onProgress('processor', done, total),
  });
  return { disk, compute, drives };
}

function speedsOf({ disk, compute, drives }: Measured, options: EngineOptions): Speeds | null {
  const read = disk && readSpeed(disk.entry, options);
  if (!read || !compute) return null;
  const bytesPerSecond = drives?.bytes_per_second ?? read.bytesPerSecond;
  return { disk: { ...read, bytesPerSecond }, direct: read === disk.entry.direct, compute: compute.entry };
}

function modelPart(files: ModelFiles): PlanFile['model'] {
  const { checkpoint, family, shape, parameters } = files;
  return {
    directory: checkpoint.directory,
    family: family.modelType,
    identity: modelIdentity(files),
    parameters,
    bytes_on_disk: checkpoint.bytesOnDisk,
    layers: shape.layers,
    moe_layers: shape.moeLayers.length,
    experts_per_layer: shape.experts,
    experts_per_token: shape.topK,
    vocab_size: shape.vocabSize,
    max_context: shape.maxContext,
  };
}

function settingsPart(planned: PlannedModel, options: EngineOptions, kernels: string): PlanFile['settings'] {
  const { settings, summary, slotCount } = planned;
  return {
    context: settings.context,
    sessions: settings.slots,
    threads: settings.lanes,
    readers: settings.readers,
    chunk_tokens: summary.chunkTokens,
    expert_slots: slotCount,
    kernels,
    activations: options.activations ?? 'int8',
    kv: settings.kv,
    server: planned.overhead.server > 0,
  };
}

function machinePart(direct_io: boolean): PlanFile['machine'] {
  const { availableBytes, cgroupLeftBytes } = memoryFacts();
  return {
    cpu: os.cpus()[0]?.model.trim() ?? 'unknown',
    logical_cpus: os.availableParallelism(),
    memory_bytes: os.totalmem(),
    available_bytes: availableBytes,
    cgroup_left_bytes: cgroupLeftBytes,
    direct_io,
  };
}

function memoryPart(files: ModelFiles, { summary, overhead, settings }: PlannedModel): PlanFile['memory'] {
  return {
    budget_bytes: Math.floor(summary.budget),
    budget_source: summary.budgetSource,
    smallest_budget_bytes: summary.smallestBudget,
    total_bytes: summary.total,
    resident_bytes: summary.resident,
    resident_by_role: residentByRole(files),
    kv_bytes: summary.kv,
    scratch_bytes: summary.scratch,
    slots_bytes: summary.slots,
    slot_bytes: summary.slotBytes,
    overhead_bytes: summary.overhead,
    first_start_extra_bytes: firstStartExtra(settings, overhead),
    overhead: {
      base: overhead.base,
      lanes: overhead.lanes,
      readers: overhead.readers,
      first_start: overhead.firstStart,
      tokenizer: overhead.tokenizer,
      tables: overhead.tables,
      history: overhead.history,
      policy: overhead.policy,
      requests: overhead.requests,
      telemetry: overhead.telemetry,
      server: overhead.server,
      scores: overhead.scores,
      constraints: overhead.constraints,
      saved_kv: overhead.savedKv,
    },
  };
}

function statePart(files: ModelFiles, { summary, settings }: PlannedModel): PlanFile['state'] {
  const perToken = bytesPerToken(files, settings);
  const perSession = Math.ceil(summary.kv / settings.slots);
  const fixed = Math.max(0, perSession - perToken * settings.context);
  return { bytes_per_token: perToken, fixed_bytes_per_session: Math.round(fixed), bytes_per_session: perSession };
}

function expertsPart(files: ModelFiles, { slotCount }: PlannedModel, shape: Shape): PlanFile['experts'] {
  const layers = expertSizes(files);
  const total = layers.length * shape.experts;
  return {
    total,
    slots: slotCount,
    share: Math.min(1, slotCount / total),
    slots_per_token: shape.moeLayers * shape.topK,
    layers,
  };
}

function ceilingsPart(
  disk: Found<DiskEntry> | null,
  compute: Found<ComputeEntry> | null,
  { work }: Traffic,
): Omit<PlanFile['ceilings'], 'drives'> {
  const speed = (one: DiskEntry['direct']) =>
    one && { bytes_per_second: one.bytesPerSecond, median_read_us: one.medianReadUs, p99_read_us: one.p99ReadUs };
  const told = <T extends { readonly measured: string }>({ entry, fresh }: Found<T>) => ({
    measured: entry.measured,
    fresh,
  });
  const rates = compute?.entry.layouts ?? {};
  const layouts = Object.fromEntries(
    [...work.keys()]
      .filter(layout => layout in rates)
      .map(layout => {
        const { streamedBytesPerSecond, macsPerSecond, batchedMacsPerSecond } = rates[layout];
        return [
          layout,
          {
            streamed_bytes_per_second: streamedBytesPerSecond,
            macs_per_second: macsPerSecond,
            batched_macs_per_second: batchedMacsPerSecond,
          },
        ];
      }),
  );
  return {
    disk: disk && {
      direct: speed(disk.entry.direct),
      buffered: speed(disk.entry.buffered),
      record_bytes: disk.entry.recordBytes,
      depth: disk.entry.depth,
      ...told(disk),
    },
    memory: compute && { bytes_per_second: compute.entry.memoryBytesPerSecond, ...told(compute) },
    compute: compute && { job_us: compute.entry.jobUs, layouts, ...told(compute) },
  };
}

function rangeOf(slow: TokenTime | null, fast: TokenTime | null) {
  return slow && fast && { low: 1 / slow.serial, high: 1 / fast.overlap };
}

function predictionPart(
  traffic: Traffic,
  shape: Shape,
  speeds: Speeds,
  hits: HitRates,
  { slotCount, summary }: PlannedModel,
  promptTokens: number,
): NonNullable<PlanFile['prediction']> {
  const likely = tokenTime(traffic, shape, speeds, hits.likely);
  const slow = tokenTime(traffic, shape, speeds, hits.low);
  const fast = tokenTime(traffic, shape, speeds, hits.high);
  // a whole prompt asks for nearly all experts, so what does not fit whole is read again
  const keptShare = slotCount >= shape.moeLayers * shape.experts ? 1 : 0;
  const prompt = promptTime(traffic, shape, speeds, { tokens: promptTokens, chunk: summary.chunkTokens, keptShare });
  const { disk, memory, compute, latency } = likely;
  return {
    decode_tokens_per_second: rangeOf(slow, fast)!,
    decode_likely_tokens_per_second: 2 / (likely.serial + likely.overlap),
    limited_by: limitOf(likely),
    seconds_per_token: { disk, memory, compute, latency },
    prefill_tokens_per_second: promptTokens / prompt.seconds,
    prompt_tokens: promptTokens,
    prompt_seconds: prompt.seconds,
    prefill_limited_by: prompt.disk > prompt.compute ? 'disk' : 'compute',
  };
}

function concurrencyPart(
  files: ModelFiles,
  options: EngineOptions,
  { summary, settings, overhead }: PlannedModel,
): PlanFile['concurrency'] {
  const slotsWith = (slots: number): number => {
    try {
      // a budget that is worked out anew each time would not be the same one
      return planModel(files, { ...options, plan: undefined, ram: summary.budget, slots }).slotCount;
    } catch (error) {
      if (error instanceof PlanError) return 0;
      throw error;
    }
  };
  const now = slotsWith(settings.slots);
  return {
    bytes_per_session: Math.ceil((summary.kv + overhead.requests) / settings.slots),
    sessions_that_fit: largest(settings.slots, slots => slotsWith(slots) > 0),
    sessions_without_losing_slots: largest(settings.slots, slots => slotsWith(slots) >= now),
  };
}

/** The largest number of sessions of which something holds, known to hold for `from`. */
function largest(from: number, holds: (slots: number) => boolean): number {
  let low = from;
  let high = MAX_SLOTS + 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (holds(middle)) low = middle;
    else high = middle;
  }
  return low;
}
