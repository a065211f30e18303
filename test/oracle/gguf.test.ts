/** Models as GGUF files: the same numbers as the safetensors files that hold the same values, the same tokens and prompts. */

import { cpSync, mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import type { KernelChoice } from '../../src/kernels/kernels.ts';
import { openModel } from '../../src/models/open.ts';
import { familyOf } from '../../src/models/registry.ts';
import { ChatEncoder } from '../../src/tokenizer/chat-encoder.ts';
import { ChatTemplate } from '../../src/tokenizer/chat-template.ts';
import { Tokenizer } from '../../src/tokenizer/tokenizer.ts';
import { readTokenizerFile } from '../../src/tokenizer/tokenizer-file.ts';
import { tensorShapes, writeCheckpoint } from '../fixtures/checkpoint.ts';
import { writeTiny } from '../fixtures/tiny.ts';
import { blockColumns, decode, type GgufBlock, randomBlocks, typeId } from '../support/gguf-blocks.ts';
import { mxfp4Experts } from '../support/gguf-mxfp4.ts';
import { type PackOptions, packAsGguf } from '../support/gguf-packs.ts';
import { type GgufEntry, writeGguf, writeSplitGguf } from '../support/gguf-writer.ts';
import { packDirectory, scoreWith } from '../support/packs.ts';

const PACKS: readonly (readonly [pack: string, architecture: string, options: PackOptions])[] = [
  ['olmoe', 'olmoe', {}],
  ['qwen3-moe', 'qwen3moe', {}],
  ['glm4-moe', 'glm4moe', {}],
  // the pack has digits in groups of up to three, which is not what the name stands for
  ['minimax-m2', 'minimax-m2', { metadata: [['tokenizer.ggml.pre', ['string', 'glm4']]] }],
  ['gpt-oss', 'gpt-oss', {}],
  ['deepseek-v2-lite', 'deepseek2', {}],
  ['deepseek-v3', 'deepseek2', {}],
  ['deepseek-v3', 'deepseek2', { splitHeads: true }],
];

const directory = () => mkdtempSync(join(tmpdir(), 'gguf-'));

/** Teacher-forced logits. */
async function logitsOf(model: string, ids: readonly number[], kernels: KernelChoice = 'auto'): Promise<Float32Array> {
  const result = await scoreWith({ model, kernels, activations: 'exact', context: 512 }, { ids, logits: true });
  return result.logits!;
}

const INPUT = Array.from({ length: 40 }, (_, i) => 3 + ((i * 37) % 400));

describe.each(PACKS)('%s as %s %j', (pack, architecture, options) => {
  const original = packDirectory(pack);
  const path = writeGguf(join(directory(), `${pack}.gguf`), packAsGguf(original, architecture, options));

  test('gives the logits of the safetensors files, bit by bit', async () => {
    const [ours, theirs] = [await logitsOf(path, INPUT), await logitsOf(original, INPUT)];
    expect(ours.every(Number.isFinite)).toBe(true);
    expect(ours).toEqual(theirs);
  });

  test('its metadata are the same config', () => {
    const [gguf, hf] = [openModel(path), openModel(original)];
    const parse = (config: Record<string, unknown>) => {
      // what the metadata name besides: more stops are checked below
      const parsed = familyOf(config).parseConfig({ ...config, eos_token_id: 0 }) as Record<string, unknown>;
      return parsed;
    };
    const [ours, theirs] = [parse(gguf.config), parse(hf.config)];
    const family = familyOf(hf.config);
    const parts = { mtp: false };
    expect(family.shape(ours, parts)).toEqual(family.shape(theirs, parts));
    for (const key of ['rope', 'rms_norm_eps', 'norm_topk_prob', 'routed_scaling_factor', 'n_group', 'topk_group']) {
      expect([key, withoutUnused(ours[key])]).toEqual([key, withoutUnused(theirs[key])]);
    }
  });

  test('encodes and decodes as tokenizer.json does', () => {
    const [ours, theirs] = [Tokenizer.load(path), Tokenizer.load(original)];
    const reference = JSON.parse(readFileSync(join(original, 'reference.json'), 'utf8'));
    const texts: string[] = reference.tokenizer.encode.map((each: { text: string }) => each.text);
    expect(texts.length).toBeGreaterThan(3);
    texts.push("It's 12345 tokens\r\n\n  of  ÄÖ 漢字 कि <|endoftext|>\t!?x", '    indented\n        more');
    for (const text of texts) {
      const ids = ours.encode(text, { controlTokens: true });
      expect(ids).toEqual(theirs.encode(text, { controlTokens: true }));
      expect(ours.encode(text, { controlTokens: false })).toEqual(theirs.encode(text, { controlTokens: false }));
      expect(ours.decode(ids, { showSpecial: true })).toBe(theirs.decode(ids, { showSpecial: true }));
    }
    expect(ours.specialId('eos_token')).toBe(theirs.specialId('eos_token'));
  });

  test('renders the same prompt', () => {
    const render = (at: string) => {
      const file = readTokenizerFile(at);
      const chat = new ChatEncoder(new Tokenizer(file), ChatTemplate.load(at, file.config), []);
      const messages = [
        { role: 'system', content: 'Be brief.' },
        { role: 'user', content: 'Hello <|im_end|> there' },
      ];
      return chat.render(messages, null, { now: 0 });
    };
    expect(render(path)).toEqual(render(original));
  });

  test('the stops of its generation_config.json are known', () => {
    const { config } = openModel(path);
    const { eos_token_id: stops } = openModel(original).generationConfig as { eos_token_id: number | number[] };
    const known = familyOf(config).eosIds(familyOf(config).parseConfig(config));
    expect(known).toEqual(expect.arrayContaining([stops].flat()));
  });
});

/** Fields of a rotary scaling that its type does not use. */
function withoutUnused(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value ?? null), (key, each) =>
    ['rope_type', 'type', 'rope_theta', 'mscale', 'mscale_all_dim'].includes(key) ? undefined : each,
  );
}

