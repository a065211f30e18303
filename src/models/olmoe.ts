/**
 * OLMoE (allenai): every layer is attention with RMSNorm over the whole q and k projections, then a routed MLP without
 * shared expert whose weights are not renormalised. Source: Hugging Face transformers, modeling_olmoe, and the model cards.
 */

import { z } from 'zod';
import { Attention, type AttentionShape, AttentionWorkspace } from '../layers/attention.ts';
import type { Batch } from '../layers/batch.ts';
import { embedTokens } from '../layers/embedding.ts';
import { LogitsHead } from '../layers/head.ts';
import { LookAhead, LookAheadWorkspace } from '../layers/look-ahead.ts';
import { MoeWorkspace, RoutedExperts } from '../layers/moe.ts';
import { ropeTable } from '../layers/rope.ts';
import { SoftmaxRouter } from '../layers/router.ts';
import { count, eosField, parseFields, positive } from './config.ts';
import type { BuildContext, DenseTensor, Family, Model, ModelShape, Observer, TensorTable } from './family.ts';

// ---- config ---------------------------------------------------------------------------------------------------------

// Sanity limits, above everything published in any family, so that a hostile file cannot make tables of absurd length. The
// size of any one matrix stays an exact integer. What a model really costs is the plan's business.

/** hidden_size and intermediate_size; the widest published models have 53,248. */
const MAX_WIDTH = 65536;
/** Published models have fewer than 130; each layer costs a list of tensor names before any weight is looked for. */
const MAX_LAYERS = 1024;
/** Published models have up to 128 heads. */
const MAX_HEADS = 1024;
/** Of one layer; published models have a few hundred. */
const MAX_EXPERTS = 4096;
/** The largest published vocabulary has about 260,000 tokens. */
const MAX_VOCABULARY = 2 ** 24;
/** The longest published contexts have 10 million positions. Above 2^24 float32, in which angles are made, cannot count them. */
const MAX_CONTEXT = 2 ** 24;

const schema = z.object({
  hidden_size: count(MAX_WIDTH),
  intermediate_size: count(MAX_WIDTH),
  num_hidden_layers: count(MAX_LAYERS),
  num_attention_heads: count(MAX_HEADS),
  num_key_value_heads: count(MAX_HEADS).nullish(),
  num_experts: count(MAX_EXPERTS),
  num_experts_per_tok: count(MAX_EXPERTS),
  norm_topk_prob: z.boolean().default(false),
  vocab_size: count(MAX_VOCABULARY),
  max_position_embeddings: count(MAX_CONTEXT),
  rope_theta: positive.optional(),
  rope_scaling: z.null({ message: 'must be null: scaled rotary positions are not supported for olmoe' }).optional(),
  rope_parameters: z.object({ rope_type: z.literal('default'), rope_theta: positive }).nullish(),
  rms_norm_eps: positive.default(1e-5),
  clip_qkv: positive.nullable().default(null),
  hidden_act: z.literal('silu').default('silu'),
  attention_bias: z.literal(false).default(false),
  tie_word_embeddings: z.boolean().default(false),
  eos_token_id: eosField,
});

export type OlmoeConfig = ReturnType<typeof parseConfig>;

function parseConfig(raw: Readonly<Record<string, unknown>>) {
  const c = parseFields('olmoe', schema, raw, (c, issue) => {
    const kvHeads = c.num_key_value_heads ?? c.num_attention_heads;
    if (c.hidden_size % c.num_attention_heads !== 0) issue('hidden_size', 'must be a multiple of num_attention_heads');
    if ((c.hidden_size / c.num_attention_heads) % 2 !== 0) issue('hidden_size', 'must give an even head size');
    if (c.num_attention_heads % kvHeads !== 0) issue('num_key_value_heads', 'must divide num_attention_heads');
    if (c.num_experts_per_tok > c.num_experts) issue('num_experts_per_tok', 'must not exceed num_experts');
  });
  return {
    ...c,
    kvHeads: c.num_key_value_heads ?? c.num_attention_heads,
    headDim: c.hidden_size / c.num_attention_heads,
    ropeTheta: c.rope_parameters?.rope_theta ?? c.rope_theta ?? 10000,
  };
}

