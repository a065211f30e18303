/**
 * Guesses the next layer's experts by its own router on what this layer's attention left, and has the likeliest read while
 * the disk would be idle. A guess decides what is read early, never what is computed.
 */

import type { Tensor } from '../compute/arenas.ts';
import type { Compute, Input } from '../compute/compute.ts';
import type { Matrix } from '../compute/matrix.ts';
import type { ExpertStore } from '../experts/store.ts';

/** Activations that the guesses of all layers share. */
export class LookAheadWorkspace {
  readonly input: Input; // [1, hidden]
  readonly scores: Tensor; // [1, experts]

  constructor(compute: Compute, hiddenSize: number, experts: number) {
    this.input = compute.input(1, hiddenSize);
    this.scores = compute.arenas.tensor(1, experts, { replicated: true });
  }
}

export class LookAhead {
  readonly #compute: Compute;
  readonly #store: ExpertStore;
  readonly #work: LookAheadWorkspace;
  /** The layer that is guessed about: its number, the norm before its experts, its router. */
  readonly #layer: number;
  readonly #norm: Tensor;
  readonly #eps: number;
  readonly #gate: Matrix; // [experts, hidden]
  readonly #topK: number;

  constructor(
    compute: Compute,
    store: ExpertStore,
    work: LookAheadWorkspace,
    next: { layer: number; norm: Tensor; eps: number; gate: Matrix; topK: number },
  ) {
    this.#compute = compute;
    this.#store = store;
    this.#work = work;
    this.#layer = next.layer;
    this.#norm = next.norm;
    this.#eps = next.eps;
    this.#gate = next.gate;
    this.#topK = next.topK;
  }

  /** x: [1, hidden] before this layer's experts are added. Call while this layer's reads are under way. */
  run(x: Tensor): void {
    let reads = this.#store.lookAheadReads();
    if (reads === 0) return;
    const { input, scores } = this.#work;
    this.#compute.rmsNormInto(x, this.#norm, this.#eps, input, 1);
    this.#compute.linear(this.#gate, input, scores, 1);
    this.#compute.run();
    const values = this.#compute.arenas.floats(scores);
    for (let slot = 0; slot < this.#topK && reads > 0; slot++) {
      const expert = largest(values);
      values[expert] = Number.NEGATIVE_INFINITY;
      if (this.#store.prefetch(this.#layer, expert)) reads--;
    }
  }
}

function largest(values: Float32Array): number {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i] > values[best]) best = i;
  return best;
}
