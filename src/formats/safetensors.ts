/**
 * Header of one safetensors file: 8 bytes little-endian header length, a JSON object (padded with spaces), then tensor data
 * without gaps. Only the length and the header are read; nothing is believed before it is checked against the file's size.
 */

import { ModelFileError } from '../common/errors.ts';
import type { FileIdentity, SafetensorsDtype, TensorInfo } from './checkpoint-types.ts';
import { identityOf, quote, readExact, withFile } from './files.ts';
import { decodeUtf8, findJsonProblem, formatJsonPath, isJsonObject, jsonType, parseGrammar } from './json.ts';

/** The limit of the format's own library; a shard of 100,000 tensors has about 15 MB. */
export const MAX_HEADER_BYTES = 100_000_000;
/** The largest published checkpoints hold about 250,000 tensors over all shards. */
export const MAX_TENSORS_PER_SHARD = 1_000_000;
/** Real names stay below 120 characters. */
export const MAX_NAME_CHARACTERS = 1024;
/** Weights have at most 5 dimensions. */
export const MAX_DIMENSIONS = 8;

const LENGTH_BYTES = 8;

export const DTYPE_BITS: Readonly<Record<SafetensorsDtype, number>> = {
  F64: 64,
  F32: 32,
  F16: 16,
  BF16: 16,
  F8_E4M3: 8,
  F8_E5M2: 8,
  F8_E8M0: 8,
  F4: 4,
  I64: 64,
  I32: 32,
  I16: 16,
  I8: 8,
  U64: 64,
  U32: 32,
  U16: 16,
  U8: 8,
  BOOL: 8,
};

export interface SafetensorsHeader {
  readonly identity: FileIdentity;
  /** In order of their data. Offsets are absolute positions in the file. */
  readonly tensors: readonly TensorInfo[];
  readonly metadata: ReadonlyMap<string, string>;
  /** Length of the JSON, padding included. */
  readonly headerBytes: number;
  /** Position of the first byte of tensor data. */
  readonly dataOffset: number;
}

/** Where a header lies: `path` and `file` (index into Checkpoint.files) go into results and messages. */
export interface ShardContext {
  readonly path: string;
  readonly file: number;
  readonly fileBytes: number;
}

interface Entry {
  readonly name: string;
  readonly dtype: SafetensorsDtype;
  readonly shape: readonly number[];
  readonly begin: number;
  readonly end: number;
}

const DOWNLOAD = 'the file is damaged or incomplete: download this shard again';
const REWRITE = 'the header is not what a normal writer makes: download this shard again, from a source you trust';

/** Reads and checks one shard's header. `file` is copied into every TensorInfo. */
export function readSafetensorsHeader(path: string, file = 0): SafetensorsHeader {
  return withFile(path, (fd, stat) => {
    const prefix = new Uint8Array(LENGTH_BYTES);
    if (stat.size < LENGTH_BYTES) {
      fail(path, 'SHARD_TRUNCATED', `has only ${stat.size} bytes`, DOWNLOAD, {
        expected: LENGTH_BYTES,
        got: stat.size,
      });
    }
    readExact(fd, prefix, 0, path);
    const headerBytes = checkHeaderLength(prefix, path, stat.size);
    const header = new Uint8Array(headerBytes);
    readExact(fd, header, LENGTH_BYTES, path);
    const parsed = parseSafetensorsHeader(header, { path, file, fileBytes: stat.size });
    return { identity: identityOf(path, stat), ...parsed, headerBytes, dataOffset: LENGTH_BYTES + headerBytes };
  });
}

function checkHeaderLength(prefix: Uint8Array, path: string, fileBytes: number): number {
  const declared = new DataView(prefix.buffer, prefix.byteOffset).getBigUint64(0, true);
  const available = fileBytes - LENGTH_BYTES;
  const details = { expected: String(declared), got: available };
  if (declared > BigInt(available)) {
    const text = String.fromCharCode(...prefix);
    if (text === 'version ') {
      fail(path, 'SHARD_IS_POINTER', 'is a Git LFS pointer, not weights', 'run `git lfs pull` in the model directory');
    }
    if (/^\s*<[!?a-z]/i.test(text)) fail(path, 'SHARD_IS_WEB_PAGE', 'is a web page, not weights', DOWNLOAD);
    const what = `declares a header of ${declared} bytes, but only ${available} bytes follow`;
    fail(path, 'SHARD_TRUNCATED', what, DOWNLOAD, details);
  }
  if (declared > BigInt(MAX_HEADER_BYTES)) {
    const what = `declares a header of ${declared} bytes; the limit is ${MAX_HEADER_BYTES}`;
    fail(path, 'HEADER_TOO_LARGE', what, REWRITE, details);
  }
  if (declared < 2n) {
    fail(path, 'HEADER_TOO_SMALL', `declares a header of ${declared} bytes; the shortest is {}`, DOWNLOAD, details);
  }
  return Number(declared);
}

