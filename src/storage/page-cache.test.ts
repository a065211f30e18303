import { spawnSync } from 'node:child_process';
import { closeSync, fsyncSync, openSync } from 'node:fs';
import { afterAll, describe, expect, test } from 'vitest';
import { directRecord, load, TestFiles } from './test-support.ts';

const BYTES = 16 * 2 ** 20;
const BLOCK = 2 ** 19;

const files = new TestFiles();
files.add(BYTES);
afterAll(() => files.remove());

const can = (command: string) => spawnSync(command, ['--version']).status === 0;
const tools = can('fincore') && can('dd');

function dropCache(path: string): void {
  const descriptor = openSync(path, 'r+');
  fsyncSync(descriptor);
  closeSync(descriptor);
  spawnSync('dd', [`if=${path}`, 'iflag=nocache', 'count=0']);
}

function residentBytes(path: string): number {
  return Number(
    spawnSync('fincore', ['--bytes', '--noheadings', '--output', 'RES', path], { encoding: 'utf8' }).stdout,
  );
}

/** Reads the whole file; gives the bytes of it that the page cache holds before and after. */
async function readAll(io: 'direct' | 'buffered'): Promise<[before: number, after: number]> {
  const { path } = files.files[0];
  const records = Array.from({ length: BYTES / BLOCK }, (_, i) =>
    directRecord(`block ${i}`, [{ file: 0, offset: i * BLOCK, bytes: BLOCK }]),
  );
  dropCache(path);
  const before = residentBytes(path);
  const { pool } = await files.open(records, { io });
  for (let i = 0; i < records.length; i++) load(pool, i);
  await pool.close();
  return [before, residentBytes(path)];
}

describe.skipIf(!tools)('page cache (needs fincore and dd)', () => {
  test('direct reads leave less than 1 % of the file in it', async () => {
    const [before, after] = await readAll('direct');
    expect(before).toBeLessThan(BYTES / 100);
    expect(after).toBeLessThan(BYTES / 100);
  });

  test('buffered reads leave the file in it, so the measurement can tell', async () => {
    const [before, after] = await readAll('buffered');
    expect(before).toBeLessThan(BYTES / 100);
    expect(after).toBeGreaterThan(BYTES / 2);
  });
});
