/**
 * DeepSeek-V2, V2-Lite, V2.5 and Coder-V2: latent attention, experts by softmax, in groups where there are some, beside shared ones.
 * Source: Hugging Face transformers, modeling_deepseek_v2, and the model cards.
 */

import { z } from 'zod';
import { checkDenseLayers, count, LIMITS, parseFields } from './config.ts';
import type { Family } from './family.ts';
import { checkMla, describeMla, mlaFields } from './mla-config.ts';
import { type MlaMoe, mlaMoeFamily } from './mla-moe.ts';

const schema = z.object({
  ...mlaFields,
  first_k_dense_replace: z.number().int().min(0).max(LIMITS.layers),
  scoring_func: z.literal('softmax').default('softmax'),
  topk_method: z.enum(['greedy', 'group_limited_greedy']),
  n_group: count(LIMITS.experts).nullish(),
  topk_group: count(LIMITS.experts).nullish(),
  /** Implementations do not agree about what it does to the factor. */
  norm_topk_prob: z.literal(false).default(false),
});

export type DeepseekV2Config = ReturnType<typeof parseConfig>;

function parseConfig(raw: Readonly<Record<string, unknown>>) {
  return parseFields('deepseek_v2', schema, raw, (c, issue) => {
    checkDenseLayers(c, issue);
    if (c.topk_method === 'group_limited_greedy' && (!c.n_group || !c.topk_group)) {
      issue('n_group', 'must be given with topk_group for group_limited_greedy');
    }
    checkMla(c, groupsOf(c), issue);
  });
}

/** One group unless they matter. */
function groupsOf(c: z.output<typeof schema>) {
  const isLimited = c.topk_method === 'group_limited_greedy';
  return isLimited ? { n_group: c.n_group ?? 1, topk_group: c.topk_group ?? 1 } : { n_group: 1, topk_group: 1 };
}

function describe(c: DeepseekV2Config): MlaMoe {
  const { n_group: groups, topk_group: keptGroups } = groupsOf(c);
  return describeMla(c, {
    router: { score: 'softmax', groups, keptGroups, groupScore: 'largest', weights: 'values' },
    correction: null,
    isDense: layer => layer < c.first_k_dense_replace,
    hasPrediction: false,
  });
}

export const deepseekV2: Family<DeepseekV2Config> = {
  modelType: 'deepseek_v2',
  parseConfig,
  ...mlaMoeFamily(describe),
  eosIds: c => c.eos_token_id,
  /** Roles are ordinary text. */
  controlStrings: ['\n\nUser:', '\n\nAssistant:'],
  chat: { stopTokens: [], thinking: { variable: null } },
};
