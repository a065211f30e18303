/**
 * Grammars in GBNF, the notation of llama.cpp, as rules: `name ::= ...` with literals, classes, `.`, groups, `|`, `* + ? {m,n}` and
 * `#` comments. Its rule `root` is the answer. References to tokens and other extensions are refused.
 */

import { RequestError } from '../common/errors.ts';
import {
  ANY_CHARACTER,
  alt,
  charClass,
  complement,
  type Expr,
  normalise,
  type RuleMap,
  ref,
  repeat,
  seq,
  text,
} from './expr.ts';

/** Grammars of whole programming languages have some 20 kB. */
export const MAX_GBNF_CHARS = 64 * 1024;
export const MAX_GBNF_REPETITIONS = 10_000;
/** Groups within groups; what reads and writes rules follows them recursively. */
const MAX_GROUP_DEPTH = 100;

const NAME = /[A-Za-z][A-Za-z0-9_-]*/y;
const DEFINES = /[ \t]*::=/y;
/** White space and comments. */
const GAP = /(?:[ \t]+|#[^\n]*)*/y;
const GAP_WITH_LINES = /(?:[ \t\r\n]+|#[^\n]*)*/y;
const BOUNDS = /\{\s*(\d+)\s*(,\s*(\d*)\s*)?\}/y;
const ESCAPES: Readonly<Record<string, string>> = {
  n: '\n',
  r: '\r',
  t: '\t',
  '\\': '\\',
  '"': '"',
  '[': '[',
  ']': ']',
};

/** Adds the rules under names that begin with `prefix`; the language is the returned expression. */
export function gbnfLanguage(source: string, rules: RuleMap, prefix: string): Expr {
  if (source.length > MAX_GBNF_CHARS) {
    throw new RequestError(
      'GRAMMAR_TOO_LARGE',
      `the grammar has ${source.length} characters, at most ${MAX_GBNF_CHARS} can be used`,
      {
        details: { limit: MAX_GBNF_CHARS },
      },
    );
  }
  const parser = new Parser(source, prefix);
  for (const [name, body] of parser.parse()) rules.set(name, body);
  return ref(`${prefix}root`);
}

class Parser {
  readonly #source: string;
  readonly #prefix: string;
  readonly #used = new Map<string, number>();
  #at = 0;
  #depth = 0;

  constructor(source: string, prefix: string) {
    this.#source = source;
    this.#prefix = prefix;
  }

  parse(): RuleMap {
    const rules: RuleMap = new Map();
    for (this.#match(GAP_WITH_LINES); this.#at < this.#source.length; this.#match(GAP_WITH_LINES)) {
      const name = this.#match(NAME)?.[0];
      if (!name) this.#fail('a rule must begin here: name ::= ...');
      if (!this.#match(DEFINES)) this.#fail(`::= must follow the name ${name}`);
      if (rules.has(this.#prefix + name)) this.#fail(`the rule ${name} is defined twice`);
      this.#match(GAP_WITH_LINES);
      rules.set(this.#prefix + name, this.#alternatives());
      if (this.#at < this.#source.length && !/[\r\n]/.test(this.#source[this.#at])) {
        this.#fail(`${JSON.stringify(this.#source[this.#at])} is not expected here`);
      }
    }
    if (!rules.has(`${this.#prefix}root`)) this.#fail('there is no rule called root', 0);
    for (const [name, at] of this.#used) {
      if (!rules.has(this.#prefix + name)) this.#fail(`the rule ${name} is not defined`, at);
    }
    return rules;
  }

  #alternatives(): Expr {
    const options = [this.#sequence()];
    while (this.#take('|')) {
      this.#match(GAP_WITH_LINES);
      options.push(this.#sequence());
    }
    return alt(...options);
  }

  #sequence(): Expr {
    const items: Expr[] = [];
    for (let item = this.#item(); item; item = this.#item()) items.push(this.#repeated(item));
    return seq(...items);
  }

  #item(): Expr | null {
    if (this.#depth > 0) this.#match(GAP_WITH_LINES);
    else this.#skipToContinuation();
    if (this.#take('"')) return this.#literal();
    if (this.#take('[')) return this.#class();
    if (this.#take('(')) return this.#group();
    if (this.#take('.')) return charClass(ANY_CHARACTER);
    const start = this.#at;
    const name = this.#match(NAME)?.[0];
    if (!name) return null;
    if (!this.#used.has(name)) this.#used.set(name, start);
    return ref(this.#prefix + name);
  }

  /** A rule goes on after a line break when `|` comes next; in a group it goes on anyway. */
  #skipToContinuation(): void {
    this.#match(GAP);
    const end = this.#at;
    this.#match(GAP_WITH_LINES);
    if (this.#source[this.#at] !== '|') this.#at = end;
  }

  #group(): Expr {
    if (++this.#depth > MAX_GROUP_DEPTH) this.#fail(`more than ${MAX_GROUP_DEPTH} groups stand within each other`);
    const body = this.#alternatives();
    if (!this.#take(')')) this.#fail('a ) is missing');
    this.#depth--;
    return body;
  }

  #repeated(item: Expr): Expr {
    let body = item;
    for (let times = 0; ; times++) {
      const bounds = this.#bounds();
      if (!bounds) return body;
      if (times > 0) this.#fail('a repetition of a repetition needs parentheses');
      body = repeat(body, ...bounds);
    }
  }

  #bounds(): [number, number] | null {
    if (this.#take('*')) return [0, Number.POSITIVE_INFINITY];
    if (this.#take('+')) return [1, Number.POSITIVE_INFINITY];
    if (this.#take('?')) return [0, 1];
    const found = this.#match(BOUNDS);
    if (!found) return null;
    const min = Number(found[1]);
    const max = found[2] === undefined ? min : found[3] === '' ? Number.POSITIVE_INFINITY : Number(found[3]);
    if (min > max) this.#fail('the bounds of a repetition are the wrong way round');
    if (Math.max(min, max === Number.POSITIVE_INFINITY ? 0 : max) > MAX_GBNF_REPETITIONS) {
      this.#fail(`more than ${MAX_GBNF_REPETITIONS} repetitions are not supported`);
    }
    return [min, max];
  }

  #literal(): Expr {
    let value = '';
    while (!this.#take('"')) value += String.fromCodePoint(this.#character('"'));
    return text(value);
  }

  #class(): Expr {
    const negated = this.#take('^');
    const ranges: [number, number][] = [];
    while (!this.#take(']')) {
      const from = this.#character(']');
      const isRange = this.#source[this.#at] === '-' && this.#source[this.#at + 1] !== ']';
      if (isRange) this.#at++;
      const to = isRange ? this.#character(']') : from;
      if (from > to) this.#fail('a range in a class runs backwards');
      ranges.push([from, to]);
    }
    return charClass(negated ? complement(normalise(ranges)) : ranges);
  }

  #character(closing: string): number {
    if (this.#at >= this.#source.length || /[\r\n]/.test(this.#source[this.#at])) this.#fail(`a ${closing} is missing`);
    if (!this.#take('\\')) {
      const code = this.#source.codePointAt(this.#at)!;
      if (code >= 0xd800 && code <= 0xdfff) this.#fail('half a surrogate pair stands here');
      this.#at += code > 0xffff ? 2 : 1;
      return code;
    }
    const letter = this.#source[this.#at++];
    if (letter !== undefined && letter in ESCAPES) return ESCAPES[letter].charCodeAt(0);
    const digits = letter === 'x' ? 2 : letter === 'u' ? 4 : letter === 'U' ? 8 : 0;
    const hex = this.#source.slice(this.#at, this.#at + digits);
    if (digits === 0 || !/^[0-9a-fA-F]+$/.test(hex) || hex.length !== digits) {
      // In a class, a backslash also takes the meaning of a hyphen or a caret.
      if (closing === ']' && (letter === '-' || letter === '^')) return letter.charCodeAt(0);
      this.#fail(`\\${letter ?? ''} is no escape`, this.#at - 2);
    }
    this.#at += digits;
    const code = Number.parseInt(hex, 16);
    if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) this.#fail(`\\${letter}${hex} is no character`);
    return code;
  }

  #take(part: string): boolean {
    if (!this.#source.startsWith(part, this.#at)) return false;
    this.#at += part.length;
    return true;
  }

  #match(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#source);
    if (found) this.#at = pattern.lastIndex;
    return found;
  }

  #fail(problem: string, at = this.#at): never {
    const before = this.#source.slice(0, at).split('\n');
    const [line, column] = [before.length, before.at(-1)!.length + 1];
    throw new RequestError(
      'INVALID_GRAMMAR',
      `the grammar cannot be used: line ${line}, column ${column}: ${problem}`,
      {
        details: { line, column },
      },
    );
  }
}
