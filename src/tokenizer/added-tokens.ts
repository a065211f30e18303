/** Cuts added tokens out of a text before the model sees the rest: leftmost first, the longest at each place. */

import type { AddedToken } from './tokenizer-file.ts';
import { Trie } from './trie.ts';

/** [start, end) in UTF-16 units; `token` is null for ordinary text. */
export interface Section {
  readonly start: number;
  readonly end: number;
  readonly token: AddedToken | null;
}

const WHITESPACE = /\p{White_Space}/u;
const WORD = /[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]/u;

export class AddedTokenMatcher {
  readonly #tokens: readonly AddedToken[];
  readonly #lengths: readonly number[];
  readonly #trie: Trie;

  /** `spelling` is how a token appears in the text to be searched (its content, or its normalised content). */
  constructor(tokens: readonly AddedToken[], spelling: (token: AddedToken) => string = token => token.content) {
    this.#tokens = tokens;
    const spellings = tokens.map(spelling);
    this.#lengths = spellings.map(text => text.length);
    this.#trie = new Trie(spellings);
  }

  get isEmpty(): boolean {
    return this.#tokens.length === 0;
  }

  /**
   * Sections in order. They cover the whole text; only where one token swallows the spaces around it (lstrip, rstrip) and
   * those spaces are tokens themselves do they overlap, as they do in Hugging Face's library.
   * Units with a non-zero mark are never part of a token.
   */
  split(text: string, marks: Uint8Array | null = null): Section[] {
    const sections: Section[] = [];
    if (this.isEmpty) return text === '' ? sections : [{ start: 0, end: text.length, token: null }];
    let done = 0;
    let i = 0;
    while (i < text.length) {
      const index = this.#trie.longestAt(text, i, marks);
      if (index < 0) {
        i++;
        continue;
      }
      const token = this.#tokens[index];
      const matchEnd = i + this.#lengths[index];
      if (!token.singleWord || !(endsWithWord(text, i) || startsWithWord(text, matchEnd))) {
        const start = token.lstrip ? Math.max(done, spacesBefore(text, i)) : i;
        const end = token.rstrip ? spacesAfter(text, matchEnd) : matchEnd;
        if (done < start) sections.push({ start: done, end: start, token: null });
        sections.push({ start, end, token });
        done = end;
      }
      i = matchEnd;
    }
    if (done < text.length) sections.push({ start: done, end: text.length, token: null });
    return sections;
  }
}

function codePointBefore(text: string, index: number): string {
  const pair = index >= 2 ? text.slice(index - 2, index) : '';
  return pair !== '' && pair.codePointAt(0)! > 0xffff ? pair : text.slice(index - 1, index);
}

function endsWithWord(text: string, index: number): boolean {
  return index > 0 && WORD.test(codePointBefore(text, index));
}

function startsWithWord(text: string, index: number): boolean {
  return index < text.length && WORD.test(String.fromCodePoint(text.codePointAt(index)!));
}

/** All characters with White_Space are single units. */
function spacesBefore(text: string, index: number): number {
  while (index > 0 && WHITESPACE.test(text[index - 1])) index--;
  return index;
}

function spacesAfter(text: string, index: number): number {
  while (index < text.length && WHITESPACE.test(text[index])) index++;
  return index;
}
