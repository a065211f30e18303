/** What config.json files of DeepSeek-V2, V3 and GLM-5 may say, and the models that follow from them. */

import { describe, expect, test } from 'vitest';
import { ConfigError } from '../common/errors.ts';
import { familyOf } from './registry.ts';
import { parameterCount } from './tensors.ts';

const MAIN = { mtp: false };
const WITH_HEAD = { mtp: true };

const COMMON = {
  attention_bias: false,
  attention_dropout: 0,
  hidden_act: 'silu',
  initializer_range: 0.02,
  moe_layer_freq: 1,
  tie_word_embeddings: false,
};

const YARN = { type: 'yarn', factor: 40, beta_fast: 32, beta_slow: 1, original_max_position_embeddings: 4096 };

const V2_LITE = {
  ...COMMON,
  model_type: 'deepseek_v2',
  aux_loss_alpha: 0.001,
  eos_token_id: 100001,
  first_k_dense_replace: 1,
  hidden_size: 2048,
  intermediate_size: 10944,
  kv_lora_rank: 512,
  max_position_embeddings: 163840,
  moe_intermediate_size: 1408,
  n_group: 1,
  n_routed_experts: 64,
  n_shared_experts: 2,
  norm_topk_prob: false,
  num_attention_heads: 16,
  num_experts_per_tok: 6,
  num_hidden_layers: 27,
  num_key_value_heads: 16,
  q_lora_rank: null,
  qk_nope_head_dim: 128,
  qk_rope_head_dim: 64,
  rms_norm_eps: 1e-6,
  rope_scaling: { ...YARN, mscale: 0.707, mscale_all_dim: 0.707 },
  rope_theta: 10000,
  routed_scaling_factor: 1,
  scoring_func: 'softmax',
  seq_aux: true,
  topk_group: 1,
  topk_method: 'greedy',
  v_head_dim: 128,
  vocab_size: 102400,
};

const V2 = {
  ...V2_LITE,
  hidden_size: 5120,
  intermediate_size: 12288,
  moe_intermediate_size: 1536,
  n_group: 8,
  n_routed_experts: 160,
  num_attention_heads: 128,
  num_hidden_layers: 60,
  num_key_value_heads: 128,
  q_lora_rank: 1536,
  routed_scaling_factor: 16,
  topk_group: 3,
  topk_method: 'group_limited_greedy',
};

const V3 = {
  ...COMMON,
  model_type: 'deepseek_v3',
  eos_token_id: 1,
  ep_size: 1,
  first_k_dense_replace: 3,
  hidden_size: 7168,
  intermediate_size: 18432,
  kv_lora_rank: 512,
  max_position_embeddings: 163840,
  moe_intermediate_size: 2048,
  n_group: 8,
  n_routed_experts: 256,
  n_shared_experts: 1,
  norm_topk_prob: true,
  num_attention_heads: 128,
  num_experts_per_tok: 8,
  num_hidden_layers: 61,
  num_key_value_heads: 128,
  num_nextn_predict_layers: 1,
  q_lora_rank: 1536,
  qk_nope_head_dim: 128,
  qk_rope_head_dim: 64,
  quantization_config: { fmt: 'e4m3', quant_method: 'fp8', weight_block_size: [128, 128] },
  rms_norm_eps: 1e-6,
  rope_scaling: { ...YARN, mscale: 1, mscale_all_dim: 1 },
  rope_theta: 10000,
  routed_scaling_factor: 2.5,
  scoring_func: 'sigmoid',
  topk_group: 4,
  topk_method: 'noaux_tc',
  v_head_dim: 128,
  vocab_size: 129280,
};

/** Owners of indexers in GLM-5.2 and 5.3. */
const OWNERS = [0, 1, 2, ...Array.from({ length: 18 }, (_, i) => 6 + 4 * i)];

const GLM = {
  ...COMMON,
  model_type: 'glm_moe_dsa',
  eos_token_id: [154820, 154827, 154829],
  first_k_dense_replace: 3,
  head_dim: 192,
  hidden_size: 6144,
  index_head_dim: 128,
  index_n_heads: 32,
  index_share_for_mtp_iteration: true,
  index_skip_topk_offset: 3,
  index_topk: 2048,
  index_topk_freq: 4,
  index_topk_pattern: null,
  indexer_rope_interleave: true,
  indexer_types: Array.from({ length: 78 }, (_, i) => (OWNERS.includes(i) ? 'full' : 'shared')),
  intermediate_size: 12288,
  kv_lora_rank: 512,
  max_position_embeddings: 1048576,
  mlp_layer_types: Array.from({ length: 78 }, (_, i) => (i < 3 ? 'dense' : 'sparse')),
  moe_intermediate_size: 2048,
  moe_router_dtype: 'float32',
  n_group: 1,
  n_routed_experts: 256,
  n_shared_experts: 1,
  norm_topk_prob: true,
  num_attention_heads: 64,
  num_experts_per_tok: 8,
  num_hidden_layers: 78,
  num_key_value_heads: 64,
  num_nextn_predict_layers: 1,
  q_lora_rank: 2048,
  qk_head_dim: 256,
  qk_nope_head_dim: 192,
  qk_rope_head_dim: 64,
  rms_norm_eps: 1e-5,
  rope_interleave: true,
  rope_parameters: { rope_theta: 8000000, rope_type: 'default' },
  routed_scaling_factor: 2.5,
  scoring_func: 'sigmoid',
  topk_group: 1,
  topk_method: 'noaux_tc',
  v_head_dim: 256,
  vocab_size: 154880,
};

