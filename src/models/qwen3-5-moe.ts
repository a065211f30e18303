/**
 * Qwen3.5 and Qwen3.6 MoE (35B-A3B and others): three layers of Gated DeltaNet for each one of gated attention, routed experts and a
 * gated shared one in all of them; norms are zero-centred. Images are not read. Source: Hugging Face transformers,
 * modeling_qwen3_5_moe; the prediction head, which it leaves out, as vLLM and SGLang wire it.
 */

import { z } from 'zod';
import { Attention, type AttentionShape, AttentionWorkspace, attentionState, NO_BIASES } from '../layers/attention.ts';
import { Decoder, type Mixer } from '../layers/decoder.ts';
import { DeltaNet, DeltaNetWorkspace, deltaChannels, deltaStates, MAX_DELTA_HEAD_DIM } from '../layers/delta-net.ts';
import { MlpWorkspace, SharedExpert } from '../layers/mlp.ts';
import { type MoeLayer, MoeWorkspaces, makeMoeBlocks } from '../layers/moe-block.ts';
import { ropeTable } from '../layers/rope.ts';
import { plainChoice, Router } from '../layers/router.ts';
import type { StateShape } from '../layers/state.ts';
import type { ExpertNames } from '../quant/refs.ts';
import { count, eosField, LIMITS, parseTextFields, positive } from './config.ts';
import { expertNames, fusedForm, separateForm } from './expert-forms.ts';
import type {
  BuildContext,
  DenseTensor,
  Family,
  Model,
  ModelShape,
  Parts,
  PlacedWeights,
  TensorTable,
} from './family.ts';
import { mlpWeights } from './gqa-moe.ts';
import { ropeConfig, ropeFields, ropeOf } from './rope-config.ts';
import { centredNorm, matrix, modelOf, norm, vector } from './tensors.ts';

// ---- config ---------------------------------------------------------------------------------------------------------

/** Published models see 4 tokens; the kernel keeps all taps of a channel at hand. */
const MAX_TAPS = 16;

const schema = z.object({
  hidden_size: count(LIMITS.width),
  num_hidden_layers: count(LIMITS.layers),
  layer_types: z
    .array(z.enum(['linear_attention', 'full_attention']))
    .max(LIMITS.layers)
    .optional(),
  full_attention_interval: count(LIMITS.layers).default(4),
  num_attention_heads: count(LIMITS.heads),
  num_key_value_heads: count(LIMITS.heads),
  head_dim: count(LIMITS.headDim).default(256),
  attn_output_gate: z.literal(true).default(true),
  attention_bias: z.literal(false).default(false),
  linear_num_key_heads: count(LIMITS.heads),
  linear_num_value_heads: count(LIMITS.heads),
  linear_key_head_dim: count(MAX_DELTA_HEAD_DIM),
  linear_value_head_dim: count(MAX_DELTA_HEAD_DIM),
  linear_conv_kernel_dim: count(MAX_TAPS).min(2),
  mamba_ssm_dtype: z.literal('float32').optional(),
  output_gate_type: z.enum(['swish', 'silu']).nullish(),
  num_experts: count(LIMITS.experts),
  num_experts_per_tok: count(LIMITS.experts),
  norm_topk_prob: z.literal(true).default(true),
  decoder_sparse_step: z.literal(1).default(1),
  mlp_only_layers: z.array(z.number()).max(0, { message: 'must be empty: every layer has experts' }).nullish(),
  moe_intermediate_size: count(LIMITS.width),
  shared_expert_intermediate_size: count(LIMITS.width),
  mtp_num_hidden_layers: z.number().int().min(0).max(LIMITS.layers).default(0),
  mtp_use_dedicated_embeddings: z.boolean().default(false),
  vocab_size: count(LIMITS.vocabulary),
  max_position_embeddings: count(LIMITS.context),
  ...ropeFields,
  rms_norm_eps: positive.default(1e-6),
  hidden_act: z.literal('silu').default('silu'),
  tie_word_embeddings: z.boolean().default(false),
  eos_token_id: eosField,
});

export type Qwen35MoeConfig = ReturnType<typeof parseConfig>;

