/** Operations on rows and elements of activations, in arena 0: commands of the current job, run by `compute.run()`. */

import { Op } from '../kernels/commands.ts';
import type { Tensor } from './arenas.ts';
import { type Compute, ELEMENT_COST, EXPONENTIAL_COST, type HeadColumns } from './compute.ts';

/** Which part of each row of a tensor: `columns` elements from `first` on. */
export interface ColumnRange {
  readonly first: number;
  readonly columns: number;
}

/** RMSNorm in place. Without a range: of whole rows. */
export function rmsNorm(
  compute: Compute,
  x: Tensor,
  weight: Tensor,
  eps: number,
  n: number,
  range?: ColumnRange,
): void {
  const { first, columns } = range ?? { first: 0, columns: x.columns };
  normalise(compute, x.at[0] + first * 4, x.columns, weight, columns, eps, n);
}

/** RMSNorm in place of each head: of every `headDim` elements of n rows that consist of heads. */
export function rmsNormHeads(
  compute: Compute,
  x: Tensor,
  weight: Tensor,
  eps: number,
  headDim: number,
  n: number,
): void {
  normalise(compute, x.at[0], headDim, weight, headDim, eps, (n * x.columns) / headDim);
}

function normalise(
  compute: Compute,
  at: number,
  stride: number,
  weight: Tensor,
  columns: number,
  eps: number,
  rows: number,
): void {
  const p = compute.command(Op.rmsNorm, 0, rows, columns * ELEMENT_COST);
  compute.args(p, at, stride, weight.at[0], at, stride, columns);
  compute.floats[p + 6] = eps;
}

/** y rows = RMSNorm(x rows) * weight, whole rows. */
export function rmsNormTo(compute: Compute, x: Tensor, weight: Tensor, eps: number, y: Tensor, n: number): void {
  const p = compute.command(Op.rmsNorm, 0, n, x.columns * ELEMENT_COST);
  compute.args(p, x.at[0], x.columns, weight.at[0], y.at[0], y.columns, x.columns);
  compute.floats[p + 6] = eps;
}

/** LayerNorm with mean, weight and bias, in place, of whole rows. */
export function layerNorm(compute: Compute, x: Tensor, weight: Tensor, bias: Tensor, eps: number, n: number): void {
  const p = compute.command(Op.layerNorm, 0, n, x.columns * 2 * ELEMENT_COST);
  compute.args(p, x.at[0], x.columns, weight.at[0], bias.at[0], x.columns);
  compute.floats[p + 5] = eps;
}

/** Where in a head which elements are rotated, and how they pair. */
export interface Rotation {
  readonly heads: number;
  readonly headDim: number;
  /** First rotated element of a head. */
  readonly first: number;
  readonly rotaryDim: number;
  /** Pairs are neighbours (2i, 2i+1) instead of halves (i, i + rotaryDim/2). */
  readonly adjacent: boolean;
}

/** Rotates n rows of x, which consist of heads, in place. table: see layers/rope.ts. */
export function rope(
  compute: Compute,
  x: Tensor,
  rotation: Rotation,
  table: Tensor,
  positions: Tensor,
  n: number,
): void {
  const { heads, headDim, first, rotaryDim, adjacent } = rotation;
  const p = compute.command(Op.rope, 0, n, heads * rotaryDim * ELEMENT_COST);
  compute.args(p, x.at[0], heads, headDim, first, rotaryDim, adjacent ? 1 : 0, table.at[0], positions.at[0]);
}

export function clamp(compute: Compute, x: Tensor, limit: number, n: number): void {
  const p = compute.command(Op.clamp, 0, n * x.columns, ELEMENT_COST);
  compute.args(p, x.at[0]);
  compute.floats[p + 1] = limit;
}

/** x += y. */
export function add(compute: Compute, x: Tensor, y: Tensor, n: number): void {
  compute.args(compute.command(Op.add, 0, n * x.columns, ELEMENT_COST), x.at[0], y.at[0]);
}

/** Every row of x += bias. */
export function addRows(compute: Compute, x: Tensor, bias: Tensor, n: number): void {
  addRowsAt(compute, 0, x.at[0], bias.at[0], x.columns, n);
}

