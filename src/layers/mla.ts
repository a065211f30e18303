/**
 * Multi-head latent attention (DeepSeek-V2 and later, GLM-5). Of a token only a latent vector and one rotated key, which all heads
 * share, are kept. The matrices that would make keys and values of a latent are applied to queries and to sums of latents instead
 * (the absorbed form), for any number of rows, so that a prompt and single tokens give the same bits.
 */

import type { Tensor } from '../compute/arenas.ts';
import { attention, type HeadShape, type Selection } from '../compute/attention.ts';
import type { Compute, Input } from '../compute/compute.ts';
import type { Matrix } from '../compute/matrix.ts';
import { add, copyHeads, rmsNorm, rope } from '../compute/rows.ts';
import type { Batch } from './batch.ts';
import type { Mixer, Observer } from './decoder.ts';
import { requireFinite } from './finite.ts';
import type { Indexer } from './indexer.ts';
import type { LayerPlace, RowState } from './state.ts';

export interface MlaShape {
  readonly hiddenSize: number;
  readonly heads: number;
  /** Width of the latent that queries are made of; null: they are made of the input. */
  readonly queryRank: number | null;
  /** Width of the latent that is kept. */
  readonly latentDim: number;
  /** Elements of a head without and with rotation, in this order; neighbours are rotated together. */
  readonly plainDim: number;
  readonly rotaryDim: number;
  readonly valueDim: number;
  readonly normEps: number;
  /** Of the norms of latents. */
  readonly latentNormEps: number;
  /** Of a query times a key. */
  readonly scale: number;
}

export interface MlaWeights {
  readonly inputNorm: Tensor; // [1, hidden]
  /** Down to the query latent and its norm; null where queries are made of the input. */
  readonly qDown: { readonly matrix: Matrix; readonly norm: Tensor } | null; // [queryRank, hidden], [1, queryRank]
  readonly q: Matrix; // [heads*(plainDim + rotaryDim), queryRank or hidden]
  /** Latent, then rotated key. */
  readonly kvDown: Matrix; // [latentDim + rotaryDim, hidden]
  readonly latentNorm: Tensor; // [1, latentDim]
  /** Per head: queries to what latents are compared with. */
  readonly headKeys: Matrix; // [heads*latentDim, plainDim]
  /** Per head: a sum of latents to a value. */
  readonly headValues: Matrix; // [heads*valueDim, latentDim]
  readonly o: Matrix; // [hidden, heads*valueDim]
}

export function mlaState({ latentDim, rotaryDim }: MlaShape): RowState {
  return { kind: 'rows', keyColumns: latentDim + rotaryDim, valueColumns: 0, window: 0 };
}

/** Activations that all layers of a model share. */
export class MlaWorkspace {
  readonly input: Input; // [rows, hidden]
  readonly queryLatent: Input | null; // [rows, queryRank]
  readonly q: Tensor; // [rows, heads*(plainDim + rotaryDim)]
  /** Per head: what latents are compared with, then the rotated part. */
  readonly queries: Tensor; // [rows, heads*(latentDim + rotaryDim)]
  readonly keys: Tensor; // [rows, latentDim + rotaryDim]
  /** Per head: the sum of latents. */
  readonly mixed: Tensor; // [rows, heads*latentDim]
  readonly output: Input; // [rows, heads*valueDim]
  readonly projected: Tensor; // [rows, hidden]

  constructor(compute: Compute, shape: MlaShape, rows: number) {
    const { heads, latentDim, plainDim, rotaryDim, valueDim, queryRank, hiddenSize } = shape;
    const { arenas } = compute;
    const replicated = { replicated: true };
    this.input = compute.input(rows, hiddenSize);
    this.queryLatent = queryRank === null ? null : compute.input(rows, queryRank);
    this.q = arenas.tensor(rows, heads * (plainDim + rotaryDim), replicated);
    this.queries = arenas.tensor(rows, heads * (latentDim + rotaryDim), replicated);
    this.keys = arenas.tensor(rows, latentDim + rotaryDim, replicated);
    this.mixed = arenas.tensor(rows, heads * latentDim, replicated);
    this.output = compute.input(rows, heads * valueDim);
    this.projected = arenas.tensor(rows, hiddenSize, replicated);
  }
}

/** Which keys a layer attends to: all of them (null), or a selection, which its own indexer makes or an earlier one has made. */
export interface KeyChoice {
  readonly selection: Selection;
  readonly indexer: Indexer | null;
}

export class LatentAttention implements Mixer {
  readonly #compute: Compute;
  readonly #place: LayerPlace;
  readonly #shape: MlaShape;
  readonly #heads: HeadShape;
  readonly #weights: MlaWeights;
  readonly #work: MlaWorkspace;
  readonly #rope: Tensor;
  readonly #choice: KeyChoice | null;

