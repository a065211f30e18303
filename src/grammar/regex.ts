/**
 * Regular expressions (the syntax of JavaScript) as languages. What is no regular language, or would need one to look around, is
 * refused by name: look-ahead and look-behind, back-references, \b, flags, Unicode properties. Whether a quantifier is lazy makes
 * no difference to what matches.
 */

import { RequestError } from '../common/errors.ts';
import { ANY_CHARACTER, alt, charClass, type Expr, repeat, seq, star } from './expr.ts';
import { CharacterReader } from './regex-characters.ts';

/** The longest patterns in use, those of e-mail addresses and dates, have some hundred characters. */
export const MAX_PATTERN_CHARS = 4096;
/** Groups within groups: what the parser and everything after it follow recursively. */
const MAX_GROUP_DEPTH = 50;
export const MAX_REPETITIONS = 10_000;

/** Where a pattern stands, for messages. */
export interface PatternPlace {
  readonly code: string;
  /** 'the pattern at #/properties/a', 'the regular expression'. */
  readonly what: string;
  readonly details?: Record<string, unknown>;
}

export interface Pattern {
  /** The whole text matches. */
  readonly whole: Expr;
  /** A part of the text matches, `^` and `$` apart: what JSON schemas mean. */
  readonly search: Expr;
}

/** Throws RequestError with the place's code. */
export function parseRegex(pattern: string, place: PatternPlace): Pattern {
  if (pattern.length > MAX_PATTERN_CHARS) {
    throw new RequestError(
      place.code,
      `${place.what} has ${pattern.length} characters, at most ${MAX_PATTERN_CHARS} can be used`,
      {
        details: { ...place.details, limit: MAX_PATTERN_CHARS },
      },
    );
  }
  const options = new Parser(pattern, place).parse();
  const anything = star(charClass(ANY_CHARACTER));
  return {
    whole: alt(...options.map(option => option.body)),
    search: alt(
      ...options.map(({ body, start, end }) => seq(...(start ? [] : [anything]), body, ...(end ? [] : [anything]))),
    ),
  };
}

interface Option {
  readonly body: Expr;
  readonly start: boolean;
  readonly end: boolean;
}

class Parser {
  readonly #characters: CharacterReader;
  #depth = 0;

  constructor(pattern: string, place: PatternPlace) {
    this.#characters = new CharacterReader(pattern, place);
  }

  parse(): Option[] {
    const options = this.#alternatives(true);
    if (!this.#characters.done) this.#characters.fail('a ) that closes nothing');
    return options;
  }

  #alternatives(top: boolean): Option[] {
    const options = [this.#option(top)];
    while (this.#characters.take('|')) options.push(this.#option(top));
    return options;
  }

  #option(top: boolean): Option {
    const reader = this.#characters;
    const start = reader.take('^');
    const items: Expr[] = [];
    let end = false;
    while (!reader.done && !reader.sees('|') && !reader.sees(')')) {
      if (reader.sees('^')) reader.refuse('^ after the start');
      if (reader.take('$')) {
        end = true;
        if (!reader.done && !reader.sees('|') && !reader.sees(')')) reader.refuse('$ before the end');
      } else items.push(this.#quantified());
    }
    if (!top && (start || end)) reader.refuse(`${start ? '^' : '$'} inside a group`);
    return { body: seq(...items), start, end };
  }

  #quantified(): Expr {
    const reader = this.#characters;
    const item = reader.take('(') ? this.#group() : reader.character();
    const bounds = reader.quantifier();
    if (!bounds) return item;
    const [min, max] = bounds;
    reader.take('?');
    if (reader.quantifier()) reader.fail('a quantifier after a quantifier');
    if (min > max) reader.fail('a repetition whose bounds are the wrong way round');
    if (Math.max(min, max === Number.POSITIVE_INFINITY ? 0 : max) > MAX_REPETITIONS) {
      reader.refuse(`more than ${MAX_REPETITIONS} repetitions`);
    }
    return repeat(item, min, max);
  }

  #group(): Expr {
    const reader = this.#characters;
    if (++this.#depth > MAX_GROUP_DEPTH) reader.refuse(`more than ${MAX_GROUP_DEPTH} groups within each other`);
    reader.groupKind();
    const options = this.#alternatives(false);
    if (!reader.take(')')) reader.fail('a ( that is never closed');
    this.#depth--;
    return alt(...options.map(option => option.body));
  }
}
