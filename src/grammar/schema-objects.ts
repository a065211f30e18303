/** Objects: listed properties in their order, then others. */

import type { JsonSchema } from './api.ts';
import { alt, type Expr, isNever, NEVER, optional, ref, repeat, seq, star, text } from './expr.ts';
import { andThen, bracketed, list, member, otherKeys } from './json-text.ts';
import type { SchemaBuilder } from './schema.ts';
import { type Flat, flatten, type Place } from './schema-flat.ts';
import { isObject, pointer, TYPES_OF_KEYWORD, unsupported } from './schema-keywords.ts';
import { counts } from './schema-scalars.ts';

/** Characters of one key: keys that are not listed are told apart from the listed ones character by character. */
const MAX_KEY_CHARS = 512;

/** Beside a list of names they may take some away. */
const BRANCHES = new Set(['anyOf', 'oneOf', 'format']);

interface Property {
  readonly required: boolean;
  readonly member: Expr;
}

export function objectLanguage(flat: readonly Flat[], builder: SchemaBuilder, name: string): Expr {
  const allowed = listOfNames(flat, builder);
  const listed = propertyNames(flat);
  const names = allowed ? [...new Set([...listed, ...allowed])] : listed;
  const lists = listed.length > 0 || flat.some(({ schema }) => schema.properties !== undefined);
  const closed = lists && flat.every(({ schema }) => schema.additionalProperties === undefined);
  const properties = names.flatMap((property): Property[] => {
    const required = flat.some(({ schema }) => (schema.required as string[] | undefined)?.includes(property));
    const forbidden = (allowed && !allowed.has(property)) || (closed && !listed.includes(property));
    if (forbidden) return required ? [{ required, member: NEVER }] : [];
    const value = builder.language(flat.flatMap(part => placeOf(part, property)));
    return [{ required, member: member(text(JSON.stringify(property)), value) }];
  });
  const other = allowed ? NEVER : otherMembers(flat, names, builder, name);
  const [min, max] = counts(flat, 'minProperties', 'maxProperties');
  checkCounts(flat, properties, other, min, max);
  if (max === 0) return properties.some(({ required }) => required) ? NEVER : bracketed('{', NEVER, '}');
  if (properties.length === 0) {
    const content = max === Number.POSITIVE_INFINITY ? list(other) : seq(other, repeat(andThen(other), 0, max - 1));
    return bracketed('{', content, '}', min === 0);
  }
  return bracketed('{', chain(properties, other, builder, name), '}', min === 0 && !properties.some(p => p.required));
}

/** Names that `propertyNames` lists, and no others; null where it does not list them. */
function listOfNames(flat: readonly Flat[], builder: SchemaBuilder): Set<string> | null {
  const lists = flat.flatMap(({ schema, path }): string[][] => {
    if (schema.propertyNames === undefined) return [];
    const place = { path: pointer(path, 'propertyNames'), schema: schema.propertyNames as JsonSchema };
    const parts = flatten([place], builder);
    return parts ? parts.flatMap(namesOf) : [[]];
  });
  return lists.length === 0 ? null : new Set(lists[0].filter(name => lists.every(list => list.includes(name))));
}

function namesOf({ schema }: Flat): string[][] {
  const { type = 'string', enum: values, const: value, ...others } = schema;
  const names = value === undefined ? values : [value];
  if (type !== 'string' || !Array.isArray(names) || (values !== undefined && value !== undefined)) return [];
  if (Object.keys(others).some(keyword => TYPES_OF_KEYWORD[keyword] || BRANCHES.has(keyword))) return [];
  return [names.filter(name => typeof name === 'string')];
}

/** In the order of the schemas; `required` may name some that no schema lists. */
function propertyNames(flat: readonly Flat[]): string[] {
  const listed = flat.flatMap(({ schema }) => Object.keys((schema.properties as object | undefined) ?? {}));
  const required = flat.flatMap(({ schema }) => (schema.required as string[] | undefined) ?? []);
  const names = [...new Set([...listed, ...required])];
  if (names.some(name => name.length > MAX_KEY_CHARS)) {
    throw unsupported('properties', flat[0].path, `has a name of more than ${MAX_KEY_CHARS} characters`);
  }
  return names;
}

