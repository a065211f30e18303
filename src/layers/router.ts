/** Routers: scores over all experts, which of them a token uses, and with what weight. */

import type { Tensor } from '../compute/arenas.ts';
import type { Compute, Input } from '../compute/compute.ts';
import type { Matrix } from '../compute/matrix.ts';
import { addRows, type Choice, sigmoid, softmax, topK } from '../compute/rows.ts';
import { requireFinite } from './finite.ts';

export { MAX_EXPERT_GROUPS } from '../kernels/kernels.ts';

export interface Routing {
  /** i32 [rows, topK], slots by descending score, ties to the lower expert. */
  readonly ids: Tensor;
  /** f32 [rows, topK] */
  readonly weights: Tensor;
}

/** Where a router puts its results. */
export interface RouterWorkspace {
  readonly scores: Tensor; // [rows, experts]
  readonly routing: Routing;
}

export interface RouterWeights {
  readonly gate: Matrix; // [experts, hidden]
  /** Added to the logits. */
  readonly bias: Tensor | null; // [1, experts]
}

export interface RouterShape extends Choice {
  /** What logits become before experts are chosen. */
  readonly score: 'softmax' | 'sigmoid' | 'logits';
}

/** Top k of all scores, without bias or groups. */
export function plainChoice(k: number, weights: Choice['weights'], factor = 1): Choice {
  return { topK: k, bias: null, groups: 1, keptGroups: 1, groupScore: 'largest', weights, factor };
}

export class Router {
  readonly layer: number;
  readonly shape: RouterShape;
  readonly #compute: Compute;
  readonly #weights: RouterWeights;

  constructor(compute: Compute, layer: number, shape: RouterShape, weights: RouterWeights) {
    this.#compute = compute;
    this.layer = layer;
    this.shape = shape;
    this.#weights = weights;
  }

  /** Fills work.routing for n rows of a normalised input. */
  forward(input: Input, work: RouterWorkspace, n: number): Routing {
    this.#score(input, work.scores, n);
    requireFinite(this.#compute, work.scores, n, 'router', this.layer);
    // an expert whose bias is no number would never be chosen
    if (this.shape.bias) requireFinite(this.#compute, this.shape.bias, 1, 'bias of the router', this.layer);
    return this.#choose(work, n);
  }

  /** As forward(), for an input that is only guessed: null where nothing can be said, which is no fault of the model. */
  guess(input: Input, work: RouterWorkspace, n: number): Routing | null {
    this.#score(input, work.scores, n);
    return this.#compute.allFinite(work.scores, n) ? this.#choose(work, n) : null;
  }

  #score(input: Input, scores: Tensor, n: number): void {
    const compute = this.#compute;
    compute.linear(this.#weights.gate, input, scores, n);
    compute.run();
    if (this.#weights.bias) addRows(compute, scores, this.#weights.bias, n);
    compute.run();
  }

  #choose({ scores, routing }: RouterWorkspace, n: number): Routing {
    const compute = this.#compute;
    if (this.shape.score === 'softmax') softmax(compute, scores, n);
    else if (this.shape.score === 'sigmoid') sigmoid(compute, scores, n);
    compute.run();
    topK(compute, scores, this.shape, routing.ids, routing.weights, n);
    compute.run();
    return routing;
  }
}
