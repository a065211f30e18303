/** Text to ids exactly as Hugging Face's library does it, with control over which added tokens a text may become. */

import { TokenizerError } from '../common/errors.ts';
import { AddedTokenMatcher } from './added-tokens.ts';
import { BPE, type BpeLibraryModel } from './hf-library.ts';
import { buildNormalizer, type Normalizer } from './normalizer.ts';
import { readPostProcessor, type Surroundings } from './post-processor.ts';
import { buildPreTokenizer, type Place, type PreTokenizer } from './pre-tokenizer.ts';
import { type DecodeOptions, decodeIds } from './stream-decoder.ts';
import { buildTokenBytes, type TokenBytes } from './token-bytes.ts';
import { type AddedToken, readTokenizerFile, type SpecialRole, type TokenizerFile } from './tokenizer-file.ts';

export interface EncodeOptions {
  /**
   * true: every added token is recognised, as Hugging Face does (raw mode).
   * false: control tokens spelled in the text stay ordinary text; other added tokens (runs of spaces, ...) are recognised.
   */
  readonly controlTokens: boolean;
  /** Put the ids around the text that the tokenizer adds by itself (`add_special_tokens`); default false. */
  readonly surround?: boolean;
}

/** Marks of `encodeMarked`, one per UTF-16 unit. */
export const MARK = {
  /** Anything may happen. */
  free: 0,
  /** Not part of an added token. */
  ordinary: 1,
  /** Not part of an added token, and never merged with its neighbours. */
  alone: 2,
} as const;

export class Tokenizer {
  readonly vocabSize: number;
  readonly tokenBytes: TokenBytes;
  readonly addedTokens: readonly AddedToken[];
  readonly specialTokens: Readonly<Partial<Record<SpecialRole, string>>>;
  readonly #file: TokenizerFile;
  readonly #normalizer: { whole: Normalizer; continuation: Normalizer };
  readonly #preTokenizer: PreTokenizer;
  readonly #model: BpeLibraryModel;
  readonly #surroundings: Surroundings;
  readonly #all: Matchers;
  readonly #withoutControl: Matchers;

  /** Reads and checks tokenizer.json, tokenizer_config.json and special_tokens_map.json of a model directory. */
  static load(directory: string): Tokenizer {
    return new Tokenizer(readTokenizerFile(directory));
  }

