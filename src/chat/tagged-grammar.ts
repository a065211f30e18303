/** The language of a call whose arguments stand between tags, from the schema of its arguments. */

import { RequestError } from '../common/errors.ts';
import type { GrammarSpec, JsonSchema } from '../grammar/api.ts';
import type { ToolDefinition } from './api.ts';
import { choiceOf } from './syntax.ts';
import { asObject, typesOf } from './tagged-arguments.ts';

export interface CallTags {
  readonly open: string;
  readonly close: string;
  valueOpen(key: string): string;
  readonly valueClose: string;
  /** What no value may contain, because the parser takes it for the end. */
  readonly forbidden: string;
  /** Line breaks of the tags may be left out: the family's later models write none. */
  readonly looseLines?: true;
}

/** Keywords of the arguments' schema that this syntax keeps, and those that forbid nothing. */
const KEPT = new Set(['type', 'properties', 'required', 'additionalProperties', '$defs', 'definitions', 'strict']);
const NOTES = new Set(['$schema', '$id', '$comment', 'title', 'description', 'default', 'examples', 'deprecated']);
/** Keywords of a string that stands there without quotes. */
const KEPT_OF_STRINGS = new Set(['type', 'enum', 'const', 'minLength', 'maxLength']);

/**
 * The declared properties in their order, those that are not required may be left out. Throws UNSUPPORTED_SCHEMA for keywords that
 * cannot be kept.
 */
export function taggedCall({ name, parameters }: ToolDefinition, tags: CallTags): GrammarSpec {
  if (parameters === false) throw unsupported(name, '', 'false');
  const schema = asObject(parameters);
  for (const keyword of Object.keys(schema)) {
    if (!KEPT.has(keyword) && !NOTES.has(keyword)) throw unsupported(name, '', keyword);
  }
  const types = typesOf(schema);
  if (types !== null && !types.has('object')) throw unsupported(name, '', 'type', 'does not allow an object');
  const required = new Set(Array.isArray(schema['required']) ? schema['required'] : []);
  const properties = Object.entries(asObject(schema['properties']));
  const undeclared = [...required].find(key => !properties.some(([declared]) => declared === key));
  if (undeclared !== undefined) throw unsupported(name, '', 'required', `names ${JSON.stringify(undeclared)}`);
  const tag = tags.looseLines ? looseLines : literal;
  const parts = properties.map(([key, property]): GrammarSpec => {
    if (!/^[^<>\s](?:[^<>\n]*[^<>\s])?$/.test(key))
      throw unsupported(name, '', 'properties', `names ${JSON.stringify(key)}`);
    const one = sequence([
      tag(tags.valueOpen(key)),
      valueGrammar(name, key, property, schema, tags.forbidden),
      tag(tags.valueClose),
    ]);
    return required.has(key) ? one : { kind: 'choice', options: [one, literal('')] };
  });
  return sequence([tag(tags.open), ...parts, tag(tags.close)]);
}

/** A text whose line breaks may be missing. */
export function looseLines(text: string): GrammarSpec {
  return sequence(
    text.split(/(\n)/).map(part => (part === '\n' ? choiceOf([literal(part), literal('')]) : literal(part))),
  );
}

function valueGrammar(tool: string, key: string, property: unknown, root: object, forbidden: string): GrammarSpec {
  const types = typesOf(property);
  if (types === null || !types.has('string')) return { kind: 'json_schema', schema: withDefinitions(property, root) };
  const schema = asObject(property);
  const values = schema['const'] !== undefined ? [schema['const']] : schema['enum'];
  if (Array.isArray(values)) {
    return choiceOf(values.map(value => literal(typeof value === 'string' ? value : JSON.stringify(value))));
  }
  if (types.size > 1) return textWithout(forbidden);
  for (const keyword of Object.keys(schema)) {
    if (!KEPT_OF_STRINGS.has(keyword) && !NOTES.has(keyword)) throw unsupported(tool, key, keyword);
  }
  return textWithout(forbidden, count(schema['minLength']), count(schema['maxLength']));
}

/** References of a property lead to definitions at the root. */
function withDefinitions(property: unknown, root: object): JsonSchema {
  if (typeof property === 'boolean') return property;
  const { $defs, definitions } = root as Record<string, unknown>;
  return {
    ...asObject(property),
    ...($defs !== undefined && { $defs }),
    ...(definitions !== undefined && { definitions }),
  };
}

/**
 * Any text without `tag`. It does not end with a beginning of the tag either, and with an upper limit it has no "<" at all: both
 * keep the expression small.
 */
export function textWithout(tag: string, least = 0, most: number | null = null): GrammarSpec {
  if (most !== null) return { kind: 'regex', pattern: `[^${tag[0]}]{${least},${most}}` };
  const rest = (i: number): string => {
    const other = `[^${tag[0]}${tag[i]}]`;
    return i === tag.length - 1 ? other : `(${other}|${tag[i]}${rest(i + 1)})`;
  };
  const unit = `([^${tag[0]}]|${tag[0]}+${rest(1)})`;
  return { kind: 'regex', pattern: least > 0 ? `${unit}{${least},}` : `${unit}*` };
}

function count(value: unknown): number | undefined {
  return Number.isSafeInteger(value) ? (value as number) : undefined;
}

function literal(text: string): GrammarSpec {
  return { kind: 'literal', text };
}

function sequence(parts: readonly GrammarSpec[]): GrammarSpec {
  return { kind: 'sequence', parts };
}

function unsupported(tool: string, key: string, keyword: string, why = 'cannot be kept'): RequestError {
  const where = key === '' ? 'its parameters' : `its parameter ${JSON.stringify(key)}`;
  return new RequestError(
    'UNSUPPORTED_SCHEMA',
    `the call of the tool ${JSON.stringify(tool)} cannot be required: "${keyword}" of ${where} ${why} in the way this model writes calls`,
    { hint: 'leave the keyword out, or let tool_choice be auto', details: { keyword, tool } },
  );
}
