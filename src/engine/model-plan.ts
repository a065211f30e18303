/** From a model and the user's wishes to a plan: settings with defaults, and everything reserved but not yet allocated. */

import { join } from 'node:path';
import { PlanError, RequestError } from '../common/errors.ts';
import { Arenas, MAX_ARENA_BYTES } from '../compute/arenas.ts';
import { Compute } from '../compute/compute.ts';
import { ExpertStore } from '../experts/store.ts';
import type { Checkpoint } from '../formats/checkpoint-types.ts';
import { statOf } from '../formats/files.ts';
import { grammarWorkerBytes } from '../grammar/memory.ts';
import { ATTENTION_SCRATCH, DELTA_SCRATCH, SELECT_SCRATCH } from '../kernels/kernels.ts';
import { Batch } from '../layers/batch.ts';
import { blockBytesOf, SessionMemory } from '../layers/session-memory.ts';
import type { Model, ModelShape } from '../models/family.ts';
import { isVector } from '../models/family.ts';
import type { ModelRecords } from '../models/records.ts';
import { telemetryBytes } from '../telemetry/memory.ts';
import type { EngineOptions, KvEncoding } from './api.ts';
import { DEFAULT_KV_DIR_BYTES, kvFilesMemoryBytes } from './kv-files.ts';
import { automaticBudget, MAX_THREADS, memoryFacts, physicalCores } from './machine.ts';
import type { ModelFiles } from './model-files.ts';
import { affordableLanes, type OverheadTerms, overheadTerms, stripperBytes, stripsTypes, sumOf } from './overhead.ts';
import { makePlan, type Planned } from './plan.ts';
import { checkPlan, checkPlanModel, firstStartSurplus, planBy } from './plan-options.ts';
import { routingBytes } from './routing.ts';
import { Weights } from './weights.ts';

const DEFAULT_CONTEXT = 4096;
/** Results of scores that are there at the same time: the one that is looked at, and one that is not collected yet. */
const SCORES_HELD = 2;
export const DEFAULT_READERS = 4;
/** A machine that keeps more conversations going needs another program; each costs the memory of its whole context. */
export const MAX_SLOTS = 64;

export interface BuiltModel {
  readonly arenas: Arenas;
  readonly compute: Compute;
  readonly store: ExpertStore;
  readonly weights: Weights;
  readonly model: Model;
  readonly batch: Batch;
  readonly staging: { arena: number; offset: number; bytesPerReader: number } | null;
}

/** Settings with every default filled in. */
export interface Settings {
  readonly budget: { readonly bytes: number; readonly source: string };
  readonly context: number;
  readonly lanes: number;
  readonly readers: number;
  /** Sessions. */
  readonly slots: number;
  readonly kv: KvEncoding;
  readonly exact: boolean;
  readonly arenaBytes: number;
}

/** Fills in defaults. Throws RequestError for a context or a number of threads that cannot be. */
function settle(options: EngineOptions, shape: ModelShape, arenaBytes = MAX_ARENA_BYTES): Settings {
  const context = options.context ?? Math.min(shape.maxContext, DEFAULT_CONTEXT);
  if (!Number.isInteger(context) || context < 1 || context > shape.maxContext) {
    throw new RequestError('BAD_CONTEXT', `a context of ${context} tokens; this model takes 1 to ${shape.maxContext}`, {
      hint: `use --ctx ${shape.maxContext} or less`,
      details: { context, maxContext: shape.maxContext },
    });
  }
  const ram = options.ram ?? 'auto';
  const given = ram === 'auto' ? automaticBudget(memoryFacts()) : { bytes: ram, source: 'given with --ram' };
  const lanes = options.threads ?? affordableLanes(physicalCores(), given.bytes);
  if (!Number.isInteger(lanes) || lanes < 1 || lanes > MAX_THREADS) {
    throw new RequestError('BAD_THREADS', `${lanes} threads; possible are 1 to ${MAX_THREADS}`, {
      hint: 'leave --threads out for one on each physical core',
      details: { lanes },
    });
  }
  const slots = options.slots ?? 1;
  if (!Number.isInteger(slots) || slots < 1 || slots > MAX_SLOTS) {
    throw new RequestError('BAD_SLOTS', `${slots} slots; possible are 1 to ${MAX_SLOTS}`, {
      hint: 'give the number of requests that are to be answered at the same time',
      details: { slots },
    });
  }
  const readers = options.readers ?? DEFAULT_READERS;
  return {
    budget: budgetOf(options, given, stripperBytes({ lanes, readers, strips: stripsTypes() })),
    context,
    lanes,
    slots,
    kv: options.kv ?? 'f32',
    readers,
    exact: options.activations === 'exact',
    arenaBytes,
  };
}

/** A plan's budget is obeyed; but what only a first start from source needs may come on top. */
function budgetOf({ plan }: EngineOptions, given: Settings['budget'], firstStartBytes: number): Settings['budget'] {
  if (typeof plan !== 'object') return given;
  return { bytes: given.bytes + firstStartSurplus(plan, firstStartBytes), source: `the plan of ${plan.created}` };
}

/** What the options ask for besides. */
export interface AllOverhead extends OverheadTerms {
  readonly telemetry: number;
  readonly server: number;
  /** Logits that scores return. */
  readonly scores: number;
  readonly constraints: number;
  readonly savedKv: number;
}

export interface PlannedModel extends Planned<BuiltModel> {
  readonly settings: Settings;
  /** The terms of `summary.overhead`. */
  readonly overhead: AllOverhead;
}

