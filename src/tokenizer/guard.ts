/**
 * Text of a request never becomes a control token.
 *
 * How: before rendering, one character of every control string inside the request's strings is replaced by a private-use
 * character that occurs nowhere else, so that the string is none any more. Templates see text of the same length that differs
 * in this one character. Comparisons (`==`, `in`, startswith, endswith) are made with the original text, and what is looked
 * for by split and replace is changed alike, so `content.split('</think>')` gives the same parts as always. After rendering
 * the characters come back, and the tokenizer is told which positions must not become part of an added token.
 *
 * What is guaranteed:
 * - A control token's id appears only where the template itself wrote the token; some templates build it from the role of a
 *   message, so the common role names are left to them. This includes control strings put together from two strings of a request
 *   that are rendered side by side, or from the template's brackets around a request's word.
 * - When the request has no control string the ids are exactly those of the rendered text.
 * - Markers that this tokenizer has no token for (OLMoE's `<|user|>`) are ordinary text even when the template writes them.
 *   The same marker in a request's text is encoded character by character, merged neither inside nor with its neighbours, so
 *   its ids differ from the template's marker whenever that has a token of more than one character; `indistinguishable`
 *   names the markers without one.
 *
 * Limits: filters that change letters (upper, lower, title) leave the replaced character as it was, and a template that looks
 * at exactly that character by position or sorts by it sees the private one.
 */

import { RequestError } from '../common/errors.ts';
import { MARK, type Tokenizer } from './tokenizer.ts';
import { Trie } from './trie.ts';

/** Strings of a request are walked recursively; JSON schemas of real tools are about 20 deep. */
const MAX_REQUEST_DEPTH = 100;

/** Roles that a template may turn into its own markers. */
const COMMON_ROLES: ReadonlySet<unknown> = new Set(['system', 'developer', 'user', 'assistant', 'tool']);

const FIRST_PRIVATE = 0xe000;
const LAST_PRIVATE = 0xf8ff;

/** The control strings of one model, ready to be found. */
export class ControlStrings {
  readonly all: readonly string[];
  /** Those that are ordinary text for the tokenizer. */
  readonly texts: readonly string[];
  readonly forwards: Trie;
  readonly backwards: Trie;
  /** Position in each string of the character that is replaced. */
  readonly breakAt: readonly number[];

  /** `familyStrings`: markers of the family's chat format, whether or not the tokenizer has tokens for them. */
  constructor(tokenizer: Tokenizer, familyStrings: readonly string[]) {
    const tokens = tokenizer.controlTokens.map(token => token.content);
    const added = new Set(tokenizer.addedTokens.map(token => token.content));
    this.all = [...new Set([...tokens, ...familyStrings])].filter(text => text.trim() !== '');
    this.texts = this.all.filter(text => !added.has(text));
    this.forwards = new Trie(this.all);
    this.backwards = new Trie(this.all.map(reverse));
    this.breakAt = this.all.map(breakPosition);
  }

  readonly #completed = new WeakMap<readonly string[], ReadonlySet<string>>();

  /** Words that a template's literals would complete to a control string; remembered for each template. */
  completedBy(literals: readonly string[]): ReadonlySet<string> {
    let words = this.#completed.get(literals);
    if (!words) this.#completed.set(literals, (words = completedWords(this.all, literals)));
    return words;
  }

  /** Markers whose ids are the same whether the template or a user writes them. */
  indistinguishable(tokenizer: Tokenizer): string[] {
    return this.texts.filter(text => {
      const marks = new Uint8Array(text.length);
      const whole = tokenizer.encodeMarked(text, marks).join();
      return tokenizer.encodeMarked(text, marks.fill(MARK.alone)).join() === whole;
    });
  }
}

/** One request. Make one, `mask` everything that goes to the template, then `restore` what comes out. */
export class Guard {
  readonly #controls: ControlStrings;
  /** Words that the template's literals would complete to a control string. */
  readonly #completed: ReadonlySet<string>;
  readonly #taken = new Set<number>();
  readonly #privateOf = new Map<number, number>();
  readonly #originalOf = new Map<number, number>();
  #next = FIRST_PRIVATE;

