/**
 * Where every record lies and how it is read: the aligned reads of all records, computed once and kept in one shared
 * buffer that readers look into without copies. Numbers are float64: file offsets pass 2^32 but never 2^53.
 */

import { InternalError, ModelFileError } from '../common/errors.ts';
import { alignDown, alignUp } from '../common/units.ts';
import type { FileIdentity } from '../formats/checkpoint-types.ts';
import type { PackStep, StoredRecord } from '../quant/stored.ts';

/** Alignment of file positions, lengths and destinations: what O_DIRECT wants on every common file system. */
export const PAGE = 4096;

const HASH_BYTES = 32;

// Columns of the shared table, in float64 words.
const RECORDS = 0;
const EXTENTS = 1;
const STAGING = 2;
const HEADER_WORDS = 3;

const FIRST_EXTENT = 0;
const EXTENT_COUNT = 1;
const PLACED_BYTES = 2;
const RECORD_READ_BYTES = 3;
const SHAPE = 4;
const HASHED = 5;
const RECORD_WORDS = 6;

const FILE = 0;
const ALIGNED_OFFSET = 1;
const READ_BYTES = 2;
const LEAD = 3;
const BYTES = 4;
const TARGET = 5;
const EXTENT_WORDS = 6;

/** What records of equal build share: thousands of experts, a handful of shapes. */
export interface RecordShape {
  /** Empty: the bytes go straight to the destination. */
  readonly packs: readonly PackStep[];
  /** Direct records: where each part lies in the extents. */
  readonly sources: readonly { readonly extent: number; readonly offset: number }[];
}

/** What a thread needs to rebuild the table: the buffer is shared, the shapes are copied. */
export interface SharedRecordTable {
  readonly buffer: SharedArrayBuffer;
  readonly shapes: readonly RecordShape[];
}

/**
 * One aligned read per extent: it starts `lead` bytes before the extent, and its end may pass the end of the file (the
 * short count is then right). `target` is its position in the destination, or in the staging area of a packed record.
 */
export class RecordTable {
  readonly records: number;
  /** Largest raw size of a packed record: what a reader needs as staging. 0 when every record is direct. */
  readonly stagingBytes: number;
  readonly #shared: SharedRecordTable;
  readonly #names: readonly string[];
  readonly #words: Float64Array;
  readonly #extents: Float64Array;
  readonly #hashes: Uint8Array;

  private constructor(shared: SharedRecordTable, names: readonly string[]) {
    const header = new Float64Array(shared.buffer, 0, HEADER_WORDS);
    this.records = header[RECORDS];
    this.stagingBytes = header[STAGING];
    this.#shared = shared;
    this.#names = names;
    const recordStart = HEADER_WORDS * 8;
    const extentStart = recordStart + this.records * RECORD_WORDS * 8;
    const hashStart = extentStart + header[EXTENTS] * EXTENT_WORDS * 8;
    this.#words = new Float64Array(shared.buffer, recordStart, this.records * RECORD_WORDS);
    this.#extents = new Float64Array(shared.buffer, extentStart, header[EXTENTS] * EXTENT_WORDS);
    this.#hashes = new Uint8Array(shared.buffer, hashStart, this.records * HASH_BYTES);
  }

  /** `files` gives the sizes; an extent outside its file is a bug of the caller (INVALID_RECORD). */
  static build(records: readonly StoredRecord[], files: readonly FileIdentity[]): RecordTable {
    const extentCount = records.reduce((sum, record) => sum + record.extents.length, 0);
    const words = HEADER_WORDS + records.length * RECORD_WORDS + extentCount * EXTENT_WORDS;
    const buffer = new SharedArrayBuffer(words * 8 + records.length * HASH_BYTES);
    const header = new Float64Array(buffer, 0, HEADER_WORDS);
    header[RECORDS] = records.length;
    header[EXTENTS] = extentCount;
    const shapes = new ShapeIndex();
    const names = records.map(record => record.name);
    const table = new RecordTable({ buffer, shapes: shapes.list }, names);
    let extent = 0;
    for (let index = 0; index < records.length; index++) {
      const record = records[index];
      const raw = table.#fillExtents(record, extent, files);
      const row = index * RECORD_WORDS;
      table.#words[row + FIRST_EXTENT] = extent;
      table.#words[row + EXTENT_COUNT] = record.extents.length;
      table.#words[row + PLACED_BYTES] = record.packs.length > 0 ? packedBytes(record) : raw.aligned;
      table.#words[row + RECORD_READ_BYTES] = raw.onDisk;
      table.#words[row + SHAPE] = shapes.idOf(record);
      if (record.packs.length > 0) header[STAGING] = Math.max(header[STAGING], raw.aligned);
      if (record.sha256 !== null) table.#fillHash(record, index);
      extent += record.extents.length;
    }
    return new RecordTable({ buffer, shapes: shapes.list }, names);
  }

  static fromShared(shared: SharedRecordTable): RecordTable {
    return new RecordTable(shared, []);
  }

  /** For postMessage and workerData. Names stay behind: only the engine makes messages. */
  toShared(): SharedRecordTable {
    return this.#shared;
  }

  name(record: number): string {
    return this.#names[record] ?? `record ${record}`;
  }

  /** Bytes needed at the destination, a multiple of PAGE. */
  placedBytes(record: number): number {
    return this.#words[record * RECORD_WORDS + PLACED_BYTES];
  }

  /** What one load reads from disk; the size of the record itself when the container is aligned. */
  readBytes(record: number): number {
    return this.#words[record * RECORD_WORDS + RECORD_READ_BYTES];
  }