describe('encodings', () => {
  test.each(['F32', 'F16', 'BF16', 'Q8_0', 'Q4_0'] as const)('the pack quantised as %s', async dtype => {
    const at = directory();
    // matrices whose rows are no whole blocks stay floats, as in published files
    const dtypeOf = (_: string, columns: number) => (columns % blockColumns(dtype) === 0 ? dtype : 'F16');
    const file = packAsGguf(packDirectory('qwen3-moe'), 'qwen3moe', { dtype: dtypeOf });
    const path = writeGguf(join(at, 'quantised.gguf'), file);
    // the same values as float32 matrices
    const tensors = file.tensors.map(tensor => {
      const types = { 0: 'F32', 1: 'F16', 30: 'BF16', 2: 'Q4_0', 8: 'Q8_0' } as const;
      const values = decode(types[tensor.type as keyof typeof types], tensor.bytes);
      return { ...tensor, type: 0, bytes: new Uint8Array(values.buffer) };
    });
    const twin = writeGguf(join(at, 'float.gguf'), { ...file, tensors });
    const logits = await logitsOf(path, INPUT);
    expect(logits).toEqual(await logitsOf(twin, INPUT));
    // and it is the pack's model, more or less
    const original = await logitsOf(packDirectory('qwen3-moe'), INPUT);
    const differences = Array.from(logits, (logit, i) => Math.abs(logit - original[i]));
    const mean = differences.reduce((sum, each) => sum + each, 0) / differences.length;
    expect(mean).toBeLessThan({ F32: 1e-9, F16: 0.01, BF16: 1e-9, Q8_0: 0.1, Q4_0: 1.5 }[dtype]);
  });

  test('the experts of gpt-oss in MXFP4', async () => {
    const original = packDirectory('gpt-oss-mxfp4');
    const file = packAsGguf(original, 'gpt-oss');
    const tensors = [...file.tensors, ...mxfp4Experts(original)];
    const path = writeGguf(join(directory(), 'mxfp4.gguf'), { ...file, tensors });
    expect(await logitsOf(path, INPUT)).toEqual(await logitsOf(original, INPUT));
  });

  const OF_32: GgufBlock[] = ['Q4_0', 'Q4_1', 'Q5_0', 'Q5_1', 'Q8_0', 'IQ4_NL', 'MXFP4'];
  const OF_256: GgufBlock[] = ['Q2_K', 'Q3_K', 'Q4_K', 'Q5_K', 'Q6_K', 'IQ4_XS'];
  const SHAPE = { hidden: 256, width: 256, layers: 2, heads: 4, kvHeads: 2, experts: 4, topK: 2, vocab: 288 };

  test.each([...OF_32, ...OF_256])('a model of random %s blocks is that of its decoded values', async dtype => {
    const at = directory();
    const blocks = (name: string, values: number) => randomBlocks(dtype, name, values);
    const isPlain = (name: string) => /norm|mlp\.gate\.weight/.test(name);
    const plain = (name: string, count: number) =>
      Float32Array.from({ length: count }, (_, i) => (name.includes('norm') ? 1 : 0.1) * Math.fround(Math.sin(i + 1)));
    const weights = (name: string, rows: number, columns: number) =>
      isPlain(name) ? plain(name, rows * columns) : decode(dtype, blocks(name, rows * columns));
    const twin = join(at, 'twin');
    writeTiny(twin, { shape: SHAPE });
    writeCheckpoint(twin, { shape: SHAPE, dtype: 'F32', shards: 2, config: {}, generationConfig: null }, weights);
    // the writer's rules for names and metadata, with blocks in the place of floats
    const file = packAsGguf(twin, 'olmoe', { dtype: () => 'F32' });
    const bytesOf = new Map(
      tensorShapes(SHAPE, false)
        .filter(({ name }) => !isPlain(name))
        .map(({ name, rows, columns }) => [name, blocks(name, rows * columns)]),
    );
    const tensors = file.tensors.map(tensor => withBlocks(tensor, dtype, bytesOf));
    expect(tensors.filter(tensor => tensor.type === typeId(dtype))).toHaveLength(2 + 2 * 7);
    const path = writeGguf(join(at, 'blocks.gguf'), { ...file, tensors });
    const input = INPUT.slice(0, 12).map(id => id % 256);
    const logits = await logitsOf(path, input);
    expect(logits.every(Number.isFinite)).toBe(true);
    expect(new Set(logits).size).toBeGreaterThan(1000);
    expect(logits).toEqual(await logitsOf(twin, input));
    expect(await logitsOf(path, input, 'reference')).toEqual(logits);
  });
});

