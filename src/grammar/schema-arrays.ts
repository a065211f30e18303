/** Arrays: a prefix with a schema for each place, then items that are alike. */

import type { JsonSchema } from './api.ts';
import { type Expr, NEVER, optional, repeat, seq, text } from './expr.ts';
import { andThen, bracketed } from './json-text.ts';
import type { SchemaBuilder } from './schema.ts';
import type { Flat, Place } from './schema-flat.ts';
import { pointer, unsupported } from './schema-keywords.ts';
import { counts } from './schema-scalars.ts';

/** The tails of a prefix stand within each other. */
const MAX_PREFIX_ITEMS = 200;

export function arrayLanguage(flat: readonly Flat[], builder: SchemaBuilder): Expr {
  let [min, max] = counts(flat, 'minItems', 'maxItems');
  const prefixes = flat.map(prefixOf);
  const prefixLength = Math.max(...prefixes.map(prefix => prefix.length));
  if (prefixLength > MAX_PREFIX_ITEMS) {
    const part = flat[prefixes.findIndex(prefix => prefix.length > MAX_PREFIX_ITEMS)];
    throw unsupported(prefixKeyword(part), part.path, `has more than ${MAX_PREFIX_ITEMS} items`);
  }
  if (flat.every(({ schema }) => schema.minItems === undefined)) min = Math.min(prefixLength, max);
  const items = flat.filter(part => part.schema[restKeyword(part)] !== undefined);
  if (prefixLength > 0 && items.length === 0) max = Math.min(max, prefixLength);
  for (const { schema, path } of flat) {
    if (schema.uniqueItems && max > 1) {
      throw unsupported(
        'uniqueItems',
        path,
        'is only supported for at most one item',
        'leave it out and check the answer',
      );
    }
  }

  const at = (i: number) =>
    builder.language(
      flat.flatMap((part, k): Place[] => {
        const { schema, path } = part;
        if (i < prefixes[k].length) return [{ path: pointer(path, prefixKeyword(part), i), schema: prefixes[k][i] }];
        const keyword = restKeyword(part);
        return schema[keyword] === undefined
          ? []
          : [{ path: pointer(path, keyword), schema: schema[keyword] as JsonSchema }];
      }),
    );
  if (min > max) return NEVER;
  if (max === 0) return bracketed('[', NEVER, ']');
  const content = tail(0, prefixLength, min, max, at);
  return bracketed('[', content, ']', min === 0);
}

/** Before draft 2020-12 a list of `items` was the prefix, and `additionalItems` what follows it. */
function prefixKeyword({ schema }: Flat): string {
  return Array.isArray(schema.items) ? 'items' : 'prefixItems';
}

function restKeyword({ schema }: Flat): string {
  return Array.isArray(schema.items) ? 'additionalItems' : 'items';
}

function prefixOf(part: Flat): readonly JsonSchema[] {
  return (part.schema[prefixKeyword(part)] as readonly JsonSchema[] | undefined) ?? [];
}

/** Items from number i on; the first without its comma. */
function tail(i: number, prefixLength: number, min: number, max: number, at: (i: number) => Expr): Expr {
  if (i === max) return text('');
  if (i >= prefixLength) return rest(at(i), min - i, max - i, i === 0);
  const item = i === 0 ? at(i) : andThen(at(i));
  const more = tail(i + 1, prefixLength, min, max, at);
  const all = seq(item, more);
  return i === 0 || i < min ? all : optional(all);
}

/** min..max equal items, after others or as the first. */
function rest(item: Expr, min: number, max: number, first: boolean): Expr {
  if (!first) return repeat(andThen(item), Math.max(0, min), max);
  return seq(item, repeat(andThen(item), Math.max(0, min - 1), max - 1));
}
