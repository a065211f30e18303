/**
 * MiniMax-M2: RMSNorm over the whole query and key projections, half of each head rotated, sigmoid router with a bias for choosing.
 * Source: Hugging Face transformers, modeling_minimax_m2, and the model card.
 */

import { z } from 'zod';
import { plainChoice } from '../layers/router.ts';
import { checkExperts, count, LIMITS, parseFields } from './config.ts';
import { expertNames, separateForm, stackedForm, W123 } from './expert-forms.ts';
import type { Family } from './family.ts';
import { checkDecoder, decoderFields, describeDecoder, headDimOf } from './gqa-config.ts';
import { type GqaMoe, gqaMoeFamily } from './gqa-moe.ts';
import { ropeConfig } from './rope-config.ts';
import { MLP_NAMES } from './sparse-mlp.ts';

const FULL_ATTENTION = 1;

const schema = z.object({
  ...decoderFields,
  num_local_experts: count(LIMITS.experts),
  num_experts_per_tok: count(LIMITS.experts),
  rotary_dim: count(LIMITS.headDim).optional(),
  scoring_func: z.literal('sigmoid').default('sigmoid'),
  use_qk_norm: z.literal(true).default(true),
  qk_norm_type: z.literal('per_layer').default('per_layer'),
  use_routing_bias: z.literal(true).default(true),
  shared_intermediate_size: z.literal(0).default(0),
  attn_type_list: z.array(z.literal(FULL_ATTENTION)).max(LIMITS.layers).optional(),
});

export type MinimaxM2Config = ReturnType<typeof parseConfig>;

function parseConfig(raw: Readonly<Record<string, unknown>>) {
  const c = parseFields('minimax_m2', schema, raw, (c, issue) => {
    checkDecoder(c, rope(c, issue).partial, issue);
    checkExperts(c.num_experts_per_tok, c.num_local_experts, issue);
    if ((c.rotary_dim ?? 0) > headDimOf(c)) issue('rotary_dim', 'must not exceed head_dim');
  });
  return { ...c, rope: rope(c) };
}

/** The share that is rotated is given as a number of elements. */
function rope(c: z.output<typeof schema>, issue?: (path: string, message: string) => void) {
  const partial = c.rotary_dim === undefined ? 1 : c.rotary_dim / headDimOf(c);
  return ropeConfig(c, { theta: 5e6, partial }, issue);
}

function describe(c: MinimaxM2Config): GqaMoe {
  const moe = {
    experts: c.num_local_experts,
    topK: c.num_experts_per_tok,
    width: c.intermediate_size,
    router: { ...plainChoice(c.num_experts_per_tok, 'normalised'), score: 'sigmoid' as const },
  };
  const names = {
    ...MLP_NAMES,
    moe: 'block_sparse_moe',
    correction: 'e_score_correction_bias',
    experts: (layer: number, expert: number, prefix: string) =>
      expertNames(layer, expert, prefix, () => [
        separateForm(prefix, expert, W123),
        stackedForm(prefix, expert, c.num_local_experts),
      ]),
  };
  return { ...describeDecoder(c, c.rope, moe, names, { qkNorm: 'whole' }), ignored: [/^model\.mtp_modules\./] };
}

export const minimaxM2: Family<MinimaxM2Config> = {
  modelType: 'minimax_m2',
  parseConfig,
  ...gqaMoeFamily(describe),
  eosIds: c => c.eos_token_id,
  controlStrings: ['<minimax:tool_call>', '</minimax:tool_call>'],
  chat: { format: 'minimax', stopTokens: ['[e~['], thinking: { variable: null } },
};