/** A matrix of the float model as the blocks that its values were decoded from. */
function withBlocks(tensor: GgufEntry, dtype: GgufBlock, bytesOf: ReadonlyMap<string, Uint8Array>): GgufEntry {
  const names: Record<string, string> = {
    'token_embd.weight': 'model.embed_tokens.weight',
    'output.weight': 'lm_head.weight',
  };
  const [, layer, part] =
    /^blk\.(\d+)\.(?:attn|ffn)_(q|k|v|output|gate_exps|up_exps|down_exps)\.weight$/.exec(tensor.name) ?? [];
  const inside = part?.endsWith('_exps') ? null : `self_attn.${part === 'output' ? 'o' : part}_proj.weight`;
  const role = part?.replace('_exps', '');
  const experts = [0, 1, 2, 3].map(expert => `model.layers.${layer}.mlp.experts.${expert}.${role}_proj.weight`);
  const sources = names[tensor.name] ? [names[tensor.name]] : inside ? [`model.layers.${layer}.${inside}`] : experts;
  if (part === undefined && !names[tensor.name]) return tensor;
  return { ...tensor, type: typeId(dtype), bytes: Buffer.concat(sources.map(name => bytesOf.get(name)!)) };
}

describe('files', () => {
  const original = packDirectory('olmoe');

  test('split, with a first part that holds no tensor: the same logits as in one piece', async () => {
    const at = directory();
    const file = packAsGguf(original, 'olmoe');
    const whole = writeGguf(join(at, 'whole.gguf'), file);
    const [first, , last] = writeSplitGguf(join(at, 'split'), file, 10, true);
    const expected = await logitsOf(whole, INPUT);
    expect(await logitsOf(first, INPUT)).toEqual(expected);
    expect(await logitsOf(last, INPUT)).toEqual(expected);
  });

  test('one expert is read at a time, straight from the joined tensor', async () => {
    const path = writeGguf(join(directory(), 'olmoe.gguf'), packAsGguf(original, 'olmoe'));
    const small = { model: path, activations: 'exact' as const, expertSlots: 4, context: 512 };
    const { logits } = await scoreWith(small, { ids: INPUT, logits: true });
    expect(logits).toEqual(await logitsOf(original, INPUT));
  });

  test('tokenizer files beside a GGUF file take the place of its own vocabulary', () => {
    const at = directory();
    writeGguf(
      join(at, 'm.gguf'),
      packAsGguf(original, 'olmoe', { metadata: [['tokenizer.ggml.pre', ['string', 'new']]] }),
    );
    expect(() => Tokenizer.load(at)).toThrow(/"new" as its pre-tokenizer; known: gpt-2/);
    for (const name of ['tokenizer.json', 'tokenizer_config.json']) cpSync(join(original, name), join(at, name));
    expect(Tokenizer.load(at).vocabSize).toBe(512);
  });
});
