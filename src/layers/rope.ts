/** Rotary position tables: inverse frequencies as transformers makes them, and sines and cosines of every position. */

import type { Arenas, Tensor } from '../compute/arenas.ts';
import { log64 } from '../kernels/scalar.ts';
import { pow64, sinCos64 } from '../kernels/trig.ts';

const f = Math.fround;

export interface Rope {
  /** float32, one per pair of elements. */
  readonly frequencies: Float32Array;
  /** Cosines and sines are multiplied by it. */
  readonly attentionFactor: number;
}

/** YaRN (arXiv 2309.00071): frequencies that turn less than `betaSlow` times in the original context are divided by `factor`. */
export interface Yarn {
  readonly factor: number;
  readonly originalContext: number;
  readonly betaFast: number;
  readonly betaSlow: number;
  /** Bounds between the two kinds are rounded to whole pairs. */
  readonly truncate: boolean;
}

/** theta^(2i/dim) in float32, the exponent rounded to float32 first. */
function positionFrequency(theta: number, i: number, rotaryDim: number): number {
  return f(pow64(theta, f((2 * i) / rotaryDim)));
}

/** Inverse frequencies: float32 of 1 / theta^(2i/dim). */
export function inverseFrequencies(theta: number, rotaryDim: number): Float32Array {
  return Float32Array.from({ length: rotaryDim / 2 }, (_, i) => f(1 / positionFrequency(theta, i, rotaryDim)));
}

/** As `inverseFrequencies`, interpolated by YaRN; float32 steps in the order of transformers, bounds in float64. */
export function yarnFrequencies(theta: number, rotaryDim: number, yarn: Yarn): Float32Array {
  const { factor, originalContext, betaFast, betaSlow, truncate } = yarn;
  const boundOf = (turns: number) => (rotaryDim * log64(originalContext / (turns * 2 * Math.PI))) / (2 * log64(theta));
  const round = (bound: number, to: (value: number) => number) => (truncate ? to(bound) : bound);
  const low = Math.max(round(boundOf(betaFast), Math.floor), 0);
  const high = Math.min(round(boundOf(betaSlow), Math.ceil), rotaryDim - 1);
  // as transformers: no division by zero
  const span = high === low ? 0.001 : high - low;
  return Float32Array.from({ length: rotaryDim / 2 }, (_, i) => {
    const frequency = positionFrequency(theta, i, rotaryDim);
    const ramp = Math.min(Math.max(f(f(i - low) / f(span)), 0), 1);
    const kept = f(1 - ramp);
    return f(f(f(1 / f(factor * frequency)) * f(1 - kept)) + f(f(1 / frequency) * kept));
  });
}

/** 0.1 * mscale * ln(factor) + 1: how much YaRN sharpens attention; 1 without scaling. */
export function yarnScale(factor: number, mscale = 1): number {
  return factor > 1 ? 0.1 * mscale * log64(factor) + 1 : 1;
}

/**
 * Table [context, rotaryDim]: per position rotaryDim/2 cosines, then the sines. Angles are float32 products (float64 angles
 * drift from every reference at long positions); sine and cosine are rounded to float32 once, then multiplied by the factor.
 */
export function ropeTable(arenas: Arenas, { frequencies, attentionFactor }: Rope, context: number): Tensor {
  const half = frequencies.length;
  const table = arenas.tensor(context, 2 * half);
  arenas.onCommit(() => {
    const values = arenas.floats(table);
    const factor = f(attentionFactor);
    for (let position = 0; position < context; position++) {
      for (let i = 0; i < half; i++) {
        const [sin, cos] = sinCos64(f(position * frequencies[i]));
        values[position * 2 * half + i] = f(cos) * factor;
        values[position * 2 * half + half + i] = f(sin) * factor;
      }
    }
  });
  return table;
}
