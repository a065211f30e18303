/** Softmax router: probabilities over all experts, the k largest chosen. */

import type { Tensor } from '../compute/arenas.ts';
import type { Compute, Input } from '../compute/compute.ts';
import type { Matrix } from '../compute/matrix.ts';
import { requireFinite } from './finite.ts';

export interface Routing {
  /** i32 [rows, topK], slots by descending weight, ties to the lower expert. */
  readonly ids: Tensor;
  /** f32 [rows, topK] */
  readonly weights: Tensor;
}

export class SoftmaxRouter {
  readonly #compute: Compute;
  readonly #layer: number;
  readonly #gate: Matrix; // [experts, hidden]
  readonly #scores: Tensor; // [rows, experts]
  readonly #topK: number;
  readonly #normalise: boolean;
  readonly routing: Routing;

  constructor(
    compute: Compute,
    layer: number,
    gate: Matrix,
    work: { scores: Tensor; routing: Routing },
    topK: number,
    normalise: boolean,
  ) {
    this.#compute = compute;
    this.#layer = layer;
    this.#gate = gate;
    this.#scores = work.scores;
    this.routing = work.routing;
    this.#topK = topK;
    this.#normalise = normalise;
  }

  /** Fills `routing` for n rows of a normalised input. */
  forward(input: Input, n: number): Routing {
    const compute = this.#compute;
    compute.linear(this.#gate, input, this.#scores, n);
    compute.run();
    requireFinite(compute, this.#scores, n, 'router', this.#layer);
    compute.softmax(this.#scores, n);
    compute.run();
    compute.topK(this.#scores, this.#topK, this.routing.ids, this.routing.weights, this.#normalise, n);
    compute.run();
    return this.routing;
  }
}
