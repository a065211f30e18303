/** The engine's side of the lanes: gathers commands into a job, runs it on every lane, waits for all of them. */

import { Worker } from 'node:worker_threads';
import { InternalError } from '../common/errors.ts';
import { threadLives } from '../common/os-thread.ts';
import { workerUrl } from '../common/worker-url.ts';
import type { OpCode, RunCommand } from '../kernels/commands.ts';
import type { Kernels } from '../kernels/kernels.ts';
import { runnerFor, type SelectedKernels } from '../kernels/select.ts';
import {
  ARENA,
  ARGS,
  ARRIVED,
  CHUNKS,
  COMMANDS,
  type Control,
  commandBase,
  createControl,
  ENGINE_PARKED,
  FAILED,
  GENERATION,
  GRAIN,
  ITEMS,
  MAX_COMMANDS,
  NEXT_CHUNK,
  OP,
  PARKED,
  STOP,
  viewControl,
  waitWhile,
} from './control.ts';
import { workOnJob } from './job.ts';
import type { LaneData, LaneReady } from './lane.ts';

/**
 * Multiply-adds of a chunk worth handing out: about 15 µs. Less is not worth the meeting at the end of a job, which costs much
 * more when another program holds a processor; and every chunk begins with weights that nobody has prefetched.
 */
const MIN_CHUNK_COST = 1048576;
/** More chunks than lanes, so that a lane that is late does not hold up the others. */
const CHUNKS_PER_LANE = 4;
/** Heap of a lane: kernels and control views only. */
const LANE_LIMITS = { maxOldGenerationSizeMb: 32, maxYoungGenerationSizeMb: 2, codeRangeSizeMb: 16 };

export class Lanes {
  /** How many lanes there are, the engine's own included. */
  readonly count: number;
  /** One kernel instance per arena, for what the engine does alone. */
  readonly kernels: Kernels[] = [];
  /** One per arena, for the engine's own share of jobs. */
  readonly runners: RunCommand[] = [];
  /** Tests lower it, so that models of a few kilobytes use all lanes. */
  minChunkCost = MIN_CHUNK_COST;
  /** Views of the control block, for arguments that are not addresses. */
  readonly control: Control;
  readonly #buffer = createControl();
  readonly #workers: Worker[] = [];
  /** The system's thread id of each lane but the engine's own. */
  readonly #threads: number[] = [];
  #commands = 0;
  #chunks = 0;

  constructor(count: number) {
    this.count = count;
    this.control = viewControl(this.#buffer);
  }

  async start(memories: WebAssembly.Memory[], selected: SelectedKernels): Promise<void> {
    for (const memory of memories) {
      const kernels = selected.factory(memory);
      this.kernels.push(kernels);
      this.runners.push(runnerFor(kernels, memory, this.control));
    }
    const ready: Promise<void>[] = [];
    for (let lane = 1; lane < this.count; lane++) {
      const { name: kernels, module } = selected;
      const workerData: LaneData = { lane, control: this.#buffer, memories, kernels, module };
      const worker = new Worker(workerUrl('lane', import.meta.url), {
        name: `lane ${lane}`,
        workerData,
        execArgv: [],
        resourceLimits: LANE_LIMITS,
      });
      ready.push(
        new Promise((resolve, reject) => {
          worker.once('message', (ready: LaneReady) => {
            this.#threads[lane] = ready.thread;
            resolve();
          });
          worker.once('error', reject);
        }),
      );
      this.#workers.push(worker);
    }
    await Promise.all(ready);
  }

  async close(): Promise<void> {
    const { words } = this.control;
    Atomics.store(words, STOP, 1);
    Atomics.add(words, GENERATION, 1);
    Atomics.notify(words, GENERATION);
    await Promise.all(this.#workers.map(worker => worker.terminate()));
  }

  /** Starts a command of `items` items that cost about `cost` multiply-adds each; returns its argument position. */
  command(op: OpCode, arena: number, items: number, cost: number): number {
    if (this.#commands === MAX_COMMANDS) throw new InternalError('JOB_TOO_LARGE', `more than ${MAX_COMMANDS} commands`);
    const { words } = this.control;
    const base = commandBase(this.#commands++);
    const byCost = Math.ceil(this.minChunkCost / Math.max(1, cost));
    const byLanes = Math.ceil(items / (this.count * CHUNKS_PER_LANE));
    const grain = this.count === 1 ? Math.max(1, items) : Math.max(1, byCost, byLanes);
    const chunks = Math.max(1, Math.ceil(items / grain));
    words[base + OP] = op;
    words[base + ARENA] = arena;
    words[base + ITEMS] = items;
    words[base + GRAIN] = grain;
    words[base + CHUNKS] = chunks;
    this.#chunks += chunks;
    return base + ARGS;
  }

  /** Runs the gathered commands on all lanes and returns when all are done. After an error no command is left over. */
  run(): void {
    if (this.#commands === 0) return;
    try {
      if (this.count === 1 || this.#chunks === 1) this.#runAlone();
      else this.#runTogether();
    } finally {
      this.#commands = 0;
      this.#chunks = 0;
    }
  }

  #runTogether(): void {
    const { words } = this.control;
    words[COMMANDS] = this.#commands;
    Atomics.store(words, FAILED, 0);
    Atomics.store(words, NEXT_CHUNK, 0);
    Atomics.store(words, ARRIVED, 0);
    Atomics.add(words, GENERATION, 1);
    if (Atomics.load(words, PARKED) > 0) Atomics.notify(words, GENERATION);
    try {
      workOnJob(this.control, this.runners, 0);
    } finally {
      // the others still read the commands and write the results
      this.#meet();
    }
  }

  #runAlone(): void {
    const { words } = this.control;
    for (let i = 0; i < this.#commands; i++) {
      const base = commandBase(i);
      this.runners[words[base + ARENA]](words[base + OP], base + ARGS, 0, 0, words[base + ITEMS]);
    }
  }

  #meet(): void {
    const { words } = this.control;
    let arrived = Atomics.load(words, ARRIVED);
    while (arrived < this.count - 1) arrived = waitWhile(words, ARRIVED, arrived, ENGINE_PARKED, this.#check);
    const failed = Atomics.load(words, FAILED);
    if (failed !== 0) throw new InternalError('LANE_FAILED', `compute lane ${failed} failed; see the message above`);
  }

  /** A lane that has died (out of memory, say) never arrives. */
  readonly #check = (): void => {
    const lane = this.#threads.findIndex(thread => thread !== undefined && !threadLives(thread));
    if (lane > 0) throw new InternalError('LANE_DIED', `compute lane ${lane} ended`, { details: { lane } });
  };
}
