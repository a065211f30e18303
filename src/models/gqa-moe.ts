/**
 * Decoders of grouped-query attention and routed experts: what most families are. A family describes itself by a `GqaMoe`; the
 * tensor table, the session states and the forward pass follow from it.
 */

import type { Tensor } from '../compute/arenas.ts';
import {
  Attention,
  type AttentionShape,
  type AttentionWeights,
  AttentionWorkspace,
  attentionState,
} from '../layers/attention.ts';
import { Decoder, type FeedForward } from '../layers/decoder.ts';
import { DenseMlp, type MlpWeights, MlpWorkspace, SharedExpert } from '../layers/mlp.ts';
import type { MoeShape } from '../layers/moe.ts';
import { type MoeLayer, MoeWorkspaces, makeMoeBlocks } from '../layers/moe-block.ts';
import { type Rope, ropeTable } from '../layers/rope.ts';
import { Router, type RouterShape } from '../layers/router.ts';
import type { StateShape } from '../layers/state.ts';
import type { ExpertNames } from '../quant/refs.ts';
import type { BuildContext, DenseTensor, Model, ModelShape, PlacedWeights, TensorTable } from './family.ts';
import { matrix, modelOf, norm, vector } from './tensors.ts';

export interface GqaMoe {
  readonly layers: number;
  readonly vocabSize: number;
  readonly maxContext: number;
  /** The output matrix is the embedding. */
  readonly tied: boolean;
  readonly eps: number;
  readonly attention: AttentionShape;
  readonly rope: Rope;
  /** Keys that a query of a layer sees, itself included; 0 = all. */
  windowOf(layer: number): number;
  readonly qkvBias: boolean;
  readonly outputBias: boolean;
  readonly sinks: boolean;
  readonly moe: MoeShape;
  /** Its bias, where there is one, is a tensor: see `correction`. */
  readonly router: Omit<RouterShape, 'bias'>;
  /** Width of the MLP in layers without experts. */
  readonly denseWidth: number;
  isDense(layer: number): boolean;
  /** Width of the expert that every token uses; 0 = none. */
  readonly sharedWidth: number;
  readonly names: GqaMoeNames;
  readonly ignored: readonly RegExp[];
}

/** What families call their parts. */
export interface GqaMoeNames {
  /** Part of a layer that has the router and the experts. */
  readonly moe: string;
  /** Inside it: the router; names of tensors that are added to its logits, or to its scores for choosing only. */
  readonly router: string;
  readonly routerBias: string | null;
  readonly correction: string | null;
  readonly shared: string;
  experts(layer: number, expert: number, prefix: string): ExpertNames;
}

const EMBEDDING = 'model.embed_tokens.weight';
const FINAL_NORM = 'model.norm.weight';
const HEAD = 'lm_head.weight';

/** As most families call them; no biases of the router, no shared expert. */
export const MLP_NAMES = {
  moe: 'mlp',
  router: 'gate',
  routerBias: null,
  correction: null,
  shared: 'shared_experts',
} as const;

/** The part of a family that follows from the description of a config. */
export function gqaMoeFamily<Config>(describe: (config: Config) => GqaMoe) {
  return {
    hasMtp: () => false,
    shape: (config: Config) => gqaMoeShape(describe(config)),
    tensors: (config: Config) => gqaMoeTensors(describe(config)),
    states: (config: Config) => gqaMoeStates(describe(config)),
    build: (config: Config, context: BuildContext) => buildGqaMoe(describe(config), context),
  };
}

const numbers = (count: number) => Array.from({ length: count }, (_, i) => i);

function gqaMoeShape(m: GqaMoe): ModelShape {
  return {
    layers: m.layers,
    hiddenSize: m.attention.hiddenSize,
    vocabSize: m.vocabSize,
    maxContext: m.maxContext,
    experts: m.moe.experts,
    topK: m.moe.topK,
    expertWidth: m.moe.expertWidth,
    moeLayers: numbers(m.layers).filter(layer => !m.isDense(layer)),
  };
}

/** State i belongs to layer i. */
function gqaMoeStates(m: GqaMoe): StateShape[] {
  return numbers(m.layers).map(layer => attentionState(m.attention, m.windowOf(layer)));
}

