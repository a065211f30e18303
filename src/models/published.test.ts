/** Published configs of every family: the shape, the number of weights and the states that follow from them. */

import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { PUBLISHED } from '../../bench/published.ts';
import { ConfigError } from '../common/errors.ts';
import { familyOf, modelTypes } from './registry.ts';
import { parameterCount } from './tensors.ts';

const NO_PARTS = { mtp: false };

const COMMON = { hidden_act: 'silu', attention_dropout: 0, initializer_range: 0.02, tie_word_embeddings: false };

const QWEN3_30B = PUBLISHED.qwen3.config({ layers: 48, experts: 128, vocab: 151936 });
const GPT_OSS_20B = PUBLISHED['gpt-oss'].config({ layers: 24, experts: 32, vocab: 201088 });

const MIXTRAL_8X7B = {
  ...COMMON,
  model_type: 'mixtral',
  eos_token_id: 2,
  hidden_size: 4096,
  intermediate_size: 14336,
  max_position_embeddings: 32768,
  num_attention_heads: 32,
  num_experts_per_tok: 2,
  num_hidden_layers: 32,
  num_key_value_heads: 8,
  num_local_experts: 8,
  rms_norm_eps: 1e-5,
  rope_theta: 1e6,
  sliding_window: null,
  vocab_size: 32000,
};

const GLM_45_AIR = {
  ...COMMON,
  model_type: 'glm4_moe',
  attention_bias: true,
  eos_token_id: [151329, 151336, 151338],
  first_k_dense_replace: 1,
  head_dim: 128,
  hidden_size: 4096,
  intermediate_size: 10944,
  max_position_embeddings: 131072,
  moe_intermediate_size: 1408,
  n_group: 1,
  n_routed_experts: 128,
  n_shared_experts: 1,
  norm_topk_prob: true,
  num_attention_heads: 96,
  num_experts_per_tok: 8,
  num_hidden_layers: 46,
  num_key_value_heads: 8,
  num_nextn_predict_layers: 1,
  partial_rotary_factor: 0.5,
  rms_norm_eps: 1e-5,
  rope_scaling: null,
  rope_theta: 1e6,
  routed_scaling_factor: 1,
  topk_group: 1,
  use_qk_norm: false,
  vocab_size: 151552,
};

const MINIMAX_M2 = {
  ...COMMON,
  model_type: 'minimax_m2',
  attn_type_list: Array.from({ length: 62 }, () => 1),
  eos_token_id: 200020,
  head_dim: 128,
  hidden_size: 3072,
  intermediate_size: 1536,
  max_position_embeddings: 196608,
  num_attention_heads: 48,
  num_experts_per_tok: 8,
  num_hidden_layers: 62,
  num_key_value_heads: 8,
  num_local_experts: 256,
  qk_norm_type: 'per_layer',
  rms_norm_eps: 1e-6,
  rope_theta: 5e6,
  rotary_dim: 64,
  scoring_func: 'sigmoid',
  shared_intermediate_size: 0,
  use_qk_norm: true,
  use_routing_bias: true,
  vocab_size: 200064,
};

/** Weights as published, or within the rounding of what is published. */
const MODELS = [
  { name: 'Qwen3-30B-A3B', config: QWEN3_30B, weights: [30_532_122_624, 30_532_122_624] },
  { name: 'gpt-oss-20b', config: GPT_OSS_20B, weights: [20_914_757_184, 20_914_757_184] },
  {
    name: 'gpt-oss-120b',
    config: { ...GPT_OSS_20B, num_hidden_layers: 36, num_local_experts: 128, layer_types: undefined },
    weights: [116_829_156_672, 116_829_156_672],
  },
  { name: 'Mixtral-8x7B', config: MIXTRAL_8X7B, weights: [46.65e9, 46.75e9] },
  { name: 'GLM-4.5-Air without its prediction head', config: GLM_45_AIR, weights: [106e9, 107e9] },
  { name: 'MiniMax-M2', config: MINIMAX_M2, weights: [225e9, 235e9] },
];

