import fs from 'node:fs';
import { join } from 'node:path';
import { expect, test, vi } from 'vitest';
import { temporaryDirectory } from '../../test/hostile/fixtures.ts';
import { readSafetensorsHeader } from './safetensors.ts';
import { encodeSafetensorsHeader, SafetensorsWriter, writeSafetensors } from './safetensors-writer.ts';

const ENTRIES = [
  { name: 'a', dtype: 'U8', shape: [5] },
  { name: 'empty', dtype: 'F32', shape: [0, 4] },
  { name: 'b', dtype: 'BF16', shape: [2, 2] },
] as const;

function newPath(): string {
  return join(temporaryDirectory(), 'model.safetensors');
}

test('data lies where the header says, in the order given', () => {
  const path = newPath();
  const a = Uint8Array.of(1, 2, 3, 4, 5);
  const b = Uint8Array.of(6, 7, 8, 9, 10, 11, 12, 13);
  writeSafetensors(
    path,
    [
      { ...ENTRIES[0], bytes: a },
      { ...ENTRIES[1], bytes: new Uint8Array(0) },
      // biome-ignore format: chunks of different sizes
      { ...ENTRIES[2], bytes: function* () { yield b.subarray(0, 1); yield b.subarray(1, 1); yield b.subarray(1); } },
    ],
    { alignDataTo: 4096, metadata: { writer: 'test' } },
  );
  const { tensors, dataOffset } = readSafetensorsHeader(path);
  expect(dataOffset).toBe(4096);
  const file = fs.readFileSync(path);
  expect(file.length).toBe(4096 + 13);
  const bytesOf = (name: string) => {
    const { offset, bytes } = tensors.find(tensor => tensor.name === name)!;
    return [...file.subarray(offset, offset + bytes)];
  };
  expect(bytesOf('a')).toEqual([...a]);
  expect(bytesOf('empty')).toEqual([]);
  expect(bytesOf('b')).toEqual([...b]);
});

test('sources are asked for their bytes one after the other, after the earlier ones are on disk', () => {
  const path = newPath();
  const sizes: number[] = [];
  const source = (name: string) => ({
    name,
    dtype: 'U8' as const,
    shape: [1000],
    bytes: () => {
      sizes.push(fs.statSync(path).size);
      return [new Uint8Array(1000)];
    },
  });
  writeSafetensors(path, [source('a'), source('b'), source('c')]);
  const start = readSafetensorsHeader(path).dataOffset;
  expect(sizes).toEqual([start, start + 1000, start + 2000]);
});

test('equal input gives equal bytes, also in other chunks', () => {
  const data = Uint8Array.from({ length: 13 }, (_, i) => i * 7);
  const files = [[13], [1, 12], [4, 4, 5]].map(chunks => {
    const path = newPath();
    const writer = new SafetensorsWriter(path, ENTRIES);
    let at = 0;
    for (const length of chunks) {
      writer.append(data.subarray(at, at + length));
      at += length;
      expect(writer.position).toBe(writer.dataOffset + at);
    }
    writer.close();
    return fs.readFileSync(path);
  });
  expect(files[1].equals(files[0])).toBe(true);
  expect(files[2].equals(files[0])).toBe(true);
});

test('names that look like array positions keep their order', () => {
  const header = new TextDecoder().decode(
    encodeSafetensorsHeader(['b', '1', '0'].map(name => ({ name, dtype: 'U8', shape: [1] }))).subarray(8),
  );
  expect(header.indexOf('"b"')).toBeLessThan(header.indexOf('"1"'));
  expect(header.indexOf('"1"')).toBeLessThan(header.indexOf('"0"'));
});

test('a short write is continued', () => {
  const path = newPath();
  const original = fs.writeSync;
  const spy = vi
    .spyOn(fs, 'writeSync')
    .mockImplementation(((fd: number, bytes: Uint8Array, at: number, count: number, position: number) =>
      original(fd, bytes, at, Math.min(count, 3), position)) as typeof fs.writeSync);
  writeSafetensors(path, [{ ...ENTRIES[0], bytes: Uint8Array.of(9, 8, 7, 6, 5) }]);
  spy.mockRestore();
  expect([...fs.readFileSync(path).subarray(-5)]).toEqual([9, 8, 7, 6, 5]);
});

test('the number of bytes must be exact', () => {
  const writer = new SafetensorsWriter(newPath(), ENTRIES);
  expect(() => writer.append(new Uint8Array(14))).toThrow(expect.objectContaining({ code: 'WRITER_TOO_MANY_BYTES' }));
  writer.append(new Uint8Array(12));
  expect(() => writer.close()).toThrow(expect.objectContaining({ code: 'WRITER_INCOMPLETE' }));
  expect(() => writer.append(new Uint8Array(1))).toThrow(expect.objectContaining({ code: 'WRITER_CLOSED' }));

  const sources = [
    { ...ENTRIES[0], bytes: new Uint8Array(4) },
    { ...ENTRIES[2], bytes: new Uint8Array(9) },
  ];
  expect(() => writeSafetensors(newPath(), sources)).toThrow(expect.objectContaining({ code: 'WRITER_WRONG_SIZE' }));
});

test('what cannot be read back is not written', () => {
  const one = { name: 'a', dtype: 'U8', shape: [1] } as const;
  expect(() => encodeSafetensorsHeader([one, one])).toThrow(expect.objectContaining({ code: 'WRITER_BAD_NAME' }));
  const reserved = { ...one, name: '__metadata__' };
  expect(() => encodeSafetensorsHeader([reserved])).toThrow(expect.objectContaining({ code: 'WRITER_BAD_NAME' }));
  for (const shape of [
    [-1, -1],
    [1.5, 2],
    [2 ** 40, 2 ** 40],
  ]) {
    expect(() => encodeSafetensorsHeader([{ ...one, shape }])).toThrow(
      expect.objectContaining({ code: 'WRITER_BAD_SHAPE' }),
    );
  }
});

test('a full disk and a missing directory are named', () => {
  const spy = vi.spyOn(fs, 'writeSync').mockImplementation(() => {
    throw Object.assign(new Error('ENOSPC: no space left on device'), { code: 'ENOSPC' });
  });
  const run = () => writeSafetensors(newPath(), [{ ...ENTRIES[0], bytes: new Uint8Array(5) }]);
  expect(run).toThrow(expect.objectContaining({ code: 'DISK_FULL', name: 'StorageError' }));
  spy.mockRestore();
  expect(() => new SafetensorsWriter(join(temporaryDirectory(), 'no', 'x'), ENTRIES)).toThrow(
    expect.objectContaining({ code: 'WRITE_FAILED' }),
  );
});
