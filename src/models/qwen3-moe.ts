/**
 * Qwen3-MoE (Qwen3-30B-A3B, 235B-A22B, Coder): RMSNorm of each query and key head, weights of the chosen experts made to sum to 1.
 * Source: Hugging Face transformers, modeling_qwen3_moe, and the model cards.
 */

import { z } from 'zod';
import { plainChoice } from '../layers/router.ts';
import { checkExperts, count, LIMITS, parseFields } from './config.ts';
import { expertNames, fusedForm, separateForm, stackedForm } from './expert-forms.ts';
import type { Family } from './family.ts';
import { checkDecoder, decoderFields, describeDecoder } from './gqa-config.ts';
import { type GqaMoe, gqaMoeFamily } from './gqa-moe.ts';
import { ropeConfig } from './rope-config.ts';
import { MLP_NAMES } from './sparse-mlp.ts';

const schema = z.object({
  ...decoderFields,
  num_experts: count(LIMITS.experts),
  num_experts_per_tok: count(LIMITS.experts),
  moe_intermediate_size: count(LIMITS.width),
  norm_topk_prob: z.boolean().default(false),
  decoder_sparse_step: count(LIMITS.layers).default(1),
  mlp_only_layers: z.array(z.number().int().min(0)).max(LIMITS.layers).default([]),
  attention_bias: z.literal(false).default(false),
  use_sliding_window: z.literal(false).default(false),
});

export type Qwen3MoeConfig = ReturnType<typeof parseConfig>;

function parseConfig(raw: Readonly<Record<string, unknown>>) {
  const c = parseFields('qwen3_moe', schema, raw, (c, issue) => {
    checkDecoder(c, ropeConfig(c, { theta: 10000 }, issue).partial, issue);
    checkExperts(c.num_experts_per_tok, c.num_experts, issue);
    const layers = Array.from({ length: c.num_hidden_layers }, (_, layer) => layer);
    if (layers.every(layer => isDense(c, layer))) issue('mlp_only_layers', 'must leave layers with experts');
  });
  return { ...c, rope: ropeConfig(c, { theta: 10000 }) };
}

function isDense(c: z.output<typeof schema>, layer: number): boolean {
  return c.mlp_only_layers.includes(layer) || (layer + 1) % c.decoder_sparse_step !== 0;
}

function describe(c: Qwen3MoeConfig): GqaMoe {
  const weights = c.norm_topk_prob ? 'normalised' : 'values';
  const moe = {
    experts: c.num_experts,
    topK: c.num_experts_per_tok,
    width: c.moe_intermediate_size,
    router: { ...plainChoice(c.num_experts_per_tok, weights), score: 'softmax' as const },
  };
  const experts = (layer: number, expert: number, prefix: string) =>
    expertNames(layer, expert, prefix, () => [
      separateForm(prefix, expert),
      stackedForm(prefix, expert, c.num_experts),
      fusedForm(prefix, expert, c.num_experts, c.moe_intermediate_size),
    ]);
  return {
    ...describeDecoder(c, c.rope, moe, { ...MLP_NAMES, experts }, { qkNorm: 'heads' }),
    isDense: layer => isDense(c, layer),
  };
}

export const qwen3Moe: Family<Qwen3MoeConfig> = {
  modelType: 'qwen3_moe',
  parseConfig,
  ...gqaMoeFamily(describe),
  eosIds: c => c.eos_token_id,
  controlStrings: [],
  chat: {
    format: 'hermes',
    stopTokens: ['<|im_end|>', '<|endoftext|>'],
    thinking: { variable: 'enable_thinking' },
  },
};
