/**
 * DeepSeek-V3, V3.1 and R1: latent attention with a latent for queries too, experts by sigmoid in groups with a bias for choosing, one
 * shared expert, a prediction head. Source: Hugging Face transformers, modeling_deepseek_v3, and the model cards.
 */

import { z } from 'zod';
import { checkDenseLayers, LIMITS, parseFields } from './config.ts';
import type { Family } from './family.ts';
import { biasedRouter, biasedRouterFields, CORRECTION, checkMla, describeMla, mlaFields } from './mla-config.ts';
import { type MlaMoe, mlaMoeFamily } from './mla-moe.ts';

const schema = z.object({
  ...mlaFields,
  ...biasedRouterFields,
  first_k_dense_replace: z.number().int().min(0).max(LIMITS.layers),
});

export type DeepseekV3Config = ReturnType<typeof parseConfig>;

function parseConfig(raw: Readonly<Record<string, unknown>>) {
  return parseFields('deepseek_v3', schema, raw, (c, issue) => {
    checkDenseLayers(c, issue);
    checkMla(c, c, issue);
  });
}

function describe(c: DeepseekV3Config): MlaMoe {
  return describeMla(c, {
    router: biasedRouter(c),
    correction: CORRECTION,
    isDense: layer => layer < c.first_k_dense_replace,
    hasPrediction: c.num_nextn_predict_layers > 0,
  });
}

export const deepseekV3: Family<DeepseekV3Config> = {
  modelType: 'deepseek_v3',
  parseConfig,
  ...mlaMoeFamily(describe),
  eosIds: c => c.eos_token_id,
  controlStrings: [
    '<｜User｜>',
    '<｜Assistant｜>',
    '<｜tool▁calls▁begin｜>',
    '<｜tool▁calls▁end｜>',
    '<｜tool▁call▁begin｜>',
    '<｜tool▁call▁end｜>',
    '<｜tool▁outputs▁begin｜>',
    '<｜tool▁outputs▁end｜>',
    '<｜tool▁output▁begin｜>',
    '<｜tool▁output▁end｜>',
    '<｜tool▁sep｜>',
    '<think>',
    '</think>',
  ],
  chat: { format: 'deepseek', stopTokens: [], thinking: { variable: 'thinking' } },
};
