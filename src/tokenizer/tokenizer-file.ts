/**
 * Reads and checks tokenizer.json and its companions before any of it reaches a library. What is not understood exactly is
 * refused by name here, so that no text is ever encoded with half of its rules.
 */

import { join } from 'node:path';
import { TokenizerError } from '../common/errors.ts';
import { isThere } from '../formats/files.ts';
import { findGguf } from '../formats/gguf-files.ts';
import {
  formatJsonPath,
  isJsonObject,
  jsonType,
  MAX_CONFIG_BYTES,
  MAX_TOKENIZER_BYTES,
  readJsonObject,
} from '../formats/json.ts';
import { readGgufTokenizer } from './gguf-tokenizer.ts';

/** Tables are sized by the largest id; the largest published vocabulary has about 262,000 entries. */
export const MAX_TOKEN_ID = 2 ** 22 - 1;
/** Added tokens are kept in a tree with one node per character; published ones stay below 100 characters. */
export const MAX_ADDED_TOKEN_CHARACTERS = 1024;

export interface AddedToken {
  readonly id: number;
  readonly content: string;
  readonly singleWord: boolean;
  readonly lstrip: boolean;
  readonly rstrip: boolean;
  /** Matched after normalisation instead of before. */
  readonly normalized: boolean;
  /** Gives no text when decoded, unless asked for. */
  readonly special: boolean;
  /** Steers the model (special, or spelled like a marker): users' text must never become this token. */
  readonly control: boolean;
}

export type SpecialRole = 'bos_token' | 'eos_token' | 'unk_token' | 'pad_token';
const SPECIAL_ROLES: readonly SpecialRole[] = ['bos_token', 'eos_token', 'unk_token', 'pad_token'];

export interface BpeModel {
  readonly vocab: Readonly<Record<string, number>>;
  /** Always pairs, whichever spelling the file had. */
  readonly merges: readonly (readonly [string, string])[];
  readonly unkToken: string | null;
  readonly fuseUnk: boolean;
  readonly byteFallback: boolean;
  readonly ignoreMerges: boolean;
}

export interface TokenizerFile {
  readonly directory: string;
  readonly model: BpeModel;
  /** Ascending id. */
  readonly addedTokens: readonly AddedToken[];
  /** Largest id + 1. The embedding matrix of a model may be padded beyond it. */
  readonly vocabSize: number;
  /** Unchecked parts of tokenizer.json; whoever builds them refuses what it does not know. */
  readonly normalizer: unknown;
  readonly preTokenizer: unknown;
  readonly postProcessor: unknown;
  readonly decoder: unknown;
  /** tokenizer_config.json, or an empty object. */
  readonly config: Readonly<Record<string, unknown>>;
  /** Text of the named special tokens that the configuration declares. */
  readonly specialTokens: Readonly<Partial<Record<SpecialRole, string>>>;
}

type JsonPath = readonly (string | number)[];

/** TokenizerError for one place of a file: `details` has file and path. */
export function tokenizerFault(code: string, path: JsonPath, what: string, file = 'tokenizer.json'): TokenizerError {
  const at = formatJsonPath(path);
  return new TokenizerError(code, `${file}: ${at} ${what}`, {
    hint: 'download the tokenizer files again, or report the model if they come from its publisher',
    details: { file, path: at },
  });
}

/** Of a model directory or a GGUF file; a tokenizer.json beside a GGUF file takes the place of what that one holds. */
export function readTokenizerFile(directory: string): TokenizerFile {
  const path = join(directory, 'tokenizer.json');
  if (!isThere(path)) {
    const gguf = findGguf(directory);
    if (gguf) {
      const { tokenizer, config } = readGgufTokenizer(gguf[0]);
      return checkTokenizer(tokenizer, config, directory);
    }
    throw new TokenizerError('TOKENIZER_MISSING', `${path} does not exist`, {
      hint: 'copy tokenizer.json and tokenizer_config.json of the model into its directory',
      details: { file: path },
    });
  }
  const json = readJsonObject(path, MAX_TOKENIZER_BYTES);
  return checkTokenizer(json, readOptional(directory, 'tokenizer_config.json'), directory, () =>
    readOptional(directory, 'special_tokens_map.json'),
  );
}

