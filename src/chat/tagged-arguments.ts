/**
 * Arguments between tags: text that becomes JSON as the tool's schema says. A value whose schema knows strings only stays a string;
 * others are JSON if they parse as one of their types, and strings where not.
 */

import type { CallDraft } from './draft.ts';
import type { Closing, Input, Reading } from './input.ts';

type SchemaObject = Readonly<Record<string, unknown>>;

/** Writes the arguments of one call into its draft. */
export class TaggedArguments {
  readonly #draft: CallDraft;
  readonly #name: string;
  readonly #schema: SchemaObject;
  readonly #keys = new Set<string>();

  constructor(draft: CallDraft, name: string) {
    this.#draft = draft;
    this.#name = name;
    this.#schema = asObject(draft.tools.get(name)?.parameters);
  }

  /** Reads the value of `key` and one of the tags that close it. False when it is cut, or the key's second. */
  *read(input: Input, key: string, closes: readonly string[]): Reading<boolean> {
    const trimmed = key.trim();
    if (this.#keys.has(trimmed)) return false;
    this.#draft.add(`${this.#keys.size === 0 ? '{' : ', '}${JSON.stringify(trimmed)}: `);
    this.#keys.add(trimmed);
    const types = typesOf(propertyOf(this.#schema, trimmed));
    const isString = types?.size === 1 && types.has('string');
    const raw: string[] = [];
    const give = isString
      ? (part: string) => this.#draft.add(JSON.stringify(part).slice(1, -1))
      : (part: string) => void raw.push(part);
    if (isString) this.#draft.add('"');
    if ((yield* input.until(closes, give)) === null) return false;
    this.#draft.add(isString ? '"' : toJson(raw.join(''), types));
    return true;
  }

  /**
   * `end`: how the call was closed. One that is not closed is complete when the model ended the answer itself and all that the
   * call must have is there.
   */
  finish(end: Closing | null, wasCut: boolean): boolean {
    if (end === null || (end === 'missing' && (wasCut || !this.#isUnambiguous()))) return false;
    this.#draft.add(this.#keys.size === 0 ? '{}' : '}');
    return this.#draft.finish();
  }

  #isUnambiguous(): boolean {
    const required = this.#schema['required'];
    if (Array.isArray(required) && !required.every(key => this.#keys.has(key))) return false;
    // a name alone may be the beginning of another one
    const longer = (name: string) => name !== this.#name && name.startsWith(this.#name);
    return this.#keys.size > 0 || ![...this.#draft.tools.keys()].some(longer);
  }
}

/** JSON text of a value whose schema allows `types` (null: any). */
export function toJson(raw: string, types: ReadonlySet<string> | null): string {
  const text = raw.trim();
  const python = PYTHON.get(text);
  const json = python && types?.has(python.type) ? python.json : text;
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch {
    return JSON.stringify(raw);
  }
  if (types === null || !types.has('string')) return json;
  return typeof value !== 'string' && jsonTypes(value).some(type => types.has(type)) ? json : JSON.stringify(raw);
}

/** What models that have read much Python write. */
const PYTHON: ReadonlyMap<string, { type: string; json: string }> = new Map([
  ['True', { type: 'boolean', json: 'true' }],
  ['False', { type: 'boolean', json: 'false' }],
  ['None', { type: 'null', json: 'null' }],
]);

/** Names of the types of a value in JSON schema. */
function jsonTypes(value: unknown): string[] {
  if (value === null) return ['null'];
  if (Array.isArray(value)) return ['array'];
  return Number.isInteger(value) ? ['integer', 'number'] : [typeof value];
}

/** Types that a schema allows; null when that cannot be told. */
export function typesOf(schema: unknown): ReadonlySet<string> | null {
  const { type, enum: values, const: only, anyOf, oneOf } = asObject(schema);
  if (typeof type === 'string') return new Set([type]);
  if (Array.isArray(type)) return new Set(type.map(String));
  if (only !== undefined) return new Set(jsonTypes(only));
  if (Array.isArray(values)) return new Set(values.flatMap(jsonTypes));
  const options = anyOf ?? oneOf;
  if (!Array.isArray(options)) return null;
  const types = options.map(typesOf);
  return types.every(each => each !== null) ? new Set(types.flatMap(each => [...each])) : null;
}

function propertyOf(schema: SchemaObject, key: string): unknown {
  const properties = asObject(schema['properties']);
  return Object.hasOwn(properties, key) ? properties[key] : undefined;
}

export function asObject(value: unknown): SchemaObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as SchemaObject) : {};
}