/** Positions are those of texts: all three parts of a multimodal position are equal, so its sections make no difference. */
function parseConfig(raw: Readonly<Record<string, unknown>>) {
  const c = parseTextFields('qwen3_5_moe', schema, raw, (c, issue) => {
    const { partial } = ropeConfig(c, ROPE, issue);
    const types = c.layer_types?.length ?? c.num_hidden_layers;
    if (types !== c.num_hidden_layers) issue('layer_types', 'must have num_hidden_layers entries');
    if ((c.head_dim * partial) % 2 !== 0) issue('head_dim', 'must give an even number of rotated elements');
    if (c.num_attention_heads % c.num_key_value_heads !== 0) {
      issue('num_key_value_heads', 'must divide num_attention_heads');
    }
    if (c.linear_num_value_heads % c.linear_num_key_heads !== 0) {
      issue('linear_num_key_heads', 'must divide linear_num_value_heads');
    }
    if (c.num_experts_per_tok > c.num_experts) issue('num_experts_per_tok', 'must not exceed num_experts');
  });
  const isFull = Array.from({ length: c.num_hidden_layers }, (_, i) =>
    c.layer_types ? c.layer_types[i] === 'full_attention' : (i + 1) % c.full_attention_interval === 0,
  );
  return { ...c, rope: ropeConfig(c, ROPE), isFull, prefix: raw.text_config ? 'model.language_model' : 'model' };
}

const ROPE = { theta: 10_000_000, partial: 0.25 };

function shape(c: Qwen35MoeConfig, { mtp }: Parts): ModelShape {
  return {
    layers: c.num_hidden_layers,
    hiddenSize: c.hidden_size,
    vocabSize: c.vocab_size,
    maxContext: c.max_position_embeddings,
    experts: c.num_experts,
    topK: c.num_experts_per_tok,
    expertWidth: c.moe_intermediate_size,
    moeLayers: Array.from({ length: c.num_hidden_layers + (mtp ? 1 : 0) }, (_, layer) => layer),
  };
}

function attentionShape(c: Qwen35MoeConfig): AttentionShape {
  return {
    hiddenSize: c.hidden_size,
    heads: c.num_attention_heads,
    kvHeads: c.num_key_value_heads,
    headDim: c.head_dim,
    rotaryDim: c.head_dim * c.rope.partial,
    normEps: c.rms_norm_eps,
    qkNorm: 'heads',
    clip: null,
    outputGate: true,
  };
}

function deltaShape(c: Qwen35MoeConfig) {
  return {
    hiddenSize: c.hidden_size,
    keyHeads: c.linear_num_key_heads,
    valueHeads: c.linear_num_value_heads,
    keyDim: c.linear_key_head_dim,
    valueDim: c.linear_value_head_dim,
    taps: c.linear_conv_kernel_dim,
    normEps: c.rms_norm_eps,
  };
}

/** Number of each layer's first state, then that of the prediction head. */
function firstStates({ isFull }: Qwen35MoeConfig): number[] {
  const first = [0];
  for (const full of isFull) first.push(first[first.length - 1] + (full ? 1 : 2));
  return first;
}

function states(c: Qwen35MoeConfig, { mtp }: Parts): StateShape[] {
  const rows = attentionState(attentionShape(c));
  const list = c.isFull.flatMap((full): readonly StateShape[] => (full ? [rows] : deltaStates(deltaShape(c))));
  return mtp ? [...list, rows] : list;
}

// ---- tensor names ---------------------------------------------------------------------------------------------------

const HEAD = 'lm_head.weight';

/** Beginning of the names of a layer; the prediction head's is the one after the last. */
function layerPrefix(c: Qwen35MoeConfig, layer: number): string {
  return layer < c.num_hidden_layers ? `${c.prefix}.layers.${layer}` : `mtp.layers.${layer - c.num_hidden_layers}`;
}

function tensors(c: Qwen35MoeConfig, { mtp }: Parts): TensorTable {
  const hidden = c.hidden_size;
  const dense = [
    matrix(`${c.prefix}.embed_tokens.weight`, 'embedding', c.vocab_size, hidden),
    centredNorm(`${c.prefix}.norm.weight`, hidden),
  ];
  if (!c.tie_word_embeddings) dense.push(matrix(HEAD, 'head', c.vocab_size, hidden));
  for (const [layer, full] of c.isFull.entries()) {
    const p = layerPrefix(c, layer);
    dense.push(...blockTensors(c, p), ...(full ? attentionTensors(c, p) : deltaTensors(c, p)));
  }
  if (mtp) dense.push(...headTensors(c).map(tensor => ({ ...tensor, mtp: true as const })));
  const experts: ExpertNames[] = [];
  for (let layer = 0; layer < c.num_hidden_layers + (mtp ? 1 : 0); layer++) {
    const p = `${layerPrefix(c, layer)}.mlp.experts`;
    for (let e = 0; e < c.num_experts; e++) {
      const forms = [fusedForm(p, e, c.num_experts, c.moe_intermediate_size), separateForm(p, e)];
      experts.push(expertNames(layer, e, p, forms));
    }
  }
  const ignored = [/^(?:model\.)?visual\./, /\.rotary_emb\.inv_freq$/];
  if (!mtp) ignored.push(/^mtp\./);
  if (c.tie_word_embeddings) ignored.push(/^lm_head\.weight$/);
  return { dense, experts, hiddenSize: hidden, expertWidth: c.moe_intermediate_size, ignored };
}

