/**
 * The feed-forward parts of a decoder: plain MLPs in some layers, routed experts in the others, beside them an expert that every token
 * uses. Their tensors, and the layers made of them.
 */

import type { Compute } from '../compute/compute.ts';
import type { ExpertStore } from '../experts/store.ts';
import type { FeedForward } from '../layers/decoder.ts';
import { DenseMlp, type MlpWeights, MlpWorkspace, SharedExpert } from '../layers/mlp.ts';
import type { MoeShape } from '../layers/moe.ts';
import { type MoeLayer, MoeWorkspaces, makeMoeBlocks } from '../layers/moe-block.ts';
import { Router, type RouterShape } from '../layers/router.ts';
import type { ExpertNames } from '../quant/refs.ts';
import type { DenseTensor, PlacedWeights } from './family.ts';
import { matrix, norm, vector } from './tensors.ts';

export interface SparseMlp {
  readonly eps: number;
  readonly moe: MoeShape;
  /** Its bias, where there is one, is a tensor: see `names.correction`. */
  readonly router: Omit<RouterShape, 'bias'>;
  /** Width of the MLP in layers without experts. */
  readonly denseWidth: number;
  isDense(layer: number): boolean;
  /** Width of the expert that every token uses; 0 = none. */
  readonly sharedWidth: number;
  readonly names: SparseMlpNames;
}

/** What families call these parts. */
export interface SparseMlpNames {
  /** Part of a layer that has the router and the experts. */
  readonly moe: string;
  /** Inside it: the router; names of tensors that are added to its logits, or to its scores for choosing only. */
  readonly router: string;
  readonly routerBias: string | null;
  readonly correction: string | null;
  readonly shared: string;
  experts(layer: number, expert: number, prefix: string): ExpertNames;
}

/** As most families call them; no biases of the router. */
export const MLP_NAMES = {
  moe: 'mlp',
  router: 'gate',
  routerBias: null,
  correction: null,
  shared: 'shared_experts',
} as const;

function namesOf({ names }: SparseMlp, layer: number) {
  const p = `model.layers.${layer}`;
  const moe = `${p}.${names.moe}`;
  return {
    norm: `${p}.post_attention_layernorm.weight`,
    dense: `${p}.mlp`,
    router: `${moe}.${names.router}.weight`,
    routerBias: names.routerBias && `${moe}.${names.routerBias}`,
    correction: names.correction && `${moe}.${names.correction}`,
    experts: `${moe}.experts`,
    shared: `${moe}.${names.shared}`,
  };
}

/** Resident tensors of a layer's feed-forward part, its norm included. */
export function sparseMlpTensors(m: SparseMlp, layer: number): DenseTensor[] {
  const n = namesOf(m, layer);
  const { hiddenSize, experts } = m.moe;
  const list = [norm(n.norm, hiddenSize)];
  if (m.isDense(layer)) return [...list, ...mlpTensors(n.dense, 'mlp', m.denseWidth, hiddenSize)];
  list.push(matrix(n.router, 'router', experts, hiddenSize));
  for (const name of [n.routerBias, n.correction]) if (name) list.push(vector(name, experts));
  if (m.sharedWidth > 0) list.push(...mlpTensors(n.shared, 'shared', m.sharedWidth, hiddenSize));
  return list;
}

function mlpTensors(p: string, role: 'mlp' | 'shared', width: number, hidden: number): DenseTensor[] {
  return [
    matrix(`${p}.gate_proj.weight`, role, width, hidden),
    matrix(`${p}.up_proj.weight`, role, width, hidden),
    matrix(`${p}.down_proj.weight`, role, hidden, width),
  ];
}

export function mlpWeights(weights: PlacedWeights, p: string): MlpWeights {
  return {
    gate: weights.matrix(`${p}.gate_proj.weight`),
    up: weights.matrix(`${p}.up_proj.weight`),
    down: weights.matrix(`${p}.down_proj.weight`),
  };
}

/** Routed experts of a layer; none in a dense one. */
export function routedExperts(m: SparseMlp, layer: number): ExpertNames[] {
  if (m.isDense(layer)) return [];
  const { experts } = namesOf(m, layer);
  return Array.from({ length: m.moe.experts }, (_, expert) => m.names.experts(layer, expert, experts));
}

/** Makes the feed-forward parts of a model; constructed before weights are placed, because activations are reserved first. */
export class SparseMlps {
  readonly #m: SparseMlp;
  readonly #compute: Compute;
  readonly #moeWork: MoeWorkspaces;
  readonly #denseWork: MlpWorkspace | null;
  readonly #sharedWork: MlpWorkspace | null;

  /** layers: numbers of all layers. */
  constructor(compute: Compute, m: SparseMlp, layers: readonly number[], rows: number) {
    const { hiddenSize } = m.moe;
    const workspace = (width: number) => new MlpWorkspace(compute, { hiddenSize, width }, rows);
    this.#m = m;
    this.#compute = compute;
    this.#moeWork = new MoeWorkspaces(compute, m.moe, rows);
    this.#denseWork = layers.some(layer => m.isDense(layer)) ? workspace(m.denseWidth) : null;
    this.#sharedWork = m.sharedWidth > 0 ? workspace(m.sharedWidth) : null;
  }

  /** The parts of layers that follow each other. */
  make(layers: readonly number[], weights: PlacedWeights, store: ExpertStore): FeedForward[] {
    const routing = layers.filter(layer => !this.#m.isDense(layer));
    const blocks = makeMoeBlocks(
      this.#moeWork,
      store,
      routing.map(layer => this.#moeLayer(layer, weights)),
    );
    return layers.map(layer =>
      this.#m.isDense(layer) ? this.#denseMlp(layer, weights) : blocks[routing.indexOf(layer)],
    );
  }

  #denseMlp(layer: number, weights: PlacedWeights): FeedForward {
    const n = namesOf(this.#m, layer);
    const postNorm = { weight: weights.vector(n.norm), eps: this.#m.eps };
    const own = mlpWeights(weights, n.dense);
    return new DenseMlp(this.#compute, layer, postNorm, own, this.#moeWork.moe.input, this.#denseWork!);
  }

  #moeLayer(layer: number, weights: PlacedWeights): MoeLayer {
    const n = namesOf(this.#m, layer);
    const vectorOf = (name: string | null) => (name === null ? null : weights.vector(name));
    const gate = { gate: weights.matrix(n.router), bias: vectorOf(n.routerBias) };
    const router = new Router(this.#compute, layer, { ...this.#m.router, bias: vectorOf(n.correction) }, gate);
    const work = this.#sharedWork;
    const shared = work && new SharedExpert(this.#compute, mlpWeights(weights, n.shared), null, null, work);
    return { norm: weights.vector(n.norm), eps: this.#m.eps, router, shared };
  }
}
