/**
 * Guesses the next layer's experts by its own router on what is known of its input early: what this layer's attention left, and the
 * outputs of those experts that need not be waited for. The likeliest are read while the disk would be idle. A guess decides what is
 * read early, never what is computed.
 */

import type { Tensor } from '../compute/arenas.ts';
import type { Compute, Input } from '../compute/compute.ts';
import { combine } from '../compute/rows.ts';
import type { ExpertStore } from '../experts/store.ts';
import type { Router, RouterWorkspace } from './router.ts';

/** More rows at once ask for so many experts that the disk is never idle, and their guesses cost too much. */
export const LOOK_AHEAD_ROWS = 4;

/** Activations that the guesses of all layers share. */
export class LookAheadWorkspace implements RouterWorkspace {
  readonly state: Tensor; // [rows, hidden]
  readonly knownWeights: Tensor; // [rows, topK]
  readonly input: Input; // [rows, hidden]
  readonly scores: Tensor; // [rows, experts]
  readonly routing: RouterWorkspace['routing']; // [rows, topK]
  /** How likely each expert is, and those that are likely at all, the likeliest first. */
  readonly points: Int32Array;
  readonly likeliest: Int32Array;

  constructor(compute: Compute, shape: { hiddenSize: number; experts: number; topK: number }, batchRows: number) {
    const { arenas } = compute;
    const rows = Math.min(LOOK_AHEAD_ROWS, batchRows);
    this.state = arenas.tensor(rows, shape.hiddenSize);
    this.knownWeights = arenas.tensor(rows, shape.topK);
    this.input = compute.input(rows, shape.hiddenSize);
    this.scores = arenas.tensor(rows, shape.experts, { replicated: true });
    this.routing = { ids: arenas.tensor(rows, shape.topK), weights: arenas.tensor(rows, shape.topK) };
    this.points = new Int32Array(shape.experts);
    this.likeliest = new Int32Array(Math.min(shape.experts, rows * shape.topK));
  }
}

/** Outputs of a layer's experts, as far as they are computed; what is not may be anything. */
export interface KnownExperts {
  shared: Tensor | null; // [rows, hidden]
  readonly parts: Tensor; // [rows*topK, hidden]
  readonly weights: Tensor; // [rows, topK]
  /** Which parts are computed. */
  readonly isKnown: Uint8Array;
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

  /** True when guesses are welcome. To be asked once per layer. */
  isWanted(n: number): boolean {
    return n <= LOOK_AHEAD_ROWS && this.#store.wantsGuesses();
  }

  /** x: n rows before this layer's experts are added; `known` is what will be. Call while this layer's reads are under way. */
  run(x: Tensor, known: KnownExperts, n: number): void {
    const { norm, eps, router } = this.#next;
    const { input } = this.#work;
    this.#compute.rmsNormInto(this.#expected(x, known, n), norm, eps, input, n);
    const routing = router.guess(input, this.#work, n);
    if (routing) this.#store.guess(router.layer, this.#work.likeliest, this.#rank(routing.ids, n));
  }

  /** x with what is known added, in a place of its own. */
  #expected(x: Tensor, { shared, parts, weights, isKnown }: KnownExperts, n: number): Tensor {
    const { arenas } = this.#compute;
    const { state, knownWeights } = this.#work;
    const left = arenas.floats(x);
    const expected = arenas.floats(state);
    for (let i = 0; i < n * x.columns; i++) expected[i] = left[i];
    const from = arenas.floats(weights);
    const to = arenas.floats(knownWeights);
    for (let i = 0; i < n * weights.columns; i++) to[i] = isKnown[i] ? from[i] : 0;
    combine(this.#compute, state, parts, knownWeights, weights.columns, shared, n);
    this.#compute.run();
    return state;
  }

  /** Fills `likeliest` and returns how many there are: each row gives an expert points, the more the higher it stands in its choice. */
  #rank(ids: Tensor, n: number): number {
    const { points, likeliest } = this.#work;
    const chosen = this.#compute.arenas.ints(ids);
    points.fill(0);
    for (let i = 0; i < n * ids.columns; i++) points[chosen[i]] += ids.columns - (i % ids.columns);
    let count = 0;
    for (let i = 0; i < n * ids.columns; i++) {
      const expert = chosen[i];
      if (points[expert] < 0) continue; // has its place
      let at = count++;
      for (; at > 0 && -points[likeliest[at - 1]] < points[expert]; at--) likeliest[at] = likeliest[at - 1];
      likeliest[at] = expert;
      points[expert] *= -1;
    }
    return count;
  }
}
