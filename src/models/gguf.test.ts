import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { type PackOptions, packAsGguf } from '../../test/support/gguf-packs.ts';
import { qwen35AsGguf } from '../../test/support/gguf-qwen35.ts';
import { type GgufFile, writeGguf } from '../../test/support/gguf-writer.ts';
import { packDirectory } from '../../test/support/packs.ts';
import { openModel } from './open.ts';
import { resolveRecords } from './records.ts';
import { familyOf } from './registry.ts';

const directory = mkdtempSync(join(tmpdir(), 'gguf-'));
let files = 0;

function open(file: GgufFile) {
  return openModel(writeGguf(join(directory, `${files++}.gguf`), file));
}

function openPack(pack: string, architecture: string, options: PackOptions = {}) {
  return open(packAsGguf(packDirectory(pack), architecture, options));
}

function resolve(file: GgufFile) {
  const checkpoint = open(file);
  const family = familyOf(checkpoint.config);
  const config = family.parseConfig(checkpoint.config);
  const parts = { mtp: false };
  return resolveRecords(checkpoint, family.tensors(config, parts), family.shape(config, parts), 1e9);
}

const olmoe = (metadata: PackOptions['metadata'] = [], without: readonly string[] = []) =>
  openPack('olmoe', 'olmoe', { metadata, without });

test('a checkpoint under the names that families know', () => {
  const { config, tensors, generationConfig, gguf, files: parts, container, bytesOnDisk } = olmoe();
  expect(config).toMatchObject({ model_type: 'olmoe', vocab_size: 512, rope_theta: 10000, rms_norm_eps: 1e-5 });
  expect(config).toMatchObject({ tie_word_embeddings: false, eos_token_id: [511], clip_qkv: null, rope_scaling: null });
  expect(tensors.get('model.embed_tokens.weight')).toMatchObject({ dtype: 'BF16', shape: [512, 96] });
  expect(tensors.get('model.layers.2.mlp.experts.gate_proj.weight')).toMatchObject({ shape: [16, 40, 96] });
  expect(tensors.get('model.layers.0.mlp.gate.weight')).toMatchObject({ dtype: 'F32', shape: [16, 96] });
  expect([...tensors].every(([name, tensor]) => tensor.name === name)).toBe(true);
  expect(generationConfig).toBeNull();
  expect(container).toBeNull();
  expect(bytesOnDisk).toBe(parts[0].bytes);
  expect(gguf?.tokenizerBytes).toBeGreaterThan(5000);
});

