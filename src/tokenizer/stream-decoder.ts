/** Token ids in, whole characters out, on any thread: what has arrived is shown as soon as it cannot change any more. */

import type { TokenBytes } from './token-bytes.ts';

export type { TokenBytes } from './token-bytes.ts';

export interface DecodeOptions {
  /** Give special tokens as their text instead of nothing. */
  readonly showSpecial?: boolean;
  /** The text continues another one, so that a leading space belongs to it (SentencePiece vocabularies only). */
  readonly continues?: boolean;
}

const REPLACEMENT = '\uFFFD';

/**
 * Incomplete characters are held back until they are complete; bytes that cannot be UTF-8 become U+FFFD, one per maximal
 * subpart as Unicode recommends (and as TextDecoder does). Never throws, whatever the model generates. The pushes and the
 * flush joined equal decodeIds of all ids. Ids without a token (beyond the vocabulary) give no text.
 */
export class StreamDecoder {
  readonly #table: TokenBytes;
  readonly #showSpecial: boolean;
  #dropSpace: boolean;
  /** Continuation bytes still missing, and the range in which the next one must be. */
  #needed = 0;
  #lower = 0x80;
  #upper = 0xbf;
  #codePoint = 0;

  constructor(table: TokenBytes, options: DecodeOptions = {}) {
    this.#table = table;
    this.#showSpecial = options.showSpecial ?? false;
    this.#dropSpace = table.dropsLeadingSpace && !options.continues;
  }

  push(id: number): string {
    const { offsets, bytes, special } = this.#table;
    if (!(id >= 0 && id < special.length) || (special[id] === 1 && !this.#showSpecial)) return '';
    let text = '';
    for (let i = offsets[id]; i < offsets[id + 1]; i++) {
      const byte = bytes[i];
      if (this.#dropSpace) {
        this.#dropSpace = false;
        if (byte === 0x20) continue;
      }
      text += this.#pushByte(byte);
    }
    return text;
  }

  /** The rest: an incomplete character becomes U+FFFD. The decoder can be used for another text afterwards. */
  flush(): string {
    const incomplete = this.#needed > 0;
    this.#needed = 0;
    return incomplete ? REPLACEMENT : '';
  }

  #pushByte(byte: number): string {
    let before = '';
    if (this.#needed > 0) {
      if (byte >= this.#lower && byte <= this.#upper) {
        this.#lower = 0x80;
        this.#upper = 0xbf;
        this.#codePoint = (this.#codePoint << 6) | (byte & 0x3f);
        return --this.#needed === 0 ? String.fromCodePoint(this.#codePoint) : '';
      }
      // What came before was a maximal subpart; this byte starts anew.
      this.#needed = 0;
      before = REPLACEMENT;
    }
    if (byte < 0x80) return before + String.fromCharCode(byte);
    return before + this.#startCharacter(byte);
  }

  /** Table 3-7 of the Unicode standard: which second bytes may follow which first byte. */
  #startCharacter(byte: number): string {
    this.#lower = 0x80;
    this.#upper = 0xbf;
    if (byte >= 0xc2 && byte <= 0xdf) {
      this.#needed = 1;
      this.#codePoint = byte & 0x1f;
    } else if (byte >= 0xe0 && byte <= 0xef) {
      if (byte === 0xe0) this.#lower = 0xa0;
      if (byte === 0xed) this.#upper = 0x9f;
      this.#needed = 2;
      this.#codePoint = byte & 0x0f;
    } else if (byte >= 0xf0 && byte <= 0xf4) {
      if (byte === 0xf0) this.#lower = 0x90;
      if (byte === 0xf4) this.#upper = 0x8f;
      this.#needed = 3;
      this.#codePoint = byte & 0x07;
    } else return REPLACEMENT;
    return '';
  }
}

/** The text of all ids at once. */
export function decodeIds(table: TokenBytes, ids: Iterable<number>, options?: DecodeOptions): string {
  const decoder = new StreamDecoder(table, options);
  let text = '';
  for (const id of ids) text += decoder.push(id);
  return text + decoder.flush();
}
