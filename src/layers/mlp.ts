/** Gated MLP: down(silu(gate x) * up x). Dense layers consist of one; experts that every token uses are one too. */

import type { Tensor } from '../compute/arenas.ts';
import type { Compute, Input } from '../compute/compute.ts';
import type { Matrix } from '../compute/matrix.ts';
import { add, gateRows } from '../compute/rows.ts';
import { PHASE } from '../telemetry/fields.ts';
import type { Batch } from './batch.ts';
import type { FeedForward } from './decoder.ts';
import { requireFinite } from './finite.ts';

export interface MlpWeights {
  readonly gate: Matrix; // [width, hidden]
  readonly up: Matrix; // [width, hidden]
  readonly down: Matrix; // [hidden, width]
}

/** Activations that all MLPs of one width share. */
export class MlpWorkspace {
  readonly hidden: Input; // [rows, width]
  readonly up: Tensor; // [rows, width]
  readonly output: Tensor; // [rows, hidden]

  constructor(compute: Compute, shape: { hiddenSize: number; width: number }, rows: number) {
    const replicated = { replicated: true };
    this.hidden = compute.input(rows, shape.width);
    this.up = compute.arenas.tensor(rows, shape.width, replicated);
    this.output = compute.arenas.tensor(rows, shape.hiddenSize, replicated);
  }
}

/** work.output = the MLP of n rows of a normalised input. */
export function runMlp(compute: Compute, w: MlpWeights, input: Input, work: MlpWorkspace, n: number): Tensor {
  const { hidden, up, output } = work;
  compute.linear(w.gate, input, hidden.x, n);
  compute.linear(w.up, input, up, n);
  compute.run();
  hidden.version++;
  compute.swigluInto(hidden, up, 0, n);
  compute.run();
  compute.linear(w.down, hidden, output, n);
  compute.run();
  return output;
}

/** The feed-forward part of a dense layer. */
export class DenseMlp implements FeedForward {
  readonly #compute: Compute;
  readonly #layer: number;
  readonly #norm: Tensor;
  readonly #eps: number;
  readonly #weights: MlpWeights;
  readonly #input: Input; // [rows, hidden]
  readonly #work: MlpWorkspace;

  /** input: workspace [rows, hidden] that this layer may overwrite. */
  constructor(
    compute: Compute,
    layer: number,
    norm: { readonly weight: Tensor; readonly eps: number },
    weights: MlpWeights,
    input: Input,
    work: MlpWorkspace,
  ) {
    this.#compute = compute;
    this.#layer = layer;
    this.#norm = norm.weight;
    this.#eps = norm.eps;
    this.#weights = weights;
    this.#input = input;
    this.#work = work;
  }

  forward(x: Tensor, batch: Batch): void {
    const n = batch.rows;
    this.#compute.clock.enter(PHASE.dense);
    this.#compute.rmsNormInto(x, this.#norm, this.#eps, this.#input, n);
    const output = runMlp(this.#compute, this.#weights, this.#input, this.#work, n);
    add(this.#compute, x, output, n);
    this.#compute.run();
    requireFinite(this.#compute, x, n, 'MLP', this.#layer);
  }
}

/** An expert that every token uses, with or without a gate of its own: sigmoid(gate x) of each row. */
export class SharedExpert {
  readonly #compute: Compute;
  readonly #weights: MlpWeights;
  readonly #gate: Matrix | null; // [1, hidden]
  readonly #gates: Tensor | null; // [rows, 1]
  readonly #work: MlpWorkspace;

  /** gates: workspace [rows, 1], needed when there is a gate. */
  constructor(compute: Compute, weights: MlpWeights, gate: Matrix | null, gates: Tensor | null, work: MlpWorkspace) {
    this.#compute = compute;
    this.#weights = weights;
    this.#gate = gate;
    this.#gates = gates;
    this.#work = work;
  }

  /** Its output in a layer for n rows of a normalised input: [rows, hidden], valid until the next call. */
  forward(input: Input, n: number, layer: number): Tensor {
    const output = runMlp(this.#compute, this.#weights, input, this.#work, n);
    if (this.#gate === null || this.#gates === null) return output;
    this.#compute.linear(this.#gate, input, this.#gates, n);
    this.#compute.run();
    // the sigmoid of an infinity is an ordinary number
    requireFinite(this.#compute, this.#gates, n, 'gate of the shared expert', layer);
    gateRows(this.#compute, output, this.#gates, n);
    this.#compute.run();
    return output;
  }
}
