/**
 * Keywords of JSON schemas: which of them mean something here, what their values must be, and which are refused. A keyword that is
 * in none of these tables is refused too.
 */

import { RequestError } from '../common/errors.ts';
import type { JsonSchema } from './api.ts';

export type SchemaObject = { readonly [keyword: string]: unknown };

/** Enum and const values of one schema, all together. */
export const MAX_ENUM_VALUES = 5000;
/** Bounds of lengths and counts. */
export const MAX_COUNT = 1_000_000;

type Check = (value: unknown) => string | null;

const isSchema = (value: unknown): value is JsonSchema => typeof value === 'boolean' || isObject(value);
const isCount = (value: unknown) => Number.isInteger(value) && (value as number) >= 0;
const must =
  (what: string, holds: (value: unknown) => boolean): Check =>
  value =>
    holds(value) ? null : `must be ${what}`;

const schema = must('a schema (an object, true or false)', isSchema);
const schemaList = must('a list of at least one schema', v => Array.isArray(v) && v.length > 0 && v.every(isSchema));
const schemaMap = must('an object of schemas', v => isObject(v) && Object.values(v).every(isSchema));
const finite = must('a number', v => typeof v === 'number' && Number.isFinite(v));
const count = must('a whole number, not negative', isCount);
const string = must('a string', v => typeof v === 'string');
const names = must('a list of strings', v => Array.isArray(v) && v.every(name => typeof name === 'string'));

const TYPES = ['null', 'boolean', 'integer', 'number', 'string', 'array', 'object'] as const;
export type JsonType = (typeof TYPES)[number];
const isType = (value: unknown) => TYPES.includes(value as JsonType);

/** Honoured. */
const HONOURED: Readonly<Record<string, Check>> = {
  $ref: string,
  type: must(`one of ${TYPES.join(', ')}, or a list of them`, v =>
    Array.isArray(v) ? v.length > 0 && v.every(isType) : isType(v),
  ),
  enum: must('a list of at least one value', v => Array.isArray(v) && v.length > 0),
  const: () => null,
  anyOf: schemaList,
  oneOf: schemaList,
  allOf: schemaList,
  properties: schemaMap,
  required: names,
  additionalProperties: schema,
  propertyNames: schema,
  minProperties: count,
  maxProperties: count,
  items: must('a schema, or a list of at least one', v => isSchema(v) || schemaList(v) === null),
  prefixItems: schemaList,
  additionalItems: schema,
  minItems: count,
  maxItems: count,
  uniqueItems: must('true or false', v => typeof v === 'boolean'),
  minLength: count,
  maxLength: count,
  pattern: string,
  format: string,
  contentEncoding: string,
  minimum: finite,
  maximum: finite,
  exclusiveMinimum: finite,
  exclusiveMaximum: finite,
  multipleOf: must('a number above 0', v => typeof v === 'number' && v > 0 && Number.isFinite(v)),
};

/** They say nothing about what is valid, and nothing of them reaches the grammar. */
const ANNOTATIONS = new Set([
  '$schema',
  '$comment',
  '$defs',
  'definitions',
  'title',
  'description',
  'default',
  'example',
  'examples',
  'deprecated',
  'readOnly',
  'writeOnly',
  'discriminator',
]);

/** What to do instead. */
const INSTEAD: ReadonlyMap<string, string> = new Map([
  ['not', 'list what is allowed, with enum or anyOf'],
  ...['if', 'then', 'else'].map((keyword): [string, string] => [keyword, 'use anyOf, each branch with its own const']),
  ...['dependentRequired', 'dependentSchemas', 'dependencies'].map((keyword): [string, string] => [
    keyword,
    'use anyOf, one branch with the properties and one without',
  ]),
  ['patternProperties', 'use properties, or additionalProperties for all other keys'],
  ['unevaluatedProperties', 'use additionalProperties'],
  ['unevaluatedItems', 'use items'],
  ['nullable', "use type: ['string', 'null'] or the like"],
  ['contains', 'use prefixItems or items'],
  ['$id', 'leave it out, and refer with # and a JSON pointer'],
  ['id', 'leave it out, and refer with # and a JSON pointer'],
]);

/** Which keywords speak of which types. */
export const TYPES_OF_KEYWORD: Readonly<Record<string, readonly JsonType[]>> = {
  properties: ['object'],
  required: ['object'],
  additionalProperties: ['object'],
  propertyNames: ['object'],
  minProperties: ['object'],
  maxProperties: ['object'],
  items: ['array'],
  prefixItems: ['array'],
  additionalItems: ['array'],
  minItems: ['array'],
  maxItems: ['array'],
  uniqueItems: ['array'],
  minLength: ['string'],
  maxLength: ['string'],
  pattern: ['string'],
  contentEncoding: ['string'],
  minimum: ['number'],
  maximum: ['number'],
  exclusiveMinimum: ['number'],
  exclusiveMaximum: ['number'],
  multipleOf: ['number'],
};

/** Throws for the first keyword that cannot be honoured or has an impossible value. */
export function checkKeywords(schema: SchemaObject, path: string): void {
  for (const [keyword, value] of Object.entries(schema)) {
    if (ANNOTATIONS.has(keyword) || keyword.startsWith('x-')) continue;
    if (keyword === '$id' && path === '#') continue;
    if (keyword === 'nullable' && value === false) continue;
    if (keyword === 'not' && (value === true || isEmptySchema(value))) continue;
    const check = Object.hasOwn(HONOURED, keyword) ? HONOURED[keyword] : null;
    if (!check) throw unsupported(keyword, path, 'is not supported', INSTEAD.get(keyword));
    const fault = check(value);
    if (fault) throw invalid(keyword, path, fault);
  }
  if (Array.isArray(schema.items) && schema.prefixItems !== undefined) {
    throw invalid('items', path, 'must be a schema beside prefixItems');
  }
}

/** A right schema that asks for something that cannot be honoured. */
export function unsupported(keyword: string, path: string, problem: string, hint?: string): RequestError {
  const at = pointer(path, keyword);
  return new RequestError('UNSUPPORTED_SCHEMA', `the schema's keyword ${JSON.stringify(keyword)} at ${at} ${problem}`, {
    hint,
    details: { keyword, path: at },
  });
}

/** No schema. */
export function invalid(keyword: string, path: string, problem: string): RequestError {
  const at = pointer(path, keyword);
  return new RequestError('INVALID_SCHEMA', `the schema's keyword ${JSON.stringify(keyword)} at ${at} ${problem}`, {
    details: { keyword, path: at },
  });
}

/** JSON pointer of a member, as a fragment. */
export function pointer(path: string, ...steps: readonly (string | number)[]): string {
  return [path, ...steps.map(step => String(step).replaceAll('~', '~0').replaceAll('/', '~1'))].join('/');
}

export function isEmptySchema(value: unknown): boolean {
  return isObject(value) && Object.keys(value).length === 0;
}

export function isObject(value: unknown): value is SchemaObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
