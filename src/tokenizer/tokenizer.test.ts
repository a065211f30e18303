import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ALL_PACKS } from '../../test/support/packs.ts';
import { TokenizerError } from '../common/errors.ts';
import { inexactRegexConstruct } from './regex-check.ts';
import { Tokenizer } from './tokenizer.ts';
import { checkTokenizer } from './tokenizer-file.ts';

const DATA = new URL('../../test/fixtures/data/tokenizers/', import.meta.url);
const readJson = (url: URL) => JSON.parse(readFileSync(url, 'utf8'));
const raw = { controlTokens: true };

interface Golden {
  encode: { text: string; ids: number[]; ids_with_post_processor: number[] }[];
  decode: { text: string; ids: number[] }[];
  chat: { text: string; ids: number[] }[];
  special_ids: Record<string, number>;
}

const ORACLES = new URL('../../test/oracles/', import.meta.url);

describe.each(ALL_PACKS)('$name equals the recorded reference', ({ name }) => {
  const directory = new URL(`${name}/`, ORACLES);
  const tokenizer = Tokenizer.load(directory.pathname);
  const { encode, decode, chat, special_ids }: Golden = readJson(new URL('reference.json', directory)).tokenizer;

  test('encode, with and without what the post-processor adds', () => {
    expect(encode.length).toBeGreaterThan(10);
    for (const { text, ids, ids_with_post_processor } of encode) {
      expect(tokenizer.encode(text, raw), text).toEqual(ids);
      expect(tokenizer.encode(text, { ...raw, surround: true }), text).toEqual(ids_with_post_processor);
    }
  });

  test('decode', () => {
    for (const { text, ids } of decode) expect(tokenizer.decode(ids)).toBe(text);
  });

  test('rendered conversations', () => {
    for (const { text, ids } of chat) expect(tokenizer.encode(text, raw)).toEqual(ids);
  });

  test('ids of added tokens', () => {
    for (const [content, id] of Object.entries(special_ids)) expect(tokenizer.idOf(content), content).toBe(id);
  });
});

interface Rules {
  groups: {
    model: Record<string, unknown>;
    decoder: Record<string, unknown>;
    cases: { name: string; encode: { text: string; ids: number[]; surrounded?: number[]; decoded?: string }[] }[];
  }[];
}
const rules: Rules = readJson(new URL('rules.json', DATA));
const ruleCases = rules.groups.flatMap(({ cases, ...group }) => cases.map(one => ({ ...group, ...one })));

describe('every rule of tokenizer.json does what the Rust library does', () => {
  test.each(ruleCases)('$name', ({ encode, ...json }) => {
    const tokenizer = new Tokenizer(checkTokenizer(json));
    for (const { text, ids, surrounded, decoded } of encode) {
      expect(tokenizer.encode(text, raw), JSON.stringify(text)).toEqual(ids);
      if (surrounded) expect(tokenizer.encode(text, { ...raw, surround: true })).toEqual(surrounded);
      if (decoded !== undefined) expect(tokenizer.decode(ids)).toBe(decoded);
    }
  });

  test.each([
    ['pre_tokenizer', { type: 'UnicodeScripts' }],
    ['pre_tokenizer', { type: 'Split', pattern: { String: 'a' }, behavior: 'Sideways', invert: false }],
    ['pre_tokenizer', { type: 'Split', pattern: { Regex: '(' }, behavior: 'Isolated', invert: false }],
    ...[
      '(?>a+)b',
      'a++b',
      '[ab]*+b',
      'a?+b',
      '(?i)a',
      '(?i-m:a)',
      '(?~a)',
      '(a)\\1',
      'a\\Kb',
      '\\Ga',
      '\\X',
      '\\R',
    ].flatMap((Regex): [string, unknown][] => [
      ['pre_tokenizer', { type: 'Split', pattern: { Regex }, behavior: 'Isolated', invert: false }],
      ['normalizer', { type: 'Replace', pattern: { Regex }, content: 'b' }],
    ]),
    ['normalizer', { type: 'BertNormalizer' }],
    ['normalizer', { type: 'Replace', pattern: { String: 'a' }, content: '$&' }],
    ['normalizer', { type: 'Replace', pattern: { String: 'a' }, content: 'a'.repeat(65) }],
    ['decoder', { type: 'CTC' }],
    ['decoder', null],
    ['post_processor', { type: 'RobertaProcessing' }],
  ])('an unknown %s is refused by name: %j', (field, value) => {
    const json = { ...tiny(), [field]: value };
    expect(() => new Tokenizer(checkTokenizer(json))).toThrow(TokenizerError);
    expect(() => new Tokenizer(checkTokenizer(json))).toThrow(`$.${field}`);
  });
});

