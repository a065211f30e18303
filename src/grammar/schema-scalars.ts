/** Strings, numbers and single values under the keywords that hold for them together. */

import { type Expr, NEVER, ref, repeat } from './expr.ts';
import { NUMBER_FORMATS, STRING_FORMATS } from './formats.ts';
import { quoted, sizedString, spelled } from './json-text.ts';
import { type Bound, integersBetween, numbersBetween } from './numbers.ts';
import { parseRegex } from './regex.ts';
import type { Flat } from './schema-flat.ts';
import { isObject, type JsonType, MAX_COUNT, pointer, TYPES_OF_KEYWORD, unsupported } from './schema-keywords.ts';

export function stringLanguage(flat: readonly Flat[]): Expr {
  const [min, max] = counts(flat, 'minLength', 'maxLength');
  if (min > max) return NEVER;
  const expressions = new Map<string, { keyword: string; path: string; body: Expr }>();
  for (const { schema, path } of flat) {
    for (const keyword of ['pattern', 'format']) {
      const value = schema[keyword] as string | undefined;
      if (value === undefined) continue;
      const body = keyword === 'pattern' ? patternBody(value, path) : formatBody(value, path);
      expressions.set(`${keyword} ${value}`, { keyword, path, body });
    }
  }
  const [first, second] = expressions.values();
  if (!first) return sizedString(min, max);
  if (second) {
    throw unsupported(second.keyword, second.path, `stands beside another ${first.keyword}`, 'say both in one pattern');
  }
  return quoted(spelled(sized(first.body, min, max, first)));
}

function patternBody(pattern: string, path: string): Expr {
  const at = pointer(path, 'pattern');
  const place = { code: 'UNSUPPORTED_SCHEMA', what: `the pattern at ${at}`, details: { keyword: 'pattern', path: at } };
  return parseRegex(pattern, place).search;
}

function formatBody(format: string, path: string): Expr {
  if (!Object.hasOwn(STRING_FORMATS, format)) {
    const known = Object.keys(STRING_FORMATS).join(', ');
    throw unsupported(
      'format',
      path,
      `is ${JSON.stringify(format)}, which is not known for strings`,
      `known: ${known}`,
    );
  }
  return parseRegex(STRING_FORMATS[format], { code: 'INTERNAL', what: `the format ${format}` }).whole;
}

/** An expression that the bounds already hold for, or whose one repetition can take them. */
function sized(body: Expr, min: number, max: number, at: { keyword: string; path: string }): Expr {
  const [shortest, longest] = lengths(body);
  if (shortest >= min && longest <= max) return body;
  if (shortest > max || longest < min) return NEVER;
  if (body.kind === 'repeat' && body.item.kind === 'class') {
    return repeat(body.item, Math.max(body.min, min), Math.min(body.max, max));
  }
  const hint = 'bound the repetitions of the pattern instead, as in ^[a-z]{1,20}$';
  throw unsupported(at.keyword, at.path, 'does not keep to minLength and maxLength beside it', hint);
}

/** Shortest and longest text in characters. */
function lengths(expr: Expr): [number, number] {
  switch (expr.kind) {
    case 'text':
      return [[...expr.text].length, [...expr.text].length];
    case 'seq':
      return expr.items.map(lengths).reduce(([a, b], [c, d]) => [a + c, b + d], [0, 0]);
    case 'alt':
      return expr.options
        .map(lengths)
        .reduce(([a, b], [c, d]) => [Math.min(a, c), Math.max(b, d)], [Number.POSITIVE_INFINITY, 0]);
    case 'repeat': {
      const [shortest, longest] = lengths(expr.item);
      return [shortest * expr.min, longest === 0 ? 0 : longest * expr.max];
    }
    default:
      return [1, 1];
  }
}

