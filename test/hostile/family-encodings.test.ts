/** Scales and quantisation settings that do not fit, parts that are there by half, and configs of another model. */

import { describe, expect, test } from 'vitest';
import { readModel } from '../../src/engine/model-files.ts';
import { modelTypes } from '../../src/models/registry.ts';
import type { LoosePack } from '../support/loose-pack.ts';
import { refusalOf, temporaryDirectory } from './fixtures.ts';
import { FAMILY_PACKS, inLast, layersOf, loose, readPack, refusalOfConfig, refusalOfPack } from './pack-support.ts';

const SCALED = ['qwen3-moe-fp8', 'minimax-m2-fp8', 'deepseek-v3-fp8', 'glm-moe-dsa-fp8', 'qwen36-fp8'] as const;
const WITH_SCALES = [...SCALED, 'gpt-oss-mxfp4', 'qwen36-int4g64', 'olmoe-int4g64', 'olmoe-colibri'] as const;

/** Scales of expert 5 in the last layer, or those of all experts. */
function scalesOf(pack: LoosePack): string {
  const [name] = pack.names(inLast(pack, 'experts\\.(?:5\\..*(?:scale_inv|qs)|down_proj_scales)$'));
  return name;
}

describe.each(WITH_SCALES)('scales of an expert of %s', name => {
  const refused = (change: (pack: LoosePack, scales: string) => void) => {
    const pack = loose(name);
    const scales = scalesOf(pack);
    change(pack, scales);
    const { code, message } = refusalOfPack(pack);
    // of integers the number of scales says how they are stored, so that the matrix is named
    expect(message).toContain(scales.replace(/\.qs$/, ''));
    return code;
  };

  test('are missing', () => {
    expect(refused((pack, scales) => pack.tensors.delete(scales))).toBe('TENSOR_MISSING');
  });

  test('have another shape', () => {
    for (const change of [
      (shape: readonly number[]) => [...shape.slice(0, -1), shape[shape.length - 1] + 1],
      (shape: readonly number[]) => (shape.length > 1 && shape[0] !== shape[1] ? [...shape].reverse() : [...shape, 2]),
      (shape: readonly number[]) => [shape[0] + 1, ...shape.slice(1)],
      () => [],
    ]) {
      const code = refused((pack, scales) => {
        const { dtype, shape } = pack.get(scales);
        pack.put(scales, dtype, change(shape));
      });
      expect(code).toMatch(/^(?:TENSOR_WRONG_SHAPE|SCALES_WRONG_COUNT|ENCODING_(?:UNKNOWN|AMBIGUOUS))$/);
    }
  });

  test.each(['I32', 'F16', 'F64'] as const)('are %s', dtype => {
    expect(refused((pack, scales) => pack.put(scales, dtype, pack.get(scales).shape))).toBe('TENSOR_WRONG_DTYPE');
  });
});

