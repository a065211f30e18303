/**
 * GLM-4.5 and GLM-4.5-Air: biases of q, k and v, half of each head rotated, sigmoid router with a bias for choosing, one shared
 * expert. Source: Hugging Face transformers, modeling_glm4_moe, and the model cards.
 */

import { z } from 'zod';
import { checkDenseLayers, checkExperts, checkGroups, count, LIMITS, parseFields, positive } from './config.ts';
import { expertNames, separateForm, stackedForm } from './expert-forms.ts';
import type { Family } from './family.ts';
import { checkDecoder, decoderFields, describeDecoder } from './gqa-config.ts';
import { type GqaMoe, gqaMoeFamily } from './gqa-moe.ts';
import { ropeConfig } from './rope-config.ts';
import { MLP_NAMES } from './sparse-mlp.ts';

const ROPE_DEFAULTS = { theta: 10000, partial: 0.5 };

const schema = z.object({
  ...decoderFields,
  n_routed_experts: count(LIMITS.experts),
  num_experts_per_tok: count(LIMITS.experts),
  n_shared_experts: z.number().int().min(0).max(LIMITS.experts),
  moe_intermediate_size: count(LIMITS.width),
  first_k_dense_replace: z.number().int().min(0).max(LIMITS.layers),
  n_group: count(LIMITS.experts).default(1),
  topk_group: count(LIMITS.experts).default(1),
  norm_topk_prob: z.boolean().default(true),
  routed_scaling_factor: positive.default(1),
  attention_bias: z.boolean().default(false),
  use_qk_norm: z.boolean().default(false),
  num_nextn_predict_layers: z.number().int().min(0).max(1).default(0),
});

export type Glm4MoeConfig = ReturnType<typeof parseConfig>;

function parseConfig(raw: Readonly<Record<string, unknown>>) {
  const c = parseFields('glm4_moe', schema, raw, (c, issue) => {
    checkDecoder(c, ropeConfig(c, ROPE_DEFAULTS, issue).partial, issue);
    checkExperts(c.num_experts_per_tok, c.n_routed_experts, issue);
    checkDenseLayers(c, issue);
    checkGroups(c, c.n_routed_experts, c.num_experts_per_tok, issue);
  });
  return { ...c, rope: ropeConfig(c, ROPE_DEFAULTS) };
}

function describe(c: Glm4MoeConfig): GqaMoe {
  const moe = {
    experts: c.n_routed_experts,
    topK: c.num_experts_per_tok,
    width: c.moe_intermediate_size,
    router: {
      score: 'sigmoid' as const,
      topK: c.num_experts_per_tok,
      groups: c.n_group,
      keptGroups: c.topk_group,
      groupScore: 'two-largest' as const,
      weights: c.norm_topk_prob ? ('normalised' as const) : ('values' as const),
      factor: c.routed_scaling_factor,
    },
  };
  const names = {
    ...MLP_NAMES,
    correction: 'gate.e_score_correction_bias',
    experts: (layer: number, expert: number, prefix: string) =>
      expertNames(layer, expert, prefix, () => [
        separateForm(prefix, expert),
        stackedForm(prefix, expert, c.n_routed_experts),
      ]),
  };
  return {
    ...describeDecoder(c, c.rope, moe, names, { qkNorm: c.use_qk_norm ? 'heads' : null }),
    qkvBias: c.attention_bias,
    isDense: layer => layer < c.first_k_dense_replace,
    sharedWidth: c.n_shared_experts * c.moe_intermediate_size,
    hasPrediction: c.num_nextn_predict_layers > 0,
  };
}

export const glm4Moe: Family<Glm4MoeConfig> = {
  modelType: 'glm4_moe',
  parseConfig,
  ...gqaMoeFamily(describe),
  eosIds: c => c.eos_token_id,
  controlStrings: ['/nothink'],
  chat: {
    format: 'glm',
    stopTokens: ['<|endoftext|>', '<|user|>', '<|observation|>'],
    thinking: { variable: 'enable_thinking' },
  },
};