/** Norms, router and shared expert of a layer. */
function blockTensors(c: Qwen35MoeConfig, p: string): DenseTensor[] {
  const hidden = c.hidden_size;
  const width = c.shared_expert_intermediate_size;
  return [
    centredNorm(`${p}.input_layernorm.weight`, hidden),
    centredNorm(`${p}.post_attention_layernorm.weight`, hidden),
    matrix(`${p}.mlp.gate.weight`, 'router', c.num_experts, hidden),
    matrix(`${p}.mlp.shared_expert.gate_proj.weight`, 'shared', width, hidden),
    matrix(`${p}.mlp.shared_expert.up_proj.weight`, 'shared', width, hidden),
    matrix(`${p}.mlp.shared_expert.down_proj.weight`, 'shared', hidden, width),
    matrix(`${p}.mlp.shared_expert_gate.weight`, 'gate', 1, hidden),
  ];
}

function attentionTensors(c: Qwen35MoeConfig, p: string): DenseTensor[] {
  const q = c.num_attention_heads * c.head_dim;
  const kv = c.num_key_value_heads * c.head_dim;
  return [
    matrix(`${p}.self_attn.q_proj.weight`, 'attention', 2 * q, c.hidden_size),
    matrix(`${p}.self_attn.k_proj.weight`, 'attention', kv, c.hidden_size),
    matrix(`${p}.self_attn.v_proj.weight`, 'attention', kv, c.hidden_size),
    matrix(`${p}.self_attn.o_proj.weight`, 'attention', c.hidden_size, q),
    centredNorm(`${p}.self_attn.q_norm.weight`, c.head_dim),
    centredNorm(`${p}.self_attn.k_norm.weight`, c.head_dim),
  ];
}

function deltaTensors(c: Qwen35MoeConfig, layer: string): DenseTensor[] {
  const p = `${layer}.linear_attn`;
  const { valueHeads, valueDim, taps } = deltaShape(c);
  const channels = deltaChannels(deltaShape(c));
  const values = valueHeads * valueDim;
  return [
    matrix(`${p}.in_proj_qkv.weight`, 'attention', channels, c.hidden_size),
    matrix(`${p}.in_proj_z.weight`, 'attention', values, c.hidden_size),
    matrix(`${p}.in_proj_a.weight`, 'gate', valueHeads, c.hidden_size),
    matrix(`${p}.in_proj_b.weight`, 'gate', valueHeads, c.hidden_size),
    matrix(`${p}.out_proj.weight`, 'attention', c.hidden_size, values),
    { ...vector(`${p}.conv1d.weight`, channels * taps), stored: [channels, 1, taps] },
    vector(`${p}.A_log`, valueHeads),
    vector(`${p}.dt_bias`, valueHeads),
    norm(`${p}.norm.weight`, valueDim),
  ];
}

function headTensors(c: Qwen35MoeConfig): DenseTensor[] {
  const hidden = c.hidden_size;
  const p = layerPrefix(c, c.num_hidden_layers);
  return [
    matrix('mtp.fc.weight', 'mlp', hidden, 2 * hidden),
    centredNorm('mtp.pre_fc_norm_embedding.weight', hidden),
    centredNorm('mtp.pre_fc_norm_hidden.weight', hidden),
    centredNorm('mtp.norm.weight', hidden),
    ...blockTensors(c, p),
    ...attentionTensors(c, p),
  ];
}

// ---- forward pass ---------------------------------------------------------------------------------------------------