test('what a regular expression has that only looks like an unsupported construct is no obstacle', () => {
  for (const regex of [
    '[(?>++]+',
    '\\(?',
    '\\++',
    '[]?+]',
    '(?<!a)b(?=c)(?!d)',
    '(?<=a)b',
    '(?<n>a)',
    '(?i:a)',
    'a{2}+',
    '[[:alpha:]]+',
  ]) {
    expect(inexactRegexConstruct(regex), regex).toBeNull();
  }
  expect(inexactRegexConstruct('[]](?>a)')).toBe('the atomic group "(?>"');
});

/** Characters a, b, c, space; "a b" and "bc" merge. */
function tiny(
  merges: unknown[] = [
    ['a', ' '],
    ['a ', 'b'],
    ['b', 'c'],
  ],
): Record<string, unknown> {
  const vocab = Object.fromEntries(['a', 'b', ' ', 'c', 'a ', 'a b', 'bc'].map((token, id) => [token, id]));
  return { model: { type: 'BPE', vocab, merges }, decoder: { type: 'Fuse' }, added_tokens: [] };
}

describe('merges', () => {
  test('a merge may contain a space when merges are pairs', () => {
    const tokenizer = new Tokenizer(checkTokenizer(tiny()));
    expect(['a b', 'a bc', 'abc', 'a a b'].map(text => tokenizer.encode(text, raw))).toEqual([
      [5],
      [5, 3],
      [0, 6],
      [4, 5],
    ]);
  });

  test('both spellings give the same ids', () => {
    const json = readJson(new URL('qwen3-moe/tokenizer.json', ORACLES));
    const pairs = new Tokenizer(checkTokenizer(json));
    const spelled = {
      ...json,
      model: { ...json.model, merges: json.model.merges.map((pair: string[]) => pair.join(' ')) },
    };
    const strings = new Tokenizer(checkTokenizer(spelled));
    for (const { text } of readJson(new URL('qwen3-moe/reference.json', ORACLES)).tokenizer.encode) {
      expect(strings.encode(text, raw)).toEqual(pairs.encode(text, raw));
    }
  });
});

