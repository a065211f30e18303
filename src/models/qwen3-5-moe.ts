/**
 * Qwen3.5 and Qwen3.6 MoE (35B-A3B and others): three layers of Gated DeltaNet for each one of gated attention, routed experts and a
 * gated shared one in all of them; norms are zero-centred. Images are not read. Source: Hugging Face transformers,
 * modeling_qwen3_5_moe; the prediction head, which it leaves out, as vLLM and SGLang wire it.
 */

import { z } from 'zod';
import { Attention, AttentionWorkspace, attentionState } from '../layers/attention.ts';
import { Decoder, type Mixer } from '../layers/decoder.ts';
import { DeltaNet, DeltaNetWorkspace, deltaStates, MAX_DELTA_HEAD_DIM } from '../layers/delta-net.ts';
import { MlpWorkspace } from '../layers/mlp.ts';
import { MoeWorkspaces, makeMoeBlocks } from '../layers/moe-block.ts';
import { PredictionLayer } from '../layers/mtp.ts';
import { ropeTable } from '../layers/rope.ts';
import type { StateShape } from '../layers/state.ts';
import { checkExperts, count, eosField, epsilon, LIMITS, parseTextFields } from './config.ts';
import { expertNames, fusedForm, separateForm, stackedForm } from './expert-forms.ts';
import type { BuildContext, Family, Model, ModelShape, Parts, TensorTable } from './family.ts';
import * as blocks from './qwen3-5-blocks.ts';
import { ropeConfig, ropeFields, ropeOf } from './rope-config.ts';
import { matrix, modelOf } from './tensors.ts';

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
  rms_norm_eps: epsilon.default(1e-6),
  hidden_act: z.literal('silu').default('silu'),
  tie_word_embeddings: z.boolean().default(false),
  eos_token_id: eosField,
  /** Set by the reader of GGUF files alone (gguf-architectures.ts); containers made of them have it too. */
  gguf_rewritten_weights: z.boolean().default(false),
});

export type Qwen35MoeConfig = ReturnType<typeof parseConfig>;

