/**
 * JSON itself as rules: what every front end for schemas refers to. White space is the rule `ws` of white-space.ts. Numbers have a
 * bounded length, so that they stay finite.
 */

import {
  ANY_CHARACTER,
  alt,
  charClass,
  complement,
  type Expr,
  intersect,
  normalise,
  optional,
  type Ranges,
  type RuleMap,
  ref,
  repeat,
  seq,
  star,
  text,
} from './expr.ts';

/** Digits before and behind the point of a number without bounds. */
export const MAX_DIGITS = 18;

export const DIGIT = charClass([[0x30, 0x39]]);
export const DIGIT_1_9 = charClass([[0x31, 0x39]]);
const HEX = charClass([
  [0x30, 0x39],
  [0x41, 0x46],
  [0x61, 0x66],
]);
const QUOTE = text('"');
/** Characters that stand for themselves in a JSON string. */
const PLAIN: Ranges = complement([
  [0, 0x1f],
  [0x22, 0x22],
  [0x5c, 0x5c],
]);
/** Characters with an escape of one letter, and that letter. */
const SHORT_ESCAPES: ReadonlyMap<number, string> = new Map([
  [8, 'b'],
  [9, 't'],
  [10, 'n'],
  [12, 'f'],
  [13, 'r'],
  [34, '"'],
  [92, '\\'],
]);

/** Any character of a string, spelled in any way. A surrogate comes in pairs only. */
const CHARACTER: Expr = alt(
  charClass(PLAIN),
  seq(text('\\'), charClass([...'"\\/bfnrt'].map(c => [c.charCodeAt(0), c.charCodeAt(0)]))),
  seq(
    text('\\u'),
    charClass([...ranges('09'), ...ranges('AC'), ...ranges('EF'), ...ranges('ac'), ...ranges('ef')]),
    HEX,
    HEX,
    HEX,
  ),
  seq(text('\\u'), either('Dd'), charClass(ranges('07')), HEX, HEX),
  seq(
    text('\\u'),
    either('Dd'),
    charClass([...ranges('89'), ...ranges('AB'), ...ranges('ab')]),
    HEX,
    HEX,
    text('\\u'),
    either('Dd'),
    charClass([...ranges('CF'), ...ranges('cf')]),
    HEX,
    HEX,
  ),
);

function ranges(ends: string): [number, number][] {
  return [[ends.charCodeAt(0), ends.charCodeAt(1)]];
}

function either(letters: string): Expr {
  return charClass([...letters].map(c => [c.charCodeAt(0), c.charCodeAt(0)]));
}

/** Rules that any schema may refer to: string, number, integer, boolean, null, any, array, object. */
export const JSON_RULES: RuleMap = new Map<string, Expr>([
  ['string', seq(QUOTE, star(CHARACTER), QUOTE)],
  ['character', CHARACTER],
  ['integer', seq(optional(text('-')), alt(text('0'), seq(DIGIT_1_9, repeat(DIGIT, 0, MAX_DIGITS - 1))))],
  [
    'number',
    seq(
      ref('integer'),
      optional(seq(text('.'), repeat(DIGIT, 1, MAX_DIGITS))),
      optional(seq(either('eE'), optional(either('+-')), DIGIT, optional(DIGIT))),
    ),
  ],
  ['boolean', alt(text('true'), text('false'))],
  ['null', text('null')],
  ['any', alt(ref('string'), ref('number'), ref('boolean'), ref('null'), ref('array'), ref('object'))],
  ['array', bracketed('[', list(ref('any')), ']')],
  ['object', bracketed('{', list(member(ref('string'), ref('any'))), '}')],
]);

/** `open`, white space, `content`, white space, `close`, with or without the empty one. */
export function bracketed(open: string, content: Expr, close: string, mayBeEmpty = true): Expr {
  const full = seq(text(open), ref('ws'), content, ref('ws'), text(close));
  return mayBeEmpty ? alt(seq(text(open), ref('ws'), text(close)), full) : full;
}

/** `item`, then any number of `, item`. */
export function list(item: Expr): Expr {
  return seq(item, star(andThen(item)));
}

/** `, item` */
export function andThen(item: Expr): Expr {
  return seq(text(','), ref('ws'), item);
}

export function member(key: Expr, value: Expr): Expr {
  return seq(key, text(':'), ref('ws'), value);
}

/** A language of texts as JSON strings, without the quotes. Characters are escaped only where they must be, in one way. */
export function spelled(expr: Expr): Expr {
  switch (expr.kind) {
    case 'text':
      return text(JSON.stringify(expr.text).slice(1, -1));
    case 'class':
      return spelledClass(expr.ranges);
    case 'seq':
      return seq(...expr.items.map(spelled));
    case 'alt':
      return alt(...expr.options.map(spelled));
    case 'repeat':
      return repeat(spelled(expr.item), expr.min, expr.max);
    case 'ref':
      return expr;
  }
}

function spelledClass(wanted: Ranges): Expr {
  const plain = intersect(wanted, PLAIN);
  const escaped = intersect(wanted, complement(PLAIN)).flatMap(([from, to]) => range(from, to));
  const short = escaped.filter(code => SHORT_ESCAPES.has(code)).map(code => SHORT_ESCAPES.get(code)!);
  const options: Expr[] = [];
  if (plain.length > 0) options.push(charClass(plain));
  if (short.length > 0) options.push(seq(text('\\'), either(short.join(''))));
  for (const row of [0, 1]) {
    const digits = escaped
      .filter(code => code >> 4 === row && !SHORT_ESCAPES.has(code))
      .map(code => (code & 15).toString(16));
    if (digits.length > 0) options.push(seq(text(`\\u00${row}`), either(digits.join(''))));
  }
  return alt(...options);
}

function range(from: number, to: number): number[] {
  return Array.from({ length: to - from + 1 }, (_, i) => from + i);
}

export function quoted(content: Expr): Expr {
  return seq(QUOTE, content, QUOTE);
}

/** Strings of min..max characters (code points). */
export function sizedString(min: number, max: number): Expr {
  return min === 0 && max === Number.POSITIVE_INFINITY ? ref('string') : quoted(repeat(ref('character'), min, max));
}

/**
 * Keys other than `names`. They are spelled in one way only, so that none of the names comes in by an escape. One rule per
 * distinct beginning of a name.
 */
export function otherKeys(names: readonly string[], rules: RuleMap, prefix: string): Expr {
  if (names.length === 0) return ref('string');
  const anything = spelledClass(ANY_CHARACTER);
  rules.set(`${prefix}-rest`, seq(star(anything), QUOTE));
  let count = 0;
  const node = (rest: readonly (readonly string[])[]): Expr => {
    const children = new Map<string, string[][]>();
    for (const [first, ...others] of rest) {
      if (first === undefined) continue;
      const list = children.get(first);
      if (list) list.push(others);
      else children.set(first, [others]);
    }
    const taken = normalise([...children.keys()].map((c): [number, number] => [c.codePointAt(0)!, c.codePointAt(0)!]));
    const options: Expr[] = rest.some(word => word.length === 0) ? [] : [QUOTE];
    const others = spelledClass(complement(taken));
    options.push(seq(others, ref(`${prefix}-rest`)));
    for (const [character, words] of children) {
      const name = `${prefix}-${count++}`;
      rules.set(name, node(words));
      options.push(seq(spelled(text(character)), ref(name)));
    }
    return alt(...options);
  };
  return seq(QUOTE, node(names.map(name => [...name])));
}
