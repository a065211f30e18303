/** Grouped-query attention over the rows of a session, with the optional parts that families differ in. */

import type { Tensor } from '../compute/arenas.ts';
import { attention, type HeadShape } from '../compute/attention.ts';
import type { Compute, Input } from '../compute/compute.ts';
import type { Matrix } from '../compute/matrix.ts';
import { add, addRows, clamp, copyHeads, rmsNorm, rmsNormHeads, rope, sigmoidGate } from '../compute/rows.ts';
import type { Batch } from './batch.ts';
import type { Mixer } from './decoder.ts';
import { requireFinite } from './finite.ts';
import type { LayerPlace, RowState } from './state.ts';

export interface AttentionShape {
  readonly hiddenSize: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /** Elements of a head that are rotated, from its first on, by halves. */
  readonly rotaryDim: number;
  readonly normEps: number;
  /** RMSNorm of q and k after their projection: of all heads as one row, of each head, or none. */
  readonly qkNorm: 'whole' | 'heads' | null;
  /** Clamp of q, k and v after their norms, or null. */
  readonly clip: number | null;
  /** q_proj gives per head its query, then a gate whose sigmoid the output is multiplied with. */
  readonly outputGate: boolean;
}

/** What plain families do not have. */
export const PLAIN = { qkNorm: null, clip: null, outputGate: false } as const;

/** Vectors are [1, length]; null where a family has none. */
export interface AttentionWeights {
  readonly inputNorm: Tensor;
  readonly q: Matrix; // [heads*headDim (twice that with a gate), hidden]
  readonly k: Matrix; // [kvHeads*headDim, hidden]
  readonly v: Matrix; // [kvHeads*headDim, hidden]
  readonly o: Matrix; // [hidden, heads*headDim]
  readonly qNorm: Tensor | null;
  readonly kNorm: Tensor | null;
  readonly qBias: Tensor | null;
  readonly kBias: Tensor | null;
  readonly vBias: Tensor | null;
  readonly oBias: Tensor | null;
  /** [1, heads] */
  readonly sinks: Tensor | null;
}

export const NO_BIASES = { qBias: null, kBias: null, vBias: null, oBias: null } as const;

/** What a layer of this shape keeps of a session. window: keys that a query sees, itself included; 0 = all. */
export function attentionState(shape: Pick<AttentionShape, 'kvHeads' | 'headDim'>, window = 0): RowState {
  const columns = shape.kvHeads * shape.headDim;
  return { kind: 'rows', keyColumns: columns, valueColumns: columns, window };
}

/** Activations that all attention layers of a model share. */
export class AttentionWorkspace {
  readonly input: Input; // [rows, hidden]
  readonly q: Tensor; // [rows, heads*headDim]
  /** Output of q_proj where it also gives gates. */
  readonly joint: Tensor | null; // [rows, heads*2*headDim]
  readonly gate: Tensor | null; // [rows, heads*headDim]
  readonly k: Tensor; // [rows, kvHeads*headDim]
  readonly v: Tensor;
  readonly output: Input; // [rows, heads*headDim]
  readonly projected: Tensor; // [rows, hidden]
  /** Copies of sinks in other arenas. */
  readonly sinks: Tensor; // [1, heads]

  constructor(compute: Compute, shape: AttentionShape, rows: number) {
    const { arenas } = compute;
    const replicated = { replicated: true };
    const columns = shape.heads * shape.headDim;
    this.input = compute.input(rows, shape.hiddenSize);
    this.q = arenas.tensor(rows, columns, replicated);
    this.joint = shape.outputGate ? arenas.tensor(rows, 2 * columns, replicated) : null;
    this.gate = shape.outputGate ? arenas.tensor(rows, columns) : null;
    this.k = arenas.tensor(rows, shape.kvHeads * shape.headDim, replicated);
    this.v = arenas.tensor(rows, shape.kvHeads * shape.headDim, replicated);
    this.output = compute.input(rows, columns);
    this.projected = arenas.tensor(rows, shape.hiddenSize, replicated);
    this.sinks = arenas.tensor(1, shape.heads, replicated);
  }
}

export interface AttentionPlace extends LayerPlace {
  /** Keys that a query sees, itself included; 0 = all. */
  readonly window: number;
}

