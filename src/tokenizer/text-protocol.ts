/** Messages between the text service and its worker. */

import type { ErrorWire } from '../common/errors.ts';
import type { RenderOptions } from './chat-encoder.ts';
import type { DecodeOptions } from './stream-decoder.ts';
import type { TokenBytes } from './token-bytes.ts';

export interface TextWorkerData {
  readonly directory: string;
  readonly controlStrings: readonly string[];
  readonly stopTokens: readonly string[];
}

/** What a tokenizer and its template are, without asking the worker. */
export interface TextInfo {
  /** Largest token id + 1. */
  readonly vocabSize: number;
  readonly bosId: number | null;
  readonly eosId: number | null;
  /** eos_token, the control token that the template puts after an assistant's turn, and the family's stop tokens. */
  readonly endOfTurnIds: readonly number[];
  readonly specialIds: readonly number[];
  readonly hasTemplate: boolean;
  /** Source of the default template; null without one. */
  readonly template: string | null;
  /** Spellings of the added tokens, by ascending id. */
  readonly addedTokens: readonly string[];
  /** Their ids, in the same order. */
  readonly addedIds: readonly number[];
  /** Lines for people: a broken template, what a template will fail at, markers that cannot be protected. */
  readonly notes: readonly string[];
}

export interface RawEncodeOptions {
  /** Recognise control tokens in the text; default true. */
  readonly controlTokens?: boolean;
  /** Add the ids that the tokenizer puts around a text by itself (a BOS token); default true. */
  readonly surround?: boolean;
}

export type TextCommand =
  | {
      readonly method: 'render';
      readonly messages: readonly unknown[];
      readonly tools: readonly unknown[] | null;
      readonly options: RenderOptions;
    }
  | { readonly method: 'encode'; readonly text: string; readonly options: RawEncodeOptions }
  | { readonly method: 'decode'; readonly ids: readonly number[]; readonly options: DecodeOptions };

/** The first message is `ready` or an error; then one reply per command, in order. */
export type TextReply =
  | { readonly kind: 'ready'; readonly info: TextInfo; readonly tokenBytes: TokenBytes }
  | { readonly kind: 'value'; readonly value: unknown }
  | { readonly kind: 'error'; readonly error: ErrorWire };
