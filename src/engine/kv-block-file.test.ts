import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import { join } from 'node:path';
import { expect, test, vi } from 'vitest';
import { temporaryDirectory } from '../../test/hostile/fixtures.ts';
import { idsOf } from '../../test/support/kv-files.ts';
import { blockKeys, KV_HEADER_BYTES, KvBlockFile } from './kv-block-file.ts';

const IDENTITY = Buffer.alloc(32, 7);
const [KEY, NEXT_KEY] = blockKeys(IDENTITY, idsOf(1, 2));
const PAYLOAD = Buffer.from(Array.from({ length: 300 }, (_, i) => (i * 37) % 256));

function written(path = join(temporaryDirectory(), 'block')) {
  const file = new KvBlockFile(IDENTITY, PAYLOAD.length);
  file.payload.set(PAYLOAD);
  file.write(path, 0, KEY, 1_700_000_000_123);
  file.payload.fill(0);
  return { file, path, bytes: fs.readFileSync(path) };
}

const ignored = (problem: string | RegExp, keep = false) => ({ ignored: expect.stringMatching(problem), keep });

test('a block comes back bit for bit, private, with its time of last use, and alone in its directory', () => {
  const { file, path, bytes } = written();
  expect(bytes.length).toBe(KV_HEADER_BYTES + PAYLOAD.length);
  expect(file.read(path, 0, KEY)).toBe('whole');
  expect(PAYLOAD.equals(file.payload)).toBe(true);
  const stat = fs.statSync(path);
  expect(stat.mode & 0o777).toBe(0o600);
  expect(Math.round(stat.mtimeMs)).toBe(1_700_000_000_123);
  expect(fs.readdirSync(join(path, '..'))).toEqual(['block']);
});

test('the layout is the documented one', () => {
  const { bytes } = written();
  expect(bytes.toString('latin1', 0, 8)).toBe('coli-kv\n');
  expect([bytes.readUInt32LE(8), bytes.readUInt32LE(12)]).toEqual([1, 64]);
  expect([Number(bytes.readBigUInt64LE(16)), bytes.readUInt32LE(24), bytes.readUInt32LE(28)]).toEqual([300, 0, 0]);
  expect(bytes.subarray(32, 64).equals(IDENTITY)).toBe(true);
  expect(bytes.toString('hex', 64, 96)).toBe(KEY);
  expect(bytes.subarray(128).equals(PAYLOAD)).toBe(true);
});

test('one flipped bit anywhere is noticed', () => {
  const { file, path, bytes } = written();
  const taken: number[] = [];
  for (let at = 0; at < bytes.length; at++) {
    const flipped = Buffer.from(bytes);
    flipped[at] ^= 1 << (at % 8);
    fs.writeFileSync(path, flipped);
    if (file.read(path, 0, KEY) === 'whole') taken.push(at);
  }
  expect(taken).toEqual([]);
  fs.writeFileSync(path, bytes);
  expect(file.read(path, 0, KEY)).toBe('whole');
});

test('every other length is noticed', () => {
  const { file, path, bytes } = written();
  for (let length = 0; length < bytes.length; length++) {
    fs.writeFileSync(path, bytes.subarray(0, length));
    expect(file.read(path, 0, KEY)).toEqual(ignored(`has ${length} bytes instead of 428`));
  }
  for (const more of [1, 4096]) {
    fs.writeFileSync(path, Buffer.concat([bytes, Buffer.alloc(more)]));
    expect(file.read(path, 0, KEY)).toEqual(ignored(`has ${428 + more} bytes`));
  }
});

test('pages that never reached the disk are noticed', () => {
  const { file, path, bytes } = written();
  fs.writeFileSync(path, Buffer.alloc(bytes.length));
  expect(file.read(path, 0, KEY)).toEqual(ignored('no file of keys and values'));
  fs.writeFileSync(path, Buffer.concat([bytes.subarray(0, 256), Buffer.alloc(bytes.length - 256)]));
  expect(file.read(path, 0, KEY)).toEqual(ignored('damaged'));
});

test('a sound file says what else it is', () => {
  const { file, path, bytes } = written();
  expect(new KvBlockFile(Buffer.alloc(32, 8), 300).read(path, 0, KEY)).toEqual(ignored('another model'));
  expect(file.read(path, 0, NEXT_KEY)).toEqual(ignored('another block'));
  expect(file.read(path, 1, KEY)).toEqual(ignored('another block'));
  expect(new KvBlockFile(IDENTITY, 299).read(path, 0, KEY)).toEqual(ignored('428 bytes instead of 427'));
  bytes.writeUInt32LE(2, 8);
  fs.writeFileSync(path, bytes);
  expect(file.read(path, 0, KEY)).toEqual(ignored('version 2'));
});

