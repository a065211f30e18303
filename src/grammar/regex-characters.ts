/** The smallest parts of a regular expression: characters, classes, escapes and bounds. */

import { RequestError } from '../common/errors.ts';
import { charClass, complement, type Expr, normalise, type Ranges } from './expr.ts';
import type { PatternPlace } from './regex.ts';

const DIGIT: Ranges = [[0x30, 0x39]];
const WORD: Ranges = [
  [0x30, 0x39],
  [0x41, 0x5a],
  [0x5f, 0x5f],
  [0x61, 0x7a],
];
const SPACE: Ranges = normalise([
  [0x09, 0x0d],
  ...[0x20, 0xa0, 0x1680, 0x202f, 0x205f, 0x3000, 0xfeff].map((code): [number, number] => [code, code]),
  [0x2000, 0x200a],
  [0x2028, 0x2029],
]);
/** What a dot does not match. */
const LINE_ENDS: Ranges = [
  [0x0a, 0x0a],
  [0x0d, 0x0d],
  [0x2028, 0x2029],
];
const CLASS_ESCAPES: Readonly<Record<string, Ranges>> = {
  d: DIGIT,
  D: complement(DIGIT),
  w: WORD,
  W: complement(WORD),
  s: SPACE,
  S: complement(SPACE),
};
const CONTROL_ESCAPES: Readonly<Record<string, number>> = { n: 10, r: 13, t: 9, v: 11, f: 12, 0: 0 };

export class CharacterReader {
  readonly #text: string;
  readonly #place: PatternPlace;
  #at = 0;

  constructor(pattern: string, place: PatternPlace) {
    this.#text = pattern;
    this.#place = place;
  }

  get done(): boolean {
    return this.#at >= this.#text.length;
  }

  sees(part: string): boolean {
    return this.#text.startsWith(part, this.#at);
  }

  take(part: string): boolean {
    if (!this.sees(part)) return false;
    this.#at += part.length;
    return true;
  }

