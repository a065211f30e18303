/** What a config.json of this family may say. */

import { describe, expect, test } from 'vitest';
import { ConfigError } from '../common/errors.ts';
import { olmoe } from './olmoe.ts';
import { familyOf, modelTypes } from './registry.ts';
import { parameterCount } from './tensors.ts';

const NO_PARTS = { mtp: false };

/** OLMoE-1B-7B as published. */
const PUBLISHED = {
  architectures: ['OlmoeForCausalLM'],
  model_type: 'olmoe',
  attention_bias: false,
  attention_dropout: 0.0,
  clip_qkv: null,
  eos_token_id: 50279,
  hidden_act: 'silu',
  hidden_size: 2048,
  initializer_range: 0.02,
  intermediate_size: 1024,
  max_position_embeddings: 4096,
  norm_topk_prob: false,
  num_attention_heads: 16,
  num_experts: 64,
  num_experts_per_tok: 8,
  num_hidden_layers: 16,
  num_key_value_heads: 16,
  output_router_logits: false,
  pad_token_id: 1,
  rms_norm_eps: 1e-5,
  rope_scaling: null,
  rope_theta: 10000.0,
  router_aux_loss_coef: 0.01,
  tie_word_embeddings: false,
  torch_dtype: 'bfloat16',
  use_cache: true,
  vocab_size: 50304,
};

function refused(change: Record<string, unknown>): ConfigError {
  try {
    olmoe.parseConfig({ ...PUBLISHED, ...change });
  } catch (error) {
    if (error instanceof ConfigError) return error;
    throw error;
  }
  throw new Error(`accepted: ${JSON.stringify(change)}`);
}

describe('the published config', () => {
  const config = olmoe.parseConfig(PUBLISHED);

  test('gives the published shape', () => {
    expect(olmoe.shape(config, NO_PARTS)).toMatchObject({
      layers: 16,
      hiddenSize: 2048,
      experts: 64,
      topK: 8,
      expertWidth: 1024,
      vocabSize: 50304,
      maxContext: 4096,
    });
    // "1B active, 7B total"
    expect(parameterCount(olmoe.tensors(config, NO_PARTS))).toBe(6_919_161_856);
  });

  test('needs these tensors, all names different', () => {
    const { dense, experts, hiddenSize, expertWidth } = olmoe.tensors(config, NO_PARTS);
    expect(dense).toHaveLength(3 + 16 * 9);
    expect(experts).toHaveLength(16 * 64);
    expect({ hiddenSize, expertWidth }).toEqual({ hiddenSize: 2048, expertWidth: 1024 });
    const names = [
      ...dense.map(tensor => tensor.name),
      ...experts.flatMap(({ forms: [e] }) => [e.gate.name, e.up.name, e.down.name]),
    ];
    expect(new Set(names).size).toBe(names.length);
    expect(names).toContain('model.layers.15.mlp.experts.63.down_proj.weight');
  });

  test('counts its weights as the tensors do', () => {
    const { dense, experts } = olmoe.tensors(config, NO_PARTS);
    const resident = dense.reduce((sum, { rows, columns }) => sum + rows * columns, 0);
    expect(parameterCount(olmoe.tensors(config, NO_PARTS))).toBe(resident + experts.length * 3 * 2048 * 1024);
  });
});

