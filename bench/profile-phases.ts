/**
 * Puts a clock around the parts of a running engine. The engine has no code for this: methods of its objects are replaced.
 * They are not put back, because an object that lost a property again is slower than before: what is to be measured without
 * the clock comes first.
 */

import { ARENA, ARGS, CHUNKS, ITEMS, OP, PARKED } from '../src/compute/control.ts';
import type { ModelFiles } from '../src/engine/model-files.ts';
import type { Runtime } from '../src/engine/runtime.ts';
import type { Sampler } from '../src/engine/sampler.ts';
import type { Session } from '../src/engine/session.ts';
import { Op, type RunCommand } from '../src/kernels/commands.ts';
import type { Kernels } from '../src/kernels/kernels.ts';
import type { BuildContext, Family } from '../src/models/family.ts';
import { GROUP, LAYOUT_ID, type Layout, layoutBytes } from '../src/quant/layouts.ts';
import {
  AT,
  Clock,
  mean,
  PART_PHASES,
  PHASE_NAMES,
  type Phase,
  phaseOfMatrix,
  phaseOfOperation,
} from './profile-clock.ts';

/** Which phase the weights at an address belong to, as a position in PHASE_NAMES. */
export class WeightPhases {
  readonly #phases = new Map<number, number>();

  set(arena: number, offset: number, phase: Phase): void {
    this.#phases.set(arena * 2 ** 32 + offset, AT[phase]);
  }

  get(arena: number, offset: number): number {
    return this.#phases.get(arena * 2 ** 32 + offset) ?? AT.otherMatrices;
  }
}

/** The same model, whose forward pass tells `phases` where each resident matrix lies when it is built. */
export function tellMatrices(files: ModelFiles, phases: WeightPhases): ModelFiles {
  const roles = new Map(files.tensors.dense.map(({ name, role }) => [name, role]));
  const build = (config: unknown, context: BuildContext) => {
    const { weights } = context;
    const matrix = (name: string) => {
      const found = weights.matrix(name);
      const phase = phaseOfMatrix(roles.get(name) ?? '', name);
      for (const { arena, offset } of found.pieces) phases.set(arena, offset, phase);
      return found;
    };
    return files.family.build(config, { ...context, weights: { vector: name => weights.vector(name), matrix } });
  };
  const family: Family = { ...files.family, build };
  return { ...files, family };
}

export interface Counts {
  /** Jobs that all lanes shared, and those with one chunk or one lane. */
  shared: number;
  alone: number;
  /** Shared jobs that found a lane asleep. */
  woken: number;
  commands: number;
  chunks: number;
  /** Bytes of weights by phase; each command counts its own, however often. */
  weightBytes: Record<Phase, number>;
  keyValueBytes: number;
}

function zeroCounts(): Counts {
  const weightBytes = Object.fromEntries(PHASE_NAMES.map(phase => [phase, 0])) as Record<Phase, number>;
  return { shared: 0, alone: 0, woken: 0, commands: 0, chunks: 0, weightBytes, keyValueBytes: 0 };
}

export function meanCounts(all: readonly Counts[]): Counts {
  const of = (pick: (counts: Counts) => number) => mean(all.map(pick));
  const weightBytes = zeroCounts().weightBytes;
  for (const phase of PHASE_NAMES) weightBytes[phase] = of(counts => counts.weightBytes[phase]);
  return {
    shared: of(counts => counts.shared),
    alone: of(counts => counts.alone),
    woken: of(counts => counts.woken),
    commands: of(counts => counts.commands),
    chunks: of(counts => counts.chunks),
    weightBytes,
    keyValueBytes: of(counts => counts.keyValueBytes),
  };
}

const LAYOUTS = Object.fromEntries(Object.entries(LAYOUT_ID).map(([name, id]) => [id, name])) as Record<number, Layout>;

/** By op code: a position in PHASE_NAMES, null for matrix products. */
const PHASE_OF_OP: (number | null)[] = [];
for (const [name, op] of Object.entries(Op)) {
  const phase = phaseOfOperation(name);
  PHASE_OF_OP[op] = phase === null ? null : AT[phase];
}

function replace<T extends object, K extends keyof T>(object: T, key: K, make: (original: T[K]) => T[K]): void {
  object[key] = make(object[key]);
}

type Method = (...args: never[]) => unknown;

/** Watches `runtime` from now on. */
export class Probe {
  readonly #clock = new Clock();
  #counts = zeroCounts();
  readonly #runtime: Runtime;
  readonly #phases: WeightPhases;
  /** Argument positions of the commands of the coming job. */
  readonly #commands: number[] = [];
  #inHead = false;