  constructor(file: TokenizerFile) {
    this.#file = file;
    this.vocabSize = file.vocabSize;
    this.addedTokens = file.addedTokens;
    this.specialTokens = file.specialTokens;
    this.tokenBytes = buildTokenBytes(file);
    this.#normalizer = buildNormalizer(file.normalizer);
    this.#preTokenizer = buildPreTokenizer(file.preTokenizer);
    this.#surroundings = readPostProcessor(file.postProcessor);
    this.#model = buildModel(file);
    this.#all = buildMatchers(file.addedTokens, this.#normalizer.whole);
    this.#withoutControl = buildMatchers(
      file.addedTokens.filter(token => !token.control),
      this.#normalizer.whole,
    );
  }

  /** Lone surrogates are encoded as U+FFFD. */
  encode(text: string, options: EncodeOptions): number[] {
    const ids = this.#encode(text.toWellFormed(), null, options.controlTokens ? this.#all : this.#withoutControl);
    return options.surround ? [...this.#surroundings.before, ...ids, ...this.#surroundings.after] : ids;
  }

  /** Like encode with control tokens, except where `marks` (one MARK per UTF-16 unit) restrict it. */
  encodeMarked(text: string, marks: Uint8Array): number[] {
    return this.#encode(text, marks, this.#all);
  }

  decode(ids: Iterable<number>, options?: DecodeOptions): string {
    return decodeIds(this.tokenBytes, ids, options);
  }

  /** Id of an added token or vocabulary entry by its spelling in the file. */
  idOf(token: string): number | undefined {
    const added = this.addedTokens.find(candidate => candidate.content === token);
    if (added) return added.id;
    return Object.hasOwn(this.#file.model.vocab, token) ? this.#file.model.vocab[token] : undefined;
  }

  /** Id of a named special token, when the configuration names one that exists. */
  specialId(role: SpecialRole): number | null {
    const token = this.specialTokens[role];
    return token === undefined ? null : (this.idOf(token) ?? null);
  }

  get specialIds(): number[] {
    return this.addedTokens.filter(token => token.special).map(token => token.id);
  }

  get controlTokens(): AddedToken[] {
    return this.addedTokens.filter(token => token.control);
  }

  #encode(text: string, marks: Uint8Array | null, matchers: Matchers): number[] {
    const ids: number[] = [];
    for (const { start, end, token } of matchers.raw.split(text, marks)) {
      if (token) ids.push(token.id);
      else if (marks) this.#encodeMarkedSection(text, start, end, marks, matchers.normalized, ids);
      else this.#encodeSection(text.slice(start, end), start === 0 ? 'start' : 'section', matchers.normalized, ids);
    }
    return ids;
  }

  /** Cuts out the characters that must stand alone. */
  #encodeMarkedSection(
    text: string,
    start: number,
    end: number,
    marks: Uint8Array,
    normalized: AddedTokenMatcher,
    ids: number[],
  ): void {
    let place: Place = start === 0 ? 'start' : 'section';
    for (let from = start; from < end; place = 'continuation') {
      let to = from;
      if (marks[from] === MARK.alone) to += text.codePointAt(from)! > 0xffff ? 2 : 1;
      else while (to < end && marks[to] !== MARK.alone) to++;
      const part = text.slice(from, to);
      const marked = marks.subarray(from, to);
      if (normalized.isEmpty || marked.every(mark => mark === MARK.free))
        this.#encodeSection(part, place, normalized, ids);
      else this.#encodeHidden(part, marked, place, normalized, ids);
      from = to;
    }
  }

  #encodeSection(text: string, place: Place, normalized: AddedTokenMatcher, ids: number[]): void {
    const normal = place === 'continuation' ? this.#normalizer.continuation(text) : this.#normalizer.whole(text);
    for (const { start, end, token } of normalized.split(normal)) {
      if (token) ids.push(token.id);
      else this.#encodePieces(normal.slice(start, end), start === 0 ? place : 'section', ids);
    }
  }

  /**
   * For tokenizers that look for added tokens after normalising: marked characters are replaced by one that no token has
   * while tokens are cut out, and come back, normalised, before the model sees them.
   */
  #encodeHidden(text: string, marks: Uint8Array, place: Place, normalized: AddedTokenMatcher, ids: number[]): void {
    const stand = unusedPrivateCharacter(text);
    const hidden: string[] = [];
    let masked = '';
    for (let i = 0; i < text.length; i++) {
      if (marks[i]) hidden.push(text[i]);
      masked += marks[i] ? stand : text[i];
    }
    const normal = place === 'continuation' ? this.#normalizer.continuation(masked) : this.#normalizer.whole(masked);
    let next = 0;
    for (const { start, end, token } of normalized.split(normal)) {
      if (token) {
        ids.push(token.id);
        continue;
      }
      const part = normal.slice(start, end).replaceAll(stand, () => this.#normalizer.continuation(hidden[next++]));
      this.#encodePieces(part, start === 0 ? place : 'section', ids);
    }
  }

  #encodePieces(text: string, place: Place, ids: number[]): void {
    if (text === '') return;
    const pieces = this.#preTokenizer(text, place);
    const tokens = this.#model._call(pieces);
    for (const token of tokens) {
      const id = this.#model.tokens_to_ids.get(token) ?? this.#model.unk_token_id;
      if (id === undefined) throw unencodable(token);
      ids.push(id);
    }
    // Without an unknown token the model drops what it has no token for; text must not vanish silently.
    if (this.#file.model.unkToken === null && !this.#file.model.byteFallback) {
      const lengthIn = pieces.reduce((sum, piece) => sum + piece.length, 0);
      const lengthOut = tokens.reduce((sum, token) => sum + token.length, 0);
      if (lengthIn !== lengthOut) throw unencodable(firstDifference(pieces.join(''), tokens.join('')));
    }
  }
}

interface Matchers {
  readonly raw: AddedTokenMatcher;
  readonly normalized: AddedTokenMatcher;
}

function buildMatchers(tokens: readonly AddedToken[], normalize: Normalizer): Matchers {
  return {
    raw: new AddedTokenMatcher(tokens.filter(token => !token.normalized)),
    normalized: new AddedTokenMatcher(
      tokens.filter(token => token.normalized && normalize(token.content) !== ''),
      token => normalize(token.content),
    ),
  };
}

/** Control tokens are left out unless merges lead to them or the model needs them, so ordinary text cannot reach them. */
function buildModel(file: TokenizerFile): BpeLibraryModel {
  const { model } = file;
  const merged = new Set(model.merges.map(([left, right]) => left + right));
  const hidden = new Set<string>();
  for (const token of file.addedTokens) {
    if (token.control && token.content !== model.unkToken && !merged.has(token.content)) hidden.add(token.content);
  }
  return new BPE({
    type: 'BPE',
    vocab: Object.fromEntries(Object.entries(model.vocab).filter(([token]) => !hidden.has(token))),
    merges: model.merges,
    unk_token: model.unkToken ?? undefined,
    fuse_unk: model.fuseUnk,
    byte_fallback: model.byteFallback,
    ignore_merges: model.ignoreMerges,
  });
}

function unusedPrivateCharacter(text: string): string {
  for (let code = 0xf8ff; code >= 0xe000; code--) {
    const character = String.fromCharCode(code);
    if (!text.includes(character)) return character;
  }
  throw new TokenizerError('TEXT_NOT_ENCODABLE', 'the text uses every private-use character', {
    hint: 'remove private-use characters from the text',
  });
}

function unencodable(piece: string): TokenizerError {
  return new TokenizerError('TEXT_NOT_ENCODABLE', `the vocabulary has no token for ${JSON.stringify(piece)}`, {
    hint: 'the tokenizer files do not belong to this text or are incomplete',
  });
}

function firstDifference(wanted: string, got: string): string {
  let i = 0;
  while (i < wanted.length && wanted[i] === got[i]) i++;
  return String.fromCodePoint(wanted.codePointAt(i) ?? 0xfffd);
}