function shape(c: OlmoeConfig): ModelShape {
  const attention = c.hidden_size * c.headDim * (c.num_attention_heads * 2 + c.kvHeads * 2);
  const norms = 2 * c.hidden_size + c.headDim * (c.num_attention_heads + c.kvHeads);
  const experts = c.num_experts * 3 * c.intermediate_size * c.hidden_size;
  const perLayer = attention + norms + experts + c.num_experts * c.hidden_size;
  const tables = c.tie_word_embeddings ? 1 : 2;
  return {
    layers: c.num_hidden_layers,
    hiddenSize: c.hidden_size,
    vocabSize: c.vocab_size,
    maxContext: c.max_position_embeddings,
    heads: c.num_attention_heads,
    kvHeads: c.kvHeads,
    headDim: c.headDim,
    experts: c.num_experts,
    topK: c.num_experts_per_tok,
    expertWidth: c.intermediate_size,
    moeLayers: Array.from({ length: c.num_hidden_layers }, (_, layer) => layer),
    parameters: c.num_hidden_layers * perLayer + tables * c.vocab_size * c.hidden_size + c.hidden_size,
  };
}

// ---- tensor names ---------------------------------------------------------------------------------------------------

const EMBEDDING = 'model.embed_tokens.weight';
const FINAL_NORM = 'model.norm.weight';
const HEAD = 'lm_head.weight';

/** Names of one layer's resident tensors. */
function layerNames(layer: number) {
  const p = `model.layers.${layer}`;
  return {
    inputNorm: `${p}.input_layernorm.weight`,
    q: `${p}.self_attn.q_proj.weight`,
    k: `${p}.self_attn.k_proj.weight`,
    v: `${p}.self_attn.v_proj.weight`,
    o: `${p}.self_attn.o_proj.weight`,
    qNorm: `${p}.self_attn.q_norm.weight`,
    kNorm: `${p}.self_attn.k_norm.weight`,
    postNorm: `${p}.post_attention_layernorm.weight`,
    router: `${p}.mlp.gate.weight`,
  };
}

function tensors(c: OlmoeConfig): TensorTable {
  const hidden = c.hidden_size;
  const qRows = c.num_attention_heads * c.headDim;
  const kvRows = c.kvHeads * c.headDim;
  const matrix = (name: string, role: DenseTensor['role'], rows: number, columns: number) => ({
    name,
    role,
    rows,
    columns,
  });
  const norm = (name: string, length: number) => matrix(name, 'norm', 1, length);
  const dense = [matrix(EMBEDDING, 'embedding', c.vocab_size, hidden), norm(FINAL_NORM, hidden)];
  if (!c.tie_word_embeddings) dense.push(matrix(HEAD, 'head', c.vocab_size, hidden));
  const experts: TensorTable['experts'][number][] = [];
  for (let layer = 0; layer < c.num_hidden_layers; layer++) {
    const n = layerNames(layer);
    dense.push(
      norm(n.inputNorm, hidden),
      norm(n.postNorm, hidden),
      norm(n.qNorm, qRows),
      norm(n.kNorm, kvRows),
      matrix(n.q, 'attention', qRows, hidden),
      matrix(n.k, 'attention', kvRows, hidden),
      matrix(n.v, 'attention', kvRows, hidden),
      matrix(n.o, 'attention', hidden, qRows),
      matrix(n.router, 'router', c.num_experts, hidden),
    );
    for (let expert = 0; expert < c.num_experts; expert++) {
      const e = `model.layers.${layer}.mlp.experts.${expert}`;
      experts.push({
        layer,
        expert,
        gate: `${e}.gate_proj.weight`,
        up: `${e}.up_proj.weight`,
        down: `${e}.down_proj.weight`,
        record: `${e}.record`,
        merged: `${e}.merged_weight`,
        mergedScales: `${e}.qs`,
      });
    }
  }
  const ignored = [/\.rotary_emb\.inv_freq$/];
  if (c.tie_word_embeddings) ignored.push(/^lm_head\.weight$/);
  return { dense, experts, hiddenSize: hidden, expertWidth: c.intermediate_size, ignored };
}