  constructor(runtime: Runtime, session: Session, sampler: Sampler, phases: WeightPhases) {
    this.#runtime = runtime;
    this.#phases = phases;
    const { compute, store, batch, model } = runtime;
    const { lanes } = compute;
    this.#time(session, 'feed', 'javascript');
    this.#time(sampler, 'next', 'sampler');
    this.#time(batch, 'remember', 'keyValues');
    this.#time(store, 'next', 'expertWait');
    for (const method of ['begin', 'release', 'end', 'readAhead'] as const) this.#time(store, method, 'expertStore');
    replace(store, 'addressOf', original => (position: number, part: number) => {
      const offset = original.call(store, position, part);
      phases.set(store.arenaOf(position), offset, PART_PHASES[part]);
      return offset;
    });
    replace(lanes, 'command', original => (op, arena, items, cost) => {
      const position = original.call(lanes, op, arena, items, cost);
      this.#commands.push(position);
      return position;
    });
    replace(lanes, 'run', original => () => this.#run(original.bind(lanes)));
    replace(model, 'logits', original => (first: number, n: number) => {
      const outside = this.#clock.switchTo(AT.javascript);
      this.#inHead = true;
      try {
        return original.call(model, first, n);
      } finally {
        this.#inHead = false;
        this.#clock.switchTo(outside);
      }
    });
    for (let arena = 0; arena < lanes.kernels.length; arena++) {
      lanes.kernels[arena] = this.#timedKernels(lanes.kernels[arena]);
      lanes.runners[arena] = this.#timedRunner(lanes.runners[arena], arena);
    }
  }

  /** What happened since the last call. */
  take(): { phases: Record<Phase, number>; counts: Counts } {
    const counts = this.#counts;
    this.#counts = zeroCounts();
    return { phases: this.#clock.take(), counts };
  }

  #time<K extends string>(object: { [key in K]: Method }, key: K, phase: Phase): void {
    const clock = this.#clock;
    const inside = AT[phase];
    replace(object, key, original => (...args) => {
      const outside = clock.switchTo(inside);
      try {
        return original.apply(object, args);
      } finally {
        clock.switchTo(outside);
      }
    });
  }

  /** Chunks of commands that the engine runs itself; the other lanes are not timed, they work at the same time. */
  #timedRunner(run: RunCommand, arena: number): RunCommand {
    const clock = this.#clock;
    const phases = this.#phases;
    const { unsigned } = this.#runtime.compute.lanes.control;
    return (op, at, lane, from, to) => {
      const inside = this.#inHead ? AT.head : (PHASE_OF_OP[op] ?? phases.get(arena, unsigned[at + 1]));
      const outside = clock.enterKernel(inside);
      try {
        run(op, at, lane, from, to);
      } finally {
        clock.leaveKernel(outside);
      }
    };
  }

  /** What the engine calls without a job. */
  #timedKernels(kernels: Kernels): Kernels {
    const clock = this.#clock;
    const timed: Record<string, unknown> = { ...kernels };
    for (const name of methodsOf(kernels)) {
      const call = (kernels as unknown as Record<string, (...args: number[]) => number>)[name].bind(kernels);
      const inside = AT[phaseOfOperation(name) ?? 'otherMatrices'];
      timed[name] = (...args: number[]) => {
        const outside = clock.switchTo(inside);
        try {
          return call(...args);
        } finally {
          clock.switchTo(outside);
        }
      };
    }
    return timed as unknown as Kernels;
  }

  #run(run: () => void): void {
    if (this.#commands.length === 0) return;
    const clock = this.#clock;
    const { lanes } = this.#runtime.compute;
    const outside = clock.switchTo(AT.bookkeeping);
    const chunks = this.#count();
    const shared = lanes.count > 1 && chunks > 1;
    if (!shared) this.#counts.alone++;
    else {
      this.#counts.shared++;
      if (Atomics.load(lanes.control.words, PARKED) > 0) this.#counts.woken++;
    }
    clock.switchTo(shared ? AT.syncStart : AT.dispatch);
    try {
      run();
    } finally {
      clock.switchTo(outside);
    }
  }

  /** Reads the gathered commands as they stand in the control block; returns their chunks. */
  #count(): number {
    const counts = this.#counts;
    const { words, unsigned } = this.#runtime.compute.lanes.control;
    let chunks = 0;
    for (const p of this.#commands) {
      const base = p - ARGS;
      chunks += words[base + CHUNKS];
      const op = words[base + OP];
      if (op === Op.attention) counts.keyValueBytes += this.#keyValueBytes(p);
      const tiles = op === Op.matmulTiles;
      if (!tiles && op !== Op.matmulFloat && op !== Op.matmulExact) continue;
      const rows = tiles ? unsigned[p + 2] : words[base + ITEMS];
      const columns = tiles ? unsigned[p + 3] * GROUP : unsigned[p + 2];
      const phase = this.#inHead ? AT.head : this.#phases.get(words[base + ARENA], unsigned[p + 1]);
      counts.weightBytes[PHASE_NAMES[phase]] += layoutBytes(LAYOUTS[unsigned[p]], rows, columns);
    }
    counts.commands += this.#commands.length;
    counts.chunks += chunks;
    this.#commands.length = 0;
    return chunks;
  }

  /** Keys and values that a command of attention, with arguments from p on, sees in its layer. */
  #keyValueBytes(p: number): number {
    const { unsigned } = this.#runtime.compute.lanes.control;
    const [kvHeads, keyDim, valueDim, window, layout] = [3, 4, 5, 7, 11].map(i => unsigned[p + i]);
    const [valuesInKeys, selected] = [unsigned[p + 12], unsigned[p + 13] === 0 ? 0 : unsigned[p + 14] - 1];
    const { keys } = this.#runtime.batch;
    const seen = Math.min(keys, window || keys, selected || keys);
    return layoutBytes(LAYOUTS[layout], seen, kvHeads * (keyDim + (valuesInKeys ? 0 : valueDim)));
  }
}

/** Names of the functions of an object and of its classes. */
function methodsOf(object: object): string[] {
  const names = new Set<string>();
  for (let at = object; at && at !== Object.prototype; at = Object.getPrototypeOf(at)) {
    for (const name of Object.getOwnPropertyNames(at)) {
      if (name !== 'constructor' && typeof (object as Record<string, unknown>)[name] === 'function') names.add(name);
    }
  }
  return [...names];
}