describe('metadata', () => {
  test('float32 values are the decimals that somebody wrote', () => {
    const { config } = olmoe([
      ['olmoe.attention.clamp_kqv', ['f32', 0.7]],
      ['olmoe.rope.freq_base', ['f32', 1234567.5]],
    ]);
    expect(config).toMatchObject({ clip_qkv: 0.7, rope_theta: 1234567.5, rms_norm_eps: 1e-5 });
  });

  test('a list with one value for all layers is that value; other lists are refused', () => {
    const heads = (values: number[]) => olmoe([['olmoe.attention.head_count_kv', ['array', 'u32', values]]]).config;
    expect(heads([3, 3, 3])).toMatchObject({ num_key_value_heads: 3 });
    expect(() => heads([3, 6, 3])).toThrow(/"olmoe.attention.head_count_kv" differs from layer to layer \("3", "6"\)/);
    expect(() => heads([])).toThrow(/empty/);
  });

  test.each([
    ['olmoe.embedding_length', ['string', 'wide'], /"olmoe.embedding_length" must be a number/],
    ['olmoe.embedding_length', ['u64', 2n ** 60n], /"olmoe.embedding_length" must be a number/],
    ['olmoe.block_count', ['u32', 2 ** 31], /"olmoe.block_count" is 2147483648; possible are 1 to/],
    ['olmoe.block_count', ['f32', 2.5], /"olmoe.block_count" is 2.5/],
    ['olmoe.expert_weights_norm', ['u32', 1], /"olmoe.expert_weights_norm" must be a boolean/],
    ['olmoe.rope.scaling.type', ['u32', 1], /"olmoe.rope.scaling.type" must be a string/],
    ['olmoe.expert_gating_func', ['u32', 2], /has expert_gating_func 2; models of this kind have 1/],
    ['olmoe.expert_weights_scale', ['f32', 2.5], /has expert_weights_scale 2.5/],
    ['olmoe.rope.dimension_count', ['u32', 8], /has rope.dimension_count 8; models of this kind have 16/],
    ['olmoe.attention.value_length', ['u32', 8], /has keys of 16 and values of 8 per head/],
    ['general.type', ['string', 'adapter'], /of the type "adapter"/],
  ] as const)('%s %s is refused by name', (key, field, message) => {
    expect(() => olmoe([[key, field]])).toThrow(message);
  });

  test('a missing key is named', () => {
    expect(() => olmoe([], ['olmoe.context_length'])).toThrow(/"olmoe.context_length" is missing/);
  });

  test('values that a family cannot have are refused by the family', () => {
    const { config } = olmoe([
      ['olmoe.rope.scaling.type', ['string', 'yarn']],
      ['olmoe.rope.scaling.factor', ['f32', 4]],
      ['olmoe.rope.scaling.original_context_length', ['u32', 512]],
    ]);
    expect(() => familyOf(config).parseConfig(config)).toThrow(/rope_scaling/);
  });

  test('attention that is scaled in a way of its own is refused', () => {
    const metadata: PackOptions['metadata'] = [['gpt-oss.rope.scaling.yarn_attn_factor', ['f32', 0.5]]];
    expect(() => openPack('gpt-oss', 'gpt-oss', { metadata })).toThrow(/by 0.5 \(rope.scaling.yarn_attn_factor\)/);
  });

  test('recommended sampling becomes a generation_config.json', () => {
    const { generationConfig } = olmoe([
      ['general.sampling.temp', ['f32', 0.6]],
      ['general.sampling.top_k', ['i32', 20]],
    ]);
    expect(generationConfig).toEqual({ do_sample: true, temperature: 0.6, top_k: 20 });
  });

  test('ends of turns and messages stop too, unless turns have parts', () => {
    const ends = (a: string): PackOptions['metadata'] => [
      ['tokenizer.ggml.eot_token_id', ['u32', 7]],
      ['tokenizer.ggml.eom_token_id', ['u32', 9]],
      [`${a}.unused`, ['u8', 0]],
    ];
    expect(openPack('olmoe', 'olmoe', { metadata: ends('olmoe') }).config.eos_token_id).toEqual([511, 7, 9]);
    const harmony = openPack('gpt-oss', 'gpt-oss', { metadata: ends('gpt-oss') }).config.eos_token_id;
    expect(harmony).toEqual([500, 510, 497]);
  });

  test('groups of experts that old files of DeepSeek models do not tell', () => {
    const without = ['deepseek2.expert_group_count', 'deepseek2.expert_group_used_count'];
    const config = (experts: number) =>
      openPack('deepseek-v3', 'deepseek2', { without, metadata: [['deepseek2.expert_count', ['u32', experts]]] })
        .config;
    expect(config(256)).toMatchObject({ model_type: 'deepseek_v3', n_group: 8, topk_group: 4 });
    expect(config(160)).toMatchObject({ n_group: 8, topk_group: 3 });
    expect(config(16)).toMatchObject({ n_group: 1, topk_group: 1 });
  });

  test('layers of a prediction head that are left out of the file', () => {
    const file = packAsGguf(packDirectory('glm4-moe'), 'glm4moe');
    const tensors = file.tensors.filter(({ name }) => !name.startsWith('blk.4.'));
    expect(open(file).config).toMatchObject({ num_hidden_layers: 4, num_nextn_predict_layers: 1 });
    expect(open({ ...file, tensors }).config).toMatchObject({ num_hidden_layers: 4, num_nextn_predict_layers: 0 });
  });
});

describe('architectures', () => {
  const named = (name: string) => () => olmoe([['general.architecture', ['string', name]]]);

  test('an unknown one is refused with the list of known ones', () => {
    expect(named('mamba')).toThrow(
      /architecture "mamba".*known: olmoe, qwen3moe, qwen35moe, gpt-oss, deepseek2, glm4moe, minimax-m2/,
    );
    expect(named('toString')).toThrow(/architecture "toString"/);
    expect(() => olmoe([], ['general.architecture'])).toThrow(/has no architecture/);
  });

  test('llama is refused with the reason', () => {
    expect(named('llama')).toThrow(/another order than this program computes with/);
  });
});

