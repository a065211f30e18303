/**
 * GLM-5, 5.1, 5.2 and 5.3: DeepSeek-V3 whose rows attend to the keys that a lightning indexer selects; some layers use the selection of
 * an earlier one. Source: Hugging Face transformers, modeling_glm_moe_dsa, and the published configs.
 */

import { z } from 'zod';
import { count, LIMITS, parseFields } from './config.ts';
import type { Family } from './family.ts';
import { biasedRouter, biasedRouterFields, CORRECTION, checkMla, describeMla, mlaFields } from './mla-config.ts';
import { type MlaMoe, mlaMoeFamily } from './mla-moe.ts';

/** Of the LayerNorm of index keys, as transformers has it. */
const INDEX_NORM_EPS = 1e-6;

const layerList = <T extends string>(kinds: readonly [T, ...T[]]) => z.array(z.enum(kinds)).max(LIMITS.layers);

const schema = z.object({
  ...mlaFields,
  ...biasedRouterFields,
  q_lora_rank: mlaFields.q_lora_rank.unwrap(),
  first_k_dense_replace: z.number().int().min(0).max(LIMITS.layers).optional(),
  mlp_layer_types: layerList(['dense', 'sparse']).nullish(),
  moe_router_dtype: z.literal('float32').optional(),
  qk_head_dim: count(LIMITS.headDim).optional(),
  index_n_heads: count(LIMITS.heads),
  index_head_dim: count(LIMITS.headDim),
  index_topk: count(LIMITS.context),
  indexer_types: layerList(['full', 'shared']).nullish(),
  index_topk_pattern: z.union([z.string().regex(/^[FS]*$/), layerList(['F', 'S'])]).nullish(),
  index_topk_freq: count(LIMITS.layers).default(1),
  index_skip_topk_offset: z.number().int().min(0).max(LIMITS.layers).default(2),
  indexer_rope_interleave: z.literal(true).default(true),
});

export type GlmMoeDsaConfig = ReturnType<typeof parseConfig>;

function parseConfig(raw: Readonly<Record<string, unknown>>) {
  const c = parseFields('glm_moe_dsa', schema, raw, (c, issue) => {
    const layers = c.num_hidden_layers;
    for (const field of ['mlp_layer_types', 'indexer_types', 'index_topk_pattern'] as const) {
      if ((c[field]?.length ?? layers) !== layers) issue(field, 'must have num_hidden_layers entries');
    }
    if (!c.mlp_layer_types && c.first_k_dense_replace === undefined) {
      issue('first_k_dense_replace', 'must be given without mlp_layer_types');
    }
    if (isDenseOf(c).every(dense => dense)) issue('mlp_layer_types', 'must leave layers with experts');
    if (!ownsIndexerOf(c)[0]) issue('indexer_types', 'must begin with full: layer 0 has no earlier selection');
    if (c.index_head_dim < c.qk_rope_head_dim) issue('index_head_dim', 'must not be less than qk_rope_head_dim');
    if ((c.qk_head_dim ?? headDim(c)) !== headDim(c)) {
      issue('qk_head_dim', 'must be qk_nope_head_dim + qk_rope_head_dim');
    }
    checkMla(c, c, issue);
  });
  return { ...c, isDense: isDenseOf(c), ownsIndexer: ownsIndexerOf(c) };
}

type Fields = z.output<typeof schema>;

function headDim(c: Fields): number {
  return c.qk_nope_head_dim + c.qk_rope_head_dim;
}

function isDenseOf(c: Fields): boolean[] {
  const dense = (layer: number) =>
    c.mlp_layer_types ? c.mlp_layer_types[layer] === 'dense' : layer < (c.first_k_dense_replace ?? 0);
  return Array.from({ length: c.num_hidden_layers }, (_, layer) => dense(layer));
}

/** By the list of layers, else by the pattern, else every freq-th layer from the offset on, and all before it. */
function ownsIndexerOf(c: Fields): boolean[] {
  const { indexer_types: types, index_topk_pattern: pattern } = c;
  const owns = (layer: number) => {
    if (types) return types[layer] === 'full';
    if (pattern) return pattern[layer] === 'F';
    return Math.max(layer - c.index_skip_topk_offset + 1, 0) % c.index_topk_freq === 0;
  };
  return Array.from({ length: c.num_hidden_layers }, (_, layer) => owns(layer));
}

function describe(c: GlmMoeDsaConfig): MlaMoe {
  return describeMla(c, {
    router: biasedRouter(c),
    correction: CORRECTION,
    // the layer of the prediction head routes, and has an indexer
    isDense: layer => c.isDense[layer] ?? false,
    ownsIndexer: layer => c.ownsIndexer[layer] ?? true,
    indexer: {
      heads: c.index_n_heads,
      headDim: c.index_head_dim,
      rotaryDim: c.qk_rope_head_dim,
      topK: c.index_topk,
      normEps: INDEX_NORM_EPS,
    },
    hasPrediction: c.num_nextn_predict_layers > 0,
  });
}

export const glmMoeDsa: Family<GlmMoeDsaConfig> = {
  modelType: 'glm_moe_dsa',
  parseConfig,
  ...mlaMoeFamily(describe),
  eosIds: c => c.eos_token_id,
  controlStrings: [
    '<think>',
    '</think>',
    '<tool_call>',
    '</tool_call>',
    '<tool_response>',
    '</tool_response>',
    '<arg_key>',
    '</arg_key>',
    '<arg_value>',
    '</arg_value>',
    '/nothink',
  ],
  chat: {
    format: 'glm',
    stopTokens: ['<|endoftext|>', '<|user|>', '<|observation|>'],
    // templates know "high", some "low"; any other word is the most
    thinking: { variable: 'enable_thinking', efforts: { minimal: 'low', medium: 'high' } },
  },
};
