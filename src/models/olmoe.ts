/**
 * OLMoE (allenai): every layer is attention with RMSNorm over the whole q and k projections, then a routed MLP without
 * shared expert whose weights are not renormalised. Source: Hugging Face transformers, modeling_olmoe, and the model cards.
 */

import { z } from 'zod';
import { plainChoice } from '../layers/router.ts';
import type { ExpertNames } from '../quant/refs.ts';
import { checkExperts, count, epsilon, LIMITS, parseFields, positive } from './config.ts';
import { expertNames, separateForm, stackedForm } from './expert-forms.ts';
import type { Family } from './family.ts';
import { checkDecoder, decoderFields, describeDecoder } from './gqa-config.ts';
import { type GqaMoe, gqaMoeFamily } from './gqa-moe.ts';
import { ropeConfig } from './rope-config.ts';
import { MLP_NAMES } from './sparse-mlp.ts';

const schema = z.object({
  ...decoderFields,
  num_experts: count(LIMITS.experts),
  num_experts_per_tok: count(LIMITS.experts),
  norm_topk_prob: z.boolean().default(false),
  rms_norm_eps: epsilon.default(1e-5),
  clip_qkv: positive.nullable().default(null),
  attention_bias: z.literal(false).default(false),
});

export type OlmoeConfig = ReturnType<typeof parseConfig>;

function parseConfig(raw: Readonly<Record<string, unknown>>) {
  const c = parseFields('olmoe', schema, raw, (c, issue) => {
    const { partial, yarn } = ropeConfig(c, { theta: 10000 }, issue);
    const key = c.rope_parameters ? 'rope_parameters' : 'rope_scaling';
    if (yarn) issue(key, 'must not scale: scaled rotary positions are not supported for olmoe');
    checkDecoder(c, partial, issue);
    checkExperts(c.num_experts_per_tok, c.num_experts, issue);
  });
  return { ...c, rope: ropeConfig(c, { theta: 10000 }) };
}

function describe(c: OlmoeConfig): GqaMoe {
  const moe = {
    experts: c.num_experts,
    topK: c.num_experts_per_tok,
    width: c.intermediate_size,
    router: {
      ...plainChoice(c.num_experts_per_tok, c.norm_topk_prob ? 'normalised' : 'values'),
      score: 'softmax' as const,
    },
  };
  const names = {
    ...MLP_NAMES,
    experts: (layer: number, expert: number, prefix: string) => experts(c, layer, expert, prefix),
  };
  return describeDecoder(c, c.rope, moe, names, { qkNorm: 'whole', clip: c.clip_qkv });
}

function experts(c: OlmoeConfig, layer: number, expert: number, prefix: string): ExpertNames {
  const forms = () => [separateForm(prefix, expert), stackedForm(prefix, expert, c.num_experts)];
  const merged = { weights: `${prefix}.${expert}.merged_weight`, scales: `${prefix}.${expert}.qs` };
  return Object.assign(expertNames(layer, expert, prefix, forms), { merged });
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
