/**
 * Special tokens as parts of languages. Each stands for one half of a surrogate pair: a code point that no class has, so that no
 * string of JSON and no expression of a client can let a special token in.
 */

import type { Vocabulary } from './adapter.ts';

const FIRST = 0xd800;
/** There are no more halves; published tokenizers have up to 1100 special tokens, most of them reserved. */
const MAX_TOKENS = 0x800;
/** The first byte of the three that spell a half, and the range of the second. */
const LEAD = 0xed;
const SECOND = 0xa0;

export class SpecialTokens {
  readonly #codes = new Map<string, number>();
  readonly #ofId = new Map<number, number>();
  /** Ids of ordinary tokens that are the beginning of such a spelling. */
  readonly #beginnings: number[] = [];

  constructor({ tokenBytes: { offsets, bytes, special }, vocabSize }: Vocabulary) {
    for (let id = 0; id < Math.min(vocabSize, special.length); id++) {
      const token = bytes.subarray(offsets[id], offsets[id + 1]);
      if (special[id] !== 1) {
        const begins = token[0] === LEAD && (token.length === 1 || (token.length === 2 && token[1] >= SECOND));
        if (begins) this.#beginnings.push(id);
      } else if (token.length > 0 && this.#ofId.size < MAX_TOKENS) {
        const code = FIRST + this.#ofId.size;
        this.#ofId.set(id, code);
        this.#codes.set(new TextDecoder().decode(token), code);
      }
    }
  }

  /** What stands for a special token in the text of a language; null: the tokenizer has none of that spelling. */
  characterOf(token: string): string | null {
    const code = this.#codes.get(token);
    return code === undefined ? null : String.fromCharCode(code);
  }

  /** The bytes that spell it for the grammar library; empty for what no language has. */
  bytesOf(id: number): Uint8Array {
    const code = this.#ofId.get(id);
    if (code === undefined) return new Uint8Array(0);
    return Uint8Array.of(LEAD, 0x80 | ((code >> 6) & 0x3f), 0x80 | (code & 0x3f));
  }

  /** Where a special token may come, its first bytes may not come one by one. */
  clean(mask: Int32Array): void {
    const isSet = (id: number) => (mask[id >> 5] & (1 << (id & 31))) !== 0;
    if (!this.#beginnings.some(isSet) || ![...this.#ofId.keys()].some(isSet)) return;
    for (const id of this.#beginnings) mask[id >> 5] &= ~(1 << (id & 31));
  }
}