/** Positions are those of texts: all three parts of a multimodal position are equal, so its sections make no difference. */
function parseConfig(raw: Readonly<Record<string, unknown>>) {
  const c = parseTextFields('qwen3_5_moe', schema, raw, (c, issue) => {
    const { partial } = ropeConfig(c, ROPE, issue);
    const types = c.layer_types?.length ?? c.num_hidden_layers;
    if (types !== c.num_hidden_layers) issue('layer_types', 'must have num_hidden_layers entries');
    if ((c.head_dim * partial) % 2 !== 0) issue('head_dim', 'must give an even number of rotated elements');
    const divides = (part: keyof typeof c, whole: keyof typeof c) => {
      if (Number(c[whole]) % Number(c[part]) !== 0) issue(part, `must divide ${whole}`);
    };
    divides('num_key_value_heads', 'num_attention_heads');
    divides('linear_num_key_heads', 'linear_num_value_heads');
    checkExperts(c.num_experts_per_tok, c.num_experts, issue);
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

function parts(c: Qwen35MoeConfig) {
  const { hiddenSize, expertWidth, experts, topK } = shape(c, { mtp: false });
  const normEps = c.rms_norm_eps;
  return {
    attention: {
      hiddenSize,
      heads: c.num_attention_heads,
      kvHeads: c.num_key_value_heads,
      headDim: c.head_dim,
      rotaryDim: c.head_dim * c.rope.partial,
      normEps,
      qkNorm: 'heads' as const,
      clip: null,
      outputGate: true,
    },
    delta: {
      hiddenSize,
      keyHeads: c.linear_num_key_heads,
      valueHeads: c.linear_num_value_heads,
      tiled: c.gguf_rewritten_weights,
      keyDim: c.linear_key_head_dim,
      valueDim: c.linear_value_head_dim,
      taps: c.linear_conv_kernel_dim,
      normEps,
    },
    moe: { hiddenSize, expertWidth, experts, topK, clamped: null, biases: false },
  };
}

/** Number of each layer's first state, then that of the prediction head. */
function firstStates({ isFull }: Qwen35MoeConfig): number[] {
  const first = [0];
  for (const full of isFull) first.push(first[first.length - 1] + (full ? 1 : 2));
  return first;
}

function states(c: Qwen35MoeConfig, { mtp }: Parts): StateShape[] {
  const { attention, delta } = parts(c);
  const rows = attentionState(attention);
  const list = c.isFull.flatMap((full): readonly StateShape[] => (full ? [rows] : deltaStates(delta)));
  return mtp ? [...list, rows] : list;
}

// ---- tensor names ---------------------------------------------------------------------------------------------------

const HEAD = 'lm_head.weight';
/** Of the embedding, of the hidden state, and after the layer. */
const MTP_NORMS = ['mtp.pre_fc_norm_embedding.weight', 'mtp.pre_fc_norm_hidden.weight', 'mtp.norm.weight'];

/** Beginning of the names of a layer; the prediction head's is the one after the last. */
function layerPrefix(c: Qwen35MoeConfig, layer: number): string {
  return layer < c.num_hidden_layers ? `${c.prefix}.layers.${layer}` : `mtp.layers.${layer - c.num_hidden_layers}`;
}

function tensors(c: Qwen35MoeConfig, { mtp }: Parts): TensorTable {
  const hidden = c.hidden_size;
  const rewritten = c.gguf_rewritten_weights;
  const { attention, delta, moe } = parts(c);
  const dense = [
    matrix(`${c.prefix}.embed_tokens.weight`, 'embedding', c.vocab_size, hidden),
    blocks.layerNorm(`${c.prefix}.norm.weight`, hidden, rewritten),
  ];
  if (!c.tie_word_embeddings) dense.push(matrix(HEAD, 'head', c.vocab_size, hidden));
  const feedForward = (p: string) => blocks.moeTensors(moe, c.shared_expert_intermediate_size, p, rewritten);
  for (const [layer, full] of c.isFull.entries()) {
    const p = layerPrefix(c, layer);
    const mixer = full ? blocks.attentionTensors(attention, p, rewritten) : blocks.deltaTensors(delta, p, rewritten);
    dense.push(...mixer, ...feedForward(p));
  }
  if (mtp) {
    const p = layerPrefix(c, c.num_hidden_layers);
    const norms = MTP_NORMS.map(name => blocks.layerNorm(name, hidden, rewritten));
    const head = [matrix('mtp.fc.weight', 'mlp', hidden, 2 * hidden), ...norms];
    const all = [...head, ...blocks.attentionTensors(attention, p, rewritten), ...feedForward(p)];
    dense.push(...all.map(tensor => ({ ...tensor, mtp: true as const })));
  }
  const experts = shape(c, { mtp }).moeLayers.flatMap(layer => {
    const p = `${layerPrefix(c, layer)}.mlp.experts`;
    const forms = (e: number) => [
      fusedForm(p, e, c.num_experts, c.moe_intermediate_size),
      separateForm(p, e),
      stackedForm(p, e, c.num_experts),
    ];
    return Array.from({ length: c.num_experts }, (_, e) => expertNames(layer, e, p, () => forms(e)));
  });
  const ignored = [/^(?:model\.)?visual\./, /\.rotary_emb\.inv_freq$/];
  if (!mtp) ignored.push(/^mtp\./);
  if (c.tie_word_embeddings) ignored.push(/^lm_head\.weight$/);
  return { dense, experts, hiddenSize: hidden, expertWidth: c.moe_intermediate_size, ignored };
}

// ---- forward pass ---------------------------------------------------------------------------------------------------

function build(c: Qwen35MoeConfig, { compute, weights, experts, maxRows, context, mtp }: BuildContext): Model {
  const { hidden_size: hiddenSize, rms_norm_eps: eps } = c;
  const { attention, delta, moe } = parts(c);
  const decoder = new Decoder(compute, { hiddenSize, vocabSize: c.vocab_size }, maxRows);
  const prediction = mtp ? new PredictionLayer(compute, decoder.x, c.vocab_size) : null;
  const attentionWork = new AttentionWorkspace(compute, attention, maxRows);
  const deltaWork = new DeltaNetWorkspace(compute, delta, maxRows);
  const moeWork = new MoeWorkspaces(compute, moe, maxRows);
  const shared = {
    mlp: new MlpWorkspace(compute, { hiddenSize, width: c.shared_expert_intermediate_size }, maxRows),
    gates: compute.arenas.tensor(maxRows, 1, { replicated: true }),
  };
  const rope = ropeTable(compute.arenas, ropeOf(c.rope, attention.rotaryDim), context);

  const embedding = weights.matrix(`${c.prefix}.embed_tokens.weight`);
  const head = c.tie_word_embeddings ? embedding : weights.matrix(HEAD);
  const norm = weights.vector(`${c.prefix}.norm.weight`);
  const first = firstStates(c);
  const attend = (layer: number): Mixer => {
    const place = { layer, state: first[layer], window: 0 };
    const own = blocks.attentionWeights(weights, layerPrefix(c, layer));
    return new Attention(compute, place, attention, own, attentionWork, rope);
  };
  const mixers = c.isFull.map((full, layer) => {
    if (full) return attend(layer);
    const own = blocks.deltaWeights(weights, layerPrefix(c, layer), c.gguf_rewritten_weights);
    return new DeltaNet(compute, { layer, state: first[layer] }, delta, own, deltaWork);
  });
  const moeOf = (layer: number) => blocks.moeLayer(compute, layer, weights, layerPrefix(c, layer), c, shared);
  const moeLayers = mixers.map((_, layer) => moeOf(layer));
  const routed = makeMoeBlocks(moeWork, experts, moeLayers);
  const layers = mixers.map((mixer, i) => ({ mixer, feedForward: routed[i] }));
  decoder.place({ embedding, norm, head }, layers, eps);
  if (prediction) {
    const [embeddingNorm, hiddenNorm, finalNorm] = MTP_NORMS.map(name => weights.vector(name));
    const project = weights.matrix('mtp.fc.weight');
    const own = { embedding, mainNorm: norm, embeddingNorm, hiddenNorm, project, norm: finalNorm, head };
    const layer = c.num_hidden_layers;
    const [feedForward] = makeMoeBlocks(moeWork, experts, [moeOf(layer)]);
    prediction.place(own, { mixer: attend(layer), feedForward }, eps);
  }
  return modelOf(decoder, prediction);
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
    ...['<|im_start|>', '<|im_end|>', '<|endoftext|>', '<think>', '</think>'],
    ...['<tool_call>', '</tool_call>', '<tool_response>', '</tool_response>'],
  ],
  chat: {
    format: 'qwen-xml',
    stopTokens: ['<|im_end|>', '<|endoftext|>'],
    thinking: { variable: 'enable_thinking' },
  },
};

/** Files of the language model alone. */
export const qwen35MoeText: Family<Qwen35MoeConfig> = { ...qwen35Moe, modelType: 'qwen3_5_moe_text' };
