import { afterAll, describe, expect, test } from 'vitest';
import type { StoredRecord } from '../quant/stored.ts';
import { PAGE, RecordTable, requireHashes } from './record-table.ts';
import { directRecord, packedRecord, TestFiles } from './test-support.ts';

const files = new TestFiles();
files.add(100_001);
afterAll(() => files.remove());

const build = (...records: StoredRecord[]) => RecordTable.build(records, files.files);

describe('aligned reads', () => {
  test('an aligned record is read exactly and lands at its destination', () => {
    const table = build(directRecord('a', [{ file: 0, offset: 2 * PAGE, bytes: 3 * PAGE }]));
    expect(table.readBytes(0)).toBe(3 * PAGE);
    expect(table.placedBytes(0)).toBe(3 * PAGE);
    expect(table.partOffset(0, 0)).toBe(0);
    expect(table.stagingBytes).toBe(0);
  });

  test('an unaligned extent is widened to whole pages', () => {
    const table = build(directRecord('a', [{ file: 0, offset: PAGE + 100, bytes: PAGE }]));
    expect(table.alignedOffset(0)).toBe(PAGE);
    expect(table.lead(0)).toBe(100);
    expect(table.extentReadBytes(0)).toBe(2 * PAGE);
    expect(table.partOffset(0, 0)).toBe(100);
  });

  test('extents follow each other in whole pages', () => {
    const table = build(
      directRecord('a', [
        { file: 0, offset: 10, bytes: 20 },
        { file: 0, offset: 5 * PAGE + 7, bytes: PAGE },
      ]),
    );
    expect(table.partOffset(0, 1)).toBe(PAGE + 7);
    expect(table.placedBytes(0)).toBe(3 * PAGE);
  });

  test('what lies behind the end of the file is asked for but not counted', () => {
    const table = build(directRecord('a', [{ file: 0, offset: 99_000, bytes: 1001 }]));
    expect(table.alignedOffset(0)).toBe(24 * PAGE);
    expect(table.placedBytes(0)).toBe(PAGE);
    expect(table.readBytes(0)).toBe(100_001 - 24 * PAGE);
  });

  test('an extent of no bytes needs no read, at the end of the file too', () => {
    const table = build(directRecord('a', [{ file: 0, offset: 100_001, bytes: 0 }]));
    expect(table.readBytes(0)).toBe(0);
    expect(table.placedBytes(0)).toBe(0);
  });

  test.each([
    { file: 0, offset: 100_000, bytes: 2 },
    { file: 0, offset: -1, bytes: 1 },
    { file: 1, offset: 0, bytes: 1 },
  ])('an extent outside its file is refused: %o', extent => {
    expect(() => build(directRecord('a', [extent]))).toThrow(expect.objectContaining({ code: 'INVALID_RECORD' }));
  });
});

describe('packed records', () => {
  const extents = [
    { file: 0, offset: 1, bytes: 3 * PAGE },
    { file: 0, offset: 7 * PAGE, bytes: 10 },
  ];

  test('the destination holds the packed bytes, the staging area the raw ones', () => {
    const table = build(packedRecord('a', extents, { target: 64, bytes: 2 * PAGE }));
    expect(table.placedBytes(0)).toBe(3 * PAGE);
    expect(table.partOffset(0, 0)).toBe(64);
    expect(table.stagingBytes).toBe(5 * PAGE);
  });

  test('records of one build share one shape', () => {
    const moved = extents.map(extent => ({ ...extent, offset: extent.offset + 2 * PAGE }));
    const table = build(packedRecord('a', extents), packedRecord('b', moved), packedRecord('c', extents.slice(1)));
    expect(table.shape(1)).toBe(table.shape(0));
    expect(table.toShared().shapes).toHaveLength(2);
  });

  test('a record of direct and packed parts is refused', () => {
    const record = { ...packedRecord('a', extents), packs: [] };
    expect(() => build(record)).toThrow(expect.objectContaining({ code: 'INVALID_RECORD' }));
  });
});

describe('sharing', () => {
  test('another thread sees the same numbers and hashes', () => {
    const hash = 'ab'.repeat(32);
    const table = build(
      directRecord('a', [{ file: 0, offset: 5, bytes: 6 }]),
      directRecord('b', [{ file: 0, offset: 9000, bytes: 5000 }], hash),
      packedRecord('c', [{ file: 0, offset: 5, bytes: 6 }]),
    );
    const other = RecordTable.fromShared(structuredClone(table.toShared()));
    expect(other.toShared().buffer.byteLength).toBe(table.toShared().buffer.byteLength);
    for (let record = 0; record < 3; record++) {
      expect(other.placedBytes(record)).toBe(table.placedBytes(record));
      expect(other.partOffset(record, 0)).toBe(table.partOffset(record, 0));
      expect(other.shape(record)).toEqual(table.shape(record));
    }
    expect(other.hash(0)).toBeNull();
    expect(Buffer.from(other.hash(1)!).toString('hex')).toBe(hash);
    expect(other.stagingBytes).toBe(PAGE);
    expect([table.name(1), other.name(1)]).toEqual(['b', 'record 1']);
  });

  test('20,000 records of three extents take less than 5 MB', () => {
    const extents = [0, 1, 2].map(i => ({ file: 0, offset: i * PAGE, bytes: PAGE }));
    const table = build(...Array.from({ length: 20_000 }, (_, i) => directRecord(`expert ${i}`, extents)));
    expect(table.toShared().shapes).toHaveLength(1);
    expect(table.toShared().buffer.byteLength).toBeLessThan(5e6);
  });

  test('a hash over several extents is refused', () => {
    const extent = { file: 0, offset: 0, bytes: 1 };
    expect(() => build(directRecord('a', [extent, extent], 'ab'.repeat(32)))).toThrow(/hash/);
  });
});

describe('verification needs hashes', () => {
  const record = (name: string, sha256: string | null): StoredRecord => ({
    ...directRecord(name, [{ file: 0, offset: 0, bytes: PAGE }]),
    sha256,
  });
  const hash = 'ab'.repeat(32);

  test('of every record', () => {
    expect(() => requireHashes(build(record('a', hash), record('b', hash)), '/m')).not.toThrow();
  });

  test.each([
    [[null, null], /^\/m states no hashes, so/, 2],
    [[hash, null], /^\/m states no hash for 1 of 2 records, such as b, so/, 1],
  ])('%j is refused', (hashes, message, without) => {
    const check = () => requireHashes(build(record('a', hashes[0]), record('b', hashes[1])), '/m');
    expect(check).toThrow(
      expect.objectContaining({
        code: 'NO_HASHES',
        message: expect.stringMatching(message),
        details: { directory: '/m', records: 2, without },
      }),
    );
  });
});
