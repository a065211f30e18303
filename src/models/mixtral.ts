/** Mixtral (Mistral AI). Source: Hugging Face transformers, modeling_mixtral, and the model cards. */

import { z } from 'zod';
import { plainChoice } from '../layers/router.ts';
import { checkExperts, count, LIMITS, parseFields } from './config.ts';
import { expertNames, separateForm, W123 } from './expert-forms.ts';
import type { Family } from './family.ts';
import { checkDecoder, decoderFields, describeDecoder } from './gqa-config.ts';
import { type GqaMoe, gqaMoeFamily } from './gqa-moe.ts';
import { ropeConfig } from './rope-config.ts';
import { MLP_NAMES } from './sparse-mlp.ts';

const schema = z.object({
  ...decoderFields,
  num_local_experts: count(LIMITS.experts),
  num_experts_per_tok: count(LIMITS.experts),
  sliding_window: count(LIMITS.context).nullish(),
});

export type MixtralConfig = ReturnType<typeof parseConfig>;

function parseConfig(raw: Readonly<Record<string, unknown>>) {
  const c = parseFields('mixtral', schema, raw, (c, issue) => {
    checkDecoder(c, ropeConfig(c, { theta: 1e6 }, issue).partial, issue);
    checkExperts(c.num_experts_per_tok, c.num_local_experts, issue);
  });
  return { ...c, rope: ropeConfig(c, { theta: 1e6 }) };
}

function describe(c: MixtralConfig): GqaMoe {
  const moe = {
    experts: c.num_local_experts,
    topK: c.num_experts_per_tok,
    width: c.intermediate_size,
    router: { ...plainChoice(c.num_experts_per_tok, 'normalised'), score: 'softmax' as const },
  };
  const names = {
    ...MLP_NAMES,
    moe: 'block_sparse_moe',
    experts: (layer: number, expert: number, prefix: string) =>
      expertNames(layer, expert, prefix, () => [separateForm(prefix, expert, W123)]),
  };
  return { ...describeDecoder(c, c.rope, moe, names), windowOf: () => c.sliding_window ?? 0 };
}

export const mixtral: Family<MixtralConfig> = {
  modelType: 'mixtral',
  parseConfig,
  ...gqaMoeFamily(describe),
  eosIds: c => c.eos_token_id,
  controlStrings: ['[INST]', '[/INST]'],
  chat: { stopTokens: [], thinking: { variable: null } },
};