function layerNames(m: GqaMoe, layer: number) {
  const p = `model.layers.${layer}`;
  const moe = `${p}.${m.names.moe}`;
  return {
    inputNorm: `${p}.input_layernorm.weight`,
    postNorm: `${p}.post_attention_layernorm.weight`,
    attention: `${p}.self_attn`,
    mlp: `${p}.mlp`,
    router: `${moe}.${m.names.router}.weight`,
    routerBias: m.names.routerBias && `${moe}.${m.names.routerBias}`,
    correction: m.names.correction && `${moe}.${m.names.correction}`,
    experts: `${moe}.experts`,
    shared: `${moe}.${m.names.shared}`,
  };
}

// ---- tensors --------------------------------------------------------------------------------------------------------

function gqaMoeTensors(m: GqaMoe): TensorTable {
  const { hiddenSize } = m.attention;
  const dense = [matrix(EMBEDDING, 'embedding', m.vocabSize, hiddenSize), norm(FINAL_NORM, hiddenSize)];
  if (!m.tied) dense.push(matrix(HEAD, 'head', m.vocabSize, hiddenSize));
  const experts: ExpertNames[] = [];
  for (let layer = 0; layer < m.layers; layer++) {
    const n = layerNames(m, layer);
    dense.push(norm(n.inputNorm, hiddenSize), norm(n.postNorm, hiddenSize), ...attentionTensors(m, n.attention));
    if (m.isDense(layer)) dense.push(...mlpTensors(n.mlp, 'mlp', m.denseWidth, hiddenSize));
    else {
      dense.push(...moeTensors(m, layer));
      for (const expert of numbers(m.moe.experts)) experts.push(m.names.experts(layer, expert, n.experts));
    }
  }
  const ignored = [...m.ignored, /\.rotary_emb\.inv_freq$/];
  if (m.tied) ignored.push(/^lm_head\.weight$/);
  return { dense, experts, hiddenSize, expertWidth: m.moe.expertWidth, ignored };
}

function attentionTensors({ attention: a, ...m }: GqaMoe, p: string): DenseTensor[] {
  const q = a.heads * a.headDim;
  const kv = a.kvHeads * a.headDim;
  const list = [
    matrix(`${p}.q_proj.weight`, 'attention', q, a.hiddenSize),
    matrix(`${p}.k_proj.weight`, 'attention', kv, a.hiddenSize),
    matrix(`${p}.v_proj.weight`, 'attention', kv, a.hiddenSize),
    matrix(`${p}.o_proj.weight`, 'attention', a.hiddenSize, q),
  ];
  if (a.qkNorm) {
    list.push(norm(`${p}.q_norm.weight`, a.qkNorm === 'whole' ? q : a.headDim));
    list.push(norm(`${p}.k_norm.weight`, a.qkNorm === 'whole' ? kv : a.headDim));
  }
  if (m.qkvBias) {
    list.push(vector(`${p}.q_proj.bias`, q), vector(`${p}.k_proj.bias`, kv), vector(`${p}.v_proj.bias`, kv));
  }
  if (m.outputBias) list.push(vector(`${p}.o_proj.bias`, a.hiddenSize));
  if (m.sinks) list.push(vector(`${p}.sinks`, a.heads));
  return list;
}

function mlpTensors(p: string, role: 'mlp' | 'shared', width: number, hidden: number): DenseTensor[] {
  return [
    matrix(`${p}.gate_proj.weight`, role, width, hidden),
    matrix(`${p}.up_proj.weight`, role, width, hidden),
    matrix(`${p}.down_proj.weight`, role, hidden, width),
  ];
}

function moeTensors(m: GqaMoe, layer: number): DenseTensor[] {
  const n = layerNames(m, layer);
  const { hiddenSize, experts } = m.moe;
  const list = [matrix(n.router, 'router', experts, hiddenSize)];
  for (const name of [n.routerBias, n.correction]) if (name) list.push(vector(name, experts));
  if (m.sharedWidth > 0) list.push(...mlpTensors(n.shared, 'shared', m.sharedWidth, hiddenSize));
  return list;
}