  /** `literals`: string literals of the template. `request`: everything that will be masked. */
  constructor(controls: ControlStrings, literals: readonly string[], request: unknown) {
    this.#controls = controls;
    this.#completed = controls.completedBy(literals);
    const take = (text: string) => {
      for (const [character] of text.matchAll(/[\uE000-\uF8FF]/g)) this.#taken.add(character.charCodeAt(0));
      return text;
    };
    for (const text of [...literals, ...controls.all]) take(text);
    copyStrings(request, 0, take);
  }

  /** A deep copy whose strings (keys too) hold no control string, whole or begun. Lone surrogates become U+FFFD. */
  mask<T>(value: T): T {
    return copyStrings(value, 0, (text, isKey) => this.#maskText(text.toWellFormed(), isKey)) as T;
  }

  /** Messages: like mask, but templates may put a common role between brackets of their own. */
  maskMessages(messages: readonly unknown[]): unknown[] {
    return messages.map(message => {
      const masked = this.mask(message);
      const role = (message as { role?: unknown } | null)?.role;
      if (COMMON_ROLES.has(role)) (masked as { role: unknown }).role = role;
      return masked;
    });
  }

  /** What whole control strings look like after masking: for text that is looked for in masked text. */
  pattern(text: string): string {
    return this.#replace(text, this.#wholeStrings(text));
  }

  /** Repairs masked characters in the output of `tojson`, where the original would have been escaped, or the private one was. */
  json(text: string): string {
    if (this.#privateOf.size === 0) return text;
    return text.replace(/\\(?:u([ef][0-9a-f]{3})|[^u])|[\uE000-\uF8FF]/g, (whole, hex) => {
      const escaped = hex !== undefined;
      const code = escaped ? Number.parseInt(hex, 16) : whole.charCodeAt(0);
      const original = this.#originalOf.get(code);
      if (original === undefined) return whole;
      const character = String.fromCharCode(original);
      const spelled = JSON.stringify(character).slice(1, -1);
      if (spelled !== character) return spelled;
      const beyondAscii = `\\u${original.toString(16).padStart(4, '0')}`;
      return escaped && original > 0x7e ? beyondAscii : String.fromCharCode(code);
    });
  }

  /** A character that occurs nowhere in the request, and stays where it is when the text is restored. */
  unusedCharacter(): string {
    const code = this.#unused();
    this.#taken.add(code);
    return String.fromCharCode(code);
  }

  /** The rendered text with its original characters, and a MARK for every UTF-16 unit. */
  restore(rendered: string): { text: string; marks: Uint8Array | null } {
    if (this.#originalOf.size === 0) return { text: rendered, marks: null };
    const marks = new Uint8Array(rendered.length);
    const text = rendered.replace(/[\uE000-\uF8FF]/g, (character, position) => {
      const original = this.#originalOf.get(character.charCodeAt(0));
      if (original === undefined) return character;
      marks[position] = MARK.ordinary;
      return String.fromCharCode(original);
    });
    for (const marker of this.#controls.texts) isolate(text, marker, marks);
    return { text, marks: marks.includes(MARK.ordinary) || marks.includes(MARK.alone) ? marks : null };
  }

  #maskText(text: string, isKey: boolean): string {
    const positions = this.#wholeStrings(text);
    // Keys are looked up by name, so only what is certainly dangerous is touched.
    if (!isKey) this.#begunStrings(text, positions);
    if (this.#completed.has(text)) positions.push(breakPosition(text));
    return this.#replace(text, positions);
  }

  #wholeStrings(text: string): number[] {
    const { forwards, breakAt } = this.#controls;
    const positions: number[] = [];
    for (let start = 0; start < text.length; start++) {
      forwards.allAt(text, start, index => positions.push(start + breakAt[index]));
    }
    return positions;
  }

  /** A string of the request may end with the beginning of a control string, or begin with the end of one. */
  #begunStrings(text: string, positions: number[]): void {
    const { forwards, backwards } = this.#controls;
    const ignore = () => {};
    const from = Math.max(0, text.length - forwards.maxLength);
    const reversed = reverse(text.slice(0, backwards.maxLength));
    let begins = false;
    for (let i = from; i < text.length && !begins; i++) begins = forwards.allAt(text, i, ignore);
    let ends = false;
    for (let i = 0; i < reversed.length && !ends; i++) ends = backwards.allAt(reversed, i, ignore);
    // Every beginning contains the last character, every end the first. White space stays, because templates trim it.
    const last = text.trimEnd().length - 1;
    const first = text.length - text.trimStart().length;
    if (begins && last >= 0) positions.push(last);
    if (ends && first < text.length) positions.push(first);
  }

  #replace(text: string, positions: readonly number[]): string {
    if (positions.length === 0) return text;
    const units = new Set(positions);
    for (const position of positions) {
      // Half of a surrogate pair would not survive.
      const code = text.charCodeAt(position);
      if (code >= 0xd800 && code <= 0xdbff) units.add(position + 1);
      if (code >= 0xdc00 && code <= 0xdfff) units.add(position - 1);
    }
    let masked = '';
    let done = 0;
    for (const position of [...units].sort((a, b) => a - b)) {
      masked += text.slice(done, position) + String.fromCharCode(this.#privateFor(text.charCodeAt(position)));
      done = position + 1;
    }
    return masked + text.slice(done);
  }

  #privateFor(unit: number): number {
    if (this.#originalOf.has(unit)) return unit;
    const known = this.#privateOf.get(unit);
    if (known !== undefined) return known;
    const stand = this.#unused();
    this.#next++;
    this.#privateOf.set(unit, stand);
    this.#originalOf.set(stand, unit);
    return stand;
  }

  #unused(): number {
    while (this.#taken.has(this.#next)) this.#next++;
    if (this.#next > LAST_PRIVATE) {
      throw new RequestError('TOO_MANY_PRIVATE_CHARACTERS', 'the request uses every private-use character', {
        hint: 'remove characters between U+E000 and U+F8FF from the messages',
      });
    }
    return this.#next;
  }
}

function reverse(text: string): string {
  return text.split('').reverse().join('');
}

/** The ASCII letter or digit nearest to the middle, else the nearest character that is no space. */
function breakPosition(text: string): number {
  const middle = (text.length - 1) / 2;
  const nearest = (pattern: RegExp) =>
    [...text.matchAll(pattern)]
      .map(match => match.index)
      .sort((a, b) => Math.abs(a - middle) - Math.abs(b - middle))[0];
  return nearest(/[A-Za-z0-9]/g) ?? nearest(/\S/g) ?? 0;
}

/** For a template that writes `'<' ~ name ~ '>'` and a control string `<think>`: the word `think`. */
function completedWords(controls: readonly string[], literals: readonly string[]): Set<string> {
  const words = new Set<string>();
  for (const control of controls) {
    const before: number[] = [];
    const after: number[] = [];
    for (let length = 1; length < control.length; length++) {
      if (literals.some(literal => literal.endsWith(control.slice(0, length)))) before.push(length);
      if (literals.some(literal => literal.startsWith(control.slice(-length)))) after.push(length);
    }
    for (const from of before) {
      for (const to of after) if (from + to < control.length) words.add(control.slice(from, control.length - to));
    }
  }
  return words;
}

/** Where `marker` contains a marked character it came from a request: all of it stands alone. */
function isolate(text: string, marker: string, marks: Uint8Array): void {
  for (let at = text.indexOf(marker); at >= 0; at = text.indexOf(marker, at + 1)) {
    const span = marks.subarray(at, at + marker.length);
    if (span.some(mark => mark !== MARK.free)) span.fill(MARK.alone);
  }
}

/** Deep copy of JSON-like data with every string and key passed through `change`. */
function copyStrings(value: unknown, depth: number, change: (text: string, isKey: boolean) => string): unknown {
  if (typeof value === 'string') return change(value, false);
  if (typeof value !== 'object' || value === null) return value;
  if (depth >= MAX_REQUEST_DEPTH) {
    throw new RequestError('REQUEST_TOO_DEEP', `messages and tools may be nested ${MAX_REQUEST_DEPTH} deep at most`, {
      hint: 'flatten the arguments or the JSON schema',
    });
  }
  if (Array.isArray(value)) return value.map(item => copyStrings(item, depth + 1, change));
  // Object.fromEntries keeps a key named __proto__ as a key.
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [change(key, true), copyStrings(item, depth + 1, change)]),
  );
}
