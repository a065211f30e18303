import { closeSync, openSync, writeSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { StorageError } from '../common/errors.ts';
import type { Extent } from '../quant/stored.ts';
import { PAGE } from './record-table.ts';
import {
  ARENA_BYTES,
  directRecord,
  expectLoaded,
  load,
  noise,
  packedRecord,
  pages,
  TestFiles,
  waitFor,
} from './test-support.ts';

let files: TestFiles;

beforeEach(() => {
  files = new TestFiles();
});
afterEach(() => files.remove());

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
    const { pool, table, arenas } = await files.open(records, { io, hooks: { pieceBytes: 2 * PAGE } });
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
    const { pool, table, arenas } = await files.open([record], { hooks: { openFile } });
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
    const { pool, table, arenas } = await files.open([directRecord('far', [{ file: 0, offset, bytes: PAGE }])]);
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
    const { pool, table, arenas } = await files.open(records, { readers, hooks: { pieceBytes: 2 * PAGE } });
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
    const { pool, arenas, first, release } = await files.openHeld(records);
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
    const { pool, arenas, first, release } = await files.openHeld(records);
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
    const { pool, first, release } = await files.openHeld(records);
    expect(pool.waitAny(1)).toBe(false);
    release();
    waitFor(pool, first);
    const next = pool.submit(1, 0, 0, 'demand');
    waitFor(pool, next);
    expect(pool.waitAny(1)).toBe(false);
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
    const { pool } = await files.open(records);
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
      await expect(files.open(records, { staging })).rejects.toMatchObject({ code: 'BAD_POOL' });
    }
  });

  test('a ticket is finished once, and only when its request has ended', async () => {
    files.add(4 * PAGE);
    const { pool, first, release } = await files.openHeld(records);
    expect(() => pool.finish(first)).toThrow(expect.objectContaining({ code: 'BAD_TICKET' }));
    release();
    waitFor(pool, first);
    pool.finish(first);
    expect(() => pool.finish(first)).toThrow(expect.objectContaining({ code: 'BAD_TICKET' }));
  });

  test('after closing nothing is accepted; closing twice is closing', async () => {
    files.add(4 * PAGE);
    const { pool } = await files.open(records);
    await Promise.all([pool.close(), pool.close()]);
    expect(() => pool.submit(0, 0, 0, 'demand')).toThrow(StorageError);
  });
});

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