describe.each(SCALED)('settings of %s', name => {
  const BLOCKS: unknown[] = [
    ...[undefined, null, '128', 128, {}, [], [128], [128, 64], [128, 128, 1]],
    ...[
      [0, 128],
      [-128, 128],
      [128.5, 128],
      [1e300, 128],
      ['128', 128],
      [64, 128],
      [1, 128],
      [256, 128],
    ],
  ];
  test.each(BLOCKS.map(block => ({ block })))('weight_block_size $block', ({ block }) => {
    const pack = loose(name);
    Object.assign(pack.config.quantization_config as object, { weight_block_size: block });
    const { code, message } = refusalOfPack(pack);
    if (code === 'ENCODING_UNSUPPORTED') expect(message).toMatch(/weight_block_size \[rows, 128\]; it states /);
    // scales are then too few or too many
    else expect(`${code} ${message}`).toMatch(/^TENSOR_WRONG_SHAPE .*_scale_inv" has shape/);
  });

  test('none at all', () => {
    const pack = loose(name);
    delete pack.config.quantization_config;
    expect(refusalOfPack(pack).message).toContain('it states none');
  });

  test('one scale per tensor, or per row', () => {
    for (const [form, shapeOf] of [
      ['one scale for the whole tensor', () => []],
      ['scales [', (rows: number) => [rows, 1]],
    ] as const) {
      const pack = loose(name);
      for (const scales of pack.names(/_scale_inv$/)) {
        const weight = scales.replace('_scale_inv', '');
        pack.put(`${weight}_scale`, 'F32', shapeOf(pack.get(weight).shape[0]));
        pack.tensors.delete(scales);
      }
      const { code, message } = refusalOfPack(pack);
      expect(code).toBe('ENCODING_UNSUPPORTED');
      expect(message).toContain(`F8_E4M3 with ${form}`);
    }
  });

  test('two kinds of scales', () => {
    const pack = loose(name);
    pack.put(scalesOf(pack).replace('_scale_inv', '_scale'), 'F32', []);
    expect(refusalOfPack(pack).code).toBe('ENCODING_AMBIGUOUS');
  });
});

describe.each(['olmoe', 'mixtral', 'glm4-moe', 'deepseek-v2-lite'])('experts of %s by other tools', name => {
  const experts = (pack: LoosePack) => pack.names(/experts\.\d+\.\w+\.weight$/);

  test.each(['gptq', 'awq'])('%s', quant_method => {
    const pack = loose(name);
    pack.config.quantization_config = { quant_method, bits: 4, group_size: 32 };
    for (const weight of experts(pack)) {
      const [rows, columns] = pack.get(weight).shape;
      const own = weight.replace(/\.weight$/, '');
      pack.tensors.delete(weight);
      pack.put(`${own}.qweight`, 'I32', quant_method === 'awq' ? [columns, rows / 8] : [columns / 8, rows]);
      pack.put(`${own}.qzeros`, 'I32', [1, rows / 8]);
      pack.put(`${own}.scales`, 'F16', [1, rows]);
      if (quant_method === 'gptq') pack.put(`${own}.g_idx`, 'I32', [columns]);
    }
    const { code, message } = refusalOfPack(pack);
    expect(code).toBe('ENCODING_UNSUPPORTED');
    expect(message).toMatch(/experts\.0\.\w+\.qweight" is stored as I32 words of GPTQ or AWQ/);
  });

  test('bitsandbytes', () => {
    const pack = loose(name);
    for (const weight of experts(pack)) {
      pack.put(weight, 'U8', [pack.get(weight).bytes.length / 4, 1]);
      pack.put(`${weight}.absmax`, 'U8', [4]);
      pack.put(`${weight}.quant_state.bitsandbytes__nf4`, 'U8', [80]);
    }
    const { code, message } = refusalOfPack(pack);
    expect(code).toBe('UNKNOWN_TENSORS');
    expect(message).toContain('absmax');
  });

  test('scales beside floats', () => {
    const pack = loose(name);
    const [weight] = experts(pack);
    pack.put(`${weight}_scale_inv`, 'F32', [1, 1]);
    expect(refusalOfPack(pack)).toMatchObject({ code: 'ENCODING_AMBIGUOUS', details: { tensor: weight } });
  });
});

describe('parts that are there by half', () => {
  const OWN = /\.(?:wq_b|wk|k_norm|weights_proj)\.(?:weight|bias)$/;

  test('an indexer lacks a tensor, or a layer lacks its indexer', () => {
    const tensors = loose('glm-moe-dsa').names(/indexer/);
    expect(tensors.filter(name => OWN.test(name))).toHaveLength(tensors.length);
    for (const name of tensors.filter(name => /layers\.[13]\./.test(name))) {
      const pack = loose('glm-moe-dsa');
      pack.tensors.delete(name);
      const { code, message } = refusalOfPack(pack);
      expect(code).toBe('TENSORS_MISSING');
      expect(message).toContain(name);
    }
    const pack = loose('glm-moe-dsa');
    pack.remove(/layers\.0\.self_attn\.indexer/);
    expect(refusalOfPack(pack)).toMatchObject({ code: 'TENSORS_MISSING', details: { count: 5, layers: [0] } });
  });

  test('a layer that uses the selection of another has an indexer', () => {
    const pack = loose('glm-moe-dsa');
    pack.put('model.layers.2.self_attn.indexer.wk.weight', 'BF16', [32, 64]);
    expect(refusalOfPack(pack).message).toContain('layers.2.self_attn.indexer.wk.weight');
  });

  test('without any indexer every token attends to all, and that is told', () => {
    const pack = loose('glm-moe-dsa');
    pack.remove(/indexer/);
    expect(readPack(pack).parts.indexer).toBe(false);
  });

  test.each(['deepseek-v3', 'glm-moe-dsa', 'qwen36'])('the prediction head of %s', name => {
    const whole = loose(name);
    const own = whole.names(new RegExp(`^mtp\\.|^model\\.layers\\.${layersOf(whole)}\\.`));
    expect(own.length).toBeGreaterThan(15);
    for (const tensor of own.filter(each => !/experts\.(?!0\.down)|embed_tokens|shared_head\.head/.test(each))) {
      const pack = loose(name);
      pack.tensors.delete(tensor);
      const isSign = /eh_proj\.weight$/.test(tensor);
      // the model without it runs; without what only a head has it would be a layer more
      if (isSign) expect(refusalOfPack(pack).code).toBe('UNKNOWN_TENSORS');
      else expect(readPack(pack).parts.mtp).toBe(false);
      const error = refusalOfPack(pack, { mtp: true });
      expect(error.code).toMatch(/^(?:TENSORS?_MISSING|EXPERT_COUNT_MISMATCH)$/);
    }
  });
});

describe('a config of another model', () => {
  test.each(FAMILY_PACKS)('beside the weights of %s', name => {
    const pack = loose(name);
    const directory = pack.writeHeaders(temporaryDirectory());
    const others = FAMILY_PACKS.filter(other => other !== name && !isSameModel(name, other));
    expect(others.length).toBeGreaterThan(10);
    for (const other of others) {
      loose(other).writeConfig(directory);
      const { code } = refusalOf(() => readModel({ model: directory }));
      expect(`${other}: ${code}`).toMatch(
        /: (?:TENSORS_MISSING|UNKNOWN_TENSORS|TENSOR_WRONG_SHAPE|EXPERT_COUNT_MISMATCH|ENCODING_\w+)$/,
      );
    }
    for (const type of [...modelTypes, 'llama', 'deepseek_v32', '', 'OLMOE']) {
      if (type === pack.config.model_type || (type === 'qwen3_5_moe_text' && pack.text !== pack.config)) continue;
      const renamed = loose(name);
      renamed.config.model_type = type;
      renamed.writeConfig(directory);
      const { code, message } = refusalOf(() => readModel({ model: directory }));
      if (!modelTypes.includes(type)) expect(code).toBe('UNKNOWN_MODEL_TYPE');
      else expect(`${type}: ${message}`).toMatch(/config\.json: \w+|tensors/);
    }
  });

  /** The C engine's container has the config of what it was made of. */
  const isSameModel = (a: string, b: string) => [a, b].sort().join(' ') === 'olmoe olmoe-colibri';

  const refusedText = (change: (pack: LoosePack) => void) => {
    const pack = loose('qwen36');
    change(pack);
    return refusalOfPack(pack);
  };

  test('fields of the language model in another place', () => {
    const { text_config: text } = loose('qwen36').config;
    const atRoot = refusedText(pack => {
      Object.assign(pack.config, text, { model_type: 'qwen3_5_moe' });
      delete pack.config.text_config;
    });
    expect(atRoot.message).toMatch(/absent layers: 0-3 \(4 of 4\)/);
    for (const [config, path] of [
      [{ text_config: text }, 'text_config.hidden_size'],
      [null, 'text_config'],
      [[text], 'text_config'],
      ['text', 'text_config'],
      [{}, 'text_config.hidden_size'],
    ]) {
      const error = refusedText(pack => {
        pack.config.text_config = config;
      });
      expect(error.details.path).toBe(path);
    }
    const wrapped = loose('mixtral');
    const inside = { ...wrapped.config };
    for (const field of Object.keys(inside)) if (field !== 'model_type') delete wrapped.config[field];
    wrapped.config.text_config = inside;
    expect(refusalOfPack(wrapped).details.path).toBe('hidden_size');
  });

  test('biases that the other kind of model has', () => {
    const flipped = (name: string) => {
      const pack = loose(name);
      pack.text.attention_bias = pack.text.attention_bias !== true;
      return refusalOfPack(pack);
    };
    for (const name of ['olmoe', 'qwen3-moe-fp8', 'deepseek-v3-fp8', 'glm-moe-dsa-fp8', 'qwen36', 'gpt-oss']) {
      expect(flipped(name).details.path, name).toMatch(/attention_bias$/);
    }
    expect(flipped('glm4-moe').message).toMatch(/q_proj\.bias/);
    const other = loose('mixtral');
    other.put('model.layers.0.self_attn.q_proj.bias', 'BF16', [64]);
    expect(refusalOfPack(other).message).toContain('q_proj.bias');
  });
});

test.each(FAMILY_PACKS)('%s: a norm that would hide what it is given', name => {
  for (const epsilon of [0, -1e-6, 1.5, 1e38, 1e300]) {
    const pack = loose(name);
    pack.text.rms_norm_eps = epsilon;
    expect(refusalOfConfig(pack).details.path).toMatch(/(?:^|\.)rms_norm_eps$/);
  }
});

describe('rotary scaling', () => {
  const YARN = { rope_type: 'yarn', factor: 4, original_max_position_embeddings: 64 };
  const withRope = (name: string, fields: Record<string, unknown>) => {
    const pack = loose(name);
    delete pack.text.rope_parameters;
    delete pack.text.rope_scaling;
    Object.assign(pack.text, { rope_theta: 10_000, ...fields });
    return pack;
  };
  const NAMES = FAMILY_PACKS.filter(name => !name.startsWith('olmoe'));

  test.each(NAMES)('of %s: kinds that are not known, and settings that contradict each other', name => {
    for (const kind of ['linear', 'dynamic', 'llama3', 'longrope', 'su', 'mrope', 'ntk', 'proportional', '', 4]) {
      for (const field of ['type', 'rope_type']) {
        const error = refusalOfConfig(withRope(name, { rope_scaling: { factor: 2, [field]: kind } }));
        expect(error.details.path).toMatch(new RegExp(`rope_scaling\\.${field}$`));
        expect(error.message).toContain('must be one of default, yarn');
      }
    }
    for (const [scaling, path] of [
      [{ factor: 4 }, 'rope_type'],
      [{ ...YARN, rope_type: 'default' }, 'rope_type'],
      [{ ...YARN, type: 'default' }, 'type'],
      [{ ...YARN, factor: undefined }, 'factor'],
      [{ ...YARN, factor: 0.5 }, 'factor'],
      [{ ...YARN, original_max_position_embeddings: undefined }, 'original_max_position_embeddings'],
      [{ ...YARN, rope_theta: 0.5 }, 'rope_theta'],
    ] as const) {
      const { code, details } = refusalOfConfig(withRope(name, { rope_scaling: scaling }));
      expect(`${code} ${details.path}`, JSON.stringify(scaling)).toMatch(
        new RegExp(`^BAD_CONFIG .*rope_scaling\\.${path}$`),
      );
    }
    const both = withRope(name, { rope_scaling: YARN, rope_parameters: { rope_type: 'default', rope_theta: 10_000 } });
    expect(refusalOfConfig(both).details.path).toMatch(/rope_scaling$/);
  });

  test.each(['olmoe', 'olmoe-colibri'])('of %s: none is known', name => {
    expect(refusalOfConfig(withRope(name, { rope_scaling: YARN })).details.path).toBe('rope_scaling');
    expect(refusalOfConfig(withRope(name, { rope_parameters: YARN })).details.path).toMatch(/^rope_parameters/);
  });
});
