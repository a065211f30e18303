import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { tokenizerMetadata } from '../../test/support/gguf-packs.ts';
import { type GgufField, writeGguf } from '../../test/support/gguf-writer.ts';
import { packDirectory } from '../../test/support/packs.ts';
import { GGUF_PRE_TOKENIZERS, preTokenizerJson } from './gguf-pre-tokenizers.ts';
import { readGgufTokenizer } from './gguf-tokenizer.ts';
import { Tokenizer } from './tokenizer.ts';
import { readTokenizerFile } from './tokenizer-file.ts';

const directory = mkdtempSync(join(tmpdir(), 'gguf-'));
let files = 0;

/** A file with nothing but the tokenizer of a pack, some keys replaced. */
function file(pack: string, keys: Readonly<Record<string, GgufField | null>> = {}): string {
  const kept = tokenizerMetadata(packDirectory(pack)).filter(([key]) => !(key in keys));
  const added = Object.entries(keys).flatMap(([key, field]) => (field ? [[key, field] as const] : []));
  return writeGguf(join(directory, `${files++}.gguf`), { metadata: [...kept, ...added], tensors: [] });
}

const text = (value: string): GgufField => ['string', value];
const strings = (values: string[]): GgufField => ['array', 'string', values];

/** A vocabulary of these tokens and kinds. */
function small(tokens: string[], types: number[], merges: string[] = [], more: Record<string, GgufField | null> = {}) {
  return file('olmoe', {
    'tokenizer.ggml.tokens': strings(tokens),
    'tokenizer.ggml.token_type': ['array', 'i32', types],
    'tokenizer.ggml.merges': strings(merges),
    'tokenizer.ggml.bos_token_id': null,
    'tokenizer.ggml.eos_token_id': null,
    'tokenizer.ggml.padding_token_id': null,
    ...more,
  });
}

describe('pre-tokenizers', () => {
  test.each([
    ['olmo', 'olmoe'],
    ['qwen2', 'qwen3-moe'],
    ['qwen35', 'qwen36'],
    ['gpt-4o', 'gpt-oss'],
    ['glm4', 'glm4-moe'],
    ['deepseek-llm', 'deepseek-v2-lite'],
    ['deepseek-v3', 'deepseek-v3'],
  ])('%s is what the tokenizer.json of %s says', (name, pack) => {
    const path = join(packDirectory(pack), 'tokenizer.json');
    const { pre_tokenizer, normalizer, model } = JSON.parse(readFileSync(path, 'utf8'));
    const pre = GGUF_PRE_TOKENIZERS[name];
    expect(preTokenizerJson(pre)).toEqual(pre_tokenizer);
    expect(pre.normalizer).toEqual(normalizer);
    expect(pre.ignoreMerges).toBe(model.ignore_merges);
  });

  test.each(Object.keys(GGUF_PRE_TOKENIZERS))('%s can be built', name => {
    const tokenizer = Tokenizer.load(file('olmoe', { 'tokenizer.ggml.pre': text(name) }));
    const ids = tokenizer.encode('Ä 1234\n x', { controlTokens: false });
    expect(tokenizer.decode(ids)).toBe('Ä 1234\n x');
  });

  test.each([
    ['tokenizer.ggml.pre', text('brand-new'), /names "brand-new" as its pre-tokenizer; known: gpt-2, olmo, qwen2/],
    ['tokenizer.ggml.pre', text('constructor'), /names "constructor"/],
    ['tokenizer.ggml.pre', null, /names nothing as its pre-tokenizer/],
    ['tokenizer.ggml.model', text('llama'), /of the kind "llama"; only "gpt2"/],
    ['tokenizer.ggml.model', null, /of the kind nothing/],
    ['tokenizer.ggml.add_space_prefix', ['bool', true], /puts a space before texts/],
  ] as const)('%s %s is refused by name, with a way out', (key, field, message) => {
    const path = file('olmoe', { [key]: field });
    expect(() => Tokenizer.load(path)).toThrow(message);
    expect(() => Tokenizer.load(path)).toThrow(
      expect.objectContaining({ hint: expect.stringMatching(/tokenizer.json/) }),
    );
  });
});

