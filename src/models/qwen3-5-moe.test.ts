/** What a config.json of Qwen3.6 may say, and the model that follows from it. */

import { describe, expect, test } from 'vitest';
import { ConfigError } from '../common/errors.ts';
import { qwen35Moe } from './qwen3-5-moe.ts';
import { familyOf } from './registry.ts';
import { parameterCount } from './tensors.ts';

/** Qwen3.6-35B-A3B as published, without the part for images. */
const TEXT = {
  attention_bias: false,
  attn_output_gate: true,
  bos_token_id: 248044,
  eos_token_id: 248044,
  full_attention_interval: 4,
  head_dim: 256,
  hidden_act: 'silu',
  hidden_size: 2048,
  layer_types: Array.from({ length: 40 }, (_, i) => (i % 4 === 3 ? 'full_attention' : 'linear_attention')),
  linear_conv_kernel_dim: 4,
  linear_key_head_dim: 128,
  linear_num_key_heads: 16,
  linear_num_value_heads: 32,
  linear_value_head_dim: 128,
  mamba_ssm_dtype: 'float32',
  max_position_embeddings: 262144,
  mlp_only_layers: [],
  model_type: 'qwen3_5_moe_text',
  moe_intermediate_size: 512,
  mtp_num_hidden_layers: 1,
  mtp_use_dedicated_embeddings: false,
  num_attention_heads: 16,
  num_experts: 256,
  num_experts_per_tok: 8,
  num_hidden_layers: 40,
  num_key_value_heads: 2,
  partial_rotary_factor: 0.25,
  rms_norm_eps: 1e-6,
  rope_parameters: {
    mrope_interleaved: true,
    mrope_section: [11, 11, 10],
    partial_rotary_factor: 0.25,
    rope_theta: 10000000,
    rope_type: 'default',
  },
  shared_expert_intermediate_size: 512,
  tie_word_embeddings: false,
  vocab_size: 248320,
};
const NESTED = { model_type: 'qwen3_5_moe', image_token_id: 248056, tie_word_embeddings: false, text_config: TEXT };

const MAIN = { mtp: false };
const WITH_HEAD = { mtp: true };

function refused(config: Record<string, unknown>): ConfigError {
  try {
    familyOf(config).parseConfig(config);
  } catch (error) {
    if (error instanceof ConfigError) return error;
    throw error;
  }
  throw new Error('accepted');
}

