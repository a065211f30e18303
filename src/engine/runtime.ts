/** Everything that computes: a model placed in arenas, lanes, readers and the expert store, built after a plan. */

import type { Arenas, Place } from '../compute/arenas.ts';
import type { Compute } from '../compute/compute.ts';
import { chosenPolicy, makePolicy, type PolicyName } from '../experts/policies/policies.ts';
import type { ExpertStore, LeaseObserver } from '../experts/store.ts';
import { assertUnchanged } from '../formats/checkpoint.ts';
import { selectKernels } from '../kernels/select.ts';
import type { Batch } from '../layers/batch.ts';
import type { Model } from '../models/family.ts';
import type { FaultPlan } from '../storage/faults.ts';
import { ReadPool } from '../storage/read-pool.ts';
import { requireHashes } from '../storage/record-table.ts';
import type { Recorder } from '../telemetry/recorder.ts';
import type { SpeedLimits } from '../telemetry/speed.ts';
import type { EngineInfo, EngineOptions, OpenProgress } from './api.ts';
import { describe } from './describe.ts';
import { divideReads, mirrorOptions } from './mirrors.ts';
import { type ModelFiles, readModel } from './model-files.ts';
import { type BuiltModel, planModel } from './model-plan.ts';
import { withPlan } from './plan-options.ts';
import type { Session } from './session.ts';
import { measureLimits } from './speed-limits.ts';
import { recordTelemetry } from './telemetry.ts';

/** Observers of leases; and for tests small arenas and injected read faults. */
export interface RuntimeHooks {
  readonly arenaBytes?: number;
  readonly faults?: FaultPlan;
  readonly observers?: readonly LeaseObserver[];
  /** Lines worth telling that come up after the engine has been described. */
  readonly onNote?: (line: string) => void;
  /** The policy for so many slots; default: that of the options. */
  readonly policy?: (slots: number) => PolicyName;
}

export class Runtime {
  readonly files: ModelFiles;
  readonly model: Model;
  readonly batch: Batch;
  readonly store: ExpertStore;
  readonly compute: Compute;
  readonly info: EngineInfo;
  readonly telemetry: Recorder;
  /** Ids that end a generation by config.json and generation_config.json. */
  readonly eosIds: readonly number[];
  readonly #pool: ReadPool;
  /** The request that runs now may be told to stop through this. */
  cancelled: () => boolean = () => false;
  /** Called after every forward pass, also one that failed. */
  passDone: () => void = () => {};

  private constructor(files: ModelFiles, built: BuiltModel, pool: ReadPool, info: EngineInfo) {
    this.files = files;
    this.model = built.model;
    this.batch = built.batch;
    this.store = built.store;
    this.compute = built.compute;
    this.info = info;
    this.telemetry = recordTelemetry(files.shape, built, pool);
    this.eosIds = [...files.family.eosIds(files.config), ...files.generationEosIds];
    this.#pool = pool;
  }

  /** Reads headers unless the caller has, plans, allocates, starts the threads and loads the resident weights. */
  static async open(
    wanted: EngineOptions,
    onProgress: (progress: OpenProgress) => void = () => {},
    hooks: RuntimeHooks = {},
    files: ModelFiles = readModel(wanted, hooks.arenaBytes),
  ): Promise<Runtime> {
    const options = withPlan(wanted);
    if (options.verify) requireHashes(files.table, files.checkpoint.directory);
    const planned = planModel(files, options, hooks.arenaBytes);
    const { built, summary, settings } = planned;
    const selected = selectKernels(options.kernels ?? 'auto');
    const slots = placeSlots(built.arenas, planned.slotCount, summary.slotBytes);
    built.arenas.commit();
    const lost: string[] = [];
    let runtime: Runtime | null = null;
    const onLoss = (line: string, drive: number): void => {
      runtime?.telemetry.note('mirror', drive);
      if (runtime) hooks.onNote?.(line);
      else lost.push(line);
    };
    const mirrors = mirrorOptions(options, files, onLoss);
    const pool = await ReadPool.open({
      files: files.checkpoint.files,
      table: files.table,
      arenas: built.arenas.memories,
      readers: settings.readers,
      io: options.io ?? 'auto',
      staging: built.staging,
      verify: options.verify ?? false,
      faults: hooks.faults,
      mirrors,
    });
    const divided: string[] = [];
    try {
      await built.compute.start(selected);
      if (mirrors) divided.push(...divideReads(pool, files, options, slots));
      built.weights.load(pool, (doneBytes, totalBytes) => onProgress({ phase: 'load', doneBytes, totalBytes }));
      // the headers that say where everything lies were read before
      assertUnchanged(files.checkpoint.files);
    } catch (error) {
      await Promise.all([pool.close(), built.compute.close()]);
      throw error;
    }
    const info = describe(files, options, planned, {
      kernels: selected.name,
      kernelNote: selected.note,
      kernelWarning: selected.warning,
      directIo: pool.directIo,
      ioNote: pool.note,
    });
    info.notes.push(...divided, ...lost);
    runtime = new Runtime(files, built, pool, info);
    const { prefetch = 'auto' } = options;
    const policy = hooks.policy?.(slots.length) ?? chosenPolicy(options.policy);
    info.policy = policy;
    const observers = [runtime.telemetry, ...(hooks.observers ?? [])];
    built.store.open({
      pool,
      table: files.table,
      slots,
      cancelled: () => runtime.cancelled(),
      prefetch,
      policy: makePolicy(policy),
      observers,
    });
    return runtime;
  }

  /** See speed-limits.ts; to be called while no request runs. */
  measureLimits(session: Session | null): SpeedLimits {
    return measureLimits(this, session, this.#pool);
  }

  /** Weights may come from copies, whose bytes need not be the model's. */
  get readsMirrors(): boolean {
    return this.#pool.drives.mirrors.some(({ files }) => files > 0);
  }

  async close(): Promise<void> {
    await Promise.all([this.#pool.close(), this.compute.close()]);
  }
}

function placeSlots(arenas: Arenas, count: number, slotBytes: number): Place[] {
  return Array.from({ length: count }, () => arenas.place(slotBytes, 'slots'));
}
