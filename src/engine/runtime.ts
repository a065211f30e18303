/** Everything that computes: a model placed in arenas, lanes, readers and the expert store, built after a plan. */

import { statSync } from 'node:fs';
import { join } from 'node:path';
import { ConfigError, RequestError } from '../common/errors.ts';
import { Arenas, MAX_ARENA_BYTES, type Place } from '../compute/arenas.ts';
import { Compute } from '../compute/compute.ts';
import { ExpertStore } from '../experts/store.ts';
import { assertUnchanged, openCheckpoint } from '../formats/checkpoint.ts';
import type { Checkpoint } from '../formats/checkpoint-types.ts';
import { selectKernels } from '../kernels/select.ts';
import { Batch } from '../layers/batch.ts';
import { KvCache } from '../layers/kv-cache.ts';
import { eosField } from '../models/config.ts';
import type { Family, Model, ModelShape, TensorTable } from '../models/family.ts';
import { type ModelRecords, resolveRecords } from '../models/records.ts';
import { familyOf } from '../models/registry.ts';
import { encodingTable } from '../quant/resolve.ts';
import type { FaultPlan } from '../storage/faults.ts';
import { ReadPool } from '../storage/read-pool.ts';
import { RecordTable } from '../storage/record-table.ts';
import type { EngineInfo, EngineOptions, OpenProgress } from './api.ts';
import { automaticBudget, memoryFacts, physicalCores } from './machine.ts';
import { affordableLanes, overheadBytes, stripsTypes } from './overhead.ts';
import { makePlan, type Planned } from './plan.ts';
import { Weights } from './weights.ts';

const DEFAULT_CONTEXT = 4096;
const DEFAULT_READERS = 4;
/** More lanes than this only wait for memory on any machine measured so far. */
const MAX_THREADS = 256;

/** Hooks for tests: small arenas, injected read faults. */
export interface RuntimeHooks {
  readonly arenaBytes?: number;
  readonly faults?: FaultPlan;
}

/** What a model directory is, before anything is decided or allocated. */
export interface ModelFiles {
  readonly checkpoint: Checkpoint;
  readonly family: Family;
  readonly config: unknown;
  readonly shape: ModelShape;
  readonly tensors: TensorTable;
  readonly records: ModelRecords;
  readonly table: RecordTable;
  /** Stop ids of generation_config.json. */
  readonly generationEosIds: readonly number[];
}

export function readModel(directory: string, arenaBytes: number = MAX_ARENA_BYTES): ModelFiles {
  const checkpoint = openCheckpoint(directory);
  const family = familyOf(checkpoint.config);
  const config = family.parseConfig(checkpoint.config);
  const shape = family.shape(config);
  const tensors = family.tensors(config);
  // a quarter: large matrices then pack well into arenas
  const records = resolveRecords(checkpoint, tensors, shape, Math.floor(arenaBytes / 4));
  const table = RecordTable.build(records.records, checkpoint.files);
  const generationEosIds = readGenerationEos(checkpoint);
  return { checkpoint, family, config, shape, tensors, records, table, generationEosIds };
}

function readGenerationEos({ generationConfig, directory }: Checkpoint): readonly number[] {
  const parsed = eosField.safeParse(generationConfig?.eos_token_id);
  if (parsed.success) return parsed.data;
  throw new ConfigError(
    'BAD_CONFIG',
    `${directory}/generation_config.json: eos_token_id is not an id or a list of ids`,
    {
      hint: 'correct or remove the field',
      details: { path: 'eos_token_id' },
    },
  );
}

interface BuiltModel {
  readonly arenas: Arenas;
  readonly compute: Compute;
  readonly store: ExpertStore;
  readonly weights: Weights;
  readonly model: Model;
  readonly batch: Batch;
  readonly cache: KvCache;
  readonly staging: { arena: number; offset: number; bytesPerReader: number } | null;
}

/** Settings with every default filled in. */
interface Settings {
  readonly budget: { readonly bytes: number; readonly source: string };
  readonly context: number;
  readonly lanes: number;
  readonly readers: number;
  readonly exact: boolean;
  readonly arenaBytes: number;
}