/** Checks parsed files. `specialTokensMap` is asked only for names that the configuration does not mention. */
export function checkTokenizer(
  json: Record<string, unknown>,
  config: Record<string, unknown> = {},
  directory = '',
  specialTokensMap: () => Record<string, unknown> = () => ({}),
): TokenizerFile {
  const model = checkModel(json.model);
  const specialTokens = namedSpecialTokens(config, specialTokensMap);
  const named = new Set(Object.values(specialTokens));
  const addedTokens = checkAddedTokens(json.added_tokens ?? [], config, model, named);
  let largest = -1;
  for (const id of Object.values(model.vocab)) largest = Math.max(largest, id);
  for (const token of addedTokens) largest = Math.max(largest, token.id);
  if (model.unkToken !== null && !Object.hasOwn(model.vocab, model.unkToken)) {
    throw tokenizerFault('TOKENIZER_INVALID', ['model', 'unk_token'], 'is not in the vocabulary');
  }
  return {
    directory,
    model,
    addedTokens,
    vocabSize: largest + 1,
    normalizer: json.normalizer ?? null,
    preTokenizer: json.pre_tokenizer ?? null,
    postProcessor: json.post_processor ?? null,
    decoder: json.decoder ?? null,
    config,
    specialTokens,
  };
}

function readOptional(directory: string, name: string): Record<string, unknown> {
  const path = join(directory, name);
  return isThere(path) ? readJsonObject(path, MAX_CONFIG_BYTES) : {};
}

function checkModel(model: unknown): BpeModel {
  if (!isJsonObject(model))
    throw tokenizerFault('TOKENIZER_INVALID', ['model'], `must be an object, not ${jsonType(model)}`);
  const type = model.type ?? (isJsonObject(model.vocab) && model.merges ? 'BPE' : jsonType(undefined));
  if (type !== 'BPE') {
    throw tokenizerFault(
      'TOKENIZER_UNSUPPORTED',
      ['model', 'type'],
      `is ${JSON.stringify(type)}; only "BPE" is supported`,
    );
  }
  for (const field of ['continuing_subword_prefix', 'end_of_word_suffix', 'dropout']) {
    if (model[field])
      throw tokenizerFault('TOKENIZER_UNSUPPORTED', ['model', field], 'is set; only its absence is supported');
  }
  const vocab = checkVocabulary(model.vocab);
  return {
    vocab,
    merges: checkMerges(model.merges, vocab),
    unkToken: optional(model, 'unk_token', 'string', null),
    fuseUnk: optional(model, 'fuse_unk', 'boolean', false),
    byteFallback: optional(model, 'byte_fallback', 'boolean', false),
    ignoreMerges: optional(model, 'ignore_merges', 'boolean', false),
  };
}

function optional<T>(model: Record<string, unknown>, field: string, type: 'string' | 'boolean', fallback: T): T {
  const value = model[field] ?? fallback;
  if (value !== null && typeof value !== type) {
    throw tokenizerFault('TOKENIZER_INVALID', ['model', field], `must be a ${type}, not ${jsonType(value)}`);
  }
  return value as T;
}

function checkId(id: unknown, path: JsonPath): number {
  if (typeof id !== 'number' || !Number.isInteger(id)) {
    throw tokenizerFault('TOKENIZER_BAD_ID', path, `must be an integer, not ${JSON.stringify(id) ?? 'nothing'}`);
  }
  if (id < 0 || id > MAX_TOKEN_ID) {
    throw tokenizerFault('TOKENIZER_BAD_ID', path, `is ${id}; ids reach from 0 to ${MAX_TOKEN_ID}`);
  }
  return id;
}

function checkVocabulary(vocab: unknown): Record<string, number> {
  const path = ['model', 'vocab'];
  if (!isJsonObject(vocab))
    throw tokenizerFault('TOKENIZER_INVALID', path, `must be an object, not ${jsonType(vocab)}`);
  const tokenOf = new Map<number, string>();
  for (const [token, value] of Object.entries(vocab)) {
    const id = checkId(value, [...path, token]);
    const other = tokenOf.get(id);
    if (other !== undefined) {
      throw tokenizerFault(
        'TOKENIZER_BAD_ID',
        [...path, token],
        `has id ${id}, which ${JSON.stringify(other)} has already`,
      );
    }
    tokenOf.set(id, token);
  }
  if (tokenOf.size === 0) throw tokenizerFault('TOKENIZER_INVALID', path, 'is empty');
  return vocab as Record<string, number>;
}

function checkMerges(merges: unknown, vocab: Record<string, number>): [string, string][] {
  const path = ['model', 'merges'];
  if (!Array.isArray(merges))
    throw tokenizerFault('TOKENIZER_INVALID', path, `must be an array, not ${jsonType(merges)}`);
  return merges.map((merge: unknown, i) => {
    const parts = typeof merge === 'string' ? merge.split(' ') : merge;
    if (!Array.isArray(parts) || parts.length !== 2 || parts.some(part => typeof part !== 'string')) {
      throw tokenizerFault('TOKENIZER_BAD_MERGE', [...path, i], 'must be two tokens');
    }
    for (const token of [parts[0], parts[1], parts[0] + parts[1]]) {
      if (!Object.hasOwn(vocab, token)) {
        const what = `needs ${JSON.stringify(token)}, which is not in the vocabulary`;
        throw tokenizerFault('TOKENIZER_BAD_MERGE', [...path, i], what);
      }
    }
    return parts as [string, string];
  });
}

