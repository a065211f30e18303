/** What the disk gives when it is read as the engine reads: same readers, same queue, same arenas, random aligned blocks. */

import { statSync } from 'node:fs';
import { StorageError } from '../common/errors.ts';
import { alignDown, MIB } from '../common/units.ts';
import type { FileIdentity } from '../formats/checkpoint-types.ts';
import type { StoredRecord } from '../quant/stored.ts';
import { ReadPool } from './read-pool.ts';
import { PAGE, RecordTable } from './record-table.ts';

const WASM_PAGE = 65536;
/** One read running and one waiting per reader: no reader is ever idle, and the disk sees exactly `depth` reads. */
const SLOTS_PER_READER = 2;
/** Reads go round a destination of this size, as an expert cache is: into 27 MB the same disk gave a third less. */
const DESTINATION_BYTES = 512 * MIB;
/** More blocks than this are not told apart: a larger file is sampled evenly. */
const MAX_BLOCKS = 65536;

export interface DiskMeasureOptions {
  /** An existing file; only its whole blocks are read. */
  readonly path: string;
  /** A multiple of 4096. */
  readonly blockBytes: number;
  /** Reads in flight. */
  readonly depth: number;
  /** Stop after this time or this many bytes, whichever comes first; without either, after one second. */
  readonly seconds?: number;
  readonly totalBytes?: number;
  /** False: through the page cache. */
  readonly direct: boolean;
  /** Order of the blocks; the same seed reads the same blocks. */
  readonly seed?: number;
  /** Memory that the reads go round, and that is taken while they are measured; default 512 MiB. */
  readonly destinationBytes?: number;
}

export interface DiskMeasure {
  readonly bytesPerSecond: number;
  readonly bytes: number;
  readonly reads: number;
  readonly seconds: number;
  /** Time of one read inside the system, in microseconds. */
  readonly medianReadUs: number;
  readonly p99ReadUs: number;
}

/** Blocks the calling thread while it measures. Errors: those of ReadPool, FILE_TOO_SMALL. */
export async function measureDisk(options: DiskMeasureOptions): Promise<DiskMeasure> {
  const { path, blockBytes } = options;
  const { size, mtimeMs, ino } = statSync(path);
  const blocks = Math.floor(size / blockBytes);
  if (blocks < 1 || blockBytes < PAGE || blockBytes % PAGE !== 0) {
    throw new StorageError('FILE_TOO_SMALL', `${path} (${size} bytes) has no block of ${blockBytes} bytes`, {
      details: { file: path, bytes: size, blockBytes },
      hint: 'use a larger file and blocks that are multiples of 4096',
    });
  }
  const files = [{ path, bytes: size, mtimeMs, inode: ino }];
  const table = RecordTable.build(blockRecords(blocks, blockBytes), files);
  const records = Int32Array.from({ length: table.records }, (_, i) => i);
  return measureRecords({ ...options, files, table, records });
}

export interface RecordMeasureOptions extends Omit<DiskMeasureOptions, 'path' | 'blockBytes'> {
  readonly files: readonly FileIdentity[];
  readonly table: RecordTable;
  /** Which records to read, in random order, again and again: the experts of a model. */
  readonly records: Int32Array;
}

/** As measureDisk, for records that exist: the ceiling of a model's own reads. */
export async function measureRecords(options: RecordMeasureOptions): Promise<DiskMeasure> {
  const { files, table, depth, direct } = options;
  let slotBytes = 0;
  for (const record of options.records) slotBytes = Math.max(slotBytes, table.placedBytes(record));
  const places = Math.max(
    depth * SLOTS_PER_READER,
    Math.floor((options.destinationBytes ?? DESTINATION_BYTES) / slotBytes),
  );
  const slotsEnd = places * slotBytes;
  const pages = Math.ceil((slotsEnd + depth * table.stagingBytes) / WASM_PAGE);
  const arena = new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true });
  // Touched now: the first use of a page is a page fault, which is not the disk's time.
  new Uint8Array(arena.buffer).fill(1);
  const pool = await ReadPool.open({
    files,
    table,
    arenas: [arena],
    readers: depth,
    io: direct ? 'direct' : 'buffered',
    staging: { arena: 0, offset: slotsEnd, bytesPerReader: table.stagingBytes },
    verify: false,
  });
  try {
    return readRecords(pool, { slotBytes, places }, options);
  } finally {
    await pool.close();
  }
}

function readRecords(
  pool: ReadPool,
  { slotBytes, places }: { slotBytes: number; places: number },
  options: RecordMeasureOptions,
): DiskMeasure {
  const { records, depth, direct, totalBytes = Number.POSITIVE_INFINITY } = options;
  const seconds = options.seconds ?? (options.totalBytes === undefined ? 1 : Number.POSITIVE_INFINITY);
  // A second pass through the page cache would measure memory.
  const limit = direct ? totalBytes : Math.min(totalBytes, records.length * slotBytes);
  const order = shuffled(records, options.seed ?? 1);
  const tickets = new Array<number>(depth * SLOTS_PER_READER).fill(-1);
  const times: number[] = [];
  let submitted = 0;
  let bytes = 0;
  let inFlight = 0;
  const began = performance.now();
  const elapsed = () => (performance.now() - began) / 1000;
  do {
    for (let slot = 0; slot < tickets.length; slot++) {
      const state = tickets[slot] < 0 ? 'free' : pool.state(tickets[slot]);
      if (state === 'queued' || state === 'running') continue;
      if (state !== 'free') {
        const result = pool.finish(tickets[slot]);
        bytes += result.bytes;
        times.push(result.serviceUs);
        tickets[slot] = -1;
        inFlight--;
      }
      if (submitted * slotBytes >= limit || elapsed() >= seconds) continue;
      const place = submitted % places;
      tickets[slot] = pool.submit(order[submitted++ % order.length], 0, place * slotBytes, 'demand');
      inFlight++;
    }
    if (inFlight > 0) pool.waitAny(Number.POSITIVE_INFINITY);
  } while (inFlight > 0);
  const taken = elapsed();
  times.sort((a, b) => a - b);
  return {
    bytesPerSecond: bytes / taken,
    bytes,
    reads: times.length,
    seconds: taken,
    medianReadUs: times[Math.floor(times.length / 2)] ?? 0,
    p99ReadUs: times[Math.floor(times.length * 0.99)] ?? 0,
  };
}

function blockRecords(blocks: number, blockBytes: number): StoredRecord[] {
  const count = Math.min(blocks, MAX_BLOCKS);
  const stride = alignDown((blocks * blockBytes) / count, blockBytes);
  return Array.from({ length: count }, (_, i) => ({
    name: `block ${i}`,
    extents: [{ file: 0, offset: i * stride, bytes: blockBytes }],
    parts: [],
    packs: [],
    sha256: null,
  }));
}

/** A copy in an order fixed by the seed (Fisher-Yates with a 32-bit xorshift). */
function shuffled(records: Int32Array, seed: number): Int32Array {
  const order = records.slice();
  let state = Math.imul(seed, 2654435761) | 1;
  for (let i = order.length - 1; i > 0; i--) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    const j = (state >>> 0) % (i + 1);
    const swapped = order[i];
    order[i] = order[j];
    order[j] = swapped;
  }
  return order;
}