// ---- forward pass ---------------------------------------------------------------------------------------------------

function build(c: OlmoeConfig, { compute, weights, experts, maxRows, context }: BuildContext): Model {
  const eps = c.rms_norm_eps;
  const attentionShape: AttentionShape = {
    hiddenSize: c.hidden_size,
    heads: c.num_attention_heads,
    kvHeads: c.kvHeads,
    headDim: c.headDim,
    normEps: eps,
    clip: c.clip_qkv,
  };
  const moeShape = {
    hiddenSize: c.hidden_size,
    expertWidth: c.intermediate_size,
    experts: c.num_experts,
    topK: c.num_experts_per_tok,
  };
  const x = compute.arenas.tensor(maxRows, c.hidden_size, { replicated: true });
  const attentionWork = new AttentionWorkspace(compute, attentionShape, maxRows);
  const moeWork = new MoeWorkspace(compute, moeShape, maxRows);
  const lookAheadWork = new LookAheadWorkspace(compute, c.hidden_size, c.num_experts);
  const head = new LogitsHead(compute, c.hidden_size, c.vocab_size, maxRows);
  const rope = ropeTable(compute.arenas, c.ropeTheta, c.headDim, context);

  const embedding = weights.matrix(EMBEDDING);
  head.place(weights.vector(FINAL_NORM), c.tie_word_embeddings ? embedding : weights.matrix(HEAD), eps);
  const routed = Array.from({ length: c.num_hidden_layers }, (_, layer) => {
    const n = layerNames(layer);
    return { layer, norm: weights.vector(n.postNorm), eps, gate: weights.matrix(n.router), topK: moeShape.topK };
  });
  const layers = Array.from({ length: c.num_hidden_layers }, (_, layer) => {
    const n = layerNames(layer);
    const attentionWeights = {
      inputNorm: weights.vector(n.inputNorm),
      q: weights.matrix(n.q),
      k: weights.matrix(n.k),
      v: weights.matrix(n.v),
      o: weights.matrix(n.o),
      qNorm: weights.vector(n.qNorm),
      kNorm: weights.vector(n.kNorm),
    };
    const { norm, gate } = routed[layer];
    const next = layer + 1 < c.num_hidden_layers ? layer + 1 : null;
    const lookAhead = next === null ? null : new LookAhead(compute, experts, lookAheadWork, routed[next]);
    return {
      attention: new Attention(compute, layer, attentionShape, attentionWeights, attentionWork, rope),
      postNorm: norm,
      router: new SoftmaxRouter(compute, layer, gate, moeWork, moeShape.topK, c.norm_topk_prob),
      experts: new RoutedExperts(compute, experts, layer, next, moeShape, moeWork, maxRows, lookAhead),
    };
  });

  return {
    maxLogitRows: head.maxRows,

    forward(batch: Batch, observer?: Observer): void {
      const n = batch.rows;
      embedTokens(compute, embedding, batch, x);
      for (let i = 0; i < layers.length; i++) {
        const layer = layers[i];
        observer?.beforeLayer?.(i);
        layer.attention.forward(x, batch);
        compute.rmsNormInto(x, layer.postNorm, eps, moeWork.input, n);
        const routing = layer.router.forward(moeWork.input, n);
        observer?.router?.(i, routing.ids, routing.weights, n);
        layer.experts.forward(x, moeWork.input, routing, n);
        observer?.hidden?.(i, x, n);
      }
    },

    logits: (first, n) => head.logits(x, first, n),
  };
}

// ---- chat -----------------------------------------------------------------------------------------------------------

export const olmoe: Family<OlmoeConfig> = {
  modelType: 'olmoe',
  parseConfig,
  shape,
  tensors,
  build,
  eosIds: c => c.eos_token_id,
  /** Roles are ordinary text in the published tokenizer (Tulu style). */
  controlStrings: ['<|system|>', '<|user|>', '<|assistant|>', '<|endoftext|>', '|||IP_ADDRESS|||'],
};