describe('tensors', () => {
  const file = packAsGguf(packDirectory('olmoe'), 'olmoe');
  const withType = (name: string, type: number) => ({
    ...file,
    tensors: file.tensors.map(tensor =>
      tensor.name === name ? { ...tensor, type, bytes: new Uint8Array(1 << 19) } : tensor,
    ),
  });

  test('one that the family does not know is refused by name', () => {
    const extra = { name: 'blk.0.attn_q.bias', dims: [96], type: 0, bytes: new Uint8Array(384) };
    expect(() => resolve({ ...file, tensors: [...file.tensors, extra] })).toThrow(/"blk.0.attn_q.bias"/);
  });

  test('a type that is not read is refused only where it is needed, by its name', () => {
    expect(() => resolve(withType('blk.1.ffn_up_exps.weight', 28))).toThrow(/experts.up_proj.weight" is stored as F64/);
    expect(() => resolve(withType('blk.1.ffn_up_exps.weight', 777))).toThrow(/is stored as ggml type 777/);
    const unused = { name: 'blk.0.other', dims: [256], type: 16, bytes: new Uint8Array(66) };
    expect(open({ ...file, tensors: [...file.tensors, unused] }).tensors.get('blk.0.other')?.dtype).toBe('IQ2_XXS');
  });

  test('names that would become the same are refused', () => {
    const extra = { name: 'model.norm.weight', dims: [96], type: 0, bytes: new Uint8Array(384) };
    expect(() => open({ ...file, tensors: [...file.tensors, extra] })).toThrow(/"model.norm.weight" under two names/);
  });

  test('gate and up in one tensor have the names of the joint form', () => {
    const qwen = packAsGguf(packDirectory('qwen3-moe'), 'qwen3moe');
    const tensors = qwen.tensors.flatMap(tensor => {
      if (tensor.name !== 'blk.2.ffn_gate_exps.weight')
        return tensor.name === 'blk.2.ffn_up_exps.weight' ? [] : [tensor];
      const up = qwen.tensors.find(({ name }) => name === 'blk.2.ffn_up_exps.weight')!;
      const half = tensor.bytes.length / 16;
      const parts = Array.from({ length: 16 }, (_, e) => [
        tensor.bytes.subarray(e * half, (e + 1) * half),
        up.bytes.subarray(e * half, (e + 1) * half),
      ]);
      return [
        { ...tensor, name: 'blk.2.ffn_gate_up_exps.weight', dims: [64, 48, 16], bytes: Buffer.concat(parts.flat()) },
      ];
    });
    const { records } = resolve({ ...qwen, tensors });
    const expert = records.find(({ name }) => /layer 2 expert 5/.test(name))!;
    expect(expert.parts.map(({ rows, columns, encoding }) => [rows, columns, encoding])).toEqual([
      [24, 64, 'bf16'],
      [24, 64, 'bf16'],
      [64, 24, 'bf16'],
    ]);
  });
});

describe('qwen35moe', () => {
  const pack = packDirectory('qwen36');
  const parse = (metadata: PackOptions['metadata'], change: (file: GgufFile) => GgufFile = file => file) => {
    const { config } = open(change(qwen35AsGguf(pack, { metadata })));
    return familyOf(config).parseConfig(config);
  };

  test.each([
    ['nextn_predict_layers', ['u32', 5], /has nextn_predict_layers 5; of 5 blocks 0 to 4 are possible/],
    ['nextn_predict_layers', ['f32', -1e9], /has nextn_predict_layers -1000000000/],
    ['nextn_predict_layers', ['f32', 0.5], /has nextn_predict_layers 0.5/],
    ['ssm.time_step_rank', ['u32', 0], /linear_num_value_heads/],
    ['ssm.time_step_rank', ['u32', 3], /linear_num_key_heads: must divide linear_num_value_heads/],
    ['ssm.inner_size', ['u32', 97], /linear_value_head_dim/],
    ['ssm.state_size', ['u32', 1000], /linear_key_head_dim/],
    ['rope.dimension_count', ['u32', 64], /partial_rotary_factor/],
    ['expert_weights_norm', ['bool', false], /has expert_weights_norm false/],
    ['expert_gating_func', ['u32', 2], /has expert_gating_func 2/],
  ] as const)('%s %s is refused by name', (key, field, message) => {
    expect(() => parse([[`qwen35moe.${key}`, field]])).toThrow(message);
  });

  test('which layers attend to everything is told by their tensors', () => {
    expect(parse([])).toMatchObject({ isFull: [false, false, false, true] });
    expect(parse([['qwen35moe.full_attention_interval', ['u32', 2]]])).toMatchObject({
      isFull: [false, false, false, true],
    });
  });

  test('a prediction head with an embedding of its own is left alone', () => {
    const embedding = {
      name: 'blk.4.nextn.embed_tokens.weight',
      dims: [64, 512],
      type: 30,
      bytes: new Uint8Array(65536),
    };
    const file = qwen35AsGguf(pack);
    const changed = { ...file, tensors: [...file.tensors, embedding] };
    const { config } = open(changed);
    const family = familyOf(config);
    expect(family.hasMtp(family.parseConfig(config))).toBe(false);
    expect(resolve(changed).records.length).toBeGreaterThan(64);
  });
});
