/**
 * `profile`: where the time of a decoded token goes, what a job of the lanes costs, how near the weights come to the speed
 * of memory, and what a token leaves for the garbage collector. The next token is given, not the one that was sampled, so
 * that every pass does the same work.
 */

import { UsageError } from '../src/common/errors.ts';
import type { EngineInfo } from '../src/engine/api.ts';
import { readModel } from '../src/engine/model-files.ts';
import { Runtime } from '../src/engine/runtime.ts';
import { withLaneWorkers } from './profile-allocations.ts';
import { type BarrierCost, measureBarrier } from './profile-barrier.ts';
import { type MemorySpeed, measureMemory } from './profile-memory.ts';
import { tellMatrices, WeightPhases } from './profile-phases.ts';
import { type Allocations, PROMPT_TOKENS, type Section, Subject } from './profile-subject.ts';
import { printProfile } from './profile-table.ts';
import { engineOptions, machineLine, readSettings, type Settings } from './subject.ts';

const SPARE_CONTEXT = 1024;
export const MAX_ENGINE_BYTES = 10_000;

export interface Profile {
  readonly machine: string;
  readonly model: string;
  readonly share: number;
  readonly threads: number;
  readonly readers: number;
  readonly kernels: EngineInfo['kernels'];
  readonly sections: readonly Section[];
  readonly barrier: BarrierCost;
  /** Before and after everything else. */
  readonly memory: readonly (readonly MemorySpeed[])[];
  readonly allocations: Allocations;
}

const HELP = `options:
  --model DIR    model to profile (default: a random one of the OLMoE shape, 3.9 GB, made once)
  --share X      slots for this share of the experts (1)
  --tokens N     decoded tokens per pass (32)
  --runs N       passes (3)
  --prefill N    profile chunks of N prompt tokens too
  --threads N, --readers N, --kernels NAME, --json`;

export async function run(args: string[]): Promise<void> {
  if (args.includes('--help')) {
    console.log(HELP);
    return;
  }
  const { prefill, rest } = takePrefill(args);
  const settings = readSettings(rest, { tokens: 32, share: 1 });
  const profile = await measure(settings, prefill);
  if (settings.json) console.log(JSON.stringify(profile));
  else printProfile(profile);
  for (const line of complaints(profile.allocations)) {
    console.error(line);
    process.exitCode = 1;
  }
}

/** Takes `--prefill N` out of the arguments that all benchmarks share. */
export function takePrefill(args: readonly string[]): { prefill: number; rest: string[] } {
  const rest = args.flatMap(arg => (arg.startsWith('--prefill=') ? arg.split('=', 2) : [arg]));
  const at = rest.indexOf('--prefill');
  if (at < 0) return { prefill: 0, rest };
  const prefill = Number(rest[at + 1]);
  if (!Number.isInteger(prefill) || prefill < 1)
    throw new UsageError('BAD_OPTION', `--prefill ${rest[at + 1] ?? ''} is not a number of tokens`, { hint: HELP });
  rest.splice(at, 2);
  return { prefill, rest };
}

/** What must not be: garbage in a lane, or much of it in the engine. */
export function complaints({ pass, sampler, lanes }: Allocations): string[] {
  const found = lanes.flatMap((bytes, i) =>
    bytes === 0
      ? []
      : [
          `lane ${i + 1} allocates ${Number.isNaN(bytes) ? 'very many' : bytes.toFixed(1)} bytes per token; it must allocate none`,
        ],
  );
  if (pass + sampler > MAX_ENGINE_BYTES)
    found.push(`the engine allocates ${pass + sampler} bytes per token; at most ${MAX_ENGINE_BYTES} are allowed`);
  return found;
}

async function measure(settings: Settings, prefill: number): Promise<Profile> {
  const { model, share } = settings;
  const phases = new WeightPhases();
  const files = tellMatrices(readModel(settings), phases);
  const context = Math.min(files.shape.maxContext, PROMPT_TOKENS + settings.tokens + prefill + SPARE_CONTEXT);
  const options = { ...engineOptions(settings, files.shape, context), ...(prefill > 0 ? { chunk: prefill } : {}) };
  const opened = await withLaneWorkers(() => Runtime.open(options, undefined, undefined, files));
  const runtime = opened.value;
  const { threads, readers, kernels } = runtime.info;
  const head = { machine: machineLine(), model, share, threads, readers, kernels };
  try {
    const subject = new Subject(runtime, phases, settings.tokens);
    const { runs } = settings;
    const memory = [await measureMemory(threads, settings.kernels)];
    const decodeMs = [subject.plainDecode(runs)];
    const allocations = await subject.allocations(opened.lanes);
    decodeMs.push(subject.plainDecode(runs));
    const prefillMs = prefill > 0 ? [subject.plainPrefill(prefill, runs), subject.plainPrefill(prefill, runs)] : [];
    const barrier = measureBarrier(runtime.compute.lanes);
    const sections: Section[] = [subject.decode(runs, decodeMs)];
    if (prefill > 0) sections.push(subject.prefill(prefill, runs, prefillMs));
    memory.push(await measureMemory(threads, settings.kernels));
    return { ...head, sections, barrier, memory, allocations };
  } finally {
    await runtime.close();
  }
}