describe.each([
  { name: 'at the root', raw: TEXT, prefix: 'model.', path: '' },
  { name: 'in text_config', raw: NESTED, prefix: 'model.language_model.', path: 'text_config.' },
])('the published config $name', ({ raw, prefix, path }) => {
  const config = qwen35Moe.parseConfig(raw);

  test('has as many weights as published, with and without the prediction head', () => {
    expect(parameterCount(qwen35Moe.tensors(config, MAIN))).toBe(34_660_610_688);
    expect(parameterCount(qwen35Moe.tensors(config, WITH_HEAD))).toBe(34_660_610_688 + 844_640_768);
  });

  test('names its tensors once, as published', () => {
    const { dense, experts, ignored } = qwen35Moe.tensors(config, WITH_HEAD);
    const names = dense.map(tensor => tensor.name);
    expect(new Set(names).size).toBe(names.length);
    expect(names).toContain(`${prefix}layers.2.linear_attn.conv1d.weight`);
    expect(names).toContain(`${prefix}layers.39.self_attn.q_norm.weight`);
    expect(names).toContain('lm_head.weight');
    expect(names.filter(name => name.startsWith('mtp.'))).toHaveLength(17);
    expect(dense.filter(tensor => tensor.mtp).map(tensor => tensor.name)).toEqual(
      names.filter(name => name.startsWith('mtp.')),
    );
    expect(experts).toHaveLength(41 * 256);
    const [fused, separate] = experts[40 * 256 + 3].forms;
    expect(fused.up).toMatchObject({
      name: 'mtp.layers.0.mlp.experts.gate_up_proj',
      slice: { index: 3, of: 256 },
      rows: { first: 512 },
    });
    expect(separate.down.name).toBe('mtp.layers.0.mlp.experts.3.down_proj.weight');
    expect(ignored.some(pattern => pattern.test('model.visual.blocks.0.attn.qkv.weight'))).toBe(true);
    expect(ignored.some(pattern => pattern.test('mtp.fc.weight'))).toBe(false);
    expect(qwen35Moe.tensors(config, MAIN).ignored.some(pattern => pattern.test('mtp.fc.weight'))).toBe(true);
  });

  test('only norms of zero-centred weights get one added', () => {
    const { dense } = qwen35Moe.tensors(config, WITH_HEAD);
    const plain = dense.filter(({ role, load }) => role === 'norm' && load === undefined);
    expect(plain.map(({ name }) => name)).toEqual(
      dense.map(({ name }) => name).filter(name => name.endsWith('linear_attn.norm.weight')),
    );
    expect(plain).toHaveLength(30);
  });

  test('keeps rows for 10 layers, and 62.9 MB of matrices and 2.9 MB of inputs for the others', () => {
    const states = qwen35Moe.states(config, MAIN);
    expect(states.filter(({ kind }) => kind === 'rows')).toEqual(
      Array.from({ length: 10 }, () => ({ kind: 'rows', keyColumns: 512, valueColumns: 512, window: 0 })),
    );
    const floats = states.reduce((sum, state) => sum + (state.kind === 'fixed' ? state.floats : 0), 0);
    expect(floats * 4).toBe(30 * (2 * 2 ** 20 + 96 * 1024));
    expect(qwen35Moe.states(config, WITH_HEAD)).toHaveLength(states.length + 1);
  });

  test('routes in every layer, the prediction head included when it is asked for', () => {
    expect(qwen35Moe.shape(config, MAIN).moeLayers).toHaveLength(40);
    expect(qwen35Moe.shape(config, WITH_HEAD).moeLayers.at(-1)).toBe(40);
    expect(qwen35Moe.hasMtp(config)).toBe(true);
    expect(qwen35Moe.eosIds(config)).toEqual([248044]);
  });

  const WRONG: [string, unknown][] = [
    ['hidden_size', undefined],
    ['hidden_size', 0],
    ['vocab_size', '248320'],
    ['num_experts_per_tok', 257],
    ['num_key_value_heads', 3],
    ['linear_num_key_heads', 5],
    ['linear_key_head_dim', 257],
    ['linear_conv_kernel_dim', 1],
    ['linear_conv_kernel_dim', 17],
    ['layer_types', ['full_attention']],
    ['attn_output_gate', false],
    ['attention_bias', true],
    ['hidden_act', 'gelu'],
    ['output_gate_type', 'sigmoid'],
    ['mamba_ssm_dtype', 'bfloat16'],
    ['norm_topk_prob', false],
    ['decoder_sparse_step', 2],
    ['mlp_only_layers', [0]],
    ['rms_norm_eps', -1],
    ['rope_scaling', 'linear'],
  ];
  test.each(WRONG)('%s: %j is refused by name', (field, value) => {
    const text = { ...TEXT, [field]: value };
    const error = refused(raw === TEXT ? text : { ...NESTED, text_config: text });
    expect(error.code).toBe('BAD_CONFIG');
    expect(error.details.path).toBe(path + field);
    expect(error.message).toContain(`config.json: ${path}${field}: `);
  });

  test('another rotary scaling is refused, and a share of a head that is no whole number of pairs', () => {
    const withRope = (change: object) => {
      const text = { ...TEXT, rope_parameters: { ...TEXT.rope_parameters, ...change } };
      return refused(raw === TEXT ? text : { ...NESTED, text_config: text });
    };
    expect(withRope({ rope_type: 'linear' }).details.path).toBe(`${path}rope_parameters.rope_type`);
    expect(withRope({ rope_type: 'yarn' }).details.path).toBe(`${path}rope_parameters.factor`);
    expect(withRope({ partial_rotary_factor: 0.3 }).details.path).toBe(`${path}head_dim`);
  });
});

test('without layer_types every fourth layer attends to everything', () => {
  const { layer_types: _, ...rest } = TEXT;
  expect(qwen35Moe.parseConfig(rest).isFull).toEqual(qwen35Moe.parseConfig(TEXT).isFull);
  expect(qwen35Moe.parseConfig({ ...rest, full_attention_interval: 2 }).isFull.slice(0, 4)).toEqual([
    false,
    true,
    false,
    true,
  ]);
});

test('whether the output matrix is the embedding may stand in either place, not differently in both', () => {
  const { tie_word_embeddings: _, ...text } = TEXT;
  const tied = qwen35Moe.parseConfig({ ...NESTED, tie_word_embeddings: true, text_config: text });
  expect(qwen35Moe.tensors(tied, MAIN).dense.some(({ role }) => role === 'head')).toBe(false);
  expect(refused({ ...NESTED, tie_word_embeddings: true }).details.path).toBe('tie_word_embeddings');
});

test.each([null, [], 'text', 5])('text_config: %j is refused', text => {
  expect(refused({ ...NESTED, text_config: text }).details.path).toBe('text_config');
});

test('two prediction layers, or one with an embedding of its own, cannot be run', () => {
  expect(qwen35Moe.hasMtp(qwen35Moe.parseConfig({ ...TEXT, mtp_num_hidden_layers: 2 }))).toBe(false);
  expect(qwen35Moe.hasMtp(qwen35Moe.parseConfig({ ...TEXT, mtp_use_dedicated_embeddings: true }))).toBe(false);
  expect(qwen35Moe.hasMtp(qwen35Moe.parseConfig({ ...TEXT, mtp_num_hidden_layers: undefined }))).toBe(false);
});
