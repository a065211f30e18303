/**
 * Header of one GGUF file: "GGUF", version, counts, metadata, tensor table, then (aligned) tensor data. Only the header is
 * read. Integers stay exact; nothing is allocated or believed before it is compared with what the file can hold.
 */

import type { Dtype, FileIdentity, TensorInfo } from './checkpoint-types.ts';
import { identityOf, quote, withFile } from './files.ts';
import { DOWNLOAD, GgufCursor, REWRITE } from './gguf-cursor.ts';
import { type GgufMetadata, MAX_GGUF_KEYS, readGgufMetadata } from './gguf-metadata.ts';
import { GGML_TYPES } from './gguf-types.ts';

/** The largest published files hold about 2,000. */
const MAX_TENSORS = 1_000_000;
/** Writers stop at 63; nothing longer is a name that a model has. */
const MAX_NAME_BYTES = 1024;
/** Fixed by the format. */
const MAX_DIMENSIONS = 4;
const DEFAULT_ALIGNMENT = 32;
/** Writers use 32; pages of large systems have 64 KiB. */
const MAX_ALIGNMENT = 65_536;
/** A pair has at least an empty name, its type and one byte; a tensor an empty name, counts, its type and its offset. */
const LEAST_PAIR_BYTES = 13;
const LEAST_TENSOR_BYTES = 24;

export interface GgufHeader {
  readonly identity: FileIdentity;
  readonly version: number;
  readonly metadata: GgufMetadata;
  /**
   * By ascending position; offsets are absolute. Shapes are [rows, columns]: the reverse of the file's order. A type that is not
   * read has its own name as dtype; of one that is not even known the bytes are 0.
   */
  readonly tensors: readonly TensorInfo[];
  /** Position of the first byte of tensor data. */
  readonly dataOffset: number;
}

/** Reads and checks a header. `file` is copied into every TensorInfo. */
export function readGgufHeader(path: string, file = 0): GgufHeader {
  return withFile(path, (fd, stat) => {
    const cursor = new GgufCursor(fd, stat.size, path);
    const version = readMagic(cursor);
    const tensorCount = readCount(cursor, LEAST_TENSOR_BYTES, MAX_TENSORS, 'tensors');
    const pairCount = readCount(cursor, LEAST_PAIR_BYTES, MAX_GGUF_KEYS, 'metadata keys');
    const metadata = readGgufMetadata(cursor, pairCount);
    const alignment = alignmentOf(cursor, metadata);
    const entries = readEntries(cursor, tensorCount);
    const dataOffset = Math.ceil(cursor.position / alignment) * alignment;
    const tensors = placeTensors(cursor, entries, dataOffset, alignment, file);
    return { identity: identityOf(path, stat), version, metadata, tensors, dataOffset };
  });
}

function readMagic(cursor: GgufCursor): number {
  const magic = String.fromCharCode(...cursor.take(4, 'the first four bytes'));
  if (magic !== 'GGUF') {
    if (magic === 'vers') {
      throw cursor.fault(
        'SHARD_IS_POINTER',
        'is a Git LFS pointer, not weights',
        'run `git lfs pull` in its directory',
      );
    }
    if (/^\s*<[!?a-z]/i.test(magic)) throw cursor.fault('SHARD_IS_WEB_PAGE', 'is a web page, not weights', DOWNLOAD);
    throw cursor.fault('GGUF_BAD_MAGIC', `begins with ${quote(magic)}, not with "GGUF"`, DOWNLOAD, { got: magic });
  }
  const version = cursor.u32('the version');
  if (version === 2 || version === 3) return version;
  if (version > 0 && (version & 0xffff) === 0) {
    const hint = 'get the little-endian file of this model';
    throw cursor.fault('GGUF_BIG_ENDIAN', 'is a big-endian GGUF file; only little-endian ones are read', hint);
  }
  const what = `is GGUF version ${version}; versions 2 and 3 are read`;
  throw cursor.fault('GGUF_VERSION', what, 'get the file anew from its publisher', { expected: [2, 3], got: version });
}

function readCount(cursor: GgufCursor, leastBytes: number, max: number, what: string): number {
  const count = cursor.count(leastBytes, `the number of ${what}`);
  if (count <= max) return count;
  throw cursor.fault('GGUF_TOO_MANY', `declares ${count} ${what}; the limit is ${max}`, REWRITE, { got: count });
}