  /** The pattern is right but cannot be honoured. */
  refuse(construct: string): never {
    throw new RequestError(
      this.#place.code,
      `${this.#place.what} uses ${construct}, which is not supported (character ${this.#at})`,
      {
        hint: 'say it without',
        details: { ...this.#place.details, construct, offset: this.#at },
      },
    );
  }

  /** It is no regular expression. */
  fail(problem: string): never {
    throw new RequestError(
      this.#place.code,
      `${this.#place.what} is not a regular expression: ${problem} (character ${this.#at})`,
      {
        details: { ...this.#place.details, offset: this.#at },
      },
    );
  }

  /** After a `(`. */
  groupKind(): void {
    if (!this.take('?') || this.take(':')) return;
    if (this.sees('=') || this.sees('!')) this.refuse('look-ahead, (?= or (?!');
    if (this.sees('<=') || this.sees('<!')) this.refuse('look-behind, (?<= or (?<!');
    const name = /^<[A-Za-z_$][\w$]*>/.exec(this.#text.slice(this.#at, this.#at + 100));
    if (!name) this.refuse('flags or another special group, (?');
    this.#at += name[0].length;
  }

  /** `* + ? {n} {n,} {n,m}`, or null. */
  quantifier(): [number, number] | null {
    if (this.take('*')) return [0, Number.POSITIVE_INFINITY];
    if (this.take('+')) return [1, Number.POSITIVE_INFINITY];
    if (this.take('?')) return [0, 1];
    const bounds = /^\{(\d+)(,(\d*))?\}/.exec(this.#text.slice(this.#at, this.#at + 40));
    if (!bounds) return null;
    this.#at += bounds[0].length;
    const min = Number(bounds[1]);
    return [min, bounds[2] === undefined ? min : bounds[3] === '' ? Number.POSITIVE_INFINITY : Number(bounds[3])];
  }

  /** One item that is neither a group nor an anchor. */
  character(): Expr {
    if (this.take('.')) return charClass(complement(LINE_ENDS));
    if (this.take('[')) return this.#class();
    if (this.sees('*') || this.sees('+') || this.sees('?') || /^\{\d/.test(this.#text.slice(this.#at, this.#at + 2))) {
      this.fail('a quantifier with nothing to repeat');
    }
    return charClass(this.#single(false));
  }

  #class(): Expr {
    const negated = this.take('^');
    const ranges: (readonly [number, number])[] = [];
    while (!this.take(']')) {
      if (this.done) this.fail('a [ that is never closed');
      const low = this.#single(true);
      if (!this.sees('-') || this.sees('-]')) {
        ranges.push(...low);
        continue;
      }
      this.take('-');
      if (this.done) this.fail('a [ that is never closed');
      const high = this.#single(true);
      const from = onlyOne(low);
      const to = onlyOne(high);
      // A class such as \w on one side of a hyphen: the hyphen is one.
      if (from === null || to === null) ranges.push(...low, [0x2d, 0x2d], ...high);
      else if (from > to) this.fail('a range in a class that runs backwards');
      else ranges.push([from, to]);
    }
    return charClass(negated ? complement(normalise(ranges)) : ranges);
  }

  #single(inClass: boolean): Ranges {
    const code = this.#text.codePointAt(this.#at)!;
    this.#at += code > 0xffff ? 2 : 1;
    if (code >= 0xd800 && code <= 0xdfff) this.fail('half a surrogate pair');
    return code === 0x5c ? this.#escape(inClass) : [[code, code]];
  }

  #escape(inClass: boolean): Ranges {
    if (this.done) this.fail('a \\ at the end');
    const letter = this.#text[this.#at++];
    if (letter in CLASS_ESCAPES) return CLASS_ESCAPES[letter];
    if (letter in CONTROL_ESCAPES && !(letter === '0' && /\d/.test(this.#text[this.#at] ?? '')))
      return one(CONTROL_ESCAPES[letter]);
    if (inClass && letter === 'b') return one(8);
    if (letter === 'b' || letter === 'B') this.refuse(`word boundaries, \\${letter}`);
    if (letter === 'x') return one(this.#hex(/^[0-9a-fA-F]{2}/));
    if (letter === 'u') return one(this.#unicode());
    if (letter === 'c') {
      const control = /^[A-Za-z]/.exec(this.#text.slice(this.#at));
      if (!control) this.fail('\\c without a letter');
      this.#at++;
      return one(control[0].charCodeAt(0) & 31);
    }
    if (letter === 'k' || /\d/.test(letter)) this.refuse(`back-references, \\${letter}`);
    if (letter === 'p' || letter === 'P') this.refuse(`Unicode properties, \\${letter}`);
    if (/[A-Za-z]/.test(letter)) this.refuse(`the escape \\${letter}`);
    this.#at--;
    const code = this.#text.codePointAt(this.#at)!;
    this.#at += code > 0xffff ? 2 : 1;
    return one(code);
  }

  #unicode(): number {
    if (this.take('{')) {
      const code = this.#hex(/^[0-9a-fA-F]{1,6}(?=\})/);
      this.take('}');
      if (code > 0x10ffff) this.fail('a code point beyond Unicode');
      return code;
    }
    const high = this.#hex(/^[0-9a-fA-F]{4}/);
    if (high < 0xd800 || high > 0xdbff || !this.take('\\u')) return high;
    const low = this.#hex(/^[dD][c-fC-F][0-9a-fA-F]{2}/);
    return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
  }

  #hex(digits: RegExp): number {
    const found = digits.exec(this.#text.slice(this.#at, this.#at + 8));
    if (!found) this.fail('an escape without its digits');
    this.#at += found[0].length;
    return Number.parseInt(found[0], 16);
  }
}

function one(code: number): Ranges {
  return [[code, code]];
}

function onlyOne(ranges: Ranges): number | null {
  return ranges.length === 1 && ranges[0][0] === ranges[0][1] ? ranges[0][0] : null;
}