/** n rows of `columns` at an address of an arena += the vector at another. */
export function addRowsAt(compute: Compute, arena: number, x: number, bias: number, columns: number, n: number): void {
  compute.args(compute.command(Op.addRows, arena, n, columns * ELEMENT_COST), x, bias, columns);
}

export function softmax(compute: Compute, x: Tensor, n: number): void {
  compute.args(compute.command(Op.softmax, 0, n, x.columns * EXPONENTIAL_COST), x.at[0], x.at[0], x.columns);
}

/** x = sigmoid(x). */
export function sigmoid(compute: Compute, x: Tensor, n: number): void {
  compute.args(compute.command(Op.sigmoid, 0, n * x.columns, EXPONENTIAL_COST), x.at[0], x.at[0]);
}

/** x *= sigmoid(gate), elementwise; same shapes. */
export function sigmoidGate(compute: Compute, x: Tensor, gate: Tensor, n: number): void {
  compute.args(compute.command(Op.sigmoidGate, 0, n * x.columns, EXPONENTIAL_COST), x.at[0], gate.at[0]);
}

/** Row r of x *= sigmoid(gates[r]); gates [rows, 1]. */
export function gateRows(compute: Compute, x: Tensor, gates: Tensor, n: number): void {
  compute.args(compute.command(Op.gateRows, 0, n, x.columns * ELEMENT_COST), x.at[0], gates.at[0], x.columns);
}

/**
 * `width` columns of every head of n rows: from column h*xStride + xFirst of x to column h*yStride + yFirst of y. Rows must
 * consist of heads: columns = heads * stride.
 */
export function copyHeads(
  compute: Compute,
  heads: number,
  x: HeadColumns,
  y: HeadColumns,
  width: number,
  n: number,
): void {
  const p = compute.command(Op.copyColumns, 0, n * heads, width * ELEMENT_COST);
  compute.args(p, x.tensor.at[0] + x.first * 4, x.stride, y.tensor.at[0] + y.first * 4, y.stride, width);
}

/** How a router chooses and weighs; see the kernel topK. */
export interface Choice {
  readonly topK: number;
  /** f32 [1, experts], added for choosing only; null = none. */
  readonly bias: Tensor | null;
  readonly groups: number;
  readonly keptGroups: number;
  /** Score of a group: its largest value, or the sum of its two largest. */
  readonly groupScore: 'largest' | 'two-largest';
  /** Weights: the values of the chosen, those over their sum, or softmax over the chosen. */
  readonly weights: 'values' | 'normalised' | 'softmax';
  readonly factor: number;
}

const WEIGHT_RULE = { values: 0, normalised: 1, softmax: 2 } as const;

/** ids, weights [rows, topK] of the experts that each row of x [rows, experts] uses. */
export function topK(compute: Compute, x: Tensor, choice: Choice, ids: Tensor, weights: Tensor, n: number): void {
  const { topK: k, bias, groups, keptGroups, groupScore } = choice;
  const p = compute.command(Op.topK, 0, n, x.columns * k * ELEMENT_COST);
  compute.args(p, x.at[0], bias?.at[0] ?? 0, x.columns, k, groups, keptGroups, groupScore === 'largest' ? 0 : 1);
  compute.args(p + 7, ids.at[0], weights.at[0], WEIGHT_RULE[choice.weights]);
  compute.floats[p + 10] = choice.factor;
}

/** x[r] += (sum over slots, in slot order, of weights[r, s] * parts[r*k + s]) + shared[r]. */
export function combine(
  compute: Compute,
  x: Tensor,
  parts: Tensor,
  weights: Tensor,
  k: number,
  shared: Tensor | null,
  n: number,
): void {
  const p = compute.command(Op.combine, 0, n, x.columns * k * ELEMENT_COST);
  compute.args(p, x.at[0], parts.at[0], weights.at[0], k, shared?.at[0] ?? 0, x.columns);
}

/** Rows firstRow..firstRow+n-1 of x (replicated) as bfloat16, rounded to nearest even, at the even address `to` of an arena. */
export function storeBf16(compute: Compute, x: Tensor, firstRow: number, n: number, arena: number, to: number): void {
  if (arena !== 0) compute.copyRows(x, arena, n, firstRow);
  const p = compute.command(Op.toBf16, arena, n * x.columns, ELEMENT_COST);
  compute.args(p, x.at[arena] + firstRow * x.columns * 4, to);
}
