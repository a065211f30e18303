import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { renameSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Extent } from '../quant/stored.ts';
import type { ReadPool } from './read-pool.ts';
import { PAGE } from './record-table.ts';
import {
  directRecord,
  expectLoaded,
  failureOf,
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

describe('failing disks', () => {
  const records = Array.from({ length: 3 }, (_, i) => directRecord(`r${i}`, [pages(2 * i, 2), pages(8 + 2 * i, 2)]));

  test.each(['eio', 'short'] as const)('%s: whichever read fails, its request fails and no other', async kind => {
    files.add(20 * PAGE);
    const reads = 2 * records.length;
    for (let nth = 1; nth <= reads + 1; nth++) {
      const { pool, table, arenas } = await files.open(records, { readers: 2, faults: { nth, kind } });
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
    const { pool } = await files.open(records, { faults: { nth: 2, kind: 'eio' } });
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
    const { pool } = await files.open([record]);
    load(pool, 0);
    truncateSync(files.files[0].path, 3 * PAGE + 10);
    const error = failureOf(pool, pool.submit(0, 0, 0, 'demand'));
    expect(error.code).toBe('SHORT_READ');
    expect(error.details).toMatchObject({ record: 'a', offset: 10, expected: 5 * PAGE, got: 3 * PAGE });
  });

  test('a file replaced while open is read as it was', async () => {
    files.add(20 * PAGE);
    const { pool, table, arenas } = await files.open(records);
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
    const { pool } = await files.open(checked, { verify: true });
    load(pool, 0);
    const error = failureOf(pool, pool.submit(1, 0, 0, 'demand'));
    expect(error.code).toBe('HASH_MISMATCH');
    expect(error.details).toMatchObject({ record: 'bad', expected: hashOf(pages(4, 2)), got: hashOf(pages(2, 2)) });
    writeFileSync(files.files[0].path, noise(8 * PAGE, 5));
    load(pool, 0);
    const unchecked = await files.open(checked, { verify: false });
    load(unchecked.pool, 1);
  });

  test('a packer that fails', async () => {
    files.add(8 * PAGE);
    const { pool } = await files.open([packedRecord('experts.3', [pages(0, 2)], { packer: 'nonesuch' })]);
    const error = failureOf(pool, pool.submit(0, 0, 0, 'demand'));
    expect(error.code).toBe('PACK_FAILED');
    expect(error.message).toContain('experts.3');
  });
});

describe('dead and stuck readers', () => {
  const records = Array.from({ length: 3 }, (_, i) => directRecord(`r${i}`, [pages(i, 1)]));

  test('the last reader dies: what it ran and what waits fails, and nothing more is accepted', async () => {
    files.add(4 * PAGE);
    const { pool } = await files.open(records, { faults: { nth: 2, kind: 'exit' } });
    const tickets = records.map((_, i) => pool.submit(i, 0, i * PAGE, 'demand'));
    waitFor(pool, tickets[0]);
    expect(pool.finish(tickets[0]).bytes).toBe(PAGE);
    expect(failureOf(pool, tickets[1])).toMatchObject({ code: 'READER_DIED', details: { record: 'r1' } });
    expect(failureOf(pool, tickets[2])).toMatchObject({ code: 'READER_DIED', details: { record: 'r2' } });
    expect(() => pool.submit(0, 0, 0, 'demand')).toThrow(expect.objectContaining({ code: 'READER_DIED' }));
  });

  test('one of two dies: one request fails', async () => {
    files.add(4 * PAGE);
    const { pool } = await files.open(records, { readers: 2, faults: { nth: 2, kind: 'exit' } });
    const tickets = records.map((_, i) => pool.submit(i, 0, i * PAGE, 'demand'));
    for (const ticket of tickets) waitFor(pool, ticket);
    expect(tickets.map(ticket => pool.state(ticket)).sort()).toEqual(['done', 'done', 'failed']);
    load(pool, 0);
  });

  test('a disk that does not answer is reported instead of waited for', async () => {
    files.add(4 * PAGE);
    const { pool, first, release } = await files.openHeld(records, { hooks: { stuckMs: 20 } });
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