/** Checks the JSON of a header against the size of its file. `header` holds exactly the declared bytes. */
export function parseSafetensorsHeader(
  header: Uint8Array,
  context: ShardContext,
): { tensors: TensorInfo[]; metadata: Map<string, string> } {
  const { path } = context;
  if (header[0] !== 0x7b) {
    const what = `must begin its header with "{", found byte 0x${header[0].toString(16).padStart(2, '0')}`;
    fail(path, 'HEADER_NOT_JSON', what, DOWNLOAD);
  }
  if (header[header.length - 1] === 0) {
    const used = header.findLastIndex(byte => byte !== 0) + 1;
    const what = `pads its header with ${header.length - used} NUL bytes; the format allows only spaces`;
    fail(path, 'HEADER_NUL_PADDING', what, 'rewrite the shard with a writer that pads with spaces', { position: used });
  }
  const root = parseHeaderJson(decodeUtf8(header, path), path);
  const metadata = new Map<string, string>();
  const entries: Entry[] = [];
  for (const [name, value] of Object.entries(root)) {
    if (name === '__metadata__') readMetadata(value, metadata, path);
    else entries.push(readEntry(name, value, path));
    if (entries.length > MAX_TENSORS_PER_SHARD) {
      fail(path, 'TOO_MANY_TENSORS', `holds more than ${MAX_TENSORS_PER_SHARD} tensors`, REWRITE);
    }
  }
  entries.sort((a, b) => a.begin - b.begin || a.end - b.end);
  const dataOffset = LENGTH_BYTES + header.length;
  checkLayout(entries, context.fileBytes - dataOffset, path);
  const tensors = entries.map(({ name, dtype, shape, begin, end }) => {
    return { name, file: context.file, dtype, shape, offset: dataOffset + begin, bytes: end - begin };
  });
  return { tensors, metadata };
}

function parseHeaderJson(text: string, path: string): Record<string, unknown> {
  const problem = findJsonProblem(text, true);
  if (problem) {
    const [tensor, ...rest] = problem.path;
    const inside = rest.length > 0 ? ` ${formatJsonPath(rest).slice(1)}` : '';
    const place = tensor === undefined ? '' : ` (tensor ${quote(String(tensor))}${inside})`;
    const what = `has a bad header: ${problem.what}${place}, at byte ${LENGTH_BYTES} + ${problem.position}`;
    fail(path, problem.code, what, REWRITE, { tensor, position: problem.position });
  }
  return parseGrammar(text, `${path} (header)`) as Record<string, unknown>;
}

function readMetadata(value: unknown, metadata: Map<string, string>, path: string): void {
  if (!isJsonObject(value)) {
    fail(path, 'HEADER_BAD_METADATA', `has __metadata__ that is ${jsonType(value)}, not an object`, REWRITE);
  }
  for (const [key, text] of Object.entries(value)) {
    if (typeof text !== 'string') {
      fail(path, 'HEADER_BAD_METADATA', `has __metadata__ ${quote(key)} that is ${jsonType(text)}`, REWRITE);
    }
    metadata.set(key, text);
  }
}

