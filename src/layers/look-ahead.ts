/**
 * Guesses the next layer's experts by its own router on what this layer's attention left, and has the likeliest read while
 * the disk would be idle. A guess decides what is read early, never what is computed.
 */

import type { Tensor } from '../compute/arenas.ts';
import type { Compute, Input } from '../compute/compute.ts';
import type { ExpertStore } from '../experts/store.ts';
import type { Router, RouterWorkspace } from './router.ts';

/** Activations that the guesses of all layers share. */
export class LookAheadWorkspace implements RouterWorkspace {
  readonly input: Input; // [1, hidden]
  readonly scores: Tensor; // [1, experts]
  readonly routing: RouterWorkspace['routing']; // [1, topK]

  constructor(compute: Compute, shape: { hiddenSize: number; experts: number; topK: number }) {
    const { arenas } = compute;
    this.input = compute.input(1, shape.hiddenSize);
    this.scores = arenas.tensor(1, shape.experts, { replicated: true });
    this.routing = { ids: arenas.tensor(1, shape.topK), weights: arenas.tensor(1, shape.topK) };
  }
}

/** The layer that is guessed about: the norm before its experts, and its router. */
export interface NextRouter {
  readonly norm: Tensor;
  readonly eps: number;
  readonly router: Router;
}

export class LookAhead {
  readonly #compute: Compute;
  readonly #store: ExpertStore;
  readonly #work: LookAheadWorkspace;
  readonly #next: NextRouter;

  constructor(compute: Compute, store: ExpertStore, work: LookAheadWorkspace, next: NextRouter) {
    this.#compute = compute;
    this.#store = store;
    this.#work = work;
    this.#next = next;
  }

  /** x: [1, hidden] before this layer's experts are added. Call while this layer's reads are under way. */
  run(x: Tensor): void {
    let reads = this.#store.lookAheadReads();
    if (reads === 0) return;
    const { norm, eps, router } = this.#next;
    this.#compute.rmsNormInto(x, norm, eps, this.#work.input, 1);
    const { ids } = router.forward(this.#work.input, this.#work, 1);
    const chosen = this.#compute.arenas.ints(ids);
    for (let slot = 0; slot < ids.columns && reads > 0; slot++) {
      if (this.#store.prefetch(router.layer, chosen[slot])) reads--;
    }
  }
}
