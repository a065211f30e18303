/** Numbers and single values under the keywords that hold for them together. */

import { type Expr, ref } from './expr.ts';
import { NUMBER_FORMATS, STRING_FORMATS } from './formats.ts';
import { type Bound, integersBetween, numbersBetween } from './numbers.ts';
import type { Flat } from './schema-flat.ts';
import { isObject, type JsonType, MAX_COUNT, TYPES_OF_KEYWORD, unsupported } from './schema-keywords.ts';

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