/**
 * Plans without allocating anything. Lanes that nobody asked for are given up before a budget is refused, so the smallest
 * budget is that of one lane. With a plan in the options (see withPlan) that is checked too. Throws PlanError when the budget cannot
 * hold the model.
 */
export function planModel(files: ModelFiles, options: EngineOptions, arenaBytes?: number): PlannedModel {
  const plan = typeof options.plan === 'object' ? options.plan : null;
  if (plan) checkPlanModel(plan, files);
  const make = () => planAffordable(files, options, arenaBytes);
  if (!plan) return make();
  const planned = planBy(plan, (options.reserveBytes ?? 0) > 0, make);
  checkPlan(plan, planned);
  return planned;
}

function planAffordable(files: ModelFiles, options: EngineOptions, arenaBytes?: number): PlannedModel {
  const settings = settle(options, files.shape, arenaBytes);
  if (options.threads !== undefined) return { settings, ...planWith(files, options, settings) };
  const single = { ...settings, lanes: 1 };
  const least = planWith(files, options, single);
  try {
    const planned = planWith(files, options, settings);
    const summary = { ...planned.summary, smallestBudget: least.summary.smallestBudget };
    return { settings, ...planned, summary };
  } catch (error) {
    if (!(error instanceof PlanError && error.code === 'RAM_TOO_SMALL')) throw error;
    return { settings: single, ...least };
  }
}

function planWith(files: ModelFiles, options: EngineOptions, settings: Settings): Omit<PlannedModel, 'settings'> {
  const { shape, records, table, checkpoint } = files;
  const firsts = records.firstExpert.filter(first => first >= 0);
  const experts = firsts.length * shape.experts;
  let slotBytes = 0;
  for (const first of firsts) {
    for (let e = 0; e < shape.experts; e++) slotBytes = Math.max(slotBytes, table.placedBytes(first + e));
  }
  const { lanes, readers } = settings;
  const overhead: AllOverhead = {
    ...overheadTerms({
      lanes,
      readers,
      tokenizerBytes: tokenizerBytes(checkpoint),
      tensors: checkpoint.tensors.size,
      experts,
      expertParts: experts * records.records[firsts[0]].parts.length,
      routingBytes: routingBytes({ layers: firsts.length, experts: shape.experts, topK: shape.topK }),
      context: settings.context,
      slots: settings.slots,
      vocabSize: shape.vocabSize,
      strips: stripsTypes(),
    }),
    telemetry: telemetryBytes(shape, settings.slots),
    server: options.reserveBytes ?? 0,
    scores: (options.scoredTokens ?? 0) * shape.vocabSize * 4 * SCORES_HELD,
    constraints: options.constraints ? grammarWorkerBytes(shape.vocabSize) : 0,
    savedKv: savedKvBytes(options, files),
  };
  const planned = makePlan(
    {
      budgetBytes: settings.budget.bytes,
      budgetSource: settings.budget.source,
      overhead: sumOf(overhead),
      firstStartBytes: overhead.firstStart,
      slotBytes,
      minSlots: shape.topK,
      maxSlots: experts,
      expertSlots: options.expertSlots,
      expertShare: options.expertShare ?? 1,
      chunk: options.chunk,
      context: settings.context,
      slots: settings.slots,
      lanes,
    },
    chunk => buildModel(files, settings, chunk),
  );
  return { ...planned, overhead };
}

function tokenizerBytes({ directory, gguf }: Checkpoint): number {
  return statOf(join(directory, 'tokenizer.json'))?.size ?? gguf?.tokenizerBytes ?? 0;
}

/** Memory for writing and finding saved keys and values. */
function savedKvBytes(
  { kvDir, kvDirBytes: maxBytes = DEFAULT_KV_DIR_BYTES, kv }: EngineOptions,
  { family, config, parts }: ModelFiles,
): number {
  if (kvDir === undefined) return 0;
  const blockBytes = blockBytesOf(family.states(config, parts), kv ?? 'f32');
  return kvFilesMemoryBytes({ blockBytes, maxBytes });
}

/** Floats of the widest row that a lane may have to decode. */
function widestRow({ records }: ModelRecords): number {
  return records.reduce((most, { parts }) => parts.reduce((max, part) => Math.max(max, part.columns), most), 0);
}

/** Reserves everything but the slots, in an order that keeps what must be in arena 0 ahead of what may fill it. */
function buildModel(files: ModelFiles, settings: Settings, maxRows: number): BuiltModel {
  const { shape, family, config, parts, records, table } = files;
  const { context, lanes, readers, slots, kv, exact } = settings;
  const arenas = new Arenas(settings.arenaBytes);
  const scratchFloats = Math.max(context * ATTENTION_SCRATCH, SELECT_SCRATCH, DELTA_SCRATCH, widestRow(records));
  const compute = new Compute(arenas, { lanes, exact, scratchFloats });
  const memory = { context, sessions: slots, encoding: kv, maxRows };
  const cache = new SessionMemory(arenas, family.states(config, parts), memory);
  const batch = new Batch(arenas, cache, maxRows);
  const vectors = files.tensors.dense.filter(isVector).map(tensor => tensor.name);
  const weights = new Weights(arenas, records, table, vectors);
  const store = new ExpertStore({
    experts: shape.experts,
    firstRecord: records.firstExpert,
    records: records.records,
  });
  const staging =
    table.stagingBytes === 0
      ? null
      : { ...arenas.place(table.stagingBytes * readers, 'scratch'), bytesPerReader: table.stagingBytes };
  const model = family.build(config, { compute, weights, experts: store, maxRows, context, ...parts });
  cache.placeBlocks();
  return { arenas, compute, store, weights, model, batch, staging };
}