function parsed(config: Record<string, unknown>) {
  const family = familyOf(config);
  return { family, config: family.parseConfig(config) };
}

describe('published configs', () => {
  test.each([
    { name: 'DeepSeek-V2-Lite', config: V2_LITE, parts: MAIN, weights: 15.7e9 },
    { name: 'DeepSeek-V2', config: V2, parts: MAIN, weights: 235.7e9 },
    { name: 'DeepSeek-V3', config: V3, parts: MAIN, weights: 671e9 },
    { name: 'GLM-5.3', config: GLM, parts: MAIN, weights: 743.4e9 },
    { name: 'GLM-5.3 with its prediction head', config: GLM, parts: WITH_HEAD, weights: 753.4e9 },
  ])('$name has as many weights as published', ({ config, parts, weights }) => {
    const { family, config: c } = parsed(config);
    const table = family.tensors(c, parts);
    expect(Math.abs(parameterCount(table) / weights - 1)).toBeLessThan(1e-3);
    const names = [...table.dense.map(tensor => tensor.name), ...table.experts.map(expert => expert.record)];
    expect(new Set(names).size).toBe(names.length);
  });

  test.each([
    { name: 'V2-Lite', config: V2_LITE, parts: MAIN, states: 27, floats: 27 * 576 },
    { name: 'V3', config: V3, parts: MAIN, states: 61, floats: 61 * 576 },
    { name: 'V3 with its head', config: V3, parts: WITH_HEAD, states: 62, floats: 62 * 576 },
    { name: 'GLM-5.3', config: GLM, parts: MAIN, states: 78 + 21, floats: 78 * 576 + 21 * 128 },
    { name: 'GLM-5.3 with its head', config: GLM, parts: WITH_HEAD, states: 79 + 22, floats: 79 * 576 + 22 * 128 },
  ])('$name keeps $floats numbers of a token', ({ config, parts, states, floats }) => {
    const { family, config: c } = parsed(config);
    const kept = family.states(c, parts);
    expect(kept).toHaveLength(states);
    const columns = kept.map(state => (state.kind === 'rows' ? state.keyColumns + state.valueColumns : Number.NaN));
    expect(columns.reduce((sum, n) => sum + n)).toBe(floats);
  });

  test('the prediction head is one more layer that routes, with names of its own', () => {
    const { family, config } = parsed(GLM);
    expect(family.hasMtp(config)).toBe(true);
    expect(family.shape(config, MAIN).moeLayers).toEqual(Array.from({ length: 75 }, (_, i) => i + 3));
    expect(family.shape(config, WITH_HEAD)).toMatchObject({ layers: 78, moeLayers: expect.arrayContaining([78]) });
    const { dense, experts, ignored } = family.tensors(config, WITH_HEAD);
    const own = dense.filter(({ mtp }) => mtp).map(({ name }) => name);
    expect(own.every(name => name.startsWith('model.layers.78.'))).toBe(true);
    expect(own).toContain('model.layers.78.eh_proj.weight');
    expect(own).toContain('model.layers.78.self_attn.indexer.wk.weight');
    expect(experts.filter(({ layer }) => layer === 78)).toHaveLength(256);
    const isIgnored = (name: string, patterns: readonly RegExp[]) => patterns.some(pattern => pattern.test(name));
    expect(isIgnored('model.layers.78.embed_tokens.weight', ignored)).toBe(true);
    expect(isIgnored('model.layers.78.shared_head.head.weight', ignored)).toBe(true);
    expect(isIgnored('model.layers.78.shared_head.norm.weight', ignored)).toBe(false);
    const main = family.tensors(config, MAIN);
    expect(main.dense.some(({ mtp }) => mtp)).toBe(false);
    expect(isIgnored('model.layers.78.eh_proj.weight', main.ignored)).toBe(true);
    expect(isIgnored('model.layers.7.eh_proj.weight', main.ignored)).toBe(false);
  });

  test('models without a prediction head', () => {
    const { family, config } = parsed({ ...V3, num_nextn_predict_layers: 0 });
    expect(family.hasMtp(config)).toBe(false);
    const { ignored } = family.tensors(config, MAIN);
    expect(ignored.some(pattern => pattern.test('model.layers.61.eh_proj.weight'))).toBe(false);
    expect(parsed(V2).family.hasMtp(parsed(V2).config)).toBe(false);
  });
});

