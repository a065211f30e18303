/**
 * Lightning indexer (DeepSeek V3.2, GLM-5): which earlier tokens a row may attend to. Small heads score all of them, and the topK best
 * are kept. Its keys are states of their own.
 */

import type { Tensor } from '../compute/arenas.ts';
import { type IndexerShape as Scores, type Selection, selectKeys } from '../compute/attention.ts';
import type { Compute, Input } from '../compute/compute.ts';
import type { Matrix } from '../compute/matrix.ts';
import { layerNorm, rope } from '../compute/rows.ts';
import type { Batch } from './batch.ts';
import { requireFinite } from './finite.ts';
import type { LayerPlace, RowState } from './state.ts';

/** Most scores that are made before they are used, 16 MiB: long contexts are scored a few rows at a time. */
const MAX_SCORES = 1 << 22;

export interface IndexerShape {
  readonly heads: number;
  readonly headDim: number;
  /** First elements of queries and keys that are rotated, in neighbouring pairs. */
  readonly rotaryDim: number;
  readonly topK: number;
  /** Of the LayerNorm of keys. */
  readonly normEps: number;
}

export interface IndexerWeights {
  readonly q: Matrix; // [heads*headDim, query latent]
  readonly k: Matrix; // [headDim, hidden]
  readonly kNorm: Tensor; // [1, headDim]
  readonly kNormBias: Tensor; // [1, headDim]
  /** Weights of the heads, for each row. */
  readonly weights: Matrix; // [heads, hidden]
}

export function indexerState({ headDim }: IndexerShape): RowState {
  return { kind: 'rows', keyColumns: headDim, valueColumns: 0, window: 0 };
}

/** Activations that all indexers of a model share. A selection stays for the layers that have no indexer of their own. */
export class IndexerWorkspace {
  readonly q: Tensor; // [rows, heads*headDim]
  readonly keys: Tensor; // [rows, headDim]
  readonly weights: Tensor; // [rows, heads]
  readonly scores: Tensor; // [some rows, context]
  readonly selection: Selection; // [rows, topK + 1]

  constructor(compute: Compute, shape: IndexerShape, rows: number, context: number) {
    const { arenas } = compute;
    const replicated = { replicated: true };
    const scoredRows = Math.min(rows, Math.max(1, Math.floor(MAX_SCORES / context)));
    this.q = arenas.tensor(rows, shape.heads * shape.headDim, replicated);
    this.keys = arenas.tensor(rows, shape.headDim, replicated);
    this.weights = arenas.tensor(rows, shape.heads, replicated);
    this.scores = arenas.tensor(scoredRows, context, replicated);
    this.selection = arenas.tensor(rows, Math.min(shape.topK, context) + 1, replicated);
  }
}

export class Indexer {
  readonly #compute: Compute;
  readonly #place: LayerPlace;
  readonly #shape: IndexerShape;
  readonly #scores: Scores;
  readonly #weights: IndexerWeights;
  readonly #work: IndexerWorkspace;
  readonly #rope: Tensor;

  constructor(
    compute: Compute,
    place: LayerPlace,
    shape: IndexerShape,
    weights: IndexerWeights,
    work: IndexerWorkspace,
    rope: Tensor,
  ) {
    this.#compute = compute;
    this.#place = place;
    this.#shape = shape;
    this.#weights = weights;
    this.#work = work;
    this.#rope = rope;
    const { heads, headDim } = shape;
    // the factor of head weights, heads^-1/2, is taken here too: only the order of scores matters
    this.#scores = { heads, headDim, scale: 1 / Math.sqrt(heads * headDim), topK: work.selection.columns - 1 };
  }

  /** Fills the selection. input [rows, hidden]: normalised rows; queries [rows, rank]: the latent that queries are made of. */
  forward(input: Input, queries: Input, batch: Batch): Selection {
    const compute = this.#compute;
    const { heads, headDim, rotaryDim, normEps } = this.#shape;
    const { q, keys, weights, scores, selection } = this.#work;
    const { layer, state } = this.#place;
    const w = this.#weights;
    const n = batch.rows;

    compute.linear(w.q, queries, q, n);
    compute.linear(w.k, input, keys, n);
    compute.linear(w.weights, input, weights, n);
    compute.run();
    layerNorm(compute, keys, w.kNorm, w.kNormBias, normEps, n);
    compute.run();
    const rotation = { headDim, first: 0, rotaryDim, adjacent: true };
    rope(compute, q, { ...rotation, heads }, this.#rope, batch.positions, n);
    rope(compute, keys, { ...rotation, heads: 1 }, this.#rope, batch.positions, n);
    compute.run();
    // a score that is no number would be left out without a word
    for (const tensor of [q, keys, weights]) requireFinite(compute, tensor, n, 'indexer', layer);

    batch.remember(compute, state, keys, null);
    selectKeys(compute, q, weights, scores, selection, batch, state, this.#scores);
    return selection;
  }
}