  /** Byte offset of a part (gate, up, down, ...) from the record's destination. */
  partOffset(record: number, part: number): number {
    const shape = this.shape(record);
    if (shape.packs.length > 0) return shape.packs[part].target;
    const { extent, offset } = shape.sources[part];
    return this.dataOffset(this.firstExtent(record) + extent) + offset;
  }

  shape(record: number): RecordShape {
    return this.#shared.shapes[this.#words[record * RECORD_WORDS + SHAPE]];
  }

  /** Extents of a record are numbered firstExtent .. firstExtent + extentCount - 1 over the whole table. */
  firstExtent(record: number): number {
    return this.#words[record * RECORD_WORDS + FIRST_EXTENT];
  }

  extentCount(record: number): number {
    return this.#words[record * RECORD_WORDS + EXTENT_COUNT];
  }

  /** SHA-256 of the record's only extent, or null when the container states none. */
  hash(record: number): Uint8Array | null {
    if (this.#words[record * RECORD_WORDS + HASHED] === 0) return null;
    return this.#hashes.subarray(record * HASH_BYTES, (record + 1) * HASH_BYTES);
  }

  file(extent: number): number {
    return this.#extents[extent * EXTENT_WORDS + FILE];
  }

  /** File position of the read: the extent's offset rounded down to PAGE. */
  alignedOffset(extent: number): number {
    return this.#extents[extent * EXTENT_WORDS + ALIGNED_OFFSET];
  }

  /** Length to ask for: reaches the extent's end, rounded up to PAGE. */
  extentReadBytes(extent: number): number {
    return this.#extents[extent * EXTENT_WORDS + READ_BYTES];
  }

  /** Bytes read before the extent begins. */
  lead(extent: number): number {
    return this.#extents[extent * EXTENT_WORDS + LEAD];
  }

  extentBytes(extent: number): number {
    return this.#extents[extent * EXTENT_WORDS + BYTES];
  }

  /** Where the aligned read goes, from the destination (direct) or the staging area (packed). */
  target(extent: number): number {
    return this.#extents[extent * EXTENT_WORDS + TARGET];
  }

  /** Where the extent's own first byte lands: target + lead. */
  dataOffset(extent: number): number {
    return this.target(extent) + this.lead(extent);
  }

  #fillExtents(record: StoredRecord, first: number, files: readonly FileIdentity[]) {
    let aligned = 0;
    let onDisk = 0;
    for (let i = 0; i < record.extents.length; i++) {
      const { file, offset, bytes } = record.extents[i];
      const size = files[file]?.bytes ?? -1;
      if (!(offset >= 0 && bytes >= 0 && offset + bytes <= size)) {
        throw new InternalError('INVALID_RECORD', `${record.name}: extent ${i} lies outside its file`, {
          details: { file: files[file]?.path ?? file, offset, bytes, fileBytes: size },
        });
      }
      const start = alignDown(offset, PAGE);
      const readBytes = bytes === 0 ? 0 : alignUp(offset + bytes, PAGE) - start;
      const row = (first + i) * EXTENT_WORDS;
      this.#extents[row + FILE] = file;
      this.#extents[row + ALIGNED_OFFSET] = start;
      this.#extents[row + READ_BYTES] = readBytes;
      this.#extents[row + LEAD] = offset - start;
      this.#extents[row + BYTES] = bytes;
      this.#extents[row + TARGET] = aligned;
      aligned += readBytes;
      onDisk += bytes === 0 ? 0 : Math.min(start + readBytes, size) - start;
    }
    return { aligned, onDisk };
  }

  #fillHash(record: StoredRecord, index: number): void {
    const bytes = Buffer.from(record.sha256 ?? '', 'hex');
    if (record.extents.length !== 1 || bytes.length !== HASH_BYTES) {
      throw new InternalError('INVALID_RECORD', `${record.name}: a hash needs one extent and 64 hexadecimal digits`);
    }
    this.#hashes.set(bytes, index * HASH_BYTES);
    this.#words[index * RECORD_WORDS + HASHED] = 1;
  }
}

/** For `--verify`: throws NO_HASHES unless every record has a hash, because the others would pass unchecked. */
export function requireHashes(table: RecordTable, directory: string): void {
  let without = 0;
  let first = '';
  for (let record = 0; record < table.records; record++) {
    if (table.hash(record) !== null) continue;
    if (without++ === 0) first = table.name(record);
  }
  if (without === 0) return;
  const which =
    without === table.records
      ? 'states no hashes'
      : `states no hash for ${without} of ${table.records} records, such as ${first}`;
  throw new ModelFileError('NO_HASHES', `${directory} ${which}, so it cannot be verified`, {
    hint: 'convert it with coli convert, which writes a hash for every record, or run without --verify',
    details: { directory, records: table.records, without },
  });
}

function packedBytes(record: StoredRecord): number {
  return alignUp(Math.max(...record.packs.map(step => step.target + step.bytes)), PAGE);
}

/** Numbers distinct shapes in order of appearance. */
class ShapeIndex {
  readonly list: RecordShape[] = [];
  readonly #ids = new Map<string, number>();

  idOf(record: StoredRecord): number {
    const packed = record.packs.length > 0;
    if (packed !== record.parts.some(part => part.source === null)) {
      throw new InternalError('INVALID_RECORD', `${record.name}: parts must be all direct or all packed`);
    }
    const sources = packed ? [] : record.parts.map(part => part.source!);
    const shape: RecordShape = { packs: record.packs, sources };
    const key = JSON.stringify(shape);
    let id = this.#ids.get(key);
    if (id === undefined) {
      id = this.list.push(shape) - 1;
      this.#ids.set(key, id);
    }
    return id;
  }
}