function namedSpecialTokens(
  config: Record<string, unknown>,
  specialTokensMap: () => Record<string, unknown>,
): Partial<Record<SpecialRole, string>> {
  const named: Partial<Record<SpecialRole, string>> = {};
  let map: Record<string, unknown> | undefined;
  for (const role of SPECIAL_ROLES) {
    const value = role in config ? config[role] : (map ??= specialTokensMap())[role];
    const text = isJsonObject(value) ? value.content : value;
    if (typeof text === 'string' && text !== '') named[role] = text;
    else if (text !== null && text !== undefined && text !== '') {
      const what = `must be a string or an object with content, not ${jsonType(value)}`;
      throw tokenizerFault('TOKENIZER_INVALID', [role], what, 'tokenizer_config.json');
    }
  }
  return named;
}

/** Tokens of tokenizer.json, those that only tokenizer_config.json lists, and named special tokens that sit in the vocabulary. */
function checkAddedTokens(
  list: unknown,
  config: Record<string, unknown>,
  model: BpeModel,
  named: ReadonlySet<string>,
): AddedToken[] {
  if (!Array.isArray(list)) {
    throw tokenizerFault('TOKENIZER_INVALID', ['added_tokens'], `must be an array, not ${jsonType(list)}`);
  }
  const tokenOfId = new Map(Object.entries(model.vocab).map(([token, id]) => [id, token]));
  const byContent = new Map<string, AddedToken>();
  const add = (entry: unknown, id: unknown, path: JsonPath, file: string) => {
    const token = checkAddedToken(entry, id, path, file, named);
    const other = tokenOfId.get(token.id);
    if (other !== undefined && other !== token.content) {
      const what = `${JSON.stringify(token.content)} has id ${token.id}, which belongs to ${JSON.stringify(other)}`;
      throw tokenizerFault('TOKENIZER_ID_CLASH', path, what, file);
    }
    const otherId = byContent.get(token.content)?.id ?? ownValue(model.vocab, token.content);
    if (otherId !== undefined && otherId !== token.id) {
      const what = `${JSON.stringify(token.content)} has id ${token.id} here and id ${otherId} elsewhere`;
      throw tokenizerFault('TOKENIZER_ID_CLASH', path, what, file);
    }
    tokenOfId.set(token.id, token.content);
    if (!byContent.has(token.content)) byContent.set(token.content, token);
  };

  list.forEach((entry, i) => {
    add(entry, isJsonObject(entry) ? entry.id : undefined, ['added_tokens', i], 'tokenizer.json');
  });
  if (isJsonObject(config.added_tokens_decoder)) {
    for (const [key, entry] of Object.entries(config.added_tokens_decoder)) {
      const id = /^\d{1,10}$/.test(key) ? Number(key) : key;
      add(entry, id, ['added_tokens_decoder', key], 'tokenizer_config.json');
    }
  }
  for (const content of named) {
    const id = ownValue(model.vocab, content);
    if (id !== undefined && !byContent.has(content))
      add({ content, special: true }, id, [content], 'tokenizer_config.json');
  }
  return [...byContent.values()].sort((a, b) => a.id - b.id);
}

function checkAddedToken(
  entry: unknown,
  id: unknown,
  path: JsonPath,
  file: string,
  named: ReadonlySet<string>,
): AddedToken {
  if (!isJsonObject(entry))
    throw tokenizerFault('TOKENIZER_INVALID', path, `must be an object, not ${jsonType(entry)}`, file);
  const content = entry.content;
  if (typeof content !== 'string' || content === '' || content.length > MAX_ADDED_TOKEN_CHARACTERS) {
    const what = `must have a content of 1 to ${MAX_ADDED_TOKEN_CHARACTERS} characters`;
    throw tokenizerFault('TOKENIZER_INVALID', path, what, file);
  }
  const special = entry.special === true || named.has(content);
  return {
    id: checkId(id, [...path, 'id']),
    content,
    singleWord: entry.single_word === true,
    lstrip: entry.lstrip === true,
    rstrip: entry.rstrip === true,
    normalized: typeof entry.normalized === 'boolean' ? entry.normalized : !special,
    special,
    control: special || looksLikeMarker(content),
  };
}

/** `<think>`, `<|im_end|>`, `[INST]`, `|||EMAIL|||`: tokens that files often forget to call special. */
export function looksLikeMarker(content: string): boolean {
  return /^[<[{(|｜][^\s].*[>\]})|｜]$/su.test(content);
}

function ownValue(record: Readonly<Record<string, number>>, key: string): number | undefined {
  return Object.hasOwn(record, key) ? record[key] : undefined;
}
