/** The tokenizer of a GGUF file as the tokenizer.json and tokenizer_config.json that say the same. */

import { TokenizerError } from '../common/errors.ts';
import { quote } from '../formats/files.ts';
import { readGgufHeader } from '../formats/gguf.ts';
import { type GgufMetadata, isGgufArray, readGgufIntegers, readGgufStrings } from '../formats/gguf-metadata.ts';
import { BYTE_LEVEL, GGUF_PRE_TOKENIZERS, type NamedPreTokenizer, preTokenizerJson } from './gguf-pre-tokenizers.ts';

/** Kinds of tokens, by their numbers in `tokenizer.ggml.token_type`. */
const CONTROL = 3;
const USER_DEFINED = 4;
const UNUSED = 5;

const TEMPLATE = 'tokenizer.chat_template';

export interface GgufTokenizer {
  readonly tokenizer: Record<string, unknown>;
  readonly config: Record<string, unknown>;
}

/** Reads the vocabulary of the first part of a GGUF model. Throws TokenizerError for what cannot be done exactly. */
export function readGgufTokenizer(path: string): GgufTokenizer {
  const { metadata } = readGgufHeader(path);
  const source = { path, metadata };
  const pre = namedPreTokenizer(source);
  const tokens = readGgufStrings(path, 'tokenizer.ggml.tokens', metadata.get('tokenizer.ggml.tokens'));
  const types = readGgufIntegers(path, 'tokenizer.ggml.token_type', metadata.get('tokenizer.ggml.token_type'));
  const merges = readGgufStrings(path, 'tokenizer.ggml.merges', metadata.get('tokenizer.ggml.merges'));
  if (types.length !== tokens.length) {
    throw fault(source, 'TOKENIZER_INVALID', `has ${tokens.length} tokens but ${types.length} token types`);
  }
  const addedTokens = tokens.flatMap((content, id) => {
    if (types[id] !== CONTROL && types[id] !== USER_DEFINED) return [];
    return [{ id, content, special: types[id] === CONTROL, normalized: false }];
  });
  const model = {
    type: 'BPE',
    vocab: vocabularyOf(source, tokens, types, merges),
    merges,
    ignore_merges: pre.ignoreMerges,
  };
  const tokenizer = {
    added_tokens: addedTokens,
    normalizer: pre.normalizer,
    pre_tokenizer: preTokenizerJson(pre),
    post_processor: surroundings(source, tokens, pre),
    decoder: BYTE_LEVEL,
    model,
  };
  return { tokenizer, config: configOf(source, tokens) };
}

interface Source {
  readonly path: string;
  readonly metadata: GgufMetadata;
}

const SIDE_BY_SIDE =
  'put the tokenizer.json and tokenizer_config.json of the model beside the GGUF file and give their directory';

function fault({ path }: Source, code: string, what: string): TokenizerError {
  return new TokenizerError(code, `${path} ${what}`, { hint: SIDE_BY_SIDE, details: { file: path } });
}

function namedPreTokenizer(source: Source): NamedPreTokenizer {
  const text = (key: string) => {
    const value = source.metadata.get(key);
    return typeof value === 'string' ? quote(value) : 'nothing';
  };
  if (source.metadata.get('tokenizer.ggml.model') !== 'gpt2') {
    const what = `has a tokenizer of the kind ${text('tokenizer.ggml.model')}; only "gpt2" (byte-level BPE) is supported`;
    throw fault(source, 'TOKENIZER_UNSUPPORTED', what);
  }
  if (source.metadata.get('tokenizer.ggml.add_space_prefix') === true) {
    throw fault(
      source,
      'TOKENIZER_UNSUPPORTED',
      'has a tokenizer that puts a space before texts; this is not supported',
    );
  }
  const name = source.metadata.get('tokenizer.ggml.pre');
  if (typeof name === 'string' && Object.hasOwn(GGUF_PRE_TOKENIZERS, name)) return GGUF_PRE_TOKENIZERS[name];
  const known = Object.keys(GGUF_PRE_TOKENIZERS).join(', ');
  const what = `names ${text('tokenizer.ggml.pre')} as its pre-tokenizer; known: ${known}`;
  throw fault(source, 'TOKENIZER_UNSUPPORTED', what);
}