/** What one schema says about a property. */
function placeOf({ schema, path }: Flat, property: string): Place[] {
  const listed = schema.properties as Record<string, JsonSchema> | undefined;
  if (listed && Object.hasOwn(listed, property)) {
    return [{ path: pointer(path, 'properties', property), schema: listed[property] }];
  }
  if (schema.additionalProperties === undefined) return [];
  return [{ path: pointer(path, 'additionalProperties'), schema: schema.additionalProperties as JsonSchema }];
}

/** A member whose key is not listed; NEVER where there must be none. */
function otherMembers(flat: readonly Flat[], names: readonly string[], builder: SchemaBuilder, name: string): Expr {
  const open = flat.filter(({ schema }) => schema.additionalProperties !== undefined);
  const lists = names.length > 0 || flat.some(({ schema }) => schema.properties !== undefined);
  if (lists && open.length === 0) return NEVER;
  const value = builder.language(
    open.map(({ schema, path }) => ({
      path: pointer(path, 'additionalProperties'),
      schema: schema.additionalProperties as JsonSchema,
    })),
  );
  if (isNever(value)) return NEVER;
  const keys: Place[] = [];
  for (const { schema, path } of flat) {
    const wanted = schema.propertyNames as JsonSchema | undefined;
    if (wanted === undefined || wanted === true || isAnyString(wanted)) continue;
    if (names.length > 0) {
      throw unsupported('propertyNames', path, 'stands beside properties or required', 'list all the properties');
    }
    keys.push({ path: pointer(path, 'propertyNames'), schema: wanted });
  }
  if (keys.length === 0) return member(otherKeys(names, builder.rules, name), value);
  const string: Place = { path: '#string', schema: { type: 'string' } };
  return member(builder.language([string, ...keys]), value);
}

function isAnyString(schema: JsonSchema): boolean {
  return isObject(schema) && schema.type === 'string' && Object.keys(schema).length === 1;
}

/** Keys that are not listed may come twice, so a count of them holds only as "at most", or as "one at least". */
function checkCounts(
  flat: readonly Flat[],
  properties: readonly Property[],
  other: Expr,
  min: number,
  max: number,
): void {
  const required = properties.filter(p => p.required).length;
  const at = (keyword: string) => flat.find(({ schema }) => schema[keyword] !== undefined)!.path;
  if (min > Math.max(1, required)) {
    throw unsupported(
      'minProperties',
      at('minProperties'),
      'is more than the number of required properties',
      'list them in required',
    );
  }
  const bounded = isNever(other) ? properties.length <= max : properties.length === 0;
  if (max > 0 && max !== Number.POSITIVE_INFINITY && !bounded) {
    throw unsupported('maxProperties', at('maxProperties'), 'is less than the number of possible properties');
  }
}

/**
 * One rule per property for "what comes after the ones before it, if any of them came", and one alternative per property that may
 * come first.
 */
function chain(properties: readonly Property[], other: Expr, builder: SchemaBuilder, name: string): Expr {
  const after = (i: number) => ref(`${name}-p${i}`);
  builder.rules.set(`${name}-p${properties.length}`, isNever(other) ? text('') : star(andThen(other)));
  for (let i = properties.length - 1; i > 0; i--) {
    const { required, member } = properties[i];
    builder.rules.set(`${name}-p${i}`, seq(required ? andThen(member) : optional(andThen(member)), after(i + 1)));
  }
  const first: Expr[] = [];
  for (const [i, { required, member }] of properties.entries()) {
    first.push(seq(member, after(i + 1)));
    if (required) return alt(...first);
  }
  return alt(...first, isNever(other) ? NEVER : list(other));
}