describe.each(MODELS)('$name', ({ config, weights: [least, most] }) => {
  const family = familyOf(config);
  const parsed = family.parseConfig(config);

  test('has as many weights as published', () => {
    const count = parameterCount(family.tensors(parsed, NO_PARTS));
    expect(count).toBeGreaterThanOrEqual(least);
    expect(count).toBeLessThanOrEqual(most);
  });

  test('names every tensor once', () => {
    const { dense, experts } = family.tensors(parsed, NO_PARTS);
    expect(new Set(dense.map(tensor => tensor.name)).size).toBe(dense.length);
    expect(new Set(experts.map(expert => expert.record)).size).toBe(experts.length);
  });

  test('has experts in the layers that route, and a state for every layer', () => {
    const shape = family.shape(parsed, NO_PARTS);
    const layers = new Set(family.tensors(parsed, NO_PARTS).experts.map(expert => expert.layer));
    expect([...layers]).toEqual(shape.moeLayers);
    expect(family.states(parsed, NO_PARTS).length).toBeGreaterThanOrEqual(shape.layers);
  });

  test.each(['hidden_size', 'num_hidden_layers', 'vocab_size', 'num_experts_per_tok', 'rms_norm_eps'])(
    'refuses a config without %s, by name',
    field => {
      const { [field]: _, ...rest } = config as Record<string, unknown>;
      expect(() => family.parseConfig(rest)).toThrow(
        expect.objectContaining({ code: 'BAD_CONFIG', details: expect.objectContaining({ path: field }) }),
      );
    },
  );
});

describe('what a family cannot run is refused by name', () => {
  const refusals: [string, Record<string, unknown>, string][] = [
    [
      'another rotary scaling',
      { ...QWEN3_30B, rope_scaling: { rope_type: 'llama3', factor: 8 } },
      'rope_scaling.rope_type',
    ],
    ['yarn without a factor', { ...QWEN3_30B, rope_scaling: { rope_type: 'yarn' } }, 'rope_scaling.factor'],
    ['another activation', { ...QWEN3_30B, hidden_act: 'gelu' }, 'hidden_act'],
    ['more chosen than there are', { ...QWEN3_30B, num_experts_per_tok: 129 }, 'num_experts_per_tok'],
    ['heads that cannot be shared', { ...MIXTRAL_8X7B, num_key_value_heads: 5 }, 'num_key_value_heads'],
    ['groups that do not divide', { ...GLM_45_AIR, n_group: 3 }, 'n_group'],
    ['groups of one expert', { ...GLM_45_AIR, n_group: 128, topk_group: 8 }, 'n_group'],
    ['groups that leave too few experts', { ...GLM_45_AIR, n_group: 64, topk_group: 3 }, 'topk_group'],
    ['a list of layers that is too short', { ...GPT_OSS_20B, layer_types: ['full_attention'] }, 'layer_types'],
    ['linear attention', { ...MINIMAX_M2, attn_type_list: [0, 1] }, 'attn_type_list.0'],
    ['no experts at all', { ...GLM_45_AIR, first_k_dense_replace: 46 }, 'first_k_dense_replace'],
    ['no experts in any layer', { ...QWEN3_30B, decoder_sparse_step: 49 }, 'mlp_only_layers'],
    ['softmax scores', { ...MINIMAX_M2, scoring_func: 'softmax' }, 'scoring_func'],
  ];
  test.each(refusals)('%s', (_, config, path) => {
    let caught: unknown;
    try {
      familyOf(config).parseConfig(config);
    } catch (error) {
      caught = error;
    }
    expect(caught).toBeInstanceOf(ConfigError);
    expect((caught as ConfigError).details.path).toBe(path);
  });
});

test('windows: every other layer of gpt-oss keeps a window, the others everything', () => {
  const family = familyOf(GPT_OSS_20B);
  const states = family.states(family.parseConfig(GPT_OSS_20B), NO_PARTS);
  expect(states.map(state => state.kind === 'rows' && state.window)).toEqual(
    Array.from({ length: 24 }, (_, i) => (i % 2 === 0 ? 128 : 0)),
  );
});

describe.each(modelTypes)('%s', type => {
  const read = (name: string) => readFileSync(new URL(name, import.meta.url), 'utf8');

  test('has a published config in a test', () => {
    const tests = ['published', 'olmoe', 'mla-moe', 'qwen3-5-moe'].map(name => read(`${name}.test.ts`));
    expect([...tests, read('../../bench/published.ts')].some(text => text.includes(`model_type: '${type}',`))).toBe(
      true,
    );
  });

  test('has a line among the formats of chats', () => {
    const [, table] = read('../../docs/chat-formats.md').split('## What the families do');
    expect(table.split('\n').some(line => line.startsWith('|') && line.split('|')[1].includes(`\`${type}\``))).toBe(
      true,
    );
  });
});
