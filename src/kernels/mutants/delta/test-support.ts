/** Linear attention that can be made wrong in one way at a time. */

import type { Kernels } from '../../kernels.ts';
import { exp32, sigmoid32, silu32, softplus32 } from '../../reference/math.ts';
import { f, f32, laneProducts, type Sum } from '../test-support.ts';

interface ConvFlaws {
  tap?: (j: number, taps: number) => number;
  fused?: boolean;
  activate?: (sum: number) => number;
  /** What the tail becomes: what it and u were, one after the other, and how many rows it has. */
  keep?: (inputs: readonly number[], before: number) => readonly number[];
}

export const lastInputs = (inputs: readonly number[], before: number): readonly number[] =>
  inputs.slice(inputs.length - before);

export function convSiluWith(flaws: ConvFlaws): Kernels['convSilu'] {
  const { tap = j => j, fused, activate = silu32, keep = lastInputs } = flaws;
  return (u, tail, w, y, channels, taps, rows, channel0, channel1) => {
    for (let c = channel0; c < channel1; c++) {
      const column = (at: number, count: number): number[] =>
        Array.from({ length: count }, (_, i) => f32[(at >> 2) + i * channels + c]);
      const inputs = [...column(tail, taps - 1), ...column(u, rows)];
      for (let t = 0; t < rows; t++) {
        let sum = 0;
        for (let j = 0; j < taps; j++) {
          const product = f32[(w >> 2) + c * taps + tap(j, taps)] * inputs[t + j];
          sum = f(sum + (fused ? product : f(product)));
        }
        f32[(y >> 2) + t * channels + c] = activate(sum);
      }
      for (const [i, value] of keep(inputs, taps - 1).entries()) f32[(tail >> 2) + i * channels + c] = value;
    }
  };
}

interface GateFlaws {
  softplus?: (x: number) => number;
  decayOf?: (given: number, step: number, logarithms: boolean) => number;
  betaOf?: (b: number) => number;
}

export function deltaGatesWith(flaws: GateFlaws): Kernels['deltaGates'] {
  const { softplus = softplus32, betaOf = sigmoid32 } = flaws;
  const { decayOf = (given, step, logarithms) => exp32(f((logarithms ? -exp32(given) : given) * step)) } = flaws;
  return (a, b, rates, logarithms, dtBias, decay, beta, heads, row0, row1) => {
    for (let i = row0 * heads; i < row1 * heads; i++) {
      const step = softplus(f(f32[(a >> 2) + i] + f32[(dtBias >> 2) + (i % heads)]));
      f32[(decay >> 2) + i] = decayOf(f32[(rates >> 2) + (i % heads)], step, logarithms === 1);
      f32[(beta >> 2) + i] = betaOf(f32[(b >> 2) + i]);
    }
  };
}

interface DeltaFlaws {
  squares?: Sum;
  /** Sums over the rows of the state. */
  over?: Sum;
  eps?: number;
  scaled?: boolean;
  keyHead?: (head: number, keyHeads: number, valueHeads: number, tiled: boolean) => number;
  /** The state decays after the change is found. */
  lateDecay?: boolean;
  /** The output is read before the state changes. */
  earlyOutput?: boolean;
  fusedUpdate?: boolean;
}

const keyHeadOf: NonNullable<DeltaFlaws['keyHead']> = (head, keyHeads, heads, tiled) =>
  tiled ? head % keyHeads : Math.floor((head * keyHeads) / heads);

export const inOrder: Sum = (count, product) => {
  let sum = 0;
  for (let i = 0; i < count; i++) sum = f(sum + f(product(i)));
  return sum;
};

export function deltaRuleWith(flaws: DeltaFlaws): Kernels['deltaRule'] {
  const { squares = laneProducts, over = inOrder, eps = f(1e-6), scaled = true, lateDecay, earlyOutput } = flaws;
  const { keyHead = keyHeadOf, fusedUpdate } = flaws;
  return (
    qkv,
    decay,
    beta,
    state,
    out,
    keyHeads,
    valueHeads,
    tiled,
    keyDim,
    valueDim,
    rows,
    _scratch,
    head0,
    head1,
  ) => {
    const unit = (at: number): Float32Array => {
      const x = f32.subarray(at, at + keyDim);
      const inverse = f(1 / f(Math.sqrt(f(squares(keyDim, i => x[i] * x[i]) + eps))));
      return x.map(value => value * inverse);
    };
    const root = scaled ? f(1 / f(Math.sqrt(keyDim))) : 1;
    for (let head = head0; head < head1; head++) {
      const s = f32.subarray((state >> 2) + head * keyDim * valueDim, (state >> 2) + (head + 1) * keyDim * valueDim);
      for (let row = 0; row < rows; row++) {
        const at = (qkv >> 2) + row * (2 * keyHeads * keyDim + valueHeads * valueDim);
        const first = keyHead(head, keyHeads, valueHeads, tiled === 1) * keyDim;
        const q = unit(at + first).map(value => value * root);
        const k = unit(at + keyHeads * keyDim + first);
        const gate = row * valueHeads + head;
        const shrink = () => {
          for (let i = 0; i < s.length; i++) s[i] *= f32[(decay >> 2) + gate];
        };
        const read = (vector: Float32Array): number[] =>
          Array.from({ length: valueDim }, (_, c) => over(keyDim, i => vector[i] * s[i * valueDim + c]));
        if (!lateDecay) shrink();
        const before = read(q);
        const change = read(k).map((known, c) => {
          const v = f32[at + 2 * keyHeads * keyDim + head * valueDim + c];
          return f(f32[(beta >> 2) + gate] * f(v - known));
        });
        if (lateDecay) shrink();
        for (let i = 0; i < s.length; i++) {
          const product = k[Math.floor(i / valueDim)] * change[i % valueDim];
          s[i] += fusedUpdate ? product : f(product);
        }
        f32.set(earlyOutput ? before : read(q), (out >> 2) + gate * valueDim);
      }
    }
  };
}