function build(c: Qwen35MoeConfig, { compute, weights, experts, maxRows, context }: BuildContext): Model {
  const { hidden_size: hiddenSize, rms_norm_eps: eps } = c;
  const attention = attentionShape(c);
  const delta = deltaShape(c);
  const moe = { hiddenSize, expertWidth: c.moe_intermediate_size, experts: c.num_experts, topK: c.num_experts_per_tok };
  const decoder = new Decoder(compute, { hiddenSize, vocabSize: c.vocab_size }, maxRows);
  const attentionWork = new AttentionWorkspace(compute, attention, maxRows);
  const deltaWork = new DeltaNetWorkspace(compute, delta, maxRows);
  const moeWork = new MoeWorkspaces(compute, { ...moe, clamped: null, biases: false }, maxRows);
  const sharedWork = new MlpWorkspace(compute, { hiddenSize, width: c.shared_expert_intermediate_size }, maxRows);
  const sharedGates = compute.arenas.tensor(maxRows, 1, { replicated: true });
  const rope = ropeTable(compute.arenas, ropeOf(c.rope, attention.rotaryDim), context);

  const embedding = weights.matrix(`${c.prefix}.embed_tokens.weight`);
  const head = c.tie_word_embeddings ? embedding : weights.matrix(HEAD);
  const first = firstStates(c);
  const mixerOf = (layer: number): Mixer => {
    const p = layerPrefix(c, layer);
    if (layer < c.num_hidden_layers && !c.isFull[layer]) {
      return new DeltaNet(compute, { layer, state: first[layer] }, delta, deltaWeights(weights, p), deltaWork);
    }
    const place = { layer, state: first[layer], window: 0 };
    return new Attention(compute, place, attention, attentionWeights(weights, p), attentionWork, rope);
  };
  const moeOf = (layer: number): MoeLayer => {
    const p = `${layerPrefix(c, layer)}`;
    const choice = plainChoice(c.num_experts_per_tok, 'normalised');
    const gate = { gate: weights.matrix(`${p}.mlp.gate.weight`), bias: null };
    const router = new Router(compute, layer, { ...choice, score: 'softmax' }, gate);
    const mlp = mlpWeights(weights, `${p}.mlp.shared_expert`);
    const sharedGate = weights.matrix(`${p}.mlp.shared_expert_gate.weight`);
    const shared = new SharedExpert(compute, mlp, sharedGate, sharedGates, sharedWork);
    return { norm: weights.vector(`${p}.post_attention_layernorm.weight`), eps, router, shared };
  };
  const numbers = c.isFull.map((_, layer) => layer);
  const mixers = numbers.map(mixerOf);
  const blocks = makeMoeBlocks(moeWork, experts, numbers.map(moeOf));
  const layers = mixers.map((mixer, i) => ({ mixer, feedForward: blocks[i] }));
  decoder.place({ embedding, norm: weights.vector(`${c.prefix}.norm.weight`), head }, layers, eps);
  return modelOf(decoder);
}

function attentionWeights(weights: PlacedWeights, p: string) {
  return {
    ...NO_BIASES,
    inputNorm: weights.vector(`${p}.input_layernorm.weight`),
    q: weights.matrix(`${p}.self_attn.q_proj.weight`),
    k: weights.matrix(`${p}.self_attn.k_proj.weight`),
    v: weights.matrix(`${p}.self_attn.v_proj.weight`),
    o: weights.matrix(`${p}.self_attn.o_proj.weight`),
    qNorm: weights.vector(`${p}.self_attn.q_norm.weight`),
    kNorm: weights.vector(`${p}.self_attn.k_norm.weight`),
    sinks: null,
  };
}

function deltaWeights(weights: PlacedWeights, layer: string) {
  const p = `${layer}.linear_attn`;
  return {
    inputNorm: weights.vector(`${layer}.input_layernorm.weight`),
    qkv: weights.matrix(`${p}.in_proj_qkv.weight`),
    z: weights.matrix(`${p}.in_proj_z.weight`),
    a: weights.matrix(`${p}.in_proj_a.weight`),
    b: weights.matrix(`${p}.in_proj_b.weight`),
    out: weights.matrix(`${p}.out_proj.weight`),
    conv: weights.vector(`${p}.conv1d.weight`),
    aLog: weights.vector(`${p}.A_log`),
    dtBias: weights.vector(`${p}.dt_bias`),
    norm: weights.vector(`${p}.norm.weight`),
  };
}

// ---- chat -----------------------------------------------------------------------------------------------------------

export const qwen35Moe: Family<Qwen35MoeConfig> = {
  modelType: 'qwen3_5_moe',
  parseConfig,
  hasMtp: c => c.mtp_num_hidden_layers === 1 && !c.mtp_use_dedicated_embeddings,
  shape,
  tensors,
  states,
  build,
  eosIds: c => c.eos_token_id,
  /** Tokens of the published tokenizer that it does not call special, or that older exports of it lack. */
  controlStrings: [
    '<|im_start|>',
    '<|im_end|>',
    '<|endoftext|>',
    '<think>',
    '</think>',
    '<tool_call>',
    '</tool_call>',
    '<tool_response>',
    '</tool_response>',
  ],
};

/** Files of the language model alone. */
export const qwen35MoeText: Family<Qwen35MoeConfig> = { ...qwen35Moe, modelType: 'qwen3_5_moe_text' };