describe('every field', () => {
  const NO_COUNT = [0, -1, 1.5, '16', null, [], {}, true, 1e9, Number.NaN];
  const NO_POSITIVE = [0, -1, '1', [], {}, true, Number.NaN, Number.POSITIVE_INFINITY];
  const NO_FLAG = [0, 1, 'false', [], {}];
  const WRONG: Record<string, unknown[]> = {
    hidden_size: NO_COUNT,
    intermediate_size: NO_COUNT,
    num_hidden_layers: NO_COUNT,
    num_attention_heads: NO_COUNT,
    num_key_value_heads: NO_COUNT.filter(value => value !== null),
    num_experts: NO_COUNT,
    num_experts_per_tok: NO_COUNT,
    vocab_size: NO_COUNT,
    max_position_embeddings: NO_COUNT,
    norm_topk_prob: [...NO_FLAG, null],
    tie_word_embeddings: [...NO_FLAG, null],
    attention_bias: [...NO_FLAG, true],
    rope_theta: [...NO_POSITIVE, null],
    rms_norm_eps: [...NO_POSITIVE, null],
    clip_qkv: NO_POSITIVE,
    hidden_act: ['gelu', 1, null, ''],
    rope_scaling: ['linear', 2, []],
    eos_token_id: [-1, 1.5, '50279', {}, true],
  };
  const cases = Object.entries(WRONG).flatMap(([field, values]) => values.map(value => ({ field, value })));

  test.each(cases)('$field: $value is refused by name', ({ field, value }) => {
    const error = refused({ [field]: value });
    expect(error.code).toBe('BAD_CONFIG');
    expect(error.details.path).toBe(field);
    expect(error.message).toMatch(new RegExp(`^config\\.json: ${field}: .*, got `));
    expect(error.message).not.toContain('\n');
    expect(error.hint).toBeTruthy();
  });

  const REQUIRED = [
    'hidden_size',
    'intermediate_size',
    'num_hidden_layers',
    'num_attention_heads',
    'num_experts',
    'num_experts_per_tok',
    'vocab_size',
    'max_position_embeddings',
  ];

  test.each(REQUIRED)('%s must be there', field => {
    const error = refused({ [field]: undefined });
    expect(error.details.path).toBe(field);
    expect(error.message).toMatch(/it is missing/);
  });

  test.each(Object.keys(PUBLISHED).filter(field => !REQUIRED.includes(field)))('%s may be absent', field => {
    expect(() => olmoe.parseConfig({ ...PUBLISHED, [field]: undefined })).not.toThrow();
  });

  test.each([
    { change: { eos_token_id: [1, 'x'] }, path: 'eos_token_id', message: /got \[1,"x"\]/ },
    { change: { eos_token_id: [-2] }, path: 'eos_token_id.0', message: /got -2/ },
    { change: { hidden_size: 2047 }, path: 'hidden_size', message: /multiple of num_attention_heads/ },
    { change: { hidden_size: 48 }, path: 'head_dim', message: /even number of rotated elements/ },
    { change: { num_key_value_heads: 3 }, path: 'num_key_value_heads', message: /must divide/ },
    { change: { num_key_value_heads: 32 }, path: 'num_key_value_heads', message: /must divide/ },
    { change: { num_experts_per_tok: 65 }, path: 'num_experts_per_tok', message: /must not exceed/ },
    { change: { rope_scaling: { type: 'linear', factor: 2 } }, path: 'rope_scaling.type', message: /got "linear"/ },
    {
      change: { rope_parameters: { rope_type: 'llama3' } },
      path: 'rope_parameters.rope_type',
      message: /got "llama3"/,
    },
  ])('relations: $change', ({ change, path, message }) => {
    const error = refused(change);
    expect(error.details.path).toBe(path);
    expect(error.message).toMatch(message);
  });

  test('the first of several problems is told, with the number of the others', () => {
    const error = refused({ hidden_size: -1, vocab_size: 'x', num_experts: undefined });
    expect(error.message).toMatch(/\(and 2 more\)$/);
    expect(error.details.problems).toHaveLength(3);
  });
});

describe('defaults', () => {
  test('heads of keys and values, angles and stop ids', () => {
    const { num_key_value_heads: _, rope_theta: __, eos_token_id: ___, ...rest } = PUBLISHED;
    const config = olmoe.parseConfig(rest);
    expect(config).toMatchObject({ rope: { theta: 10000, partial: 1, yarn: null }, eos_token_id: [] });
    expect(olmoe.states(config, NO_PARTS)[0]).toMatchObject({ keyColumns: 2048, valueColumns: 2048 });
    expect(olmoe.parseConfig({ ...rest, num_key_value_heads: null }).num_key_value_heads).toBeNull();
    const { rope } = olmoe.parseConfig({ ...rest, rope_parameters: { rope_type: 'default', rope_theta: 5 } });
    expect(rope.theta).toBe(5);
    expect(olmoe.parseConfig({ ...rest, eos_token_id: [3, 4] }).eos_token_id).toEqual([3, 4]);
  });

  test('a tied model has no output matrix of its own, and fewer weights', () => {
    const tied = olmoe.parseConfig({ ...PUBLISHED, tie_word_embeddings: true });
    expect(olmoe.tensors(tied, NO_PARTS).dense.some(tensor => tensor.role === 'head')).toBe(false);
    expect(olmoe.tensors(tied, NO_PARTS).ignored.some(pattern => pattern.test('lm_head.weight'))).toBe(true);
    const untied = parameterCount(olmoe.tensors(olmoe.parseConfig(PUBLISHED), NO_PARTS));
    expect(untied - parameterCount(olmoe.tensors(tied, NO_PARTS))).toBe(50304 * 2048);
  });
});

describe('the registry', () => {
  test('knows the family by its model_type', () => {
    expect(familyOf(PUBLISHED)).toBe(olmoe);
    expect(modelTypes).toContain('olmoe');
  });

  test.each([undefined, null, 'llama', 'OLMOE', '', 7, { toString: 1 }, 'x'.repeat(100_000)])('refuses %s', type => {
    try {
      familyOf({ model_type: type });
      throw new Error('accepted');
    } catch (error) {
      expect(error).toBeInstanceOf(ConfigError);
      const { code, message, details } = error as ConfigError;
      expect(code).toBe('UNKNOWN_MODEL_TYPE');
      expect(message).toContain('known: olmoe');
      expect(message.length).toBeLessThan(300);
      expect(details).toMatchObject({ path: 'model_type', known: modelTypes });
    }
  });
});
