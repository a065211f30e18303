import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { closeSync, openSync, renameSync, truncateSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { StorageError } from '../common/errors.ts';
import type { Extent, StoredRecord } from '../quant/stored.ts';
import type { ReadPool } from './read-pool.ts';
import { PAGE } from './record-table.ts';
import {
  ARENA_BYTES,
  directRecord,
  expectLoaded,
  load,
  noise,
  openPool,
  packedRecord,
  TestFiles,
  waitFor,
} from './test-support.ts';

let files: TestFiles;
const pools: ReadPool[] = [];

beforeEach(() => {
  files = new TestFiles();
});
afterEach(async () => {
  await Promise.all(pools.splice(0).map(pool => pool.close()));
  files.remove();
});

async function open(...args: Parameters<typeof openPool> extends [unknown, ...infer Rest] ? Rest : never) {
  const opened = await openPool(files, ...args);
  pools.push(opened.pool);
  return opened;
}

/** The error of finishing a ticket. */
function failureOf(pool: ReadPool, ticket: number): StorageError {
  waitFor(pool, ticket);
  try {
    pool.finish(ticket);
  } catch (error) {
    if (error instanceof StorageError) return error;
  }
  throw new Error('a StorageError was expected');
}

/** A pool whose only reader stands still in its first read until `release`. */
async function openHeld(records: readonly StoredRecord[], more: Parameters<typeof openPool>[2] = {}) {
  const gate = new Int32Array(new SharedArrayBuffer(4));
  const release = () => {
    Atomics.store(gate, 0, 1);
    Atomics.notify(gate, 0);
  };
  const opened = await open(records, { faults: { nth: 1, kind: 'hold', gate }, ...more });
  const first = opened.pool.submit(0, 0, 0, 'ahead');
  while (opened.pool.state(first) !== 'running') opened.pool.waitAny(1);
  return { ...opened, first, release };
}

const pages = (from: number, count: number): Extent => ({ file: 0, offset: from * PAGE, bytes: count * PAGE });

describe('reading', () => {
  test.each(['direct', 'buffered'] as const)('%s: aligned, unaligned, packed, empty and last bytes', async io => {
    files.add(100_001);
    files.add(50_000);
    const records = [
      directRecord('aligned', [pages(2, 3)]),
      directRecord('unaligned', [
        { file: 1, offset: 17, bytes: 30_000 },
        { file: 0, offset: 9999, bytes: 1 },
      ]),
      packedRecord('packed', [
        { file: 0, offset: 3, bytes: 5000 },
        { file: 1, offset: 49_000, bytes: 1000 },
      ]),
      directRecord('nothing', [{ file: 0, offset: 100_001, bytes: 0 }]),
      directRecord('the end', [{ file: 0, offset: 100_000, bytes: 1 }]),
    ];
    const { pool, table, arenas } = await open(records, { io, hooks: { pieceBytes: 2 * PAGE } });
    expect([pool.directIo, pool.note]).toEqual([io === 'direct', null]);
    records.forEach((record, index) => {
      const { bytes, serviceUs } = load(pool, index, 8 * PAGE);
      expect(bytes, record.name).toBe(table.readBytes(index));
      expect(serviceUs).toBeGreaterThanOrEqual(0);
      expectLoaded(files, table, record, index, arenas[0], 8 * PAGE);
    });
  });

  test('falls back to the page cache where direct reads are refused', async () => {
    files.add(3 * PAGE);
    const record = directRecord('a', [pages(1, 2)]);
    const openFile = (path: string, flags: number) => {
      if (flags !== 0) throw Object.assign(new Error('refused'), { code: 'EINVAL' });
      return openSync(path, flags);
    };
    const { pool, table, arenas } = await open([record], { hooks: { openFile } });
    expect(pool.directIo).toBe(false);
    expect(pool.note).toContain('page cache');
    load(pool, 0);
    expectLoaded(files, table, record, 0, arenas[0], 0);
  });

  test('reads beyond 4 GiB of a file', async () => {
    files.add(0);
    const offset = 5 * 2 ** 30 + 100;
    const { path } = files.files[0];
    const descriptor = openSync(path, 'r+');
    writeSync(descriptor, noise(PAGE), 0, PAGE, offset);
    closeSync(descriptor);
    files.files[0] = { ...files.files[0], bytes: offset + PAGE };
    const { pool, table, arenas } = await open([directRecord('far', [{ file: 0, offset, bytes: PAGE }])]);
    load(pool, 0);
    const at = table.partOffset(0, 0);
    expect(noise(PAGE).equals(arenas[0].slice(at, at + PAGE))).toBe(true);
  });

  test.each([1, 2, 4])('1000 requests in any order: every byte is right with %d readers', async readers => {
    files.add(300_001);
    files.add(70_000);
    const random = generator(readers);
    const extent = (): Extent => {
      const file = random(2);
      const offset = random(files.files[file].bytes);
      return { file, offset, bytes: random(Math.min(20_000, files.files[file].bytes - offset) + 1) };
    };
    const records = Array.from({ length: 200 }, (_, i) => {
      const make = random(3) === 0 ? packedRecord : directRecord;
      return make(`record ${i}`, Array.from({ length: 1 + random(3) }, extent));
    });
    const { pool, table, arenas } = await open(records, { readers, hooks: { pieceBytes: 2 * PAGE } });
    const slotBytes = 2 ** 17;
    const slots = Array.from({ length: 16 }, (_, i) => ({
      arena: i % 2,
      at: (i >> 1) * slotBytes,
      ticket: -1,
      record: 0,
    }));
    let finished = 0;
    let cancelled = 0;
    while (finished < 1000) {
      for (const slot of slots) {
        const state = slot.ticket < 0 ? 'free' : pool.state(slot.ticket);
        if (state === 'queued' && random(4) === 0) pool.promote(slot.ticket);
        if (state === 'queued' && random(8) === 0 && pool.cancel(slot.ticket)) {
          cancelled++;
          slot.ticket = -1;
        } else if (state === 'done' || state === 'failed') {
          expect(pool.finish(slot.ticket).bytes).toBe(table.readBytes(slot.record));
          expectLoaded(files, table, records[slot.record], slot.record, arenas[slot.arena], slot.at);
          finished++;
          slot.ticket = -1;
        }
        if (slot.ticket >= 0) continue;
        slot.record = random(records.length);
        arenas[slot.arena].fill(0xee, slot.at, slot.at + table.placedBytes(slot.record));
        slot.ticket = pool.submit(slot.record, slot.arena, slot.at, random(2) ? 'demand' : 'ahead');
      }
      pool.waitAny(1000);
    }
    expect(cancelled).toBeGreaterThan(0);
  });
});

describe('order', () => {
  const records = Array.from({ length: 4 }, (_, i) => directRecord(`r${i}`, [pages(i, 1)]));
  const contentAt = (arena: Uint8Array, at: number) =>
    records.findIndex((_, i) => files.slice(pages(i, 1)).equals(Buffer.from(arena.slice(at, at + PAGE))));

  test('a reader takes demand first, and promoted requests with it', async () => {
    files.add(4 * PAGE);
    const { pool, arenas, first, release } = await openHeld(records);
    // all into one place: what lies there in the end was read last
    const ahead = pool.submit(1, 0, PAGE, 'ahead');
    const promoted = pool.submit(2, 0, PAGE, 'ahead');
    const demand = pool.submit(3, 0, PAGE, 'demand');
    pool.promote(promoted);
    release();
    for (const ticket of [first, ahead, promoted, demand]) waitFor(pool, ticket);
    expect(contentAt(arenas[0], PAGE)).toBe(1);
  });

  test('a cancelled request is never read; a running one cannot be cancelled', async () => {
    files.add(4 * PAGE);
    const { pool, arenas, first, release } = await openHeld(records);
    const queued = pool.submit(1, 0, PAGE, 'ahead');
    expect(pool.cancel(first)).toBe(false);
    expect(pool.cancel(queued)).toBe(true);
    const last = pool.submit(2, 0, 2 * PAGE, 'demand');
    release();
    waitFor(pool, first);
    waitFor(pool, last);
    expect([0, PAGE, 2 * PAGE].map(at => contentAt(arenas[0], at))).toEqual([0, -1, 2]);
    expect(pool.finish(first).bytes).toBe(PAGE);
  });

  test('waiting gives up in time, and sees what ended before it began', async () => {
    files.add(4 * PAGE);
    const { pool, first, release } = await openHeld(records);
    expect(pool.waitAny(1)).toBe(false);
    release();
    waitFor(pool, first);
    const next = pool.submit(1, 0, 0, 'demand');
    waitFor(pool, next);
    expect(pool.waitAny(1)).toBe(false);
  });
});

describe('failing disks', () => {
  const records = Array.from({ length: 3 }, (_, i) => directRecord(`r${i}`, [pages(2 * i, 2), pages(8 + 2 * i, 2)]));

  test.each(['eio', 'short'] as const)('%s: whichever read fails, its request fails and no other', async kind => {
    files.add(20 * PAGE);
    const reads = 2 * records.length;
    for (let nth = 1; nth <= reads + 1; nth++) {
      const { pool, table, arenas } = await open(records, { readers: 2, faults: { nth, kind } });
      const tickets = records.map((_, i) => pool.submit(i, 0, i * 4 * PAGE, 'demand'));
      const failed = tickets.filter((ticket, i) => {
        waitFor(pool, ticket);
        if (pool.state(ticket) === 'failed') return true;
        pool.finish(ticket);
        expectLoaded(files, table, records[i], i, arenas[0], i * 4 * PAGE);
        return false;
      });
      expect(failed.length, `read ${nth}`).toBe(nth <= reads ? 1 : 0);
      for (const ticket of failed) {
        const error = failureOf(pool, ticket);
        expect(error.code).toBe(kind === 'eio' ? 'READ_FAILED' : 'SHORT_READ');
        expect(error.details).toMatchObject({ file: files.files[0].path, expected: 2 * PAGE });
        expect(error.details['got']).toBe(kind === 'eio' ? 0 : PAGE);
        const again = tickets.indexOf(ticket);
        load(pool, again, again * 4 * PAGE);
      }
      await pool.close();
    }
  });

  test('an error names record, file, place and system error', async () => {
    files.add(20 * PAGE);
    const { pool } = await open(records, { faults: { nth: 2, kind: 'eio' } });
    const error = failureOf(pool, pool.submit(1, 0, 0, 'demand'));
    const { path } = files.files[0];
    expect(error.message).toBe(`r1: ${path} at byte ${10 * PAGE}: read failed (EIO)`);
    expect(error.details).toEqual({
      record: 'r1',
      file: path,
      offset: 10 * PAGE,
      expected: 2 * PAGE,
      got: 0,
      errno: 'EIO',
    });
    expect(error.hint).toBeTruthy();
  });

  test('a file cut while open gives the numbers', async () => {
    files.add(20 * PAGE);
    const record = directRecord('a', [{ file: 0, offset: 10, bytes: 5 * PAGE }]);
    const { pool } = await open([record]);
    load(pool, 0);
    truncateSync(files.files[0].path, 3 * PAGE + 10);
    const error = failureOf(pool, pool.submit(0, 0, 0, 'demand'));
    expect(error.code).toBe('SHORT_READ');
    expect(error.details).toMatchObject({ record: 'a', offset: 10, expected: 5 * PAGE, got: 3 * PAGE });
  });

  test('a file replaced while open is read as it was', async () => {
    files.add(20 * PAGE);
    const { pool, table, arenas } = await open(records);
    const other = join(files.directory, 'other');
    writeFileSync(other, noise(20 * PAGE, 99));
    renameSync(other, files.files[0].path);
    load(pool, 0);
    expectLoaded(files, table, records[0], 0, arenas[0], 0);
  });

  test('a wrong hash fails; each record is checked on its first load', async () => {
    files.add(8 * PAGE);
    const hashOf = (extent: Extent) => createHash('sha256').update(files.slice(extent)).digest('hex');
    const checked = [
      directRecord('good', [pages(0, 2)], hashOf(pages(0, 2))),
      directRecord('bad', [pages(2, 2)], hashOf(pages(4, 2))),
    ];
    const { pool } = await open(checked, { verify: true });
    load(pool, 0);
    const error = failureOf(pool, pool.submit(1, 0, 0, 'demand'));
    expect(error.code).toBe('HASH_MISMATCH');
    expect(error.details).toMatchObject({ record: 'bad', expected: hashOf(pages(4, 2)), got: hashOf(pages(2, 2)) });
    writeFileSync(files.files[0].path, noise(8 * PAGE, 5));
    load(pool, 0);
    const unchecked = await open(checked, { verify: false });
    load(unchecked.pool, 1);
  });

  test('a packer that fails', async () => {
    files.add(8 * PAGE);
    const { pool } = await open([packedRecord('experts.3', [pages(0, 2)], { packer: 'nonesuch' })]);
    const error = failureOf(pool, pool.submit(0, 0, 0, 'demand'));
    expect(error.code).toBe('PACK_FAILED');
    expect(error.message).toContain('experts.3');
  });
});

describe('dead and stuck readers', () => {
  const records = Array.from({ length: 3 }, (_, i) => directRecord(`r${i}`, [pages(i, 1)]));

  test('the last reader dies: what it ran and what waits fails, and nothing more is accepted', async () => {
    files.add(4 * PAGE);
    const { pool } = await open(records, { faults: { nth: 2, kind: 'exit' } });
    const tickets = records.map((_, i) => pool.submit(i, 0, i * PAGE, 'demand'));
    waitFor(pool, tickets[0]);
    expect(pool.finish(tickets[0]).bytes).toBe(PAGE);
    expect(failureOf(pool, tickets[1])).toMatchObject({ code: 'READER_DIED', details: { record: 'r1' } });
    expect(failureOf(pool, tickets[2])).toMatchObject({ code: 'READER_DIED', details: { record: 'r2' } });
    expect(() => pool.submit(0, 0, 0, 'demand')).toThrow(expect.objectContaining({ code: 'READER_DIED' }));
  });

  test('one of two dies: one request fails', async () => {
    files.add(4 * PAGE);
    const { pool } = await open(records, { readers: 2, faults: { nth: 2, kind: 'exit' } });
    const tickets = records.map((_, i) => pool.submit(i, 0, i * PAGE, 'demand'));
    for (const ticket of tickets) waitFor(pool, ticket);
    expect(tickets.map(ticket => pool.state(ticket)).sort()).toEqual(['done', 'done', 'failed']);
    load(pool, 0);
  });

  test('a disk that does not answer is reported instead of waited for', async () => {
    files.add(4 * PAGE);
    const { pool, first, release } = await openHeld(records, { hooks: { stuckMs: 20 } });
    expect(() => pool.waitAny(60_000)).toThrow(expect.objectContaining({ code: 'READER_STUCK' }));
    release();
    waitForAnswer(pool, first);
    expect(pool.finish(first).bytes).toBe(PAGE);
  });

  test('neither the end of the program nor that of the engine thread waits for readers', () => {
    files.add(4 * PAGE);
    const program = `
      import { Worker, isMainThread } from 'node:worker_threads';
      const { ReadPool } = await import(${JSON.stringify(join(import.meta.dirname, 'read-pool.ts'))});
      const { RecordTable } = await import(${JSON.stringify(join(import.meta.dirname, 'record-table.ts'))});
      const files = ${JSON.stringify(files.files)};
      const table = RecordTable.build(${JSON.stringify(records)}, files);
      const arena = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true });
      const pool = await ReadPool.open({ files, table, arenas: [arena], readers: 2, io: 'auto', staging: null, verify: false });
      const ticket = pool.submit(0, 0, 0, 'demand');
      while (pool.state(ticket) !== 'done') pool.waitAny(1000);
      console.log('read');
      if (isMainThread) {
        const worker = new Worker(new URL(import.meta.url));
        worker.stdout.on('data', () => {});
        await new Promise(resolve => worker.once('online', resolve));
        await new Promise(resolve => worker.once('message', resolve));
        await worker.terminate();
      } else {
        const { parentPort } = await import('node:worker_threads');
        parentPort.postMessage('read');
        pool.waitAny(600_000);
      }`;
    const path = join(files.directory, 'program.mjs');
    writeFileSync(path, program);
    const child = spawnSync(process.execPath, [path], { encoding: 'utf8', timeout: 30_000 });
    expect([child.stderr, child.status, child.signal]).toEqual(['', 0, null]);
    expect(child.stdout).toContain('read');
  });
});

describe('misuse', () => {
  const records = [directRecord('a', [pages(0, 2)]), packedRecord('b', [pages(0, 2)])];

  test.each([
    ['unaligned', 0, 100],
    ['negative', 0, -PAGE],
    ['past the end', 1, 2 * ARENA_BYTES],
    ['in no arena', 2, 0],
  ])('a destination %s is refused', async (_, arena, destination) => {
    files.add(4 * PAGE);
    const { pool } = await open(records);
    expect(() => pool.submit(0, arena, destination, 'demand')).toThrow(
      expect.objectContaining({ code: 'BAD_DESTINATION' }),
    );
  });

  test('too little staging is refused before anything starts', async () => {
    files.add(4 * PAGE);
    for (const staging of [
      null,
      { arena: 0, offset: 0, bytesPerReader: PAGE },
      { arena: 9, offset: 0, bytesPerReader: 8 * PAGE },
    ]) {
      await expect(open(records, { staging })).rejects.toMatchObject({ code: 'BAD_POOL' });
    }
  });

  test('a ticket is finished once, and only when its request has ended', async () => {
    files.add(4 * PAGE);
    const { pool, first, release } = await openHeld(records);
    expect(() => pool.finish(first)).toThrow(expect.objectContaining({ code: 'BAD_TICKET' }));
    release();
    waitFor(pool, first);
    pool.finish(first);
    expect(() => pool.finish(first)).toThrow(expect.objectContaining({ code: 'BAD_TICKET' }));
  });

  test('after closing nothing is accepted; closing twice is closing', async () => {
    files.add(4 * PAGE);
    const { pool } = await open(records);
    await Promise.all([pool.close(), pool.close()]);
    expect(() => pool.submit(0, 0, 0, 'demand')).toThrow(StorageError);
  });
});

/** waitFor with a pool that calls every wait too long. */
function waitForAnswer(pool: ReadPool, ticket: number): void {
  while (pool.state(ticket) === 'running') {
    try {
      pool.waitAny(1000);
    } catch {
      // still stuck
    }
  }
}

/** Whole numbers below a bound, the same for the same seed. */
function generator(seed: number): (bound: number) => number {
  let state = Math.imul(seed, 0x9e3779b1) | 1;
  return bound => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % bound;
  };
}