function alignmentOf(cursor: GgufCursor, metadata: GgufMetadata): number {
  const value = metadata.get('general.alignment') ?? DEFAULT_ALIGNMENT;
  if (typeof value === 'number' && value >= 1 && value <= MAX_ALIGNMENT && Number.isInteger(Math.log2(value))) {
    return value;
  }
  const shown = typeof value === 'object' ? 'an array' : quote(String(value));
  const what = `has general.alignment ${shown}; it is a power of two up to ${MAX_ALIGNMENT}`;
  throw cursor.fault('GGUF_BAD_ALIGNMENT', what, REWRITE, { key: 'general.alignment' });
}

interface Entry {
  readonly name: string;
  /** As in the file: row length first. */
  readonly dims: readonly bigint[];
  readonly type: number;
  /** From the start of tensor data. */
  readonly offset: bigint;
}

function readEntries(cursor: GgufCursor, count: number): Entry[] {
  const names = new Set<string>();
  return Array.from({ length: count }, (_, i) => {
    const name = cursor.string(MAX_NAME_BYTES, `the name of tensor ${i}`);
    if (names.has(name)) {
      throw cursor.fault('TENSOR_TWICE', `lists tensor ${quote(name)} twice`, REWRITE, { tensor: name });
    }
    names.add(name);
    const what = `the entry of tensor ${quote(name)}`;
    const dimensions = cursor.u32(what);
    if (dimensions > MAX_DIMENSIONS) {
      const text = `tensor ${quote(name)}: it has ${dimensions} dimensions; the limit is ${MAX_DIMENSIONS}`;
      throw cursor.fault('TENSOR_BAD_SHAPE', text, REWRITE, { tensor: name, got: dimensions });
    }
    const dims = Array.from({ length: dimensions }, () => cursor.scalar('u64', what) as bigint);
    return { name, dims, type: cursor.u32(what), offset: cursor.scalar('u64', what) as bigint };
  });
}

function placeTensors(
  cursor: GgufCursor,
  entries: readonly Entry[],
  dataOffset: number,
  alignment: number,
  file: number,
): TensorInfo[] {
  const tensors = entries.map(entry => placeTensor(cursor, entry, dataOffset, alignment, file));
  tensors.sort((a, b) => a.offset - b.offset || a.bytes - b.bytes);
  for (let i = 1; i < tensors.length; i++) {
    const [before, tensor] = [tensors[i - 1], tensors[i]];
    if (before.offset + before.bytes <= tensor.offset) continue;
    const what = `tensor ${quote(tensor.name)}: its data at byte ${tensor.offset} overlaps those of ${quote(before.name)}`;
    throw cursor.fault('TENSOR_OVERLAP', what, REWRITE, { tensor: tensor.name, other: before.name });
  }
  return tensors;
}

function placeTensor(
  cursor: GgufCursor,
  { name, dims, type, offset }: Entry,
  dataOffset: number,
  alignment: number,
  file: number,
): TensorInfo {
  const bad = (code: string, what: string, hint = REWRITE, details: Record<string, unknown> = {}) =>
    cursor.fault(code, `tensor ${quote(name)}: ${what}`, hint, { tensor: name, ...details });
  const known = GGML_TYPES.get(type);
  const [columns = 1n] = dims;
  if (known && columns % BigInt(known.columns) !== 0n) {
    const what = `its rows have ${columns} values, which ${known.name} cannot hold in blocks of ${known.columns}`;
    throw bad('TENSOR_BAD_SHAPE', what, REWRITE, { got: String(columns) });
  }
  const values = dims.reduce((product, dim) => product * dim, 1n);
  const bytes = known ? (values / BigInt(known.columns)) * BigInt(known.bytes) : 0n;
  if (offset % BigInt(alignment) !== 0n) {
    throw bad('TENSOR_BAD_OFFSETS', `its offset ${offset} is not a multiple of ${alignment}`);
  }
  const available = BigInt(cursor.fileBytes);
  const end = BigInt(dataOffset) + offset + bytes;
  if (end > available || dims.some(dim => dim > available * 8n)) {
    const what = `its data would end at byte ${end}, but the file has ${available} bytes`;
    throw bad('GGUF_TRUNCATED', what, DOWNLOAD, { expected: String(end), got: cursor.fileBytes });
  }
  return {
    name,
    file,
    dtype: (known?.name ?? `ggml type ${type}`) as Dtype,
    shape: dims.map(Number).reverse(),
    offset: dataOffset + Number(offset),
    bytes: Number(bytes),
  };
}