test('only regular files that nobody else can write are read', () => {
  const { file, path } = written();
  fs.symlinkSync(path, `${path}.link`);
  expect(file.read(`${path}.link`, 0, KEY)).toEqual(ignored('no regular file'));
  fs.mkdirSync(`${path}.directory`);
  expect(file.read(`${path}.directory`, 0, KEY)).toEqual(ignored('no regular file'));
  // would wait for a writer
  spawnSync('mkfifo', [`${path}.pipe`]);
  expect(file.read(`${path}.pipe`, 0, KEY)).toEqual(ignored('no regular file'));
  for (const mode of [0o620, 0o602]) {
    fs.chmodSync(path, mode);
    expect(file.read(path, 0, KEY)).toEqual(ignored('other users'));
  }
});

test('what is not there, or cannot be read now, is told apart from what is damaged', () => {
  const { file, path } = written();
  expect(file.read(`${path}.none`, 0, KEY)).toBe('absent');
  expect(file.read(join(path, 'below'), 0, KEY)).toBe('absent');
  const failing = (call: 'openSync' | 'readSync', code: string) => {
    const spy = vi.spyOn(fs, call).mockImplementationOnce(() => {
      throw Object.assign(new Error(code), { code });
    });
    const result = file.read(path, 0, KEY);
    spy.mockRestore();
    return result;
  };
  expect(failing('readSync', 'EIO')).toEqual(ignored('cannot be read \\(EIO\\)'));
  expect(failing('openSync', 'EACCES')).toEqual(ignored('cannot be read \\(EACCES\\)'));
  expect(failing('openSync', 'EMFILE')).toEqual(ignored('cannot be read \\(EMFILE\\)', true));
});

test('a file that ends while it is read is noticed', () => {
  const { file, path } = written();
  const spy = vi.spyOn(fs, 'readSync').mockReturnValueOnce(100).mockReturnValueOnce(0);
  expect(file.read(path, 0, KEY)).toEqual(ignored('ended while it was read'));
  spy.mockRestore();
});

test('reads and writes that do a part are continued', () => {
  const { file, path } = written();
  const { readSync, writeSync } = fs;
  type Call = (fd: number, buffer: Buffer, at: number, bytes: number, position: number) => number;
  const inPart =
    (call: Call): Call =>
    (fd, buffer, at, bytes, position) =>
      call(fd, buffer, at, Math.min(bytes, 100), position);
  const reads = vi.spyOn(fs, 'readSync').mockImplementation(inPart(readSync) as typeof readSync);
  const writes = vi.spyOn(fs, 'writeSync').mockImplementation(inPart(writeSync) as typeof writeSync);
  file.payload.set(PAYLOAD);
  file.write(`${path}.again`, 0, KEY, 0);
  file.payload.fill(0);
  expect(file.read(`${path}.again`, 0, KEY)).toBe('whole');
  expect(PAYLOAD.equals(file.payload)).toBe(true);
  expect([reads.mock.calls.length, writes.mock.calls.length]).toEqual([5, 5]);
  vi.restoreAllMocks();
});

test('a write that fails leaves what was there, and no temporary file', () => {
  const { file, path, bytes } = written();
  for (const call of ['writeSync', 'futimesSync', 'renameSync'] as const) {
    const spy = vi.spyOn(fs, call).mockImplementationOnce(() => {
      throw Object.assign(new Error('full'), { code: 'ENOSPC' });
    });
    expect(() => file.write(path, 0, KEY, 0)).toThrow('full');
    spy.mockRestore();
    expect(fs.readdirSync(join(path, '..'))).toEqual(['block']);
    expect(fs.readFileSync(path).equals(bytes)).toBe(true);
  }
});

test('keys: equal beginnings have equal ones, and everything before counts', () => {
  const keys = (...blocks: number[]) => [...blockKeys(IDENTITY, idsOf(...blocks))];
  expect(keys(1, 2, 3).slice(0, 2)).toEqual(keys(1, 2));
  expect(keys(1, 2)[1]).not.toBe(keys(2, 2)[1]);
  expect(new Set([...keys(1, 1, 1), ...keys(2, 1)]).size).toBe(5);
  expect([...blockKeys(Buffer.alloc(32, 8), idsOf(1))]).not.toEqual(keys(1));
  expect([...blockKeys(IDENTITY, idsOf(1).slice(1))]).toEqual([]);
  expect([...blockKeys(IDENTITY, Int32Array.from([...idsOf(1, 2), 5]))]).toEqual(keys(1, 2));
});
