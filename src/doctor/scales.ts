/** Every record decoded once: scales, norms and other floats must be finite numbers. */

import { setImmediate } from 'node:timers/promises';
import { errorToWire } from '../common/errors.ts';
import { formatBytes, MIB } from '../common/units.ts';
import { type ModelFiles, readModel } from '../engine/model-files.ts';
import type { Checkpoint } from '../formats/checkpoint-types.ts';
import { decodeRow } from '../quant/decode.ts';
import { layoutBytes } from '../quant/layouts.ts';
import type { StoredPart, StoredRecord } from '../quant/stored.ts';
import { ReadPool } from '../storage/read-pool.ts';
import type { RecordTable } from '../storage/record-table.ts';
import { fail, pass, skip } from './findings.ts';
import { allFinite } from './finite.ts';
import type { Context, Finding } from './types.ts';

/** Large matrices are cut into pieces of a quarter of this, so that memory is bounded by it and by the largest expert. */
const ARENA_BYTES = 256 * MIB;
/** Records in memory: one is looked at, the others are being read. */
const SLOTS = 3;
const READERS = 2;
/** How long nothing else is heard at most. */
const WAIT_MS = 50;
const WASM_PAGE_BYTES = 65536;
const MAX_LISTED = 100;
const ROLES = ['gate', 'up', 'down', 'gate bias', 'up bias', 'down bias'];

/** Where a number that is none stands, or why a record could not be decoded. */
interface Trouble {
  readonly record: string;
  readonly layer: number | null;
  readonly expert: number | null;
  /** Of an expert: gate, up, down or one of their biases. */
  readonly part: string | null;
  readonly row: number | null;
  readonly value: string | null;
  readonly tensors: readonly string[];
  readonly problem: string;
}

/** Some records are read and packed by the readers while another is looked at here. */
export async function scales({ found, options }: Context): Promise<Finding> {
  const { signal, onProgress } = options;
  const files = readModel({ model: found.path! }, ARENA_BYTES);
  const { checkpoint, table } = files;
  const { records } = files.records;
  const totalBytes = sum(table, records.length);
  const troubles: Trouble[] = [];
  let doneBytes = 0;
  let checked = 0;
  const reading = await openReading(files);
  try {
    for await (const { record, bytes, error } of loaded(reading, records.length, signal)) {
      if (error === null) troubles.push(...notFinite(records[record], record, bytes, files));
      else troubles.push(unreadable(records[record], error, checkpoint));
      checked++;
      doneBytes += table.readBytes(record);
      onProgress?.({ id: 'model.scales', doneBytes, totalBytes });
    }
  } finally {
    await reading.pool.close();
  }
  return judge(troubles, { records: records.length, checked, bytes: doneBytes, total_bytes: totalBytes });
}

interface Reading {
  readonly pool: ReadPool;
  readonly arena: Uint8Array;
  readonly slotBytes: number;
}

async function openReading({ checkpoint, table }: ModelFiles): Promise<Reading> {
  let slotBytes = 0;
  for (let record = 0; record < table.records; record++) slotBytes = Math.max(slotBytes, table.placedBytes(record));
  const slotsEnd = slotBytes * SLOTS;
  const pages = Math.ceil((slotsEnd + table.stagingBytes * READERS) / WASM_PAGE_BYTES);
  const memory = new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true });
  const pool = await ReadPool.open({
    files: checkpoint.files,
    table,
    arenas: [memory],
    readers: READERS,
    io: 'auto',
    staging: table.stagingBytes === 0 ? null : { arena: 0, offset: slotsEnd, bytesPerReader: table.stagingBytes },
    verify: false,
  });
  return { pool, arena: new Uint8Array(memory.buffer), slotBytes };
}

interface Loaded {
  readonly record: number;
  /** Where it was placed; of use until the next one is asked for. */
  readonly bytes: Uint8Array;
  readonly error: unknown;
}

