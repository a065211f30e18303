/** Schemas that hold together, with `$ref` and `allOf` resolved into one list. */

import type { JsonSchema } from './api.ts';
import type { SchemaBuilder } from './schema.ts';
import { pointer, type SchemaObject, unsupported } from './schema-keywords.ts';

/** A schema and where it stands in the document. */
export interface Place {
  readonly path: string;
  readonly schema: JsonSchema;
  /** Set on what has been flattened: keywords that are dealt with. */
  readonly without?: readonly string[];
}

export interface Flat extends Place {
  readonly schema: SchemaObject;
  readonly without: readonly string[];
}

/** References that lead to references. */
const MAX_REFERENCE_CHAIN = 100;

/** Keywords that say nothing by themselves about a value. */
const NO_CONSTRAINT = new Set(['$ref', 'allOf', 'title', 'description', '$schema', '$defs', 'definitions', '$comment']);

/** All that must hold; empty = anything, null = nothing can hold. */
export function flatten(places: readonly Place[], builder: Pick<SchemaBuilder, 'check' | 'resolve'>): Flat[] | null {
  const found = new Map<string, Flat>();
  const open = new Set<string>();
  const add = (place: Place): boolean => {
    const schema = builder.check(place);
    if (typeof schema === 'boolean') return schema;
    const flat: Flat = { path: place.path, schema, without: place.without ?? ['$ref', 'allOf'] };
    const id = key([flat]);
    if (found.has(id)) return true;
    if (open.has(place.path)) throw unsupported('$ref', place.path, 'leads back to itself with nothing in between');
    if (open.size > MAX_REFERENCE_CHAIN) {
      throw unsupported('$ref', place.path, `is reached through more than ${MAX_REFERENCE_CHAIN} others`);
    }
    open.add(place.path);
    const inner: Place[] = [];
    if (!place.without && schema.$ref !== undefined) inner.push(builder.resolve(schema.$ref as string, place.path));
    if (!place.without && schema.allOf !== undefined) {
      for (const [i, part] of (schema.allOf as JsonSchema[]).entries()) {
        inner.push({ path: pointer(place.path, 'allOf', i), schema: part });
      }
    }
    const possible = inner.every(add);
    open.delete(place.path);
    if (Object.keys(schema).some(keyword => !NO_CONSTRAINT.has(keyword))) found.set(id, flat);
    return possible;
  };
  return places.every(add) ? [...found.values()] : null;
}

/** The same without one keyword, which the branches take over. */
export function leafBranch(flat: Flat, keyword: string): Flat {
  return { ...flat, without: [...flat.without, keyword] };
}

/** Equal for equal sets. */
export function key(flat: readonly Flat[]): string {
  return flat
    .map(({ path, without }) => JSON.stringify([path, ...without]))
    .sort()
    .join();
}