describe('hostile tokenizer.json', () => {
  const model = (change: Record<string, unknown>) => ({ ...tiny(), model: { ...(tiny().model as object), ...change } });
  const vocab = (change: Record<string, unknown>) => model({ vocab: { a: 0, b: 1, ' ': 2, ...change }, merges: [] });
  const added = (...tokens: unknown[]) => ({ ...tiny(), added_tokens: tokens });
  test.each<[string, Record<string, unknown>, string]>([
    ['no model', { ...tiny(), model: undefined }, '$.model must be'],
    ['model is an array', { ...tiny(), model: [] }, '$.model must be'],
    ['other model type', model({ type: 'Unigram' }), '$.model.type is "Unigram"'],
    ['no vocabulary', model({ vocab: undefined }), '$.model.vocab must be'],
    ['empty vocabulary', model({ vocab: {}, merges: [] }), '$.model.vocab is empty'],
    ['id is a string', vocab({ c: '3' }), '$.model.vocab.c must be an integer, not "3"'],
    ['id is null', vocab({ c: null }), '$.model.vocab.c must be'],
    ['id is a fraction', vocab({ c: 1.5 }), '$.model.vocab.c must be'],
    ['id is 2^31', vocab({ c: 2 ** 31 }), '$.model.vocab.c is 2147483648'],
    ['id is negative', vocab({ c: -1 }), '$.model.vocab.c is -1'],
    ['id twice', vocab({ c: 1 }), '$.model.vocab.c has id 1, which "b" has'],
    ['merge of three', model({ merges: [['a', ' ', 'b']] }), '$.model.merges[0] must be two'],
    ['string merge of three', model({ merges: ['b c', 'a b c'] }), '$.model.merges[1] must be two'],
    ['merge of one', model({ merges: ['a'] }), '$.model.merges[0] must be two'],
    ['merge of numbers', model({ merges: [[1, 2]] }), '$.model.merges[0] must be two'],
    ['merge to nowhere', model({ merges: [['c', 'c']] }), '$.model.merges[0] needs "cc"'],
    ['merges missing', model({ merges: undefined }), '$.model.merges must be'],
    ['unknown token that is none', model({ unk_token: '<unk>' }), '$.model.unk_token is not'],
    ['dropout', model({ dropout: 0.1 }), '$.model.dropout is set'],
    ['added tokens no list', { ...tiny(), added_tokens: {} }, '$.added_tokens must be'],
    ['added token without content', added({ id: 9 }), '$.added_tokens[0] must have a content'],
    ['added token without id', added({ content: 'x' }), '$.added_tokens[0].id must be'],
    ['added token with a huge id', added({ id: 2 ** 40, content: 'x' }), '$.added_tokens[0].id is 1099511627776'],
    [
      'added token over a vocabulary entry',
      added({ id: 1, content: 'x' }),
      '$.added_tokens[0] "x" has id 1, which belongs to "b"',
    ],
    [
      'added tokens with one id',
      added({ id: 9, content: 'x' }, { id: 9, content: 'y' }),
      '$.added_tokens[1] "y" has id 9',
    ],
    [
      'added token with two ids',
      added({ id: 9, content: 'x' }, { id: 10, content: 'x' }),
      '$.added_tokens[1] "x" has id 10',
    ],
    ['added token that is a vocabulary entry', added({ id: 9, content: 'b' }), '"b" has id 9 here and id 1 elsewhere'],
  ])('%s', (_, json, message) => {
    expect(() => checkTokenizer(json)).toThrow(TokenizerError);
    expect(() => checkTokenizer(json)).toThrow(message);
  });

  test('added tokens of tokenizer_config.json count, and must agree', () => {
    const config = { added_tokens_decoder: { 9: { content: '<x>' } } };
    expect(new Tokenizer(checkTokenizer(tiny(), config)).encode('a<x>', raw)).toEqual([0, 9]);
    expect(() => checkTokenizer(added({ id: 9, content: 'y' }), config)).toThrow(
      'tokenizer_config.json: $.added_tokens_decoder',
    );
  });

  test('a named special token of the vocabulary is cut out like one', () => {
    const tokenizer = new Tokenizer(checkTokenizer(tiny(), { eos_token: { content: 'c' } }));
    expect(tokenizer.encode('bc', raw)).toEqual([1, 3]);
    expect(tokenizer.specialId('eos_token')).toBe(3);
    expect(tokenizer.decode([1, 3])).toBe('b');
  });

  test('a missing file is named', () => {
    expect(() => Tokenizer.load('/nowhere')).toThrow('/nowhere/tokenizer.json does not exist');
  });
});

describe('text', () => {
  const qwen = Tokenizer.load(new URL('qwen3-moe/', ORACLES).pathname);

  test('control tokens are text when asked', () => {
    for (const { content, id } of qwen.controlTokens) {
      expect(qwen.encode(`a${content}b`, raw)).toContain(id);
      const ids = qwen.encode(`a${content}b`, { controlTokens: false });
      expect(ids.filter(token => qwen.controlTokens.some(control => control.id === token))).toEqual([]);
      expect(qwen.decode(ids)).toBe(`a${content}b`);
    }
  });

  test('tokens that are no control tokens are cut out all the same', () => {
    const olmoe = Tokenizer.load(new URL('../../test/oracles/olmoe/', import.meta.url).pathname);
    expect(olmoe.encode('    <|padding|>', { controlTokens: false })[0]).toBe(506);
    expect(olmoe.encode('    <|padding|>', { controlTokens: false })).not.toContain(1);
  });

  test('lone surrogates are encoded as U+FFFD, NUL as itself', () => {
    expect(qwen.decode(qwen.encode('a\ud800b\udc00\0', raw))).toBe('a\ufffdb\ufffd\0');
  });

  test('text that the vocabulary cannot spell is an error, not a gap', () => {
    expect(() => new Tokenizer(checkTokenizer(tiny())).encode('axb', raw)).toThrow('no token for "x"');
  });

  test('any text survives encoding and decoding where nothing normalises', () => {
    const deepseek = Tokenizer.load(new URL('deepseek-v3/', ORACLES).pathname);
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme', maxLength: 60 }), text => {
        for (const controlTokens of [true, false]) {
          expect(deepseek.decode(deepseek.encode(text, { controlTokens }), { showSpecial: true })).toBe(text);
        }
      }),
      { numRuns: 200 },
    );
  });
});
