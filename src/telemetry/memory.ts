/**
 * The shared memory of telemetry: sums since the engine was opened, the same for the last request, what is known of every expert, and
 * the ring of events. Sums are plain additions, so a period is the difference of two copies.
 */

import { type Numbers, named, STEP_ONLY_FIELDS, WORK_COUNT, WORK_NAMES } from './fields.ts';
import { type Distribution, distribution, HISTOGRAM_WORDS } from './histogram.ts';
import { ringBytes } from './ring.ts';

export interface TelemetryShape {
  readonly layers: number;
  /** Routed experts per layer, and the layers that have them. */
  readonly experts: number;
  readonly moeLayers: readonly number[];
}

/** What the engine sends to whoever reads. */
export interface TelemetryShared extends TelemetryShape {
  readonly buffer: SharedArrayBuffer;
}

/** Steps with rows of prompts are counted apart from those that only decode. */
export const MODES = ['prompt', 'decode'] as const;
export type Mode = (typeof MODES)[number];

/** Values are microseconds. */
export const HISTOGRAMS = {
  tokenUs: 'time of a step in which an answer got a token, once for each such token',
  firstTokenUs: 'from the moment a request has a session to its first token',
  layerWaitUs: 'wait for storage of a layer that asked for experts',
  readUs: 'time of one read of an expert in its reader',
  promptTokenUs: 'time of a step with rows of prompts, divided by its rows',
} as const;
export type HistogramName = keyof typeof HISTOGRAMS;
export const HISTOGRAM_NAMES = Object.keys(HISTOGRAMS) as HistogramName[];

/** Sums of steps: how many, then their fields. */
const STEP_NAMES = ['steps', ...WORK_NAMES, ...Object.keys(STEP_ONLY_FIELDS)];
export const STEP_WORDS = STEP_NAMES.length;

/** States of experts. */
export const EXPERT_TIERS = ['disk', 'loading', 'cached', 'pinned'] as const;

const HEAD_BYTES = 128;
/** Copies that somebody may be looking at. */
const READERS_COPIES = 4;
/** Words of the head. Odd while sums are written. */
export const SUMS_VERSION = 0;
export const LAST_VERSION = 1;

/** Positions of one set of sums, in numbers. */
export interface SumsLayout {
  readonly words: number;
  step(mode: number): number;
  layer(mode: number, layer: number): number;
  histogram(name: HistogramName): number;
}

export function sumsLayout({ layers }: Pick<TelemetryShape, 'layers'>): SumsLayout {
  const mode = STEP_WORDS + layers * WORK_COUNT;
  const histograms = MODES.length * mode;
  return {
    words: histograms + HISTOGRAM_NAMES.length * HISTOGRAM_WORDS,
    step: m => m * mode,
    layer: (m, layer) => m * mode + STEP_WORDS + layer * WORK_COUNT,
    histogram: name => histograms + HISTOGRAM_NAMES.indexOf(name) * HISTOGRAM_WORDS,
  };
}

function sharedBytes(shape: Pick<TelemetryShape, 'layers' | 'experts'>): number {
  return HEAD_BYTES + 2 * sumsLayout(shape).words * 8 + ringBytes() + shape.layers * shape.experts * (8 + 4 + 1);
}

/** Everything, in bytes: the shared memory, and copies of the sums for requests under way and for readers. Part of the plan. */
export function telemetryBytes(shape: Pick<TelemetryShape, 'layers' | 'experts'>, requests: number): number {
  return sharedBytes(shape) + (requests + READERS_COPIES) * sumsLayout(shape).words * 8;
}

/** The parts of the memory; the same on both sides. */
export function viewTelemetry({ buffer, layers, experts }: TelemetryShared) {
  const { words } = sumsLayout({ layers });
  const count = layers * experts;
  const ringAt = HEAD_BYTES + 2 * words * 8;
  const heatAt = ringAt + ringBytes();
  return {
    head: new Int32Array(buffer, 0, HEAD_BYTES / 4),
    sums: new Float64Array(buffer, HEAD_BYTES, words),
    last: new Float64Array(buffer, HEAD_BYTES + words * 8, words),
    ringAt,
    /** Per layer and expert. */
    heat: new Float64Array(buffer, heatAt, count),
    turnUses: new Uint32Array(buffer, heatAt + count * 8, count),
    tiers: new Uint8Array(buffer, heatAt + count * 12, count),
  };
}

export function createTelemetry(shape: TelemetryShape): TelemetryShared {
  return { ...shape, buffer: new SharedArrayBuffer(sharedBytes(shape)) };
}

/** A copy of sums, or the difference of two. */
export class Sums {
  readonly layers: number;
  readonly values: Float64Array;
  readonly #layout: SumsLayout;

  constructor(shape: Pick<TelemetryShape, 'layers'>, values: Float64Array) {
    this.layers = shape.layers;
    this.values = values;
    this.#layout = sumsLayout(shape);
  }

  /** What happened between an earlier copy and this one. */
  since(before: Sums): Sums {
    const values = this.values.map((value, i) => value - before.values[i]);
    return new Sums(this, values);
  }

  steps(mode: Mode): Numbers {
    return named(STEP_NAMES, this.values, this.#layout.step(MODES.indexOf(mode)));
  }

  layer(mode: Mode, layer: number): Numbers {
    return named(WORK_NAMES, this.values, this.#layout.layer(MODES.indexOf(mode), layer));
  }

  distribution(name: HistogramName): Distribution {
    return distribution(this.values, this.#layout.histogram(name));
  }

  /** Buckets and sum, for others that count in buckets. */
  histogram(name: HistogramName): Float64Array {
    const at = this.#layout.histogram(name);
    return this.values.subarray(at, at + HISTOGRAM_WORDS);
  }
}