// ---- forward pass ---------------------------------------------------------------------------------------------------

function buildGqaMoe(m: GqaMoe, context: BuildContext): Model {
  const { compute, weights, experts, maxRows } = context;
  const { hiddenSize } = m.attention;
  const decoder = new Decoder(compute, { hiddenSize, vocabSize: m.vocabSize }, maxRows);
  const attentionWork = new AttentionWorkspace(compute, m.attention, maxRows);
  const moeWork = new MoeWorkspaces(compute, m.moe, maxRows);
  const hasDense = numbers(m.layers).some(layer => m.isDense(layer));
  const denseWork = hasDense ? new MlpWorkspace(compute, { hiddenSize, width: m.denseWidth }, maxRows) : null;
  const sharedWork =
    m.sharedWidth > 0 ? new MlpWorkspace(compute, { hiddenSize, width: m.sharedWidth }, maxRows) : null;
  const rope = ropeTable(compute.arenas, m.rope, context.context);

  const embedding = weights.matrix(EMBEDDING);
  const head = m.tied ? embedding : weights.matrix(HEAD);
  const mixers = numbers(m.layers).map(layer => {
    const n = layerNames(m, layer);
    const place = { layer, state: layer, window: m.windowOf(layer) };
    const own = attentionWeights(m, weights, n.attention, weights.vector(n.inputNorm));
    return new Attention(compute, place, m.attention, own, attentionWork, rope);
  });
  const dense = new Map<number, FeedForward>();
  const routed: MoeLayer[] = [];
  for (const layer of numbers(m.layers)) {
    const n = layerNames(m, layer);
    const postNorm = { weight: weights.vector(n.postNorm), eps: m.eps };
    if (denseWork && m.isDense(layer)) {
      const mlp = mlpWeights(weights, n.mlp);
      dense.set(layer, new DenseMlp(compute, layer, postNorm, mlp, moeWork.moe.input, denseWork));
      continue;
    }
    const shared = sharedWork && new SharedExpert(compute, mlpWeights(weights, n.shared), null, null, sharedWork);
    const bias = n.correction ? weights.vector(n.correction) : null;
    const gate = { gate: weights.matrix(n.router), bias: n.routerBias ? weights.vector(n.routerBias) : null };
    const router = new Router(compute, layer, { ...m.router, bias }, gate);
    routed.push({ norm: postNorm.weight, eps: m.eps, router, shared });
  }
  const blocks = makeMoeBlocks(moeWork, experts, routed);
  let next = 0;
  const layers = mixers.map((mixer, layer) => ({ mixer, feedForward: dense.get(layer) ?? blocks[next++] }));
  decoder.place({ embedding, norm: weights.vector(FINAL_NORM), head }, layers, m.eps);
  return modelOf(decoder);
}

export function mlpWeights(weights: PlacedWeights, p: string): MlpWeights {
  return {
    gate: weights.matrix(`${p}.gate_proj.weight`),
    up: weights.matrix(`${p}.up_proj.weight`),
    down: weights.matrix(`${p}.down_proj.weight`),
  };
}

function attentionWeights(m: GqaMoe, weights: PlacedWeights, p: string, inputNorm: Tensor): AttentionWeights {
  const vectorIf = (wanted: boolean, name: string) => (wanted ? weights.vector(`${p}.${name}`) : null);
  const { qkNorm } = m.attention;
  return {
    inputNorm,
    q: weights.matrix(`${p}.q_proj.weight`),
    k: weights.matrix(`${p}.k_proj.weight`),
    v: weights.matrix(`${p}.v_proj.weight`),
    o: weights.matrix(`${p}.o_proj.weight`),
    qNorm: vectorIf(qkNorm !== null, 'q_norm.weight'),
    kNorm: vectorIf(qkNorm !== null, 'k_norm.weight'),
    qBias: vectorIf(m.qkvBias, 'q_proj.bias'),
    kBias: vectorIf(m.qkvBias, 'k_proj.bias'),
    vBias: vectorIf(m.qkvBias, 'v_proj.bias'),
    oBias: vectorIf(m.outputBias, 'o_proj.bias'),
    sinks: vectorIf(m.sinks, 'sinks'),
  };
}
