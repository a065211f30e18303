/** Strings under all the patterns, formats and lengths that hold for them together. */

import { intersection, isWithin, TooLarge } from './automaton.ts';
import { type Expr, NEVER, repeat } from './expr.ts';
import { narrowerFormats, STRING_FORMATS } from './formats.ts';
import { quoted, sizedString, spelled } from './json-text.ts';
import { WITHOUT_LOOK_AHEAD } from './patterns.ts';
import { parseRegex } from './regex.ts';
import type { SchemaBuilder } from './schema.ts';
import type { Flat } from './schema-flat.ts';
import { pointer, unsupported } from './schema-keywords.ts';
import { counts } from './schema-scalars.ts';

/** What zod calls the checks whose pattern it writes beside; by themselves they say nothing. */
const CHECKS = new Set(['starts_with', 'ends_with', 'includes']);

interface Part {
  readonly keyword: string;
  readonly path: string;
  readonly body: Expr;
  /** Of formats: languages within it. */
  readonly narrower: readonly Expr[];
}

/** `name`: of the rule, for those that it needs besides. */
export function stringLanguage(flat: readonly Flat[], builder: SchemaBuilder, name: string): Expr {
  const sizes = counts(flat, 'minLength', 'maxLength');
  if (sizes[0] > sizes[1]) return NEVER;
  const hasPattern = flat.some(({ schema }) => schema.pattern !== undefined);
  const parts = new Map<string, Part>();
  for (const { schema, path } of flat) {
    for (const keyword of ['pattern', 'format', 'contentEncoding']) {
      const value = schema[keyword] as string | undefined;
      if (value === undefined || (keyword === 'format' && hasPattern && CHECKS.has(value))) continue;
      parts.set(keyword === 'pattern' ? `pattern ${value}` : `format ${value}`, partOf(keyword, value, path, sizes[1]));
    }
  }
  if (parts.size === 0) return sizedString(...sizes);
  const id = JSON.stringify([[...parts.keys()].sort(), sizes]);
  const known = builder.strings.get(id);
  if (known) return known;
  const language = quoted(together([...parts.values()], sizes, builder, name));
  builder.strings.set(id, language);
  return language;
}

function partOf(keyword: string, value: string, path: string, max: number): Part {
  if (keyword === 'pattern') return { keyword, path, body: patternBody(value, path), narrower: [] };
  if (!Object.hasOwn(STRING_FORMATS, value) || (keyword === 'contentEncoding' && !/^base64/.test(value))) {
    const known = keyword === 'format' ? Object.keys(STRING_FORMATS).join(', ') : 'base64, base64url';
    throw unsupported(keyword, path, `is ${JSON.stringify(value)}, which is not known for strings`, `known: ${known}`);
  }
  const whole = (text: string) => parseRegex(text, { code: 'INTERNAL', what: `the format ${value}` }).whole;
  return { keyword, path, body: whole(STRING_FORMATS[value]), narrower: narrowerFormats(value, max).map(whole) };
}

function patternBody(pattern: string, path: string): Expr {
  const at = pointer(path, 'pattern');
  const place = { code: 'UNSUPPORTED_SCHEMA', what: `the pattern at ${at}`, details: { keyword: 'pattern', path: at } };
  return parseRegex(WITHOUT_LOOK_AHEAD.get(pattern) ?? pattern, place).search;
}

/** What all parts and the sizes hold for, as the content of a JSON string. */
function together(
  parts: readonly Part[],
  sizes: readonly [number, number],
  builder: SchemaBuilder,
  name: string,
): Expr {
  const [min, max] = sizes;
  const [first] = parts;
  if (parts.length === 1 && first.body.kind === 'repeat' && first.body.item.kind === 'class') {
    const { item, min: least, max: most } = first.body;
    return Math.max(least, min) > Math.min(most, max)
      ? NEVER
      : spelled(repeat(item, Math.max(least, min), Math.min(most, max)));
  }
  try {
    const all = parts.map(part => part.body);
    const candidates = [...all, ...parts.flatMap(part => part.narrower)];
    const one = candidates.find(body => {
      const [shortest, longest] = lengths(body);
      if (shortest < min || longest > max) return false;
      return all.every(other => other === body || isWithin(body, other, builder.budget));
    });
    return one ? spelled(one) : intersection(all, sizes, builder.rules, name, builder.budget);
  } catch (error) {
    if (!(error instanceof TooLarge)) throw error;
    const others = parts.length > 1 ? `the ${parts[0].keyword}` : 'minLength and maxLength';
    const { keyword, path } = parts[parts.length - 1];
    const hint = 'bound the repetitions of the pattern instead, as in ^[a-z]{1,20}$, or say all in one pattern';
    throw unsupported(keyword, path, `is too large to be combined with ${others} beside it`, hint);
  }
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
