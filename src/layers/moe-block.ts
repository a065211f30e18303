/** The feed-forward part of a layer with routed experts: norm, router, experts, and a shared expert where there is one. */

import type { Tensor } from '../compute/arenas.ts';
import type { Compute } from '../compute/compute.ts';
import type { ExpertStore } from '../experts/store.ts';
import { PHASE } from '../telemetry/fields.ts';
import type { Batch } from './batch.ts';
import type { FeedForward, Observer } from './decoder.ts';
import { LookAhead, LookAheadWorkspace, type NextRouter } from './look-ahead.ts';
import type { SharedExpert } from './mlp.ts';
import { type MoeShape, MoeWorkspace, RoutedExperts } from './moe.ts';

/** One layer's part: what `makeMoeBlocks` needs to know of it. */
export interface MoeLayer extends NextRouter {
  readonly shared: SharedExpert | null;
}

class MoeBlock implements FeedForward {
  readonly #compute: Compute;
  readonly #layer: MoeLayer;
  readonly #experts: RoutedExperts;
  readonly #work: MoeWorkspace;

  constructor(compute: Compute, layer: MoeLayer, experts: RoutedExperts, work: MoeWorkspace) {
    this.#compute = compute;
    this.#layer = layer;
    this.#experts = experts;
    this.#work = work;
  }

  forward(x: Tensor, batch: Batch, observer?: Observer): void {
    const { norm, eps, router } = this.#layer;
    const { input } = this.#work;
    const n = batch.rows;
    this.#compute.clock.enter(PHASE.router);
    this.#compute.rmsNormInto(x, norm, eps, input, n);
    const routing = router.forward(input, this.#work, n);
    observer?.router?.(router.layer, routing.ids, routing.weights, n);
    this.#compute.clock.enter(PHASE.experts);
    this.#experts.forward(x, input, routing, n);
  }
}

/** Activations of all MoE layers of a model; made before weights are placed. */
export class MoeWorkspaces {
  readonly compute: Compute;
  readonly shape: MoeShape;
  readonly rows: number;
  readonly moe: MoeWorkspace;
  readonly lookAhead: LookAheadWorkspace;

  constructor(compute: Compute, shape: MoeShape, rows: number) {
    this.compute = compute;
    this.shape = shape;
    this.rows = rows;
    this.moe = new MoeWorkspace(compute, shape, rows);
    this.lookAhead = new LookAheadWorkspace(compute, shape, rows);
  }
}

/** The blocks of layers that follow each other, in the order of the layers; each looks ahead to the next. */
export function makeMoeBlocks(work: MoeWorkspaces, store: ExpertStore, layers: readonly MoeLayer[]): FeedForward[] {
  const { compute, shape, rows, moe } = work;
  return layers.map((layer, i) => {
    const next = layers.at(i + 1) ?? null;
    const lookAhead = next && new LookAhead(compute, store, work.lookAhead, next);
    const nextLayer = next?.router.layer ?? null;
    const current = layer.router.layer;
    const experts = new RoutedExperts(compute, store, current, nextLayer, shape, moe, rows, lookAhead, layer.shared);
    return new MoeBlock(compute, layer, experts, moe);
  });
}
