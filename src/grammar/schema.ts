/**
 * JSON schemas as grammars. The language is a part of the valid JSON texts, never more: what cannot be held is refused, with the
 * keyword and its JSON pointer. Where a schema leaves a choice, the answers are those that a program expects:
 *
 * - Properties come in the order in which the schema lists them, required ones that it does not list after them.
 * - An object with `properties` has no others unless `additionalProperties` (true or a schema) says so; this is also what `strict`
 *   means elsewhere. Other keys never repeat a listed one.
 * - `prefixItems` come all, unless `minItems` says less, and nothing follows unless `items` says so.
 * - Without `type`, keywords that belong to a type say which: {"minLength": 1} is a string.
 * - `oneOf` needs branches that cannot hold together, seen by their types, constants, or a required property; then it is `anyOf`.
 * - Patterns, formats and lengths of a string hold together; of a format beside them there may be a part only (formats.ts).
 * - Property names that come from a list are properties.
 * - Characters of strings with a pattern, a format or a constant are escaped only where they must be. Numbers with bounds have no
 *   exponent. `format` is part of the language, for strings (formats.ts) as for sizes of integers.
 * - A schema without any finite instance is refused.
 */

import { RequestError } from '../common/errors.ts';
import type { JsonSchema } from './api.ts';
import { Budget } from './automaton.ts';
import { alt, type Expr, NEVER, type RuleMap, ref, text } from './expr.ts';
import { JSON_RULES } from './json-text.ts';
import { arrayLanguage } from './schema-arrays.ts';
import { disjoint } from './schema-disjoint.ts';
import { type Flat, flatten, key, leafBranch, type Place } from './schema-flat.ts';
import {
  checkKeywords,
  invalid,
  isEmptySchema,
  isObject,
  type JsonType,
  MAX_ENUM_VALUES,
  pointer,
  type SchemaObject,
  TYPES_OF_KEYWORD,
  unsupported,
} from './schema-keywords.ts';
import { objectLanguage } from './schema-objects.ts';
import { numberLanguage, valueHolds } from './schema-scalars.ts';
import { stringLanguage } from './schema-strings.ts';

/** JSON text of the schema. The largest in use, whole API descriptions, have some 100 kB. */
export const MAX_SCHEMA_BYTES = 512 * 1024;
/** Objects and lists within each other. */
export const MAX_SCHEMA_DEPTH = 64;
/** Combinations of schemas that hold together; `allOf` and `anyOf` beside each other multiply. */
export const MAX_SCHEMA_RULES = 5000;

/** Adds the rules of a schema; its language is the returned expression. Throws RequestError: UNSUPPORTED_SCHEMA or INVALID_SCHEMA. */
export function schemaLanguage(schema: JsonSchema, rules: RuleMap, prefix: string): Expr {
  checkSize(schema);
  for (const [name, body] of JSON_RULES) rules.set(name, body);
  const builder = new SchemaBuilder(schema, rules, prefix);
  const root = builder.language([{ path: '#', schema }]);
  builder.finish();
  return root;
}

/** Everything after this may follow the schema recursively. */
function checkSize(schema: JsonSchema): void {
  const waiting: [unknown, number][] = [[schema, 0]];
  while (waiting.length > 0) {
    const [value, depth] = waiting.pop()!;
    if (depth > MAX_SCHEMA_DEPTH)
      throw tooLarge('depth', MAX_SCHEMA_DEPTH, `is nested more than ${MAX_SCHEMA_DEPTH} levels deep`);
    if (typeof value === 'object' && value !== null)
      for (const child of Object.values(value)) waiting.push([child, depth + 1]);
  }
  const bytes = Buffer.byteLength(JSON.stringify(schema));
  if (bytes > MAX_SCHEMA_BYTES)
    throw tooLarge('bytes', MAX_SCHEMA_BYTES, `has ${bytes} bytes, at most ${MAX_SCHEMA_BYTES} can be used`);
}

function tooLarge(what: string, limit: number, problem: string): RequestError {
  return new RequestError('SCHEMA_TOO_LARGE', `the schema ${problem}`, { details: { what, limit } });
}

export class SchemaBuilder {
  readonly rules: RuleMap;
  /** Languages of strings that are known, by what holds for them. */
  readonly strings = new Map<string, Expr>();
  readonly budget = new Budget();
  readonly #root: JsonSchema;
  readonly #prefix: string;
  readonly #names = new Map<string, string>();
  readonly #checked = new Set<string>();
  readonly #waiting: (readonly [readonly Flat[], string])[] = [];
  #enumValues = 0;

  constructor(root: JsonSchema, rules: RuleMap, prefix: string) {
    this.#root = root;
    this.rules = rules;
    this.#prefix = prefix;
  }

  /** What holds for all of `places`; equal sets share a rule, which is how recursion ends. */
  language(places: readonly Place[]): Expr {
    const flat = flatten(places, this);
    if (flat === null) return NEVER;
    if (flat.length === 0) return ref('any');
    const id = key(flat);
    const known = this.#names.get(id);
    if (known) return ref(known);
    const name = `${this.#prefix}${this.#names.size}`;
    if (this.#names.size >= MAX_SCHEMA_RULES) {
      throw tooLarge('rules', MAX_SCHEMA_RULES, `combines into more than ${MAX_SCHEMA_RULES} different ones`);
    }
    this.#names.set(id, name);
    this.#waiting.push([flat, name]);
    return ref(name);
  }

