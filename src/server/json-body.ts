/** Request bodies: JSON objects whose every string is text. What is wrong is named before any route sees the body. */

import { RequestError } from '../common/errors.ts';
import { findJsonProblem, formatJsonPath, isJsonObject, jsonType } from '../formats/json.ts';

type Path = readonly (string | number)[];

/** Throws RequestError BAD_BODY, or BAD_PARAMETER with the field. */
export function parseBody(bytes: Uint8Array): Record<string, unknown> {
  if (bytes.length === 0) throw bad('the body is empty');
  const text = decode(bytes);
  const problem = findJsonProblem(text);
  if (problem) throw bad(`the body is not usable: ${problem.what} at ${formatJsonPath(problem.path)}`, problem.path);
  const value = parse(text);
  if (!isJsonObject(value)) throw bad(`the body must be a JSON object, not ${jsonType(value)}`);
  // without an escape no string is bad; most bodies are spared the walk
  if (text.includes('\\u') || text.includes('__proto__')) refuseBadStrings(value, []);
  return value;
}

function decode(bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw bad('the body is not valid UTF-8');
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    // the reason quotes what was sent, whatever characters it may have
    const reason = (error as Error).message.toWellFormed().replace(/[\p{Cc}\p{Cf}]/gu, escaped);
    throw bad(`the body is not valid JSON: ${reason}`);
  }
}

function escaped(character: string): string {
  return `\\u${character.codePointAt(0)!.toString(16).padStart(4, '0')}`;
}

/** Depth is bounded by findJsonProblem. */
function refuseBadStrings(value: unknown, path: (string | number)[]): void {
  if (typeof value === 'string') refuseBadString(value, path);
  if (typeof value !== 'object' || value === null) return;
  // an array may have a million numbers: no key is made for each
  const entries = Array.isArray(value) ? value.entries() : Object.entries(value);
  for (const [key, item] of entries) {
    path.push(key);
    if (typeof key === 'string') refuseBadKey(key, path);
    refuseBadStrings(item, path);
    path.pop();
  }
}

function refuseBadKey(key: string, path: Path): void {
  // a copy of the object would take its prototype from the request
  if (key === '__proto__') throw bad(`${fieldName(path)}: a field may not be named __proto__`, path);
  refuseBadString(key, path);
}

/** JSON can write what no text holds. */
function refuseBadString(text: string, path: Path): void {
  if (!text.isWellFormed()) throw badText('half a surrogate pair', path);
  if (text.includes('\0')) throw badText('a NUL character', path);
}

function badText(what: string, path: Path): RequestError {
  return new RequestError('BAD_PARAMETER', `${fieldName(path)} holds ${what}, which no text does`, {
    hint: 'remove it',
    details: { parameter: fieldName(path) },
  });
}

/** `messages[0].content`, as OpenAI names fields. */
function fieldName(path: Path): string {
  return formatJsonPath(path).replace(/^\$\.?/, '');
}

function bad(message: string, path: Path = []): RequestError {
  return new RequestError('BAD_BODY', message, {
    hint: 'send one JSON object',
    details: path.length > 0 ? { parameter: fieldName(path) } : {},
  });
}
