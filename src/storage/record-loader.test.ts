import { createHash } from 'node:crypto';
import { afterAll, describe, expect, test } from 'vitest';
import { PACKERS } from '../quant/pack.ts';
import type { StoredRecord } from '../quant/stored.ts';
import type { ReadFunction } from './faults.ts';
import { RecordLoader, type RecordLoaderOptions } from './record-loader.ts';
import { PAGE, RecordTable } from './record-table.ts';
import { directRecord, expectLoaded, packedRecord, TestFiles } from './test-support.ts';

const files = new TestFiles();
files.add(100_001);
afterAll(() => files.remove());

const STAGING = 2 ** 18;

/** Reads file contents from memory, at most `most(call)` bytes per call. */
function memoryRead(most: (call: number) => number): ReadFunction {
  let call = 0;
  return (file, target, offset, length, position) => {
    const slice = files.contents[file].subarray(position, position + Math.min(length, most(call++)));
    target.set(slice, offset);
    return slice.length;
  };
}

function setUp(record: StoredRecord, options: Partial<RecordLoaderOptions> = {}) {
  const table = RecordTable.build([record], files.files);
  const arena = new Uint8Array(new SharedArrayBuffer(2 ** 19));
  const calls: number[] = [];
  const read = options.read ?? memoryRead(() => Number.POSITIVE_INFINITY);
  const loader = new RecordLoader({
    table,
    descriptors: [0],
    arenas: [arena],
    staging: { arena: 0, offset: STAGING },
    packers: PACKERS,
    verified: null,
    pieceBytes: 2 ** 30,
    onProgress: () => {},
    ...options,
    read: (fd, target, offset, length, position) => {
      calls.push(length);
      return read(fd, target, offset, length, position);
    },
  });
  const bytesRight = () => expectLoaded(files, table, record, 0, arena, PAGE);
  return { loader, table, calls, load: () => loader.load(0, 0, PAGE), bytesRight };
}

const odd = { file: 0, offset: 5001, bytes: 40_003 };
const tail = { file: 0, offset: 99_000, bytes: 1001 };

describe('reading', () => {
  test('unaligned extents and the tail of an odd file', () => {
    const { load, bytesRight, loader, table } = setUp(directRecord('a', [odd, tail]));
    expect(load()).toBeNull();
    bytesRight();
    expect(loader.readBytes).toBe(table.readBytes(0));
  });

  test('no single read is larger than a piece', () => {
    const { load, bytesRight, calls } = setUp(directRecord('a', [odd]), { pieceBytes: 2 * PAGE });
    expect(load()).toBeNull();
    bytesRight();
    expect(calls).toEqual([2, 2, 2, 2, 2].map(pages => pages * PAGE));
  });

  test.each([1 * PAGE, 5000, 4097])('short counts of %d bytes are continued on a page', most => {
    const { load, bytesRight, loader, table } = setUp(directRecord('a', [odd, tail]), { read: memoryRead(() => most) });
    expect(load()).toBeNull();
    bytesRight();
    expect(loader.readBytes).toBeLessThanOrEqual(table.readBytes(0));
  });

  test('nothing is read for no bytes', () => {
    const { load, calls } = setUp(directRecord('a', [{ file: 0, offset: 100_001, bytes: 0 }]));
    expect(load()).toBeNull();
    expect(calls).toEqual([]);
  });

  test('a file that ends early fails with the numbers of the extent', () => {
    const { load } = setUp(directRecord('a', [odd]), { read: memoryRead(call => (call === 0 ? 10_000 : 0)) });
    const got = 10_000 - (odd.offset % PAGE);
    expect(load()).toEqual({ code: 'SHORT_READ', file: 0, offset: 5001, expected: 40_003, got, text: '' });
  });

  test('a count that never grows ends', () => {
    const stuck = memoryRead(() => 100);
    expect(setUp(directRecord('a', [odd]), { read: stuck }).load()).toMatchObject({ code: 'SHORT_READ', got: 0 });
  });

  test('an error of the system is kept by name', () => {
    const read = () => {
      throw Object.assign(new Error('no'), { code: 'EIO' });
    };
    expect(setUp(directRecord('a', [odd]), { read }).load()).toMatchObject({
      code: 'READ_FAILED',
      text: 'EIO',
      got: 0,
    });
  });
});

describe('packing', () => {
  test('raw bytes go through the staging area', () => {
    const { load, bytesRight } = setUp(packedRecord('a', [odd, tail]));
    expect(load()).toBeNull();
    bytesRight();
  });

  test('a packer that throws is a failure with its message', () => {
    const { load } = setUp(packedRecord('a', [odd], { bytes: 100 }));
    expect(load()).toMatchObject({ code: 'PACK_FAILED', file: -1, text: expect.stringContaining('expected') });
  });

  test('an unknown packer is named', () => {
    const { load } = setUp(packedRecord('a', [odd], { packer: 'nonesuch' }));
    expect(load()).toMatchObject({ code: 'PACK_FAILED', text: expect.stringContaining('nonesuch') });
  });
});

describe('hashes', () => {
  const right = createHash('sha256').update(files.slice(odd)).digest('hex');
  const wrong = right.replace(/^./, first => (first === '0' ? '1' : '0'));

  test('a right one is remembered', () => {
    const verified = new Uint8Array(1);
    const { load } = setUp(directRecord('a', [odd], right), { verified });
    expect(load()).toBeNull();
    expect(verified[0]).toBe(1);
  });

  test('a wrong one fails and is not remembered', () => {
    const verified = new Uint8Array(1);
    const { load } = setUp(directRecord('a', [odd], wrong), { verified });
    expect(load()).toMatchObject({ code: 'HASH_MISMATCH', file: 0, offset: 5001, text: right });
    expect(verified[0]).toBe(0);
  });

  test('is not computed again, nor when nobody asked', () => {
    expect(setUp(directRecord('a', [odd], wrong), { verified: new Uint8Array([1]) }).load()).toBeNull();
    expect(setUp(directRecord('a', [odd], wrong), { verified: null }).load()).toBeNull();
  });
});