export class Runtime {
  readonly files: ModelFiles;
  readonly model: Model;
  readonly batch: Batch;
  readonly cache: KvCache;
  readonly store: ExpertStore;
  readonly compute: Compute;
  readonly info: EngineInfo;
  /** Ids that end a generation by config.json and generation_config.json. */
  readonly eosIds: readonly number[];
  readonly #pool: ReadPool;
  /** The request that runs now may be told to stop through this. */
  cancelled: () => boolean = () => false;

  private constructor(files: ModelFiles, built: BuiltModel, pool: ReadPool, info: EngineInfo) {
    this.files = files;
    this.model = built.model;
    this.batch = built.batch;
    this.cache = built.cache;
    this.store = built.store;
    this.compute = built.compute;
    this.info = info;
    this.eosIds = [...files.family.eosIds(files.config), ...files.generationEosIds];
    this.#pool = pool;
  }

  /** Reads headers unless the caller has, plans, allocates, starts the threads and loads the resident weights. */
  static async open(
    options: EngineOptions,
    onProgress: (progress: OpenProgress) => void = () => {},
    hooks: RuntimeHooks = {},
    files: ModelFiles = readModel(options.model, hooks.arenaBytes),
  ): Promise<Runtime> {
    const settings = settle(options, files.shape, hooks);
    const planned = planModel(files, options, settings);
    const { built, summary } = planned;
    const selected = selectKernels(options.kernels ?? 'auto');
    const slots = placeSlots(built.arenas, planned.slotCount, summary.slotBytes);
    built.arenas.commit();
    const pool = await ReadPool.open({
      files: files.checkpoint.files,
      table: files.table,
      arenas: built.arenas.memories,
      readers: settings.readers,
      io: 'auto',
      staging: built.staging,
      verify: options.verify ?? false,
      faults: hooks.faults,
    });
    try {
      await built.compute.start(selected);
      built.weights.load(pool, (doneBytes, totalBytes) => onProgress({ phase: 'load', doneBytes, totalBytes }));
      // the headers that say where everything lies were read before
      assertUnchanged(files.checkpoint.files);
    } catch (error) {
      await Promise.all([pool.close(), built.compute.close()]);
      throw error;
    }
    const info = describe(files, options, settings, planned, {
      kernels: selected.name,
      kernelNote: selected.note,
      directIo: pool.directIo,
      ioNote: pool.note,
    });
    const runtime = new Runtime(files, built, pool, info);
    built.store.open({ pool, table: files.table, slots, cancelled: () => runtime.cancelled() });
    return runtime;
  }

