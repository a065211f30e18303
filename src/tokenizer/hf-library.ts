/** The parts of @huggingface/tokenizers that are used, with types (its own do not resolve for ES modules). */

import * as library from '@huggingface/tokenizers';

interface BpeConfig {
  type: 'BPE';
  vocab: Record<string, number>;
  merges: readonly (readonly [string, string])[];
  unk_token?: string;
  fuse_unk: boolean;
  byte_fallback: boolean;
  ignore_merges: boolean;
}

export interface BpeLibraryModel {
  readonly tokens_to_ids: ReadonlyMap<string, number>;
  readonly unk_token_id: number | undefined;
  /** Pieces to tokens. */
  _call(pieces: string[]): string[];
}

interface Library {
  BPE: new (config: BpeConfig) => BpeLibraryModel;
  SplitPreTokenizer: new (config: Record<string, unknown>) => { pattern: RegExp | null };
  Tokenizer: new (
    json: Record<string, unknown>,
    config: Record<string, unknown>,
  ) => { normalizer: { normalize(text: string): string } | null };
}

export const { BPE, SplitPreTokenizer, Tokenizer: HfTokenizer } = library as unknown as Library;