test('GLM-5 and 5.1: every layer has an indexer', () => {
  const { index_topk_freq, index_skip_topk_offset, indexer_types, ...older } = GLM;
  const { family, config } = parsed({ ...older, max_position_embeddings: 202752 });
  expect(family.states(config, MAIN)).toHaveLength(2 * 78);
});

test('the derived list of indexers is the published one', () => {
  const { indexer_types, ...derived } = GLM;
  const names = (config: Record<string, unknown>) => {
    const { family, config: c } = parsed(config);
    return family.tensors(c, MAIN).dense.map(({ name }) => name);
  };
  expect(names(derived)).toEqual(names(GLM));
});

describe('what cannot be run is refused by name', () => {
  test.each<[string, Record<string, unknown>, string]>([
    ['softmax scores in V3', { ...V3, scoring_func: 'softmax' }, 'scoring_func'],
    ['sigmoid scores in V2', { ...V2, scoring_func: 'sigmoid' }, 'scoring_func'],
    ['another choice in V3', { ...V3, topk_method: 'greedy' }, 'topk_method'],
    ['another choice in V2', { ...V2, topk_method: 'noaux_tc' }, 'topk_method'],
    ['normalised weights in V2', { ...V2, norm_topk_prob: true }, 'norm_topk_prob'],
    ['dense layers between', { ...V3, moe_layer_freq: 2 }, 'moe_layer_freq'],
    ['biases', { ...V3, attention_bias: true }, 'attention_bias'],
    ['another activation', { ...GLM, hidden_act: 'gelu' }, 'hidden_act'],
    ['another rotary scaling', { ...V3, rope_scaling: { ...YARN, type: 'linear' } }, 'rope_scaling.type'],
    ['an unknown rotary type', { ...GLM, rope_parameters: { rope_type: 'llama3' } }, 'rope_parameters.rope_type'],
    ['half-split rotation', { ...V3, rope_interleave: false }, 'rope_interleave'],
    ['half-split rotation in the indexer', { ...GLM, indexer_rope_interleave: false }, 'indexer_rope_interleave'],
    ['a partial rotation', { ...V3, partial_rotary_factor: 0.5 }, 'partial_rotary_factor'],
    ['an odd rotation', { ...V3, qk_rope_head_dim: 63 }, 'qk_rope_head_dim'],
    ['groups that do not divide', { ...V3, n_group: 7 }, 'n_group'],
    ['more groups than there are', { ...V3, topk_group: 9 }, 'topk_group'],
    ['too few experts in the kept groups', { ...V3, n_group: 64, topk_group: 1 }, 'topk_group'],
    ['no number of groups', { ...V2, n_group: null }, 'n_group'],
    ['more chosen than there are', { ...V2_LITE, num_experts_per_tok: 65 }, 'num_experts_per_tok'],
    ['no experts at all', { ...V3, first_k_dense_replace: 61 }, 'first_k_dense_replace'],
    ['two prediction layers', { ...V3, num_nextn_predict_layers: 2 }, 'num_nextn_predict_layers'],
    ['queries without a latent in GLM', { ...GLM, q_lora_rank: null }, 'q_lora_rank'],
    ['another size of heads', { ...GLM, qk_head_dim: 192 }, 'qk_head_dim'],
    ['a list of another length', { ...GLM, mlp_layer_types: ['dense', 'sparse'] }, 'mlp_layer_types'],
    ['a first layer without an indexer', { ...GLM, indexer_types: Array(78).fill('shared') }, 'indexer_types'],
    ['an unknown kind of layer', { ...GLM, indexer_types: Array(78).fill('half') }, 'indexer_types.0'],
    ['index heads shorter than their rotation', { ...GLM, index_head_dim: 32 }, 'index_head_dim'],
    ['a router of another type', { ...GLM, moe_router_dtype: 'bfloat16' }, 'moe_router_dtype'],
    [
      'no list and no number of dense layers',
      without(GLM, 'mlp_layer_types', 'first_k_dense_replace'),
      'first_k_dense_replace',
    ],
  ])('%s', (_, config, path) => {
    let caught: unknown;
    try {
      familyOf(config).parseConfig(config);
    } catch (error) {
      caught = error;
    }
    expect(caught).toBeInstanceOf(ConfigError);
    expect((caught as ConfigError).details.path).toBe(path);
  });

  const REQUIRED = [
    'hidden_size',
    'kv_lora_rank',
    'qk_nope_head_dim',
    'v_head_dim',
    'n_shared_experts',
    'rms_norm_eps',
  ];
  test.each(REQUIRED)('a config without %s', field => {
    for (const config of [V2_LITE, V3, GLM]) {
      expect(() => parsed(without(config, field))).toThrow(
        expect.objectContaining({ code: 'BAD_CONFIG', details: expect.objectContaining({ path: field }) }),
      );
    }
  });
});

function without(config: Record<string, unknown>, ...fields: string[]): Record<string, unknown> {
  return Object.fromEntries(Object.entries(config).filter(([key]) => !fields.includes(key)));
}
