/** Attention and the indexer's choice of keys: commands in the arena that holds the keys, run by `compute.run()`. */

import { Op } from '../kernels/commands.ts';
import { KV_BLOCK } from '../kernels/kernels.ts';
import type { Tensor } from './arenas.ts';
import { type Compute, ELEMENT_COST, FLOAT_COST } from './compute.ts';

/** What attention needs of a batch: its rows and where their past is. */
export interface History {
  readonly rows: number;
  /** Of the row that may see most: the keys up to its own. */
  readonly keys: number;
  readonly positions: Tensor;
  /** kvLayout: id of the layout of keys and values, f32 or bf16. */
  readonly cache: { readonly kvLayout: number; arenaOf(state: number): number; rowTables(state: number): Tensor };
}

export interface HeadShape {
  readonly heads: number;
  readonly kvHeads: number;
  readonly keyDim: number;
  readonly valueDim: number;
  readonly scale: number;
  /** Keys that a query sees, itself included; 0 = all. */
  readonly window: number;
  /** A value is the beginning of its key (multi-head latent attention). */
  readonly valuesInKeys: boolean;
  /** A logit without a value per head: f32 [1, heads] in arena 0, and a replicated tensor for copies of it; null = none. */
  readonly sinks: { readonly values: Tensor; readonly copies: Tensor } | null;
}

/** Keys that each row may see: i32 [rows, keys + 1], how many, then positions in ascending order. A replicated tensor. */
export type Selection = Tensor;

/**
 * q [rows, heads*keyDim], out [rows, heads*valueDim], both replicated. `state`: number of the rows that hold keys and values.
 */
export function attention(
  compute: Compute,
  q: Tensor,
  out: Tensor,
  history: History,
  state: number,
  shape: HeadShape,
  selection: Selection | null = null,
): void {
  const { rows: n, cache } = history;
  const arena = cache.arenaOf(state);
  const { heads, kvHeads, keyDim, valueDim, window, sinks } = shape;
  if (arena !== 0) {
    compute.copyRows(q, arena, n);
    if (selection) compute.copyRows(selection, arena, n);
    if (sinks) compute.copyVector(sinks.values, sinks.copies, arena);
  }
  const keys = Math.min(history.keys, window || history.keys, selection ? selection.columns : history.keys);
  const p = compute.command(Op.attention, arena, n * heads, keys * (keyDim + valueDim) * FLOAT_COST);
  compute.args(p, q.at[arena], out.at[arena], heads, kvHeads, keyDim, valueDim);
  compute.floats[p + 6] = shape.scale;
  compute.args(p + 7, window, sinkAddress(sinks, arena), history.positions.at[arena], cache.rowTables(state).at[arena]);
  compute.args(
    p + 11,
    cache.kvLayout,
    shape.valuesInKeys ? 1 : 0,
    selection?.at[arena] ?? 0,
    selection?.columns ?? 0,
    compute.scratch.at[arena],
    compute.scratch.columns * 4,
  );
  if (arena !== 0) compute.copyBack(arena, out, 0, out.columns, n);
}

function sinkAddress(sinks: HeadShape['sinks'], arena: number): number {
  if (sinks === null) return 0;
  return arena === 0 ? sinks.values.at[0] : sinks.copies.at[arena];
}

export interface IndexerShape {
  readonly heads: number;
  readonly headDim: number;
  /** Of a dot product, before the largest of it and 0 is taken. */
  readonly scale: number;
  readonly topK: number;
}

/**
 * The topK keys of each row by the lightning indexer -> selection (replicated). q [rows, heads*headDim], weights [rows, heads],
 * scores [any number of rows, context], all replicated: so many rows are scored at a time. `state`: number of the rows that hold
 * index keys. Runs its own jobs.
 */
export function selectKeys(
  compute: Compute,
  q: Tensor,
  weights: Tensor,
  scores: Tensor,
  selection: Selection,
  history: History,
  state: number,
  shape: IndexerShape,
): void {
  const { rows, keys, cache, positions } = history;
  const { heads, headDim } = shape;
  const arena = cache.arenaOf(state);
  if (arena !== 0) for (const tensor of [q, weights]) compute.copyRows(tensor, arena, rows);
  const blocks = Math.ceil(keys / KV_BLOCK);
  const rowAt = (tensor: Tensor, row: number) => tensor.at[arena] + row * tensor.columns * 4;
  for (let first = 0; first < rows; first += scores.rows) {
    const n = Math.min(scores.rows, rows - first);
    const positionsAt = positions.at[arena] + first * 4;
    let p = compute.command(Op.indexScores, arena, n * blocks, KV_BLOCK * heads * headDim * FLOAT_COST);
    compute.args(p, rowAt(q, first), rowAt(weights, first), heads, headDim);
    compute.floats[p + 4] = shape.scale;
    const tables = cache.rowTables(state).at[arena] + first * 4;
    compute.args(p + 5, positionsAt, tables, cache.kvLayout, scores.at[arena], scores.columns, blocks);
    compute.run();
    p = compute.command(Op.selectKeys, arena, n, keys * ELEMENT_COST);
    compute.args(p, scores.at[arena], scores.columns, shape.topK, positionsAt, rowAt(selection, first));
    compute.args(p + 5, selection.columns, compute.scratch.at[arena], compute.scratch.columns * 4);
    if (arena !== 0 && first + n === rows) compute.copyBack(arena, selection, 0, selection.columns, rows);
    compute.run();
  }
}
