/**
 * JSON from untrusted files. JSON.parse alone keeps the last of two equal keys, rounds integers beyond 2^53 and has no
 * limits, so one linear pass over the text looks for these first; JSON.parse then judges the grammar.
 */

import { ModelFileError } from '../common/errors.ts';
import { MIB } from '../common/units.ts';
import { quote, readSmallFile } from './files.ts';

/** config.json and generation_config.json: real ones have a few kB; per-layer lists of huge models stay below 1 MB. */
export const MAX_CONFIG_BYTES = 8 * MIB;
/** tokenizer.json: the largest published ones have about 35 MB. */
export const MAX_TOKENIZER_BYTES = 256 * MIB;
/** Shard and container indexes: 200,000 tensors at 150 bytes are 30 MB. */
export const MAX_INDEX_BYTES = 64 * MIB;
/** Deepest published config has about 8 levels; more than this only serves to exhaust somebody's stack. */
export const MAX_JSON_DEPTH = 64;

/** 2^53 - 1 has 16 digits; a longer integer cannot be exact in a JavaScript number. */
const MAX_INTEGER_CHARACTERS = 17;

export interface JsonProblem {
  readonly code: 'JSON_TOO_DEEP' | 'JSON_DUPLICATE_KEY' | 'JSON_NOT_INTEGER';
  /** Keys and array positions from the root to the problem. */
  readonly path: readonly (string | number)[];
  /** Index of the character where it was seen. */
  readonly position: number;
  /** What is wrong, without file or path. */
  readonly what: string;
}

/** Reads and parses one JSON file; problems are ModelFileError with the file and the position. */
export function readJsonFile(path: string, maxBytes: number): unknown {
  return parseJson(decodeUtf8(readSmallFile(path, maxBytes), path), path);
}

/** Like readJsonFile, and the root must be an object. */
export function readJsonObject(path: string, maxBytes: number): Record<string, unknown> {
  const value = readJsonFile(path, maxBytes);
  if (isJsonObject(value)) return value;
  throw new ModelFileError('JSON_NOT_OBJECT', `${path} must hold a JSON object, not ${jsonType(value)}`, {
    hint: 'download this file again',
    details: { file: path },
  });
}

export function parseJson(text: string, path: string): unknown {
  const problem = findJsonProblem(text);
  if (problem) {
    throw new ModelFileError(
      problem.code,
      `${path}: ${problem.what} at ${formatJsonPath(problem.path)} (character ${problem.position})`,
      {
        hint: 'the file is damaged or was not written by a normal tool; download it again',
        details: { file: path, path: formatJsonPath(problem.path), position: problem.position },
      },
    );
  }
  return parseGrammar(text, path);
}

/** JSON.parse with our error; for text that findJsonProblem has passed. */
export function parseGrammar(text: string, path: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    const reason = quote((error as Error).message)
      .slice(1, -1)
      .replaceAll('\\"', '"');
    throw new ModelFileError('JSON_INVALID', `${path} is not valid JSON: ${reason} (${text.length} characters)`, {
      hint: 'the file is damaged or incomplete; download it again',
      details: { file: path },
      cause: error,
    });
  }
}

export function decodeUtf8(bytes: Uint8Array, path: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (error) {
    throw new ModelFileError('JSON_NOT_UTF8', `${path} is not valid UTF-8`, {
      hint: 'the file is damaged; download it again',
      details: { file: path },
      cause: error,
    });
  }
}

export function isJsonObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** "an array", "a string", ... for messages. */
export function jsonType(value: unknown): string {
  if (value === undefined) return 'nothing';
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'an array';
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`;
}

/** ["a", 3, "b c"] -> `$.a[3]["b c"]`. */
export function formatJsonPath(path: readonly (string | number)[]): string {
  const steps = path.map(step =>
    typeof step === 'number' ? `[${step}]` : /^\w{1,80}$/.test(step) ? `.${step}` : `[${quote(step)}]`,
  );
  return `$${steps.join('')}`;
}

/**
 * First nesting beyond MAX_JSON_DEPTH, duplicate object key or (with `integersOnly`) number that is not an exact integer;
 * null when there is none. Linear in the text. Judges well-formed JSON only; anything else passes and fails in JSON.parse.
 */
export function findJsonProblem(text: string, integersOnly = false): JsonProblem | null {
  // One entry per open container: the keys seen (null for an array), and where in it we are.
  const keysSeen: (Set<string> | null)[] = [];
  const path: (string | number)[] = [];
  let keyIsNext = false;
  const problem = (code: JsonProblem['code'], position: number, what: string): JsonProblem => {
    return { code, path, position, what };
  };

  for (let i = 0; i < text.length; i++) {
    const character = text.charCodeAt(i);
    switch (character) {
      case 0x22: {
        const end = stringEnd(text, i);
        if (end < 0) return null;
        const keys = keysSeen[keysSeen.length - 1];
        if (keyIsNext && keys) {
          const key = decodeString(text, i, end);
          path[path.length - 1] = key;
          if (keys.has(key)) return problem('JSON_DUPLICATE_KEY', i, `the key ${quote(key)} appears twice`);
          keys.add(key);
          keyIsNext = false;
        }
        i = end;
        break;
      }
      case 0x7b: // {
      case 0x5b: // [
        if (keysSeen.length === MAX_JSON_DEPTH) {
          path.length = 4; // the rest would only repeat itself
          return problem('JSON_TOO_DEEP', i, `nesting is deeper than ${MAX_JSON_DEPTH} levels`);
        }
        keyIsNext = character === 0x7b;
        keysSeen.push(keyIsNext ? new Set() : null);
        path.push(keyIsNext ? '' : 0);
        break;
      case 0x7d: // }
      case 0x5d: // ]
        keyIsNext = false;
        keysSeen.pop();
        path.pop();
        break;
      case 0x2c: {
        // ,
        const here = path[path.length - 1];
        keyIsNext = typeof here === 'string';
        if (typeof here === 'number') path[path.length - 1] = here + 1;
        break;
      }
      default:
        if (integersOnly && isNumberStart(character)) {
          const end = numberEnd(text, i);
          const digits = text.slice(i, Math.min(end, i + 40));
          const exact = end - i <= MAX_INTEGER_CHARACTERS && /^(?:0|-?[1-9]\d*)$/.test(digits);
          if (!exact || !Number.isSafeInteger(Number(digits))) {
            return problem('JSON_NOT_INTEGER', i, `${digits} is not an integer that can be held exactly`);
          }
          i = end - 1;
        }
    }
  }
  return null;
}

/** Position of the closing quote of the string that opens at `start`, or -1. */
function stringEnd(text: string, start: number): number {
  for (let i = start + 1; i < text.length; i++) {
    const character = text.charCodeAt(i);
    if (character === 0x22) return i;
    if (character === 0x5c) i++;
  }
  return -1;
}

/** "\u0061" and "a" are the same key, so escapes must be resolved before comparing. */
function decodeString(text: string, start: number, end: number): string {
  const raw = text.slice(start + 1, end);
  if (!raw.includes('\\')) return raw;
  try {
    return JSON.parse(text.slice(start, end + 1));
  } catch {
    return raw;
  }
}

function isNumberStart(character: number): boolean {
  return character === 0x2d || (character >= 0x30 && character <= 0x39);
}

/** Digits, sign, point, e and E. */
function isNumberPart(character: number): boolean {
  return isNumberStart(character) || character === 0x2b || character === 0x2e || (character | 0x20) === 0x65;
}

function numberEnd(text: string, start: number): number {
  let end = start + 1;
  while (end < text.length && isNumberPart(text.charCodeAt(end))) end++;
  return end;
}
