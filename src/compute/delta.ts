/** Linear attention with the gated delta rule: commands in arena 0, where recurrent state lies, run by `compute.run()`. */

import { Op } from '../kernels/commands.ts';
import type { Tensor } from './arenas.ts';
import { type Compute, EXPONENTIAL_COST, FLOAT_COST } from './compute.ts';

/** Rows of a batch that follow each other in one session. */
export interface Segment {
  readonly firstRow: number;
  readonly rows: number;
}

/** Columns of y = silu(causal convolution of u over the tokens of a segment). tail: address of the session's last inputs. */
export function convSilu(
  compute: Compute,
  u: Tensor,
  tail: number,
  w: Tensor,
  taps: number,
  y: Tensor,
  s: Segment,
): void {
  const channels = u.columns;
  const skipped = s.firstRow * channels * 4;
  const p = compute.command(Op.convSilu, 0, channels, s.rows * (taps * FLOAT_COST + EXPONENTIAL_COST));
  compute.args(p, u.at[0] + skipped, tail, w.at[0], y.at[0] + skipped, channels, taps, s.rows);
}

/** How fast a head forgets, per unit of its steps: rates [1, heads], below 0; or the logarithms of what they are below 0. */
export interface DecayRates {
  readonly values: Tensor;
  readonly areLogarithms: boolean;
}

/** In place: a becomes the decay exp(rate * softplus(a + dtBias)), b becomes sigmoid(b). a, b [rows, heads]. */
export function deltaGates(
  compute: Compute,
  a: Tensor,
  b: Tensor,
  { values, areLogarithms }: DecayRates,
  dtBias: Tensor,
  n: number,
): void {
  const p = compute.command(Op.deltaGates, 0, n, a.columns * 4 * EXPONENTIAL_COST);
  const form = areLogarithms ? 1 : 0;
  compute.args(p, a.at[0], b.at[0], values.at[0], form, dtBias.at[0], a.at[0], b.at[0], a.columns);
}

export interface DeltaShape {
  readonly keyHeads: number;
  readonly valueHeads: number;
  /** Value head j uses key head j mod keyHeads, instead of as many neighbours using one. */
  readonly tiled: boolean;
  readonly keyDim: number;
  readonly valueDim: number;
}

/** out [rows, valueHeads*valueDim] of the tokens of a segment. state: address of the session's matrices; see the kernel. */
export function deltaRule(
  compute: Compute,
  qkv: Tensor,
  decay: Tensor,
  beta: Tensor,
  state: number,
  out: Tensor,
  shape: DeltaShape,
  s: Segment,
): void {
  const { keyHeads, valueHeads, tiled, keyDim, valueDim } = shape;
  const p = compute.command(Op.deltaRule, 0, valueHeads, s.rows * keyDim * valueDim * 4 * FLOAT_COST);
  compute.args(
    p,
    qkv.at[0] + s.firstRow * qkv.columns * 4,
    decay.at[0] + s.firstRow * valueHeads * 4,
    beta.at[0] + s.firstRow * valueHeads * 4,
    state,
    out.at[0] + s.firstRow * out.columns * 4,
    keyHeads,
    valueHeads,
    tiled ? 1 : 0,
    keyDim,
    valueDim,
    s.rows,
  );
  compute.args(p + 11, compute.scratch.at[0], compute.scratch.columns * 4);
}