export class Attention implements Mixer {
  readonly #compute: Compute;
  readonly #place: AttentionPlace;
  readonly #shape: AttentionShape;
  readonly #heads: HeadShape;
  readonly #weights: AttentionWeights;
  readonly #work: AttentionWorkspace;
  readonly #rope: Tensor;

  constructor(
    compute: Compute,
    place: AttentionPlace,
    shape: AttentionShape,
    weights: AttentionWeights,
    work: AttentionWorkspace,
    rope: Tensor,
  ) {
    this.#compute = compute;
    this.#place = place;
    this.#shape = shape;
    this.#weights = weights;
    this.#work = work;
    this.#rope = rope;
    this.#heads = {
      heads: shape.heads,
      kvHeads: shape.kvHeads,
      keyDim: shape.headDim,
      valueDim: shape.headDim,
      scale: 1 / Math.sqrt(shape.headDim),
      window: place.window,
      valuesInKeys: false,
      sinks: weights.sinks && { values: weights.sinks, copies: work.sinks },
    };
  }

  forward(x: Tensor, batch: Batch): void {
    const compute = this.#compute;
    const { q, k, v, output, projected, gate } = this.#work;
    const w = this.#weights;
    const n = batch.rows;

    this.#project(x, n);
    this.#normalise(n);
    for (const [tensor, heads] of [
      [q, this.#shape.heads],
      [k, this.#shape.kvHeads],
    ] as const) {
      const { headDim, rotaryDim } = this.#shape;
      const rotation = { heads, headDim, first: 0, rotaryDim, adjacent: false };
      rope(compute, tensor, rotation, this.#rope, batch.positions, n);
    }
    compute.run();

    batch.remember(compute, this.#place.state, k, v);
    attention(compute, q, output.x, batch, this.#place.state, this.#heads);
    compute.run();
    if (gate) {
      // the sigmoid of an infinity is an ordinary number
      requireFinite(compute, gate, n, 'gate of the attention', this.#place.layer);
      sigmoidGate(compute, output.x, gate, n);
    }
    compute.run();

    compute.quantise(output, n);
    compute.linear(w.o, output, projected, n);
    compute.run();
    if (w.oBias) addRows(compute, projected, w.oBias, n);
    compute.run();
    add(compute, x, projected, n);
    compute.run();
    requireFinite(compute, x, n, 'attention', this.#place.layer);
  }

  /** q, k, v (and the gates) of normalised rows. */
  #project(x: Tensor, n: number): void {
    const compute = this.#compute;
    const { input, q, k, v, joint, gate } = this.#work;
    const w = this.#weights;
    compute.rmsNormInto(x, w.inputNorm, this.#shape.normEps, input, n);
    compute.linear(w.q, input, joint ?? q, n);
    compute.linear(w.k, input, k, n);
    compute.linear(w.v, input, v, n);
    compute.run();
    if (joint && gate) {
      const { heads, headDim } = this.#shape;
      const from = { tensor: joint, stride: 2 * headDim };
      copyHeads(compute, heads, { ...from, first: 0 }, { tensor: q, stride: headDim, first: 0 }, headDim, n);
      copyHeads(compute, heads, { ...from, first: headDim }, { tensor: gate, stride: headDim, first: 0 }, headDim, n);
    }
    if (w.qBias) addRows(compute, q, w.qBias, n);
    if (w.kBias) addRows(compute, k, w.kBias, n);
    if (w.vBias) addRows(compute, v, w.vBias, n);
    compute.run();
  }

  #normalise(n: number): void {
    const compute = this.#compute;
    const { qkNorm, headDim, normEps, clip } = this.#shape;
    const { q, k, v } = this.#work;
    for (const [tensor, weight] of [
      [q, this.#weights.qNorm],
      [k, this.#weights.kNorm],
    ] as const) {
      if (weight && qkNorm === 'whole') rmsNorm(compute, tensor, weight, normEps, n);
      else if (weight) rmsNormHeads(compute, tensor, weight, normEps, headDim, n);
    }
    compute.run();
    if (clip === null) return;
    // a clamp would make an infinity an ordinary number
    requireFinite(compute, v, n, 'attention', this.#place.layer);
    for (const tensor of [q, k, v]) clamp(compute, tensor, clip, n);
    compute.run();
  }
}