  constructor(
    compute: Compute,
    place: LayerPlace,
    shape: MlaShape,
    weights: MlaWeights,
    work: MlaWorkspace,
    rope: Tensor,
    choice: KeyChoice | null,
  ) {
    this.#compute = compute;
    this.#place = place;
    this.#shape = shape;
    this.#weights = weights;
    this.#work = work;
    this.#rope = rope;
    this.#choice = choice;
    this.#heads = {
      heads: shape.heads,
      kvHeads: 1,
      keyDim: shape.latentDim + shape.rotaryDim,
      valueDim: shape.latentDim,
      scale: shape.scale,
      window: 0,
      valuesInKeys: true,
      sinks: null,
    };
  }

  forward(x: Tensor, batch: Batch, observer?: Observer): void {
    const compute = this.#compute;
    const { heads, latentDim, valueDim } = this.#shape;
    const { input, queries, keys, mixed, output, projected } = this.#work;
    const { layer, state } = this.#place;
    const w = this.#weights;
    const n = batch.rows;

    compute.rmsNormInto(x, w.inputNorm, this.#shape.normEps, input, n);
    const source = this.#project(input, n);
    const selection = this.#selectKeys(source, batch, observer);
    this.#rotate(batch, n);

    batch.remember(compute, state, keys, null);
    attention(compute, queries, mixed, batch, state, this.#heads, selection);
    compute.run();

    const sums = { tensor: mixed, stride: latentDim, first: 0 };
    compute.headLinear(w.headValues, heads, sums, { tensor: output.x, stride: valueDim, first: 0 }, n);
    compute.run();
    compute.quantise(output, n);
    compute.linear(w.o, output, projected, n);
    compute.run();
    add(compute, x, projected, n);
    compute.run();
    requireFinite(compute, x, n, 'attention', layer);
  }

  /** Queries and keys of normalised rows, before rotation; returns what queries were made of. */
  #project(input: Input, n: number): Input {
    const compute = this.#compute;
    const { q, keys, queryLatent } = this.#work;
    const { latentDim, latentNormEps } = this.#shape;
    const w = this.#weights;
    const latent = { first: 0, columns: latentDim };
    if (w.qDown === null || queryLatent === null) {
      compute.linear(w.q, input, q, n);
      compute.linear(w.kvDown, input, keys, n);
      compute.run();
      rmsNorm(compute, keys, w.latentNorm, latentNormEps, n, latent);
      compute.run();
      return input;
    }
    compute.linear(w.qDown.matrix, input, queryLatent.x, n);
    compute.linear(w.kvDown, input, keys, n);
    compute.run();
    rmsNorm(compute, keys, w.latentNorm, latentNormEps, n, latent);
    compute.rmsNormInto(queryLatent.x, w.qDown.norm, latentNormEps, queryLatent, n);
    compute.linear(w.q, queryLatent, q, n);
    compute.run();
    return queryLatent;
  }

  #selectKeys(source: Input, batch: Batch, observer?: Observer): Selection | null {
    if (this.#choice === null) return null;
    const { selection, indexer } = this.#choice;
    // what is not finite in a key that no row selects would not show
    requireFinite(this.#compute, this.#work.keys, batch.rows, 'attention', this.#place.layer);
    if (indexer === null) return selection;
    indexer.forward(this.#work.input, source, batch);
    observer?.selected?.(this.#place.layer, selection, batch.rows);
    return selection;
  }

  /** queries = [headKeys q, rotated part of q] per head; the end of keys is rotated in place. */
  #rotate(batch: Batch, n: number): void {
    const compute = this.#compute;
    const { heads, latentDim, plainDim, rotaryDim } = this.#shape;
    const { q, queries, keys } = this.#work;
    const stride = plainDim + rotaryDim;
    const target = { tensor: queries, stride: latentDim + rotaryDim };
    const plain = { tensor: q, stride, first: 0 };
    compute.headLinear(this.#weights.headKeys, heads, plain, { ...target, first: 0 }, n);
    copyHeads(compute, heads, { tensor: q, stride, first: plainDim }, { ...target, first: latentDim }, rotaryDim, n);
    compute.run();
    const rotation = { headDim: latentDim + rotaryDim, first: latentDim, rotaryDim, adjacent: true };
    rope(compute, queries, { ...rotation, heads }, this.#rope, batch.positions, n);
    rope(compute, keys, { ...rotation, heads: 1 }, this.#rope, batch.positions, n);
    compute.run();
  }
}