function readEntry(name: string, value: unknown, path: string): Entry {
  const bad = (code: string, what: string, details = {}) =>
    fail(path, code, `tensor ${quote(name)}: ${what}`, REWRITE, { tensor: name, ...details });
  if (name.length > MAX_NAME_CHARACTERS) {
    bad('TENSOR_NAME_TOO_LONG', `its name has ${name.length} characters; the limit is ${MAX_NAME_CHARACTERS}`);
  }
  if (!isJsonObject(value)) bad('TENSOR_BAD_ENTRY', `its entry is ${jsonType(value)}, not an object`);
  const { dtype, shape, data_offsets: offsets, ...others } = value as Record<string, unknown>;
  const unknown = Object.keys(others);
  if (unknown.length > 0) bad('TENSOR_BAD_ENTRY', `unknown field ${quote(unknown[0])}`);
  if (typeof dtype !== 'string' || !Object.hasOwn(DTYPE_BITS, dtype)) {
    const got = typeof dtype === 'string' ? quote(dtype) : jsonType(dtype);
    bad('TENSOR_UNKNOWN_DTYPE', `dtype ${got} is not one of ${Object.keys(DTYPE_BITS).join(', ')}`);
  }
  if (!isIntegerArray(shape)) bad('TENSOR_BAD_SHAPE', 'shape must be a list of integers');
  const dimensions = shape as number[];
  if (dimensions.length > MAX_DIMENSIONS) {
    bad('TENSOR_BAD_SHAPE', `${dimensions.length} dimensions; the limit is ${MAX_DIMENSIONS}`);
  }
  if (dimensions.some(size => size < 0)) bad('TENSOR_BAD_SHAPE', `shape [${dimensions}] has a negative dimension`);
  if (!isIntegerArray(offsets) || (offsets as number[]).length !== 2) {
    bad('TENSOR_BAD_OFFSETS', 'data_offsets must be two integers');
  }
  const [begin, end] = offsets as [number, number];
  if (begin < 0) bad('TENSOR_BAD_OFFSETS', `data_offsets [${begin}, ${end}] are negative`);
  if (begin > end) bad('TENSOR_BAD_OFFSETS', `data_offsets [${begin}, ${end}] run backwards`);
  const expected = tensorBytes(dtype as SafetensorsDtype, dimensions);
  if (expected !== end - begin) {
    const need = expected ?? `${exactBits(dtype as SafetensorsDtype, dimensions)} / 8`;
    bad(
      'TENSOR_SIZE_MISMATCH',
      `${dtype} of shape [${dimensions}] needs ${need} bytes, but data_offsets [${begin}, ${end}] give ${end - begin}`,
      { expected: String(need), got: end - begin },
    );
  }
  return { name, dtype: dtype as SafetensorsDtype, shape: dimensions, begin, end };
}

function isIntegerArray(value: unknown): value is number[] {
  return Array.isArray(value) && value.every(item => Number.isSafeInteger(item));
}

/** Exact size in bits: a product of dimensions can pass 2^53 (and 2^64) before any limit stops it. */
function exactBits(dtype: SafetensorsDtype, shape: readonly number[]): bigint {
  return shape.reduce((bits, size) => bits * BigInt(size), BigInt(DTYPE_BITS[dtype]));
}

/** Bytes of a tensor; null when they are not a whole number or cannot be held exactly. */
export function tensorBytes(dtype: SafetensorsDtype, shape: readonly number[]): number | null {
  let bits = DTYPE_BITS[dtype];
  for (const size of shape) bits *= size;
  // Below 2^53 every product above was exact; otherwise the sizes decide as big integers.
  if (Number.isSafeInteger(bits)) return bits % 8 === 0 ? bits / 8 : null;
  const exact = exactBits(dtype, shape);
  const bytes = exact / 8n;
  return exact % 8n === 0n && bytes <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(bytes) : null;
}

/** Tensors in order of their data must fill the rest of the file exactly. */
function checkLayout(entries: readonly Entry[], dataBytes: number, path: string): void {
  let position = 0;
  for (const [i, entry] of entries.entries()) {
    const { begin, end } = entry;
    if (begin < position) {
      const what = `overlap tensor ${quote(entries[i - 1].name)}, which ends at ${position}`;
      badOffsets('TENSOR_OVERLAP', entry, what, position, path);
    }
    if (begin > position) {
      // A tensor moved far away leaves its hole before an innocent neighbour: name the one that went.
      const last = entries[entries.length - 1];
      const outside = `begin beyond the file's ${dataBytes} bytes of data`;
      if (last.begin > dataBytes) badOffsets('TENSOR_OUTSIDE_FILE', last, outside, dataBytes, path);
      badOffsets('TENSOR_GAP', entry, `leave ${begin - position} bytes unused before them`, position, path);
    }
    position = end;
  }
  const details = { expected: position, got: dataBytes };
  if (position > dataBytes) {
    const what = `is ${position - dataBytes} bytes too short: its header promises ${position} bytes of data, it has ${dataBytes}`;
    fail(path, 'SHARD_TRUNCATED', what, DOWNLOAD, { ...details, missing: position - dataBytes });
  }
  if (position < dataBytes) {
    const what = `has ${dataBytes - position} bytes after its last tensor: its header accounts for ${position} of ${dataBytes}`;
    fail(path, 'SHARD_TRAILING_BYTES', what, DOWNLOAD, details);
  }
}

function badOffsets(code: string, { name, begin, end }: Entry, what: string, expected: number, path: string): never {
  const details = { tensor: name, expected, got: begin };
  fail(path, code, `tensor ${quote(name)}: data_offsets [${begin}, ${end}] ${what}`, REWRITE, details);
}

function fail(path: string, code: string, what: string, hint: string, details: Record<string, unknown> = {}): never {
  throw new ModelFileError(code, what.startsWith('tensor ') ? `${path}: ${what}` : `${path} ${what}`, {
    hint,
    details: { file: path, ...details },
  });
}
