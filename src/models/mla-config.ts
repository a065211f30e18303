/** What the config.json files of decoders with multi-head latent attention have in common, and the description they lead to. */

import { z } from 'zod';
import type { MlaShape } from '../layers/mla.ts';
import { yarnScale } from '../layers/rope.ts';
import type { RouterShape } from '../layers/router.ts';
import { checkExperts, checkGroups, count, eosField, epsilon, type Issue, LIMITS, positive } from './config.ts';
import { expertNames, separateForm, stackedForm } from './expert-forms.ts';
import type { MlaMoe } from './mla-moe.ts';
import { type RopeConfig, ropeConfig, ropeFields, ropeOf } from './rope-config.ts';
import { MLP_NAMES } from './sparse-mlp.ts';

/** transformers gives the norms of latents this epsilon, whatever rms_norm_eps says. */
const LATENT_NORM_EPS = 1e-6;
const ROPE_THETA = 10000;
/** Ranks of latents; published ones have up to 2,048. */
const MAX_RANK = 16384;

/** To be spread into a family's schema. */
export const mlaFields = {
  hidden_size: count(LIMITS.width),
  intermediate_size: count(LIMITS.width),
  num_hidden_layers: count(LIMITS.layers),
  num_attention_heads: count(LIMITS.heads),
  q_lora_rank: count(MAX_RANK).nullable(),
  kv_lora_rank: count(MAX_RANK),
  qk_nope_head_dim: count(LIMITS.headDim),
  qk_rope_head_dim: count(LIMITS.headDim),
  v_head_dim: count(LIMITS.headDim),
  n_routed_experts: count(LIMITS.experts),
  num_experts_per_tok: count(LIMITS.experts),
  n_shared_experts: count(LIMITS.experts),
  moe_intermediate_size: count(LIMITS.width),
  moe_layer_freq: z.literal(1).default(1),
  routed_scaling_factor: positive,
  vocab_size: count(LIMITS.vocabulary),
  max_position_embeddings: count(LIMITS.context),
  ...ropeFields,
  rms_norm_eps: epsilon,
  hidden_act: z.literal('silu').default('silu'),
  attention_bias: z.literal(false).default(false),
  tie_word_embeddings: z.boolean().default(false),
  eos_token_id: eosField,
};

/** Of families that score with a sigmoid and have a bias for choosing. */
export const biasedRouterFields = {
  scoring_func: z.literal('sigmoid').default('sigmoid'),
  topk_method: z.literal('noaux_tc').default('noaux_tc'),
  norm_topk_prob: z.boolean().default(true),
  n_group: count(LIMITS.experts),
  topk_group: count(LIMITS.experts),
  rope_interleave: z.literal(true).default(true),
  num_nextn_predict_layers: z.number().int().min(0).max(1).default(0),
};

type MlaFields = z.output<z.ZodObject<typeof mlaFields>>;

/** Relations between the fields; groups: those of experts, and how many of them a token may use. */
export function checkMla(
  c: MlaFields,
  groups: { readonly n_group: number; readonly topk_group: number },
  issue: Issue,
) {
  const { partial } = mlaRope(c, issue);
  if (partial !== 1) issue('partial_rotary_factor', 'must be 1: all of qk_rope_head_dim is rotated');
  if (c.qk_rope_head_dim % 2 !== 0) issue('qk_rope_head_dim', 'must be even');
  checkExperts(c.num_experts_per_tok, c.n_routed_experts, issue);
  checkGroups(groups, c.n_routed_experts, c.num_experts_per_tok, issue);
}

function mlaRope(c: MlaFields, issue?: Issue): RopeConfig {
  return ropeConfig(c, { theta: ROPE_THETA }, issue);
}

function attentionShape(c: MlaFields, { yarn }: RopeConfig): MlaShape {
  const sharpening = yarn?.mscale_all_dim ? yarnScale(yarn.factor ?? 1, yarn.mscale_all_dim) : 1;
  return {
    hiddenSize: c.hidden_size,
    heads: c.num_attention_heads,
    queryRank: c.q_lora_rank,
    latentDim: c.kv_lora_rank,
    plainDim: c.qk_nope_head_dim,
    rotaryDim: c.qk_rope_head_dim,
    valueDim: c.v_head_dim,
    normEps: c.rms_norm_eps,
    latentNormEps: LATENT_NORM_EPS,
    scale: (sharpening * sharpening) / Math.sqrt(c.qk_nope_head_dim + c.qk_rope_head_dim),
  };
}

/** What families say beyond the common fields. */
type Own = Pick<MlaMoe, 'isDense' | 'hasPrediction'> &
  Partial<Pick<MlaMoe, 'indexer' | 'ownsIndexer'>> & {
    readonly router: Omit<RouterShape, 'bias' | 'topK' | 'factor'>;
    /** Name of the bias for choosing, in the part of a layer that has the experts. */
    readonly correction: string | null;
  };

export function describeMla(c: MlaFields, { router, correction, ...own }: Own): MlaMoe {
  const rope = mlaRope(c);
  return {
    indexer: null,
    ownsIndexer: () => false,
    ignored: [],
    ...own,
    layers: c.num_hidden_layers,
    vocabSize: c.vocab_size,
    maxContext: c.max_position_embeddings,
    tied: c.tie_word_embeddings,
    eps: c.rms_norm_eps,
    attention: attentionShape(c, rope),
    rope: ropeOf(rope, c.qk_rope_head_dim),
    moe: {
      hiddenSize: c.hidden_size,
      expertWidth: c.moe_intermediate_size,
      experts: c.n_routed_experts,
      topK: c.num_experts_per_tok,
      clamped: null,
      biases: false,
    },
    router: { ...router, topK: c.num_experts_per_tok, factor: c.routed_scaling_factor },
    denseWidth: c.intermediate_size,
    sharedWidth: c.n_shared_experts * c.moe_intermediate_size,
    names: {
      ...MLP_NAMES,
      correction,
      experts: (layer, expert, prefix) =>
        expertNames(layer, expert, prefix, () => [
          separateForm(prefix, expert),
          stackedForm(prefix, expert, c.n_routed_experts),
        ]),
    },
  };
}

/** Groups by their two best scores, chosen with the bias. */
export function biasedRouter(c: z.output<z.ZodObject<typeof biasedRouterFields>>): Own['router'] {
  return {
    score: 'sigmoid',
    groups: c.n_group,
    keptGroups: c.topk_group,
    groupScore: 'two-largest',
    weights: c.norm_topk_prob ? 'normalised' : 'values',
  };
}

export const CORRECTION = 'gate.e_score_correction_bias';
