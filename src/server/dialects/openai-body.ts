/** A body of the OpenAI APIs, checked: what is wrong is told in one sentence that names the field. */

import type * as z from 'zod';
import { RequestError } from '../../common/errors.ts';
import { shown } from '../../common/shown.ts';
import { UNSUPPORTED, type UnsupportedFields } from './openai-unsupported.ts';

/** Values in a body, token ids apart: a long history with many tools has some thousands, and each may be a mistake to tell. */
export const MAX_VALUES = 50_000;
/** Characters of a field's name or value that a message repeats. */
const MAX_SHOWN = 60;

type Path = readonly PropertyKey[];

/** A request that cannot be served as it is; `parameter` is the field at fault. */
export function refusal(code: string, parameter: string, message: string, hint?: string): RequestError {
  return new RequestError(code, message, { hint, details: { parameter } });
}

/** BAD_PARAMETER: the field has a wrong value. */
export function badField(parameter: string, what: string, hint?: string): RequestError {
  return refusal('BAD_PARAMETER', parameter, `${parameter} ${what}`, hint);
}

/** UNSUPPORTED_PARAMETER: the field is known and means something that is not done here. */
export function unsupported(parameter: string, hint: string, what = 'is not supported'): RequestError {
  return refusal('UNSUPPORTED_PARAMETER', parameter, `${parameter} ${what}`, hint);
}

/**
 * The body as `schema` says. Fields it does not name are accepted, unless they are known to mean something that is not done:
 * those of `refused`. Throws RequestErrors that name the first field at fault.
 */
export function parseBody<T extends z.ZodType>(
  schema: T,
  body: unknown,
  refused: UnsupportedFields = UNSUPPORTED,
): z.output<T> {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) {
    throw new RequestError('BAD_BODY', 'the body must be a JSON object');
  }
  const { prompt: _, tokens: __, ...rest } = body as { prompt?: unknown; tokens?: unknown };
  if (countValues(rest, MAX_VALUES) > MAX_VALUES) {
    throw new RequestError('TOO_MANY_VALUES', `the body has more than ${MAX_VALUES} values`, {
      hint: 'send a shorter history, or fewer and smaller tools and schemas',
    });
  }
  const named = (schema as { shape?: object }).shape ?? {};
  for (const [name, { neutral, hint }] of Object.entries(refused)) {
    if (!Object.hasOwn(body, name) || Object.hasOwn(named, name)) continue;
    const value = (body as Record<string, unknown>)[name];
    if (value !== null && !neutral.some(same => JSON.stringify(same) === JSON.stringify(value))) {
      throw unsupported(name, hint, asNot(value));
    }
  }
  const parsed = schema.safeParse(body);
  if (parsed.success) return parsed.data;
  throw fromIssue(parsed.error.issues[0], body);
}

/** `["messages", 0, "content"]` as `messages[0].content`. */
export function fieldName(path: Path): string {
  let name = '';
  for (const key of path) {
    if (typeof key === 'number') name += `[${key}]`;
    else if (/^[\w$-]{1,60}$/.test(String(key))) name += name === '' ? String(key) : `.${String(key)}`;
    else name += `[${JSON.stringify(String(key).slice(0, MAX_SHOWN))}]`;
  }
  return name;
}

/** Behind a field's name: that it has a value which is not supported. */
export function asNot(value: unknown): string {
  return value === true || typeof value === 'object'
    ? 'is not supported'
    : `is ${shown(value)}, which is not supported`;
}

/** Values in `data`, or a number above `most` as soon as there are more. */
function countValues(data: unknown, most: number): number {
  const open = [data];
  let count = 0;
  while (open.length > 0 && count <= most) {
    const value = open.pop();
    if (typeof value !== 'object' || value === null) continue;
    const items = Object.values(value);
    count += items.length;
    if (count <= most) open.push(...items);
  }
  return count;
}

/** An issue whose message is what the field must be, as all schemas here have it. */
function fromIssue(issue: z.core.$ZodIssue, body: unknown): RequestError {
  const { path, message } = deepest(issue);
  const value = path.reduce<unknown>((at, key) => (at as Record<PropertyKey, unknown> | undefined)?.[key], body);
  const name = fieldName(path);
  const wanted = message.replace(/^Invalid input: expected (\w+).*$/, 'must be of type $1');
  if (value === undefined) return badField(name, `is missing: it ${wanted}`);
  // "must not be empty" says it all
  return badField(name, wanted.startsWith('must not ') ? wanted : `${wanted}, not ${shown(value)}`);
}

/** Of a union's issues, the one of the option that went furthest before it failed. */
function deepest(issue: z.core.$ZodIssue, above: Path = []): { path: Path; message: string } {
  const path = [...above, ...issue.path];
  const inner = issue.code === 'invalid_union' ? issue.errors.flatMap(errors => errors.slice(0, 1)) : [];
  const deep = inner.map(next => deepest(next, path)).sort((a, b) => b.path.length - a.path.length)[0];
  return deep !== undefined && deep.path.length > path.length ? deep : { path, message: issue.message };
}