export function numberLanguage(type: 'number' | 'integer', flat: readonly Flat[]): Expr {
  let whole = type === 'integer';
  let low: Bound | null = null;
  let high: Bound | null = null;
  const raise = (value: number | undefined, exclusive: boolean) => {
    if (value === undefined || (low && (value < low.value || (value === low.value && !exclusive)))) return;
    low = { value, exclusive };
  };
  const lower = (value: number | undefined, exclusive: boolean) => {
    if (value === undefined || (high && (value > high.value || (value === high.value && !exclusive)))) return;
    high = { value, exclusive };
  };
  for (const { schema, path } of flat) {
    raise(schema.minimum as number | undefined, false);
    raise(schema.exclusiveMinimum as number | undefined, true);
    lower(schema.maximum as number | undefined, false);
    lower(schema.exclusiveMaximum as number | undefined, true);
    if (schema.multipleOf !== undefined && schema.multipleOf !== 1) {
      throw unsupported('multipleOf', path, `is ${schema.multipleOf}; only 1 is supported`);
    }
    whole ||= schema.multipleOf === 1;
    const format = schema.format as string | undefined;
    // On a schema of several types it is the strings' format.
    if (format === undefined || Object.hasOwn(STRING_FORMATS, format)) continue;
    if (!Object.hasOwn(NUMBER_FORMATS, format)) {
      throw unsupported('format', path, `is ${JSON.stringify(format)}, which is not known for numbers`);
    }
    if (/int/.test(format)) whole = true;
    raise(NUMBER_FORMATS[format].min, false);
    lower(NUMBER_FORMATS[format].max, false);
  }
  if (!low && !high) return ref(whole ? 'integer' : 'number');
  return whole ? integersBetween(low, high) : numbersBetween(low, high);
}

/** The strictest of two keywords that count. */
export function counts(flat: readonly Flat[], minKeyword: string, maxKeyword: string): [number, number] {
  let [min, max] = [0, Number.POSITIVE_INFINITY];
  for (const { schema, path } of flat) {
    for (const keyword of [minKeyword, maxKeyword]) {
      const value = schema[keyword] as number | undefined;
      if (value === undefined) continue;
      if (value > MAX_COUNT) throw unsupported(keyword, path, `is ${value}; at most ${MAX_COUNT} is supported`);
      if (keyword === minKeyword) min = Math.max(min, value);
      else max = Math.min(max, value);
    }
  }
  return [min, max];
}

/** Whether a value of enum or const satisfies the keywords beside it. Throws for keywords that would have to be evaluated in depth. */
export function valueHolds(value: unknown, types: ReadonlySet<JsonType>, flat: readonly Flat[]): boolean {
  const type = typeOf(value);
  const explicit = flat.some(({ schema }) => schema.type !== undefined);
  if (explicit && !types.has(type) && !(type === 'integer' && types.has('number'))) return false;
  return flat.every(({ schema, path }) => {
    for (const [keyword, bound] of Object.entries(schema)) {
      const speaksOf = keyword === 'format' ? ['string', 'number'] : (TYPES_OF_KEYWORD[keyword] ?? []);
      if (!speaksOf.includes(type === 'integer' ? 'number' : type)) continue;
      const holds = SIMPLE[keyword];
      if (!holds) throw unsupported(keyword, path, 'stands beside enum or const', 'keep only the values that fit it');
      if (!holds(value, bound as number)) return false;
    }
    return true;
  });
}

const SIMPLE: Readonly<Record<string, (value: unknown, bound: number) => boolean>> = {
  minLength: (value, bound) => [...(value as string)].length >= bound,
  maxLength: (value, bound) => [...(value as string)].length <= bound,
  minimum: (value, bound) => (value as number) >= bound,
  maximum: (value, bound) => (value as number) <= bound,
  exclusiveMinimum: (value, bound) => (value as number) > bound,
  exclusiveMaximum: (value, bound) => (value as number) < bound,
};

export function typeOf(value: unknown): JsonType {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'array';
  if (isObject(value)) return 'object';
  if (typeof value === 'number') return Number.isInteger(value) ? 'integer' : 'number';
  return typeof value as JsonType;
}
