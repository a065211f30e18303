/** Whether two schemas can hold for the same value. Only a yes counts: where it is not plain to see, they may. */

import type { JsonSchema } from './api.ts';
import { canonical, type SchemaBuilder } from './schema.ts';
import { type Flat, flatten, type Place } from './schema-flat.ts';
import { type JsonType, pointer } from './schema-keywords.ts';
import { typeOf } from './schema-scalars.ts';

/** Required properties within required properties. */
const MAX_DEPTH = 4;

export function disjoint(a: readonly Place[], b: readonly Place[], builder: SchemaBuilder, depth = 0): boolean {
  const [left, right] = [flatten(a, builder), flatten(b, builder)];
  if (!left || !right) return true;
  const [leftValues, rightValues] = [valuesOf(left), valuesOf(right)];
  if (leftValues && rightValues && ![...leftValues].some(value => rightValues.has(value))) return true;
  const shared = [...typesOf(left)].filter(type => typesOf(right).has(type));
  if (shared.length === 0) return true;
  if (shared.some(type => type !== 'object') || depth >= MAX_DEPTH) return false;
  const both = requiredOf(left).filter(name => requiredOf(right).includes(name));
  return both.some(name => {
    const [x, y] = [propertyOf(left, name), propertyOf(right, name)];
    return x.length > 0 && y.length > 0 && disjoint(x, y, builder, depth + 1);
  });
}

/** Types that a value may have, numbers as one. */
function typesOf(flat: readonly Flat[]): ReadonlySet<JsonType> {
  let types: ReadonlySet<JsonType> = new Set<JsonType>(['null', 'boolean', 'number', 'string', 'array', 'object']);
  const keep = (list: readonly JsonType[]) => {
    const own = new Set<JsonType>(list.map(type => (type === 'integer' ? 'number' : type)));
    types = new Set([...types].filter(type => own.has(type)));
  };
  for (const { schema } of flat) {
    if (schema.type !== undefined) keep((Array.isArray(schema.type) ? schema.type : [schema.type]) as JsonType[]);
    if (schema.enum !== undefined) keep((schema.enum as unknown[]).map(typeOf));
    if (Object.hasOwn(schema, 'const')) keep([typeOf(schema.const)]);
  }
  return types;
}

function valuesOf(flat: readonly Flat[]): Set<string> | null {
  const { schema } = flat.find(part => part.schema.enum !== undefined || Object.hasOwn(part.schema, 'const')) ?? {};
  if (!schema) return null;
  return new Set((Object.hasOwn(schema, 'const') ? [schema.const] : (schema.enum as unknown[])).map(canonical));
}

function requiredOf(flat: readonly Flat[]): string[] {
  return flat.flatMap(({ schema }) => (schema.required as string[] | undefined) ?? []);
}

function propertyOf(flat: readonly Flat[], name: string): Place[] {
  return flat.flatMap(({ schema, path }): Place[] => {
    const listed = schema.properties as Record<string, JsonSchema> | undefined;
    if (!listed || !Object.hasOwn(listed, name)) return [];
    return [{ path: pointer(path, 'properties', name), schema: listed[name] }];
  });
}
