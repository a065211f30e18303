/** Runs the same steps plain and under the profiler: decoded tokens with their logits and sampler, or chunks of a prompt. */

import type { Worker } from 'node:worker_threads';
import type { Runtime } from '../src/engine/runtime.ts';
import { Sampler } from '../src/engine/sampler.ts';
import { resolveSampling } from '../src/engine/sampling-options.ts';
import { Session } from '../src/engine/session.ts';
import { countersSince } from '../src/experts/counters.ts';
import { engineBytesPerStep, laneBytesPerToken } from './profile-allocations.ts';
import { mean, middleHalf, PHASE_NAMES, type Phase } from './profile-clock.ts';
import { type Counts, meanCounts, Probe, type WeightPhases } from './profile-phases.ts';
import { variedIds } from './subject.ts';

export const PROMPT_TOKENS = 32;
/** Passes before anything counts: at least one, and more while they are quick. */
const WARM_PASSES = 20;
const WARM_MS = 2000;
/** Between two looks at the heap of a lane. */
const LANE_TOKENS = 8;

/** Means of the middle half of the steps. */
export interface Section {
  readonly kind: 'decode' | 'prefill';
  readonly tokensPerStep: number;
  readonly steps: number;
  /** Milliseconds per token. */
  readonly phases: Readonly<Record<Phase, number>>;
  /** Sum of the phases. */
  readonly total: number;
  /** Milliseconds per token of the same steps without the profiler, measured twice. */
  readonly plainMs: readonly number[];
  /** Per step. */
  readonly counts: Counts;
  readonly hitRate: number;
  readonly bytesReadPerStep: number;
}

export interface Allocations {
  /** Bytes per decoded token: forward pass with logits, and the sampler. */
  readonly pass: number;
  readonly sampler: number;
  readonly lanes: readonly number[];
}

/** The steps of one pass. */
interface Work {
  readonly kind: Section['kind'];
  readonly tokensPerStep: number;
  readonly steps: number;
  rewind(): void;
  step(i: number): void;
}

/** One session that is fed the same tokens again and again. */
export class Subject {
  readonly #runtime: Runtime;
  readonly #phases: WeightPhases;
  readonly #session: Session;
  readonly #sampler: Sampler;
  readonly #decoding: Work;
  /** The two parts of a decoded token. */
  readonly #forward: (i: number) => void;
  readonly #choose: () => void;
  #logits: Float32Array = new Float32Array();
  #probe: Probe | null = null;

  constructor(runtime: Runtime, phases: WeightPhases, tokens: number) {
    const { info, files, model } = runtime;
    this.#runtime = runtime;
    this.#phases = phases;
    const session = new Session(runtime);
    const sampling = resolveSampling({ seed: 1 }, files.checkpoint.generationConfig, info.context);
    const sampler = new Sampler(sampling, undefined, info.vocabSize);
    this.#session = session;
    this.#sampler = sampler;
    const ids = variedIds(PROMPT_TOKENS + tokens, info.vocabSize, 1);
    const prompt = ids.slice(0, PROMPT_TOKENS);
    this.#decoding = {
      kind: 'decode',
      tokensPerStep: 1,
      steps: tokens,
      rewind: () => {
        session.truncate(0);
        session.feedAll(prompt, () => {});
      },
      step: i => {
        this.#forward(i);
        this.#choose();
      },
    };
    this.#forward = i => {
      session.feed([ids[PROMPT_TOKENS + i]]);
      this.#logits = model.logits(0, 1);
    };
    this.#choose = () => sampler.next(this.#logits, prompt, []);
  }

  /** Milliseconds per decoded token, without the profiler. Only before `decode` and `prefill`. */
  plainDecode(runs: number): number {
    return plain(this.#decoding, runs);
  }

  plainPrefill(tokens: number, runs: number): number {
    return plain(this.#prefilling(tokens), runs);
  }

  decode(runs: number, plainMs: readonly number[]): Section {
    return this.#profile(this.#decoding, runs, plainMs);
  }

  /** Chunks of a prompt; all steps feed the same one. */
  prefill(tokens: number, runs: number, plainMs: readonly number[]): Section {
    return this.#profile(this.#prefilling(tokens), runs, plainMs);
  }

  #prefilling(tokens: number): Work {
    const session = this.#session;
    const ids = variedIds(tokens, this.#runtime.info.vocabSize, 2);
    const rewind = () => session.truncate(0);
    return { kind: 'prefill', tokensPerStep: tokens, steps: 1, rewind, step: () => session.feed(ids) };
  }

  async allocations(lanes: readonly Worker[]): Promise<Allocations> {
    const { rewind, step, steps } = this.#decoding;
    warm(this.#decoding);
    rewind();
    const [pass, sampler] = engineBytesPerStep([this.#forward, this.#choose], steps);
    const count = Math.min(steps, LANE_TOKENS);
    const tokens = () => {
      this.#session.truncate(PROMPT_TOKENS);
      for (let i = 0; i < count; i++) step(i);
    };
    return { pass, sampler, lanes: await laneBytesPerToken(this.#runtime.compute.lanes, lanes, tokens, count) };
  }

  #profile(work: Work, runs: number, plainMs: readonly number[]): Section {
    const { kind, tokensPerStep } = work;
    this.#probe ??= new Probe(this.#runtime, this.#session, this.#sampler, this.#phases);
    warm(work);
    const samples: Sample[] = [];
    for (let run = 0; run < runs; run++) pass(work, step => samples.push(this.#sample(step)));

    const totals = samples.map(({ phases }) => PHASE_NAMES.reduce((sum, phase) => sum + phases[phase], 0));
    const middle = middleHalf(totals).map(i => samples[i]);
    const meanPhase = (phase: Phase) => mean(middle.map(({ phases }) => phases[phase])) / tokensPerStep;
    const used = (pick: (sample: Sample) => number) => mean(middle.map(pick));
    const requests = used(sample => sample.used.requests);
    return {
      kind,
      tokensPerStep,
      steps: samples.length,
      phases: Object.fromEntries(PHASE_NAMES.map(phase => [phase, meanPhase(phase)])) as Record<Phase, number>,
      total: mean(middleHalf(totals).map(i => totals[i])) / tokensPerStep,
      plainMs,
      counts: meanCounts(middle.map(({ counts }) => counts)),
      hitRate: requests > 0 ? used(sample => sample.used.hits) / requests : 1,
      bytesReadPerStep: used(sample => sample.used.bytesRead),
    };
  }

  #sample(step: () => void): Sample {
    const { counters } = this.#runtime.store;
    const before = { ...counters };
    this.#probe!.take();
    step();
    return { ...this.#probe!.take(), used: countersSince(counters, before) };
  }
}

type Sample = ReturnType<Probe['take']> & { readonly used: ReturnType<typeof countersSince> };

/** All steps once, each through `each`. */
function pass(work: Work, each: (step: () => void) => void): void {
  work.rewind();
  for (let i = 0; i < work.steps; i++) each(() => work.step(i));
}

/** Fills the slots and lets the compiler finish. */
function warm(work: Work): void {
  const begun = performance.now();
  for (let run = 0; run < WARM_PASSES && (run === 0 || performance.now() - begun < WARM_MS); run++) {
    pass(work, step => step());
  }
}

/** Milliseconds per token: the mean of the middle half of the steps. */
function plain(work: Work, runs: number): number {
  warm(work);
  const times: number[] = [];
  for (let run = 0; run < runs; run++) {
    pass(work, step => {
      const begun = performance.now();
      step();
      times.push(performance.now() - begun);
    });
  }
  return mean(middleHalf(times).map(i => times[i])) / work.tokensPerStep;
}