  /** Bodies come after the names, so that no chain of definitions is followed recursively. */
  finish(): void {
    for (let next = this.#waiting.pop(); next; next = this.#waiting.pop()) {
      const [flat, name] = next;
      this.rules.set(name, this.#body(flat, name));
    }
  }

  /** The schema that a place stands for, its keywords checked. */
  check({ path, schema }: Place): JsonSchema {
    if (typeof schema !== 'boolean' && !this.#checked.has(path)) {
      this.#checked.add(path);
      checkKeywords(schema, path);
    }
    return typeof schema !== 'boolean' && allowsNothing(schema.not) ? false : schema;
  }

  resolve(target: string, path: string): Place {
    if (!target.startsWith('#') || (target.length > 1 && target[1] !== '/')) {
      throw unsupported(
        '$ref',
        path,
        `is ${JSON.stringify(target)}; only # and JSON pointers within the schema are supported`,
      );
    }
    let value: unknown = this.#root;
    const steps = target.split('/').slice(1).map(decodeStep);
    for (const step of steps) {
      const inside = typeof value === 'object' && value !== null && step !== null && Object.hasOwn(value, step);
      value = inside ? (value as SchemaObject)[step] : undefined;
    }
    if (typeof value !== 'boolean' && !isObject(value)) {
      throw invalid('$ref', path, `is ${JSON.stringify(target)}, which is no schema in this document`);
    }
    return { path: pointer('#', ...(steps as string[])), schema: value };
  }

  #body(flat: readonly Flat[], name: string): Expr {
    for (const part of flat) {
      for (const keyword of ['anyOf', 'oneOf'] as const) {
        const branches = part.schema[keyword] as readonly JsonSchema[] | undefined;
        if (!branches || part.without.includes(keyword)) continue;
        const places = branches.map((schema, i): Place => ({ path: pointer(part.path, keyword, i), schema }));
        if (keyword === 'oneOf') this.#checkExclusive(places, part.path);
        const others = flat.map(other => (other === part ? leafBranch(part, keyword) : other));
        return alt(...places.map(place => this.language([...others, place])));
      }
    }
    return this.#leaf(flat, name);
  }

  #checkExclusive(places: readonly Place[], path: string): void {
    for (let i = 0; i < places.length; i++) {
      for (let j = i + 1; j < places.length; j++) {
        if (disjoint([places[i]], [places[j]], this)) continue;
        throw unsupported('oneOf', path, `has branches that may hold together (${i} and ${j})`, 'use anyOf');
      }
    }
  }

  #leaf(flat: readonly Flat[], name: string): Expr {
    const types = typesOf(flat);
    const values = this.#values(flat);
    if (values) {
      const kept = values.filter(value => valueHolds(value, types, flat));
      return alt(...kept.map(value => text(JSON.stringify(value))));
    }
    return alt(...[...types].map(type => this.#ofType(type, flat, name)));
  }

  #ofType(type: JsonType, flat: readonly Flat[], name: string): Expr {
    switch (type) {
      case 'null':
      case 'boolean':
        return ref(type);
      case 'number':
      case 'integer':
        return numberLanguage(type, flat);
      case 'string':
        return stringLanguage(flat, this, name);
      case 'array':
        return arrayLanguage(flat, this);
      case 'object':
        return objectLanguage(flat, this, name);
    }
  }

  /** Values that enum and const leave, or null without either. */
  #values(flat: readonly Flat[]): unknown[] | null {
    let values: unknown[] | null = null;
    for (const { schema, path } of flat) {
      for (const keyword of ['enum', 'const'] as const) {
        if (!Object.hasOwn(schema, keyword)) continue;
        const list = keyword === 'enum' ? (schema.enum as unknown[]) : [schema.const];
        this.#enumValues += list.length;
        if (this.#enumValues > MAX_ENUM_VALUES) {
          throw unsupported(keyword, path, `brings the schema to more than ${MAX_ENUM_VALUES} values`);
        }
        const allowed = new Map(list.map(value => [canonical(value), value]));
        values = values ? values.filter(value => allowed.has(canonical(value))) : [...allowed.values()];
      }
    }
    return values;
  }
}

/** Types that all of `flat` allow; integer is a kind of number. */
function typesOf(flat: readonly Flat[]): Set<JsonType> {
  let types: Set<JsonType> | null = null;
  const meant = new Set<JsonType>();
  for (const { schema } of flat) {
    for (const keyword of Object.keys(schema)) for (const type of TYPES_OF_KEYWORD[keyword] ?? []) meant.add(type);
    if (schema.type === undefined) continue;
    const own = new Set((Array.isArray(schema.type) ? schema.type : [schema.type]) as JsonType[]);
    types = types ? common(types, own) : own;
  }
  if (types?.has('number')) types.delete('integer');
  if (types) return types;
  return meant.size > 0 ? meant : new Set<JsonType>(['null', 'boolean', 'number', 'string', 'array', 'object']);
}

function common(a: ReadonlySet<JsonType>, b: ReadonlySet<JsonType>): Set<JsonType> {
  const has = (set: ReadonlySet<JsonType>, type: JsonType) =>
    set.has(type) || (type === 'integer' && set.has('number'));
  return new Set([...a, ...b].filter(type => has(a, type) && has(b, type)));
}

/** `not` of everything, which is how some libraries write false. */
function allowsNothing(not: unknown): boolean {
  return not === true || isEmptySchema(not);
}

/** Equal values have equal texts. */
export function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (!isObject(value)) return JSON.stringify(value);
  const members = Object.keys(value).sort();
  return `{${members.map(name => `${JSON.stringify(name)}:${canonical(value[name])}`).join(',')}}`;
}

function decodeStep(step: string): string | null {
  try {
    return decodeURIComponent(step).replaceAll('~1', '/').replaceAll('~0', '~');
  } catch {
    return null;
  }
}