  async close(): Promise<void> {
    await Promise.all([this.#pool.close(), this.compute.close()]);
  }
}

/** The plan of a model under given options, without allocating anything: what `info` prints. */
export function previewPlan(files: ModelFiles, options: EngineOptions): Planned<BuiltModel> {
  return planModel(files, options, settle(options, files.shape, {}));
}

function settle(options: EngineOptions, shape: ModelShape, hooks: RuntimeHooks): Settings {
  const context = options.context ?? Math.min(shape.maxContext, DEFAULT_CONTEXT);
  if (!Number.isInteger(context) || context < 1 || context > shape.maxContext) {
    throw new RequestError('BAD_CONTEXT', `a context of ${context} tokens; this model takes 1 to ${shape.maxContext}`, {
      hint: `use --ctx ${shape.maxContext} or less`,
      details: { context, maxContext: shape.maxContext },
    });
  }
  const ram = options.ram ?? 'auto';
  const budget = ram === 'auto' ? automaticBudget(memoryFacts()) : { bytes: ram, source: 'given with --ram' };
  const lanes = options.threads ?? affordableLanes(physicalCores(), budget.bytes);
  if (!Number.isInteger(lanes) || lanes < 1 || lanes > MAX_THREADS) {
    throw new RequestError('BAD_THREADS', `${lanes} threads; possible are 1 to ${MAX_THREADS}`, { details: { lanes } });
  }
  return {
    budget,
    context,
    lanes,
    readers: options.readers ?? DEFAULT_READERS,
    exact: options.activations === 'exact',
    arenaBytes: hooks.arenaBytes ?? MAX_ARENA_BYTES,
  };
}

function planModel(files: ModelFiles, options: EngineOptions, settings: Settings): Planned<BuiltModel> {
  const { shape, records, table, checkpoint } = files;
  const firsts = records.firstExpert.filter(first => first >= 0);
  let slotBytes = 0;
  for (const first of firsts) {
    for (let e = 0; e < shape.experts; e++) slotBytes = Math.max(slotBytes, table.placedBytes(first + e));
  }
  const overhead = overheadBytes({
    lanes: settings.lanes,
    readers: settings.readers,
    tokenizerBytes: statSync(join(checkpoint.directory, 'tokenizer.json'), { throwIfNoEntry: false })?.size ?? 0,
    tensors: checkpoint.tensors.size,
    records: checkpoint.container?.experts.size ?? 0,
    context: settings.context,
    vocabSize: shape.vocabSize,
    strips: stripsTypes(),
  });
  return makePlan(
    {
      budgetBytes: settings.budget.bytes,
      budgetSource: settings.budget.source,
      overhead,
      slotBytes,
      minSlots: shape.topK,
      maxSlots: firsts.length * shape.experts,
      expertSlots: options.expertSlots,
      chunk: options.chunk,
      context: settings.context,
    },
    chunk => buildModel(files, settings, chunk),
  );
}

/** Reserves everything but the slots, in an order that keeps what must be in arena 0 ahead of what may fill it. */
function buildModel(files: ModelFiles, settings: Settings, maxRows: number): BuiltModel {
  const { shape, family, config, records, table } = files;
  const { context, lanes, readers, exact } = settings;
  const arenas = new Arenas(settings.arenaBytes);
  const widest = Math.max(shape.hiddenSize, shape.expertWidth, shape.heads * shape.headDim);
  const compute = new Compute(arenas, { lanes, exact, scratchFloats: Math.max(context, widest) });
  const batch = new Batch(arenas, maxRows);
  const vectors = files.tensors.dense.filter(tensor => tensor.role === 'norm').map(tensor => tensor.name);
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
  const columns = shape.kvHeads * shape.headDim;
  const cache = new KvCache(arenas, { layers: shape.layers, columns, context, maxRows });
  const model = family.build(config, { compute, weights, experts: store, maxRows, context });
  cache.placeBlocks();
  return { arenas, compute, store, weights, model, batch, cache, staging };
}

function placeSlots(arenas: Arenas, count: number, slotBytes: number): Place[] {
  return Array.from({ length: count }, () => arenas.place(slotBytes, 'slots'));
}

interface Chosen {
  readonly kernels: EngineInfo['kernels'];
  readonly kernelNote: string | null;
  readonly directIo: boolean;
  readonly ioNote: string | null;
}

function describe(
  files: ModelFiles,
  options: EngineOptions,
  settings: Settings,
  planned: Planned<BuiltModel>,
  chosen: Chosen,
): EngineInfo {
  const { checkpoint, family, shape, records } = files;
  const notes = [...planned.notes, chosen.kernelNote, chosen.ioNote].filter(note => note !== null);
  return {
    directory: checkpoint.directory,
    family: family.modelType,
    layers: shape.layers,
    hiddenSize: shape.hiddenSize,
    experts: shape.experts,
    topK: shape.topK,
    vocabSize: shape.vocabSize,
    maxContext: shape.maxContext,
    context: settings.context,
    parameters: shape.parameters,
    bytesOnDisk: checkpoint.bytesOnDisk,
    encodings: encodingTable(records.records),
    kernels: chosen.kernels,
    kernelNote: chosen.kernelNote,
    activations: options.activations ?? 'int8',
    threads: settings.lanes,
    readers: settings.readers,
    directIo: chosen.directIo,
    plan: planned.summary,
    notes,
  };
}
