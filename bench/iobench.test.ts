import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { run } from './iobench.ts';

let directory: string;
let printed: string[];

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'coli-bench-test-'));
  printed = [];
  vi.spyOn(console, 'log').mockImplementation(line => {
    printed.push(line);
  });
});
afterEach(() => {
  vi.restoreAllMocks();
  rmSync(directory, { recursive: true });
});

const small = () => ['--dir', directory, '--size', '2M', '--seconds', '0.02', '--blocks', '64K,1M', '--depths', '1,2'];

describe('iobench', () => {
  test('prints one JSON object and removes its file', async () => {
    await run([...small(), '--json']);
    expect(printed).toHaveLength(1);
    const { rows } = JSON.parse(printed[0]);
    const seen = rows.map((row: Record<string, unknown>) => `${row['io']} ${row['blockBytes']} ${row['depth']}`);
    expect(new Set(seen).size).toBe(8);
    expect(rows.every((row: Record<string, number>) => row['bytesPerSecond'] > 0)).toBe(true);
    expect(readdirSync(directory)).toEqual([]);
  });

  test('prints a table per kind of read', async () => {
    await run([...small(), '--depths', '1']);
    expect(printed.join('\n')).toMatch(/direct reads[\s\S]*64K[\s\S]*1024K[\s\S]*buffered reads[\s\S]*64K[\s\S]*1024K/);
    expect(printed).toHaveLength(3);
  });

  test.each([['--nonesuch'], ['--seconds', '0'], ['--depths', '1,x'], ['--size', 'big']])(
    'refuses %s %s',
    async (...args) => {
      await expect(run(args)).rejects.toMatchObject({ name: 'UsageError' });
    },
  );
});
