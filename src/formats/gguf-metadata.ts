/** Metadata of GGUF files: key-value pairs. Long arrays, such as vocabularies, are passed over and read when asked for. */

import { quote, withFile } from './files.ts';
import { GgufCursor, ggufFault, REWRITE } from './gguf-cursor.ts';
import { GGUF_SCALAR_BYTES, GGUF_VALUE_TYPES, type GgufScalarType, type GgufValueType } from './gguf-types.ts';

/** Published files have about 50 pairs. */
export const MAX_GGUF_KEYS = 65_536;
/** The format's own limit is 65,535; published keys stay below 64. */
const MAX_KEY_BYTES = 1024;
/** Licences and chat templates stay below 100 kB. */
const MAX_STRING_BYTES = 4 * 2 ** 20;
/** Of an array: the longest tokens are runs of some hundred spaces. */
const MAX_ELEMENT_BYTES = 65_536;
/** Vocabularies have about 260,000 entries, and more merges. */
export const MAX_GGUF_ELEMENTS = 2 ** 22;
/** Values per layer are wanted at once; what is longer is a vocabulary. */
const MAX_EAGER_ELEMENTS = 4096;
/** The format allows any depth; nothing published nests arrays at all. */
const MAX_ARRAY_DEPTH = 4;

export type GgufScalar = number | bigint | boolean;

export interface GgufArray {
  readonly element: GgufValueType;
  readonly count: number;
  /** Where the elements lie in the file. */
  readonly offset: number;
  readonly bytes: number;
  /** The elements of a short array of numbers or booleans; null for every other one. */
  readonly values: readonly GgufScalar[] | null;
}

export type GgufValue = GgufScalar | string | GgufArray;
export type GgufMetadata = ReadonlyMap<string, GgufValue>;

/** Reads `count` pairs; a key that comes twice is refused, because one of the values would be ignored. */
export function readGgufMetadata(cursor: GgufCursor, count: number): Map<string, GgufValue> {
  const metadata = new Map<string, GgufValue>();
  for (let i = 0; i < count; i++) {
    const key = cursor.string(MAX_KEY_BYTES, `the name of key ${i}`);
    if (metadata.has(key)) {
      throw cursor.fault('GGUF_DUPLICATE_KEY', `has the key ${quote(key)} twice`, REWRITE, { key });
    }
    metadata.set(key, readValue(cursor, readType(cursor, key), key));
  }
  return metadata;
}

function readType(cursor: GgufCursor, key: string): GgufValueType {
  const number = cursor.u32(`the type of ${quote(key)}`);
  const type = GGUF_VALUE_TYPES[number];
  if (type !== undefined) return type;
  throw cursor.fault('GGUF_BAD_VALUE', `has key ${quote(key)} of the unknown type ${number}`, REWRITE, { key });
}

function readValue(cursor: GgufCursor, type: GgufValueType, key: string): GgufValue {
  if (type === 'string') return cursor.string(MAX_STRING_BYTES, `the value of ${quote(key)}`);
  if (type === 'array') return readArray(cursor, key, 1);
  return cursor.scalar(type, quote(key));
}

function readArray(cursor: GgufCursor, key: string, depth: number): GgufArray {
  const what = `the array ${quote(key)}`;
  if (depth > MAX_ARRAY_DEPTH) {
    throw cursor.fault('GGUF_BAD_VALUE', `nests ${what} more than ${MAX_ARRAY_DEPTH} deep`, REWRITE, { key });
  }
  const element = readType(cursor, key);
  // what an element takes at least: an array its type and count, a string its length
  const least = element === 'array' ? 12 : element === 'string' ? 8 : GGUF_SCALAR_BYTES[element];
  const count = cursor.count(least, `the elements of ${what}`);
  if (count > MAX_GGUF_ELEMENTS) {
    const text = `has ${count} elements in ${what}; the limit is ${MAX_GGUF_ELEMENTS}`;
    throw cursor.fault('GGUF_ARRAY_TOO_LONG', text, REWRITE, { key, expected: MAX_GGUF_ELEMENTS, got: count });
  }
  const offset = cursor.position;
  let values: GgufScalar[] | null = null;
  if (element === 'array') {
    for (let i = 0; i < count; i++) readArray(cursor, key, depth + 1);
  } else if (element === 'string') {
    for (let i = 0; i < count; i++) cursor.skip(cursor.count(1, `the length of an element of ${what}`), what);
  } else if (count <= MAX_EAGER_ELEMENTS) {
    values = Array.from({ length: count }, () => cursor.scalar(element, what));
  } else {
    cursor.skip(count * least, what);
  }
  return { element, count, offset, bytes: cursor.position - offset, values };
}

export function isGgufArray(value: GgufValue | undefined): value is GgufArray {
  return typeof value === 'object';
}

/** The strings of an array of `path`, as long as its header says. */
export function readGgufStrings(path: string, key: string, value: GgufValue | undefined): string[] {
  const array = requireArray(path, key, value, 'strings', element => element === 'string');
  return withFile(path, (fd, stat) => {
    const cursor = new GgufCursor(fd, stat.size, path, array.offset);
    const what = `an element of ${quote(key)}`;
    return Array.from({ length: array.count }, () => cursor.string(MAX_ELEMENT_BYTES, what));
  });
}

/** The integers of an array of `path`. */
export function readGgufIntegers(path: string, key: string, value: GgufValue | undefined): number[] {
  const isInteger = (element: GgufValueType) => /^[ui](?:8|16|32)$/.test(element);
  const array = requireArray(path, key, value, 'integers', isInteger);
  return withFile(path, (fd, stat) => {
    const cursor = new GgufCursor(fd, stat.size, path, array.offset);
    return Array.from({ length: array.count }, () => cursor.scalar(array.element as GgufScalarType, key) as number);
  });
}

function requireArray(
  path: string,
  key: string,
  value: GgufValue | undefined,
  of: string,
  accepts: (element: GgufValueType) => boolean,
): GgufArray {
  if (isGgufArray(value) && accepts(value.element)) return value;
  const got = value === undefined ? 'lacks' : 'has something else in';
  throw ggufFault(path, 'GGUF_BAD_METADATA', `${got} ${quote(key)}, which must be an array of ${of}`, REWRITE, { key });
}
