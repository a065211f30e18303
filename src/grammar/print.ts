/**
 * Rules as the text that the grammar library reads. Its dialect has traps, all of them kept in this file:
 *
 * - A class with characters beyond ASCII is read as a class of bytes, and a negated one lets broken UTF-8 through. So every class
 *   becomes alternatives of byte sequences, written as positive classes. A class of one byte twice is not "simplified" into a
 *   literal character.
 * - A hexadecimal escape takes all the digits it can get; four-digit ones do not.
 * - A repetition with large bounds makes a single mask take seconds; nested repetitions of CHUNK say the same in milliseconds.
 */

import { RequestError } from '../common/errors.ts';
import { type Expr, type Language, ref } from './expr.ts';
import { type ByteRanges, utf8Sequences } from './utf8.ts';

/** A grammar of this size takes the library seconds; hand-written ones and large schemas stay below a tenth of it. */
export const MAX_PRINTED_CHARS = 2_000_000;
/** 32 repetitions cost no more than 8 or 16 (measured), and three levels of them reach every bound that is allowed. */
const CHUNK = 32;

/** Writes all rules; the one called `root` comes first. */
export function printLanguage({ rules, root }: Language): string {
  const printer = new Printer();
  printer.rule('root', ref(root));
  for (const [name, expr] of rules) printer.rule(`r-${name}`, expr);
  return printer.finish();
}

class Printer {
  readonly #lines: string[] = [];
  #chars = 0;
  /** Body -> name of the rule that stands for it in repetitions. */
  readonly #helpers = new Map<string, string>();

  rule(name: string, expr: Expr): void {
    this.#write(name, this.#alternatives(expr));
  }

  finish(): string {
    return `${this.#lines.join('\n')}\n`;
  }

  #write(name: string, body: string): void {
    this.#chars += name.length + body.length;
    if (this.#chars > MAX_PRINTED_CHARS) {
      throw new RequestError('GRAMMAR_TOO_LARGE', 'the grammar becomes too large when it is written out', {
        hint: 'use fewer alternatives, properties or repetitions',
      });
    }
    this.#lines.push(`${name} ::= ${body}`);
  }

  /** As the whole body of a rule or of parentheses. */
  #alternatives(expr: Expr): string {
    if (expr.kind === 'alt') return expr.options.map(option => this.#alternatives(option)).join(' | ') || '""';
    if (expr.kind === 'class') return utf8Sequences(expr.ranges).map(printSequence).join(' | ');
    if (expr.kind === 'seq') return expr.items.map(item => this.#atom(item)).join(' ') || '""';
    return this.#atom(expr);
  }

  /** As one item of a sequence. */
  #atom(expr: Expr): string {
    switch (expr.kind) {
      case 'text':
        return printText(expr.text);
      case 'ref':
        return `r-${expr.name}`;
      case 'repeat':
        return this.#repeat(expr.item, expr.min, expr.max);
      case 'class': {
        const sequences = utf8Sequences(expr.ranges);
        return sequences.length === 1 && sequences[0].length === 1
          ? printSequence(sequences[0])
          : `(${this.#alternatives(expr)})`;
      }
      default:
        return `(${this.#alternatives(expr)})`;
    }
  }

  #repeat(item: Expr, min: number, max: number): string {
    if (min === 0 && max === 1) return `(${this.#alternatives(item)})?`;
    if (min === 0 && max === Number.POSITIVE_INFINITY) return `(${this.#alternatives(item)})*`;
    if (min === 1 && max === Number.POSITIVE_INFINITY) return `(${this.#alternatives(item)})+`;
    const name = this.#helper(this.#alternatives(item));
    const rest = max === Number.POSITIVE_INFINITY ? `${name}*` : this.#upTo(name, max - min);
    return [this.#exactly(name, min), rest].filter(part => part !== '').join(' ');
  }

  #exactly(name: string, count: number): string {
    if (count === 0) return '';
    if (count <= CHUNK) return count === 1 ? name : `${name}{${count}}`;
    const chunk = this.#chunk(name);
    return `${this.#exactly(chunk, Math.floor(count / CHUNK))} ${this.#exactly(name, count % CHUNK)}`;
  }

  #upTo(name: string, count: number): string {
    if (count === 0) return '';
    if (count <= CHUNK) return `${name}{0,${count}}`;
    const chunk = this.#chunk(name);
    const chunks = Math.floor(count / CHUNK);
    const fewer = `${this.#upTo(chunk, chunks - 1)} ${name}{0,${CHUNK - 1}}`;
    return `(${fewer} | ${this.#exactly(chunk, chunks)} ${this.#upTo(name, count % CHUNK)})`;
  }

  #chunk(name: string): string {
    return this.#helper(`${name}{${CHUNK}}`);
  }

  #helper(body: string): string {
    const known = this.#helpers.get(body);
    if (known) return known;
    const name = `h-${this.#helpers.size}`;
    this.#helpers.set(body, name);
    this.#write(name, body);
    return name;
  }
}

function printSequence(sequence: readonly ByteRanges[]): string {
  return sequence.map(printByte).join(' ');
}

function printByte(ranges: ByteRanges): string {
  const parts = ranges.map(([from, to]) => (from === to ? hex(from) : `${hex(from)}-${hex(to)}`));
  const single = ranges.length === 1 && ranges[0][0] === ranges[0][1];
  return `[${parts.join('')}${single ? parts[0] : ''}]`;
}

function printText(value: string): string {
  let out = '';
  for (const character of value) {
    const code = character.codePointAt(0)!;
    const plain = code >= 0x20 && code < 0x7f && character !== '"' && character !== '\\';
    out += plain ? character : hex(code);
  }
  return `"${out}"`;
}

function hex(code: number): string {
  return code > 0xffff ? `\\U${code.toString(16).padStart(8, '0')}` : `\\u${code.toString(16).padStart(4, '0')}`;
}