describe('tokens', () => {
  test('control tokens are special, others that users defined are not; padding is no token', () => {
    const tokenizer = Tokenizer.load(small(['a', '<|x|>', '  ', '[PAD3]', 'b'], [1, 3, 4, 5, 1]));
    expect(tokenizer.vocabSize).toBe(5);
    expect(tokenizer.addedTokens.map(({ id, special }) => [id, special])).toEqual([
      [1, true],
      [2, false],
    ]);
    expect(tokenizer.encode('a<|x|>  b', { controlTokens: true })).toEqual([0, 1, 2, 4]);
    expect(() => tokenizer.encode('[', { controlTokens: true })).toThrow(/no token for/);
    expect(tokenizer.decode([3])).toBe('');
  });

  test('a token that users defined can be what merges lead to', () => {
    const { tokenizer } = readGgufTokenizer(small(['a', 'b', 'ab'], [1, 1, 4], ['a b']));
    expect((tokenizer.model as { vocab: unknown }).vocab).toEqual({ a: 0, b: 1, ab: 2 });
  });

  test('names that JavaScript uses itself are tokens like others', () => {
    const tokens = ['__proto__', 'constructor', '<0x-1>', 'a'];
    const path = small(tokens, [1, 1, 1, 1]);
    const tokenizer = Tokenizer.load(path);
    expect(tokens.map(token => tokenizer.idOf(token))).toEqual([0, 1, 2, 3]);
    expect(tokenizer.decode([0, 1, 2])).toBe('__proto__constructor<0x-1>');
  });

  test.each([
    [['a', 'a'], [1, 1], [], /token "a" twice: ids 0 and 1/],
    [['a'], [1, 1], [], /1 tokens but 2 token types/],
    [['a', 'b'], [1, 1], ['a b'], /needs "ab", which is not in the vocabulary/],
    [['a'], [1], ['a'], /merges\[0\] must be two tokens/],
    [['a', ''], [1, 3], [], /content of 1 to/],
    [[], [], [], /vocab is empty/],
  ])('tokens %j of types %j with merges %j are refused', (tokens, types, merges, message) => {
    expect(() => Tokenizer.load(small(tokens, types, merges))).toThrow(message);
  });

  test.each([
    ['tokenizer.ggml.tokens', null, /lacks "tokenizer.ggml.tokens"/],
    ['tokenizer.ggml.token_type', null, /lacks "tokenizer.ggml.token_type"/],
    ['tokenizer.ggml.token_type', ['array', 'f32', [1]], /array of integers/],
    ['tokenizer.ggml.merges', text('a b'), /array of strings/],
    ['tokenizer.ggml.eos_token_id', ['u32', 512], /eos_token_id "512"; its tokens are 0 to 511/],
    ['tokenizer.ggml.eos_token_id', ['i32', -1], /eos_token_id "-1"/],
    ['tokenizer.ggml.eos_token_id', ['f32', 0.5], /eos_token_id "0.5"/],
  ] as const)('%s %s is refused', (key, field, message) => {
    expect(() => Tokenizer.load(file('olmoe', { [key]: field }))).toThrow(message);
  });
});

describe('surroundings and templates', () => {
  const surrounded = (keys: Record<string, GgufField>) =>
    Tokenizer.load(small(['a', '<s>', '</s>'], [1, 3, 3], [], keys)).encode('a', {
      controlTokens: true,
      surround: true,
    });
  const ids: Record<string, GgufField> = {
    'tokenizer.ggml.bos_token_id': ['u32', 1],
    'tokenizer.ggml.eos_token_id': ['u32', 2],
  };

  test('BOS and EOS are added where the file says so, or where its pre-tokenizer always does', () => {
    expect(surrounded(ids)).toEqual([0]);
    expect(surrounded({ ...ids, 'tokenizer.ggml.add_bos_token': ['bool', true] })).toEqual([1, 0]);
    expect(surrounded({ ...ids, 'tokenizer.ggml.add_eos_token': ['bool', true] })).toEqual([0, 2]);
    expect(surrounded({ ...ids, 'tokenizer.ggml.pre': text('llama-bpe') })).toEqual([1, 0]);
    const without: GgufField = ['bool', false];
    expect(
      surrounded({ ...ids, 'tokenizer.ggml.pre': text('llama-bpe'), 'tokenizer.ggml.add_bos_token': without }),
    ).toEqual([0]);
  });

  test('several templates come with their names', () => {
    const path = file('olmoe', {
      'tokenizer.chat_template': text('main'),
      'tokenizer.chat_template.tool_use': text('tools'),
      'tokenizer.chat_templates': strings(['tool_use']),
    });
    expect(readTokenizerFile(path).config.chat_template).toEqual([
      { name: 'default', template: 'main' },
      { name: 'tool_use', template: 'tools' },
    ]);
    expect(readTokenizerFile(file('olmoe', { 'tokenizer.chat_template': null })).config).not.toHaveProperty(
      'chat_template',
    );
  });
});