/** All records in order, each in the slot that was free. */
async function* loaded(
  { pool, arena, slotBytes }: Reading,
  records: number,
  signal: AbortSignal | undefined,
): AsyncGenerator<Loaded> {
  const tickets: number[] = [];
  let submitted = 0;
  for (let record = 0; record < records && !signal?.aborted; record++) {
    for (; submitted < Math.min(records, record + SLOTS); submitted++) {
      tickets.push(pool.submit(submitted, 0, (submitted % SLOTS) * slotBytes, 'demand'));
    }
    const ticket = tickets.shift()!;
    while (pool.state(ticket) === 'queued' || pool.state(ticket) === 'running') {
      pool.waitAny(WAIT_MS);
      // Ctrl-C is heard in between
      await setImmediate();
    }
    let error: unknown = null;
    try {
      pool.finish(ticket);
    } catch (failure) {
      error = failure;
    }
    const at = (record % SLOTS) * slotBytes;
    yield { record, bytes: arena.subarray(at, at + slotBytes), error };
    await setImmediate();
  }
}

interface Counts {
  readonly records: number;
  readonly checked: number;
  readonly bytes: number;
  readonly total_bytes: number;
}

function judge(troubles: readonly Trouble[], counts: Counts): Finding {
  const isWhole = counts.checked === counts.records;
  const sofar = isWhole ? '' : `interrupted after ${formatBytes(counts.bytes)}: `;
  if (troubles.length > 0) {
    const shown = troubles.slice(0, 3).map(({ problem }) => problem);
    const more = troubles.length > shown.length ? ` and ${troubles.length - shown.length} more` : '';
    return fail(
      `${sofar}${shown.join('; ')}${more}`,
      'the weights are damaged: fetch or convert the model again, and report it to its publisher if that does not help',
      { ...counts, troubles: troubles.slice(0, MAX_LISTED) },
    );
  }
  if (!isWhole) return skip(`${sofar}nothing wrong until then`, { ...counts });
  return pass(`${counts.records} records, and every scale is a finite number`, { ...counts });
}

function unreadable(record: StoredRecord, error: unknown, checkpoint: Checkpoint): Trouble {
  return { ...placeOf(record, checkpoint), part: null, row: null, value: null, problem: errorToWire(error).message };
}

function notFinite(
  record: StoredRecord,
  index: number,
  placed: Uint8Array,
  { table, checkpoint }: ModelFiles,
): Trouble[] {
  return record.parts.flatMap((part, i) => {
    const { layout, rows, columns } = part;
    const at = table.partOffset(index, i);
    const bytes = placed.subarray(at, at + layoutBytes(layout, rows, columns));
    if (allFinite(layout, bytes, rows, columns)) return [];
    const place = placeOf(record, checkpoint);
    const role = place.expert === null ? null : ROLES[i];
    const { row, value } = firstWrong(part, bytes);
    const where = row === null ? 'a scale is no number' : `${value} in row ${row}`;
    return [
      { ...place, part: role, row, value, problem: `${record.name}${role === null ? '' : ` ${role}`}: ${where}` },
    ];
  });
}

function firstWrong(
  { layout, rows, columns }: StoredPart,
  bytes: Uint8Array,
): { row: number | null; value: string | null } {
  const out = new Float32Array(columns);
  for (let row = 0; row < rows; row++) {
    decodeRow(layout, bytes, rows, columns, row, out);
    const wrong = out.find(value => !Number.isFinite(value));
    if (wrong !== undefined) return { row, value: String(wrong) };
  }
  return { row: null, value: null };
}

function placeOf(record: StoredRecord, { tensors }: Checkpoint) {
  const expert = /^layer (\d+) expert (\d+)$/.exec(record.name);
  const layer = expert?.[1] ?? /\.layers\.(\d+)\./.exec(record.name)?.[1];
  const names = [...tensors.values()]
    .filter(({ file, offset, bytes }) =>
      record.extents.some(
        each => each.file === file && each.offset < offset + bytes && offset < each.offset + each.bytes,
      ),
    )
    .map(({ name }) => name);
  return {
    record: record.name,
    layer: layer === undefined ? null : Number(layer),
    expert: expert ? Number(expert[2]) : null,
    tensors: names.slice(0, ROLES.length),
  };
}

function sum(table: RecordTable, records: number): number {
  let bytes = 0;
  for (let record = 0; record < records; record++) bytes += table.readBytes(record);
  return bytes;
}
