/** Files of known bytes and records over them, for the tests of this folder. */

import { mkdtempSync, rmSync, statfsSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { StorageError } from '../common/errors.ts';
import type { FileIdentity } from '../formats/checkpoint-types.ts';
import type { Extent, PackStep, StoredRecord } from '../quant/stored.ts';
import { ReadPool, type ReadPoolOptions } from './read-pool.ts';
import { PAGE, RecordTable } from './record-table.ts';

/** Bytes in which every aligned 32-bit word is different: a byte from the wrong place is seen. */
export function noise(bytes: number, seed = 0): Buffer {
  const words = new Uint32Array(Math.ceil(bytes / 4));
  for (let i = 0; i < words.length; i++) words[i] = Math.imul(i + seed * 7919, 0x9e3779b1);
  return Buffer.from(words.buffer, 0, bytes);
}

/** statfs type of tmpfs, which has no page cache to bypass; older kernels refuse direct reads there. */
const TMPFS = 0x01021994;
const PARENT = statfsSync(tmpdir()).type === TMPFS ? join(import.meta.dirname, '../../node_modules') : tmpdir();

export const ARENA_BYTES = 2 ** 20;
/** Test pools keep their staging at the end of arena 0. */
export const STAGING_BYTES = 2 ** 18;

export class TestFiles {
  readonly directory = mkdtempSync(join(PARENT, 'coli-storage-'));
  readonly files: FileIdentity[] = [];
  readonly contents: Buffer[] = [];
  readonly #pools: ReadPool[] = [];

  /** Gives the index of the new file. */
  add(bytes: number): number {
    const index = this.files.length;
    const path = join(this.directory, `${index}.bin`);
    const content = noise(bytes, index + 1);
    writeFileSync(path, content);
    const { size, mtimeMs, ino } = statSync(path);
    this.files.push({ path, bytes: size, mtimeMs, inode: ino });
    this.contents.push(content);
    return index;
  }

  slice({ file, offset, bytes }: Extent): Buffer {
    return this.contents[file].subarray(offset, offset + bytes);
  }

  /** A pool over two small arenas; `arenas` are views of them. */
  async open(records: readonly StoredRecord[], more: Partial<ReadPoolOptions> = {}) {
    const table = RecordTable.build(records, this.files);
    const readers = more.readers ?? 1;
    const size = ARENA_BYTES + readers * STAGING_BYTES;
    const memory = () => new WebAssembly.Memory({ initial: size / 65536, maximum: size / 65536, shared: true });
    const memories = [memory(), memory()];
    const pool = await ReadPool.open({
      files: this.files,
      table,
      arenas: memories,
      readers,
      io: 'auto',
      staging: { arena: 0, offset: ARENA_BYTES, bytesPerReader: STAGING_BYTES },
      verify: false,
      ...more,
    });
    this.#pools.push(pool);
    return { pool, table, arenas: memories.map(each => new Uint8Array(each.buffer)) };
  }

  /** A pool whose only reader stands still in its first read, that of record 0, until `release`. */
  async openHeld(records: readonly StoredRecord[], more: Partial<ReadPoolOptions> = {}) {
    const gate = new Int32Array(new SharedArrayBuffer(4));
    const release = () => {
      Atomics.store(gate, 0, 1);
      Atomics.notify(gate, 0);
    };
    const opened = await this.open(records, { faults: { nth: 1, kind: 'hold', gate }, ...more });
    const first = opened.pool.submit(0, 0, 0, 'ahead');
    while (opened.pool.state(first) !== 'running') opened.pool.waitAny(1);
    return { ...opened, first, release };
  }

  /** Closes the pools and deletes the files. */
  async remove(): Promise<void> {
    await Promise.all(this.#pools.map(pool => pool.close()));
    rmSync(this.directory, { recursive: true, force: true });
  }
}

function part(bytes: number, extent: number | null) {
  const source = extent === null ? null : { extent, offset: 0 };
  return { encoding: 'u8', layout: 'q8g64', rows: 1, columns: bytes, fileBytes: bytes, source } as const;
}

/** One part per extent, read as it is. */
export function directRecord(name: string, extents: readonly Extent[], sha256: string | null = null): StoredRecord {
  return { name, extents, parts: extents.map((extent, i) => part(extent.bytes, i)), packs: [], sha256 };
}

/** One part that the `copy` packer joins from all extents, in order. */
export function packedRecord(name: string, extents: readonly Extent[], change: Partial<PackStep> = {}): StoredRecord {
  const bytes = extents.reduce((sum, extent) => sum + extent.bytes, 0);
  const inputs = extents.map((extent, i) => ({ extent: i, offset: 0, bytes: extent.bytes }));
  const step = { packer: 'copy', rows: 1, columns: bytes, inputs, target: 0, bytes, ...change };
  return { name, extents, parts: [part(bytes, null)], packs: [step], sha256: null };
}

/** A test waits no longer than this: the test runner cannot stop a thread that never returns to it. */
const PATIENCE_MS = 30_000;

/** Waits for one request without looking at its result. */
export function waitFor(pool: ReadPool, ticket: number): void {
  const deadline = performance.now() + PATIENCE_MS;
  while (pool.state(ticket) === 'queued' || pool.state(ticket) === 'running') {
    pool.waitAny(1000);
    if (performance.now() > deadline) throw new Error(`ticket ${ticket} never ended`);
  }
}

/** Loads one record to a destination of arena 0. */
export function load(pool: ReadPool, record: number, destination = 0) {
  const ticket = pool.submit(record, 0, destination, 'demand');
  waitFor(pool, ticket);
  return pool.finish(ticket);
}

/** Throws unless the parts of a record, loaded to `at`, are byte for byte what its files hold. */
export function expectLoaded(
  files: TestFiles,
  table: RecordTable,
  stored: StoredRecord,
  index: number,
  arena: Uint8Array,
  at: number,
): void {
  const slices = stored.extents.map(extent => files.slice(extent));
  const expected = stored.packs.length > 0 ? [Buffer.concat(slices)] : slices;
  stored.parts.forEach((each, i) => {
    const from = at + table.partOffset(index, i);
    const got = arena.slice(from, from + each.fileBytes);
    // compared by hand: an assertion would print kilobytes of difference
    const wrong = expected[i].findIndex((byte, position) => byte !== got[position]);
    if (wrong >= 0) throw new Error(`${stored.name}, part ${i}: byte ${wrong} is wrong`);
    if (got.length !== expected[i].length) throw new Error(`${stored.name}, part ${i}: ${got.length} bytes`);
  });
}

/** The error of finishing a ticket. */
export function failureOf(pool: ReadPool, ticket: number): StorageError {
  waitFor(pool, ticket);
  try {
    pool.finish(ticket);
  } catch (error) {
    if (error instanceof StorageError) return error;
  }
  throw new Error('a StorageError was expected');
}

/** Whole pages of file 0. */
export function pages(from: number, count: number): Extent {
  return { file: 0, offset: from * PAGE, bytes: count * PAGE };
}
