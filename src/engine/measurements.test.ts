import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type DiskEntry, storedMeasurements, storeMeasurement } from './measurements.ts';

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'coli-measurements-'));
});
afterEach(() => {
  chmodSync(directory, 0o700);
  rmSync(directory, { recursive: true });
});

const speed = { bytesPerSecond: 1e9, medianReadUs: 100, p99ReadUs: 200 };
const entry = (key: string, recordBytes = 4096): DiskEntry => ({
  kind: 'disk',
  key,
  measured: '2026-01-02T03:04:05.678Z',
  recordBytes,
  depth: 4,
  direct: speed,
  buffered: null,
});
const file = () => join(directory, 'measurements.json');

test('what was stored comes back, the newer for the older of the same key', () => {
  expect(storedMeasurements(directory)).toEqual([]);
  for (const one of [entry('a'), entry('b'), entry('a', 8192)]) expect(storeMeasurement(one, directory)).toBe(true);
  expect(storedMeasurements(directory)).toEqual([entry('b'), entry('a', 8192)]);
  expect(readdirSync(directory)).toEqual(['measurements.json']);
});

test('the oldest make room', () => {
  for (let i = 0; i < 70; i++) storeMeasurement(entry(`key ${i}`), directory);
  const stored = storedMeasurements(directory);
  expect(stored).toHaveLength(64);
  expect(stored[0].key).toBe('key 6');
});

test('a directory that does not exist is made', () => {
  const deeper = join(directory, 'a', 'b');
  expect(storeMeasurement(entry('a'), deeper)).toBe(true);
  expect(storedMeasurements(deeper)).toHaveLength(1);
});

test.each([
  ['nothing', ''],
  ['no JSON', '{"version": 1, "entr'],
  ['another version', '{"version": 2, "entries": []}'],
  ['a speed of nothing', JSON.stringify({ version: 1, entries: [{ ...entry('a'), depth: 0 }] })],
  ['a speed without end', '{"version": 1, "entries": [{"kind": "disk", "key": "a", "depth": 1e999}]}'],
  ['nesting without end', '['.repeat(100_000)],
  ['too many', JSON.stringify({ version: 1, entries: Array.from({ length: 65 }, (_, i) => entry(`${i}`)) })],
  ['too large', ' '.repeat(2 ** 20 + 1)],
])('a file with %s is as good as none, and is replaced', (_, text) => {
  writeFileSync(file(), text);
  expect(storedMeasurements(directory)).toEqual([]);
  expect(storeMeasurement(entry('a'), directory)).toBe(true);
  expect(JSON.parse(readFileSync(file(), 'utf8')).entries).toHaveLength(1);
});

test('what cannot be written is not', () => {
  writeFileSync(file(), 'x');
  // a file in the place of the directory
  expect(storeMeasurement(entry('a'), file())).toBe(false);
});

test.each([
  ['a speed next to nothing', { ...speed, bytesPerSecond: 5e-324 }],
  ['a speed next to infinity', { ...speed, bytesPerSecond: 1e308 }],
  ['a read that takes longer than a life', { ...speed, p99ReadUs: 1e308 }],
])('an entry with %s is as good as none, and the others count', (_, direct) => {
  writeFileSync(file(), JSON.stringify({ version: 1, entries: [{ ...entry('a'), direct }, entry('b')] }));
  expect(storedMeasurements(directory)).toEqual([entry('b')]);
});
