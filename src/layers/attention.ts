/** Grouped-query attention over a float32 KV cache, with the optional parts that families differ in. */

import type { Tensor } from '../compute/arenas.ts';
import type { Compute, HeadShape, Input } from '../compute/compute.ts';
import type { Matrix } from '../compute/matrix.ts';
import type { Batch } from './batch.ts';
import { requireFinite } from './finite.ts';

export interface AttentionShape {
  readonly hiddenSize: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly normEps: number;
  /** Clamp of q, k and v after their norms, or null. */
  readonly clip: number | null;
}

export interface AttentionWeights {
  readonly inputNorm: Tensor;
  readonly q: Matrix; // [heads*headDim, hidden]
  readonly k: Matrix; // [kvHeads*headDim, hidden]
  readonly v: Matrix; // [kvHeads*headDim, hidden]
  readonly o: Matrix; // [hidden, heads*headDim]
  /** RMSNorm over the whole projection, before the split into heads. */
  readonly qNorm: Tensor | null;
  readonly kNorm: Tensor | null;
}

/** Activations that all attention layers of a model share. */
export class AttentionWorkspace {
  readonly input: Input; // [rows, hidden]
  readonly q: Tensor; // [rows, heads*headDim]
  readonly k: Tensor; // [rows, kvHeads*headDim]
  readonly v: Tensor;
  readonly output: Input; // [rows, heads*headDim]
  readonly projected: Tensor; // [rows, hidden]

  constructor(compute: Compute, shape: AttentionShape, rows: number) {
    const { arenas } = compute;
    const replicated = { replicated: true };
    this.input = compute.input(rows, shape.hiddenSize);
    this.q = arenas.tensor(rows, shape.heads * shape.headDim, replicated);
    this.k = arenas.tensor(rows, shape.kvHeads * shape.headDim, replicated);
    this.v = arenas.tensor(rows, shape.kvHeads * shape.headDim, replicated);
    this.output = compute.input(rows, shape.heads * shape.headDim);
    this.projected = arenas.tensor(rows, shape.hiddenSize, replicated);
  }
}

export class Attention {
  readonly #compute: Compute;
  readonly #shape: AttentionShape;
  readonly #heads: HeadShape;
  readonly #weights: AttentionWeights;
  readonly #work: AttentionWorkspace;
  readonly #rope: Tensor;
  readonly #layer: number;

  constructor(
    compute: Compute,
    layer: number,
    shape: AttentionShape,
    weights: AttentionWeights,
    work: AttentionWorkspace,
    rope: Tensor,
  ) {
    this.#compute = compute;
    this.#layer = layer;
    this.#shape = shape;
    this.#heads = { ...shape, scale: 1 / Math.sqrt(shape.headDim) };
    this.#weights = weights;
    this.#work = work;
    this.#rope = rope;
  }

  /** x += attention(norm(x)) for the rows of a batch. */
  forward(x: Tensor, batch: Batch): void {
    const compute = this.#compute;
    const { heads, kvHeads, headDim, normEps, clip } = this.#shape;
    const { input, q, k, v, output, projected } = this.#work;
    const w = this.#weights;
    const n = batch.rows;

    compute.rmsNormInto(x, w.inputNorm, normEps, input, n);
    compute.linear(w.q, input, q, n);
    compute.linear(w.k, input, k, n);
    compute.linear(w.v, input, v, n);
    compute.run();

    if (w.qNorm) compute.rmsNorm(q, w.qNorm, normEps, n);
    if (w.kNorm) compute.rmsNorm(k, w.kNorm, normEps, n);
    compute.run();
    if (clip !== null) {
      // a clamp would make an infinity an ordinary number
      requireFinite(compute, v, n, 'attention', this.#layer);
      for (const tensor of [q, k, v]) compute.clamp(tensor, clip, n);
      compute.run();
    }
    compute.rope(q, heads, headDim, headDim, this.#rope, batch.positions, n);
    compute.rope(k, kvHeads, headDim, headDim, this.#rope, batch.positions, n);
    compute.run();

    batch.remember(compute, this.#layer, k, v);
    compute.attention(q, output.x, batch, this.#layer, this.#heads);
    compute.run();

    compute.quantise(output, n);
    compute.linear(w.o, output, projected, n);
    compute.run();
    compute.add(x, projected, n);
    compute.run();
    requireFinite(compute, x, n, 'attention', this.#layer);
  }
}