/** Normal tokens, and others that merges lead to. */
function vocabularyOf(
  source: Source,
  tokens: readonly string[],
  types: readonly number[],
  merges: readonly string[],
): Record<string, number> {
  const merged = new Set<string>();
  for (const merge of merges) {
    const parts = merge.split(' ');
    for (const part of [...parts, parts.join('')]) merged.add(part);
  }
  const vocab = new Map<string, number>();
  for (const [id, token] of tokens.entries()) {
    const isAdded = types[id] === CONTROL || types[id] === USER_DEFINED || types[id] === UNUSED;
    if (isAdded && !merged.has(token)) continue;
    if (vocab.has(token)) {
      const what = `has the token ${quote(token)} twice: ids ${vocab.get(token)} and ${id}`;
      throw fault(source, 'TOKENIZER_BAD_ID', what);
    }
    vocab.set(token, id);
  }
  return Object.fromEntries(vocab);
}

/** The token of a role such as `bos`; undefined where the file names none. */
function tokenOf(source: Source, tokens: readonly string[], role: string): { id: number; token: string } | undefined {
  const key = `tokenizer.ggml.${role}_token_id`;
  const value = source.metadata.get(key);
  if (value === undefined) return undefined;
  const id = Number(value);
  if (Number.isInteger(id) && id >= 0 && id < tokens.length) return { id, token: tokens[id] };
  throw fault(
    source,
    'TOKENIZER_BAD_ID',
    `has ${key} ${quote(String(value))}; its tokens are 0 to ${tokens.length - 1}`,
  );
}

function surroundings(source: Source, tokens: readonly string[], pre: NamedPreTokenizer): Record<string, unknown> {
  const wants = (role: string, fallback: boolean) =>
    (source.metadata.get(`tokenizer.ggml.add_${role}_token`) ?? fallback) === true;
  const before = wants('bos', pre.addBos) ? tokenOf(source, tokens, 'bos') : undefined;
  const after = wants('eos', false) ? tokenOf(source, tokens, 'eos') : undefined;
  if (!before && !after) return BYTE_LEVEL;
  const special = (found: typeof before) => (found ? [{ SpecialToken: { id: found.token, type_id: 0 } }] : []);
  const named = [before, after].filter(found => found !== undefined);
  return {
    type: 'TemplateProcessing',
    single: [...special(before), { Sequence: { id: 'A', type_id: 0 } }, ...special(after)],
    special_tokens: Object.fromEntries(
      named.map(({ token, id }) => [token, { id: token, ids: [id], tokens: [token] }]),
    ),
  };
}

function configOf(source: Source, tokens: readonly string[]): Record<string, unknown> {
  const roles = { bos_token: 'bos', eos_token: 'eos', unk_token: 'unknown', pad_token: 'padding' };
  const named = Object.entries(roles).map(([field, role]) => [field, tokenOf(source, tokens, role)?.token ?? null]);
  const template = chatTemplates(source);
  return { ...Object.fromEntries(named), ...(template === undefined ? {} : { chat_template: template }) };
}

/** One template, or a list with names where there are several. */
function chatTemplates({ path, metadata }: Source): unknown {
  const main = metadata.get(TEMPLATE);
  const key = `${TEMPLATE}s`;
  const names = isGgufArray(metadata.get(key)) ? readGgufStrings(path, key, metadata.get(key)) : [];
  if (names.length === 0) return main;
  const others = names.map(name => ({ name, template: metadata.get(`${TEMPLATE}.${name}`) }));
  return [...(main === undefined ? [] : [{ name: 'default', template: main }]), ...others];
}
