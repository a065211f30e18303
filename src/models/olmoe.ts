/**
 * OLMoE (allenai): every layer is attention with RMSNorm over the whole q and k projections, then a routed MLP without
 * shared expert whose weights are not renormalised. Source: Hugging Face transformers, modeling_olmoe, and the model cards.
 */

import { z } from 'zod';
import { PLAIN } from '../layers/attention.ts';
import { inverseFrequencies } from '../layers/rope.ts';
import { plainChoice } from '../layers/router.ts';
import type { ExpertNames } from '../quant/refs.ts';
import { count, eosField, epsilon, LIMITS, parseFields, positive } from './config.ts';
import { expertNames, separateForm, stackedForm } from './expert-forms.ts';
import type { Family } from './family.ts';
import { type GqaMoe, gqaMoeFamily } from './gqa-moe.ts';
import { MLP_NAMES } from './sparse-mlp.ts';

const schema = z.object({
  hidden_size: count(LIMITS.width),
  intermediate_size: count(LIMITS.width),
  num_hidden_layers: count(LIMITS.layers),
  num_attention_heads: count(LIMITS.heads),
  num_key_value_heads: count(LIMITS.heads).nullish(),
  num_experts: count(LIMITS.experts),
  num_experts_per_tok: count(LIMITS.experts),
  norm_topk_prob: z.boolean().default(false),
  vocab_size: count(LIMITS.vocabulary),
  max_position_embeddings: count(LIMITS.context),
  rope_theta: positive.optional(),
  rope_scaling: z.null({ message: 'must be null: scaled rotary positions are not supported for olmoe' }).optional(),
  rope_parameters: z.object({ rope_type: z.literal('default'), rope_theta: positive }).nullish(),
  rms_norm_eps: epsilon.default(1e-5),
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

function describe(c: OlmoeConfig): GqaMoe {
  return {
    layers: c.num_hidden_layers,
    vocabSize: c.vocab_size,
    maxContext: c.max_position_embeddings,
    tied: c.tie_word_embeddings,
    eps: c.rms_norm_eps,
    attention: {
      ...PLAIN,
      hiddenSize: c.hidden_size,
      heads: c.num_attention_heads,
      kvHeads: c.kvHeads,
      headDim: c.headDim,
      rotaryDim: c.headDim,
      normEps: c.rms_norm_eps,
      qkNorm: 'whole',
      clip: c.clip_qkv,
    },
    rope: { frequencies: inverseFrequencies(c.ropeTheta, c.headDim), attentionFactor: 1 },
    windowOf: () => 0,
    qkvBias: false,
    outputBias: false,
    sinks: false,
    moe: {
      hiddenSize: c.hidden_size,
      expertWidth: c.intermediate_size,
      experts: c.num_experts,
      topK: c.num_experts_per_tok,
      clamped: null,
      biases: false,
    },
    router: { ...plainChoice(c.num_experts_per_tok, c.norm_topk_prob ? 'normalised' : 'values'), score: 'softmax' },
    denseWidth: 0,
    isDense: () => false,
    sharedWidth: 0,
    names: { ...MLP_NAMES, experts: (layer, expert, prefix) => experts(c, layer, expert, prefix) },
    hasPrediction: false,
    ignored: [],
  };
}

function experts(c: OlmoeConfig, layer: number, expert: number, prefix: string): ExpertNames {
  const forms = [separateForm(prefix, expert), stackedForm(prefix, expert, c.num_experts)];
  const merged = { weights: `${prefix}.${expert}.merged_weight`, scales: `${prefix}.${expert}.qs` };
  return { ...expertNames(layer, expert, prefix, forms), merged };
}

export const olmoe: Family<OlmoeConfig> = {
  modelType: 'olmoe',
  parseConfig,
  ...gqaMoeFamily(describe),
  eosIds: c => c.eos_token_id,
  /** Roles are ordinary text in the published tokenizer (Tulu style). */
  controlStrings: ['<|system|>', '<|user|>', '<|assistant|>', '<|endoftext|>', '|||IP_ADDRESS|||'],
  chat: { stopTokens: [], thinking: { variable: null } },
};
