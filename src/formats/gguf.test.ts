import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gguf } from '@huggingface/gguf';
import { describe, expect, test } from 'vitest';
import {
  encodeGguf,
  type GgufField,
  type GgufFile,
  writeGguf,
  writeSplitGguf,
} from '../../test/support/gguf-writer.ts';
import { readGgufHeader } from './gguf.ts';
import { findGguf, openGguf } from './gguf-files.ts';
import { readGgufIntegers, readGgufStrings } from './gguf-metadata.ts';

const directory = () => mkdtempSync(join(tmpdir(), 'gguf-'));

const METADATA: [string, GgufField][] = [
  ['general.architecture', ['string', 'olmoe']],
  ['general.alignment', ['u32', 64]],
  ['a.u8', ['u8', 255]],
  ['a.i8', ['i8', -128]],
  ['a.u16', ['u16', 65535]],
  ['a.i16', ['i16', -32768]],
  ['a.i32', ['i32', -5]],
  ['a.f32', ['f32', 0.1]],
  ['a.f64', ['f64', 0.1]],
  ['a.yes', ['bool', true]],
  ['a.u64', ['u64', 2n ** 63n + 1n]],
  ['a.i64', ['i64', -(2n ** 62n)]],
  ['a.layers', ['array', 'u32', [1, 2, 3]]],
  [
    'a.nested',
    [
      'array',
      'array',
      [
        ['array', 'u8', [1]],
        ['array', 'string', ['x', 'yz']],
      ],
    ],
  ],
  ['a.words', ['array', 'string', ['', 'ä', '\u{1f600}', '\u0000']]],
  ['a.types', ['array', 'i32', Array.from({ length: 5000 }, (_, i) => i - 2500)]],
];

const FILE: GgufFile = {
  metadata: METADATA,
  alignment: 64,
  tensors: [
    { name: 'token_embd.weight', dims: [32, 3], type: 8, bytes: new Uint8Array(102) },
    { name: 'blk.0.ffn_gate_exps.weight', dims: [256, 2, 5], type: 12, bytes: new Uint8Array(1440) },
    { name: 'output_norm.weight', dims: [3], type: 0, bytes: new Uint8Array(12) },
    { name: 'unread', dims: [256, 1], type: 10, bytes: new Uint8Array(84) },
    { name: 'unknown', dims: [7], type: 4711, bytes: new Uint8Array(8) },
    { name: 'scalar', dims: [], type: 0, bytes: new Uint8Array(4) },
  ],
};

describe('header', () => {
  const path = writeGguf(join(directory(), 'm.gguf'), FILE);
  const header = readGgufHeader(path, 3);
  const tensor = (name: string) => header.tensors.find(each => each.name === name)!;

  test('values of every type come exactly', () => {
    const { metadata } = header;
    expect(metadata.size).toBe(METADATA.length);
    for (const key of ['u8', 'i8', 'u16', 'i16', 'i32', 'u64', 'i64', 'f64', 'yes']) {
      const [, field] = METADATA.find(([name]) => name === `a.${key}`)!;
      expect(metadata.get(`a.${key}`)).toBe(field[1]);
    }
    expect(metadata.get('a.f32')).toBe(Math.fround(0.1));
    expect(metadata.get('a.layers')).toMatchObject({ element: 'u32', count: 3, values: [1, 2, 3] });
  });

  test('long arrays are passed over and read when asked for', () => {
    const words = header.metadata.get('a.words');
    const types = header.metadata.get('a.types');
    expect(words).toMatchObject({ element: 'string', count: 4, bytes: 32 + 2 + 4 + 1, values: null });
    expect(types).toMatchObject({ count: 5000, bytes: 20000, values: null });
    expect(readGgufStrings(path, 'a.words', words)).toEqual(['', 'ä', '\u{1f600}', '\u0000']);
    expect(readGgufIntegers(path, 'a.types', types)).toEqual(Array.from({ length: 5000 }, (_, i) => i - 2500));
    expect(() => readGgufStrings(path, 'a.types', types)).toThrow(/"a.types".*array of strings/);
    expect(() => readGgufIntegers(path, 'none', undefined)).toThrow(/lacks "none"/);
  });

  test('tensors: shapes rows first, absolute offsets, sizes by blocks', () => {
    expect(header.dataOffset % 64).toBe(0);
    expect(tensor('token_embd.weight')).toEqual({
      name: 'token_embd.weight',
      file: 3,
      dtype: 'Q8_0',
      shape: [3, 32],
      offset: header.dataOffset,
      bytes: 102,
    });
    expect(tensor('blk.0.ffn_gate_exps.weight')).toMatchObject({
      dtype: 'Q4_K',
      shape: [5, 2, 256],
      offset: header.dataOffset + 128,
      bytes: 1440,
    });
    expect(tensor('unread')).toMatchObject({ dtype: 'Q2_K', bytes: 84 });
    expect(tensor('unknown')).toMatchObject({ dtype: 'ggml type 4711', bytes: 0 });
    expect(tensor('scalar')).toMatchObject({ shape: [], bytes: 4 });
  });

  test('version 2 is read as version 3', () => {
    const two = writeGguf(join(directory(), 'two.gguf'), { ...FILE, version: 2 });
    expect(readGgufHeader(two).tensors).toHaveLength(6);
  });

  test("agrees with Hugging Face's parser", async () => {
    const known = { ...FILE, tensors: FILE.tensors.filter(({ name }) => name !== 'scalar' && name !== 'unknown') };
    const file = writeGguf(join(directory(), 'm.gguf'), known);
    const ours = readGgufHeader(file);
    const theirs = await gguf(file, { allowLocalFile: true });
    expect(Number(theirs.tensorDataOffset)).toBe(ours.dataOffset);
    for (const { name, shape, offset } of theirs.tensorInfos) {
      const own = ours.tensors.find(each => each.name === name)!;
      expect(own.shape).toEqual(shape.map(Number).reverse());
      expect(own.offset).toBe(ours.dataOffset + Number(offset));
    }
    const metadata = theirs.metadata as unknown as Record<string, unknown>;
    for (const [key, value] of ours.metadata) {
      if (typeof value === 'object') expect(metadata[key]).toHaveLength(value.count);
      else expect(metadata[key]).toEqual(value);
    }
    expect(metadata['a.words']).toEqual(readGgufStrings(file, 'a.words', ours.metadata.get('a.words')));
  });
});

describe('files', () => {
  const stem = (at: string) => join(at, 'model-Q8_0');

  test('a split model opens by any of its parts and by its directory', () => {
    const at = directory();
    const parts = writeSplitGguf(stem(at), FILE, 2, true);
    expect(parts).toHaveLength(4);
    for (const path of [at, ...parts]) {
      expect(findGguf(path)).toEqual(parts);
      const model = openGguf(path, parts);
      expect([...model.tensors.keys()].sort()).toEqual(FILE.tensors.map(({ name }) => name).sort());
      expect(model.tensors.get('unread')?.file).toBe(2);
      expect(model.files.map(file => file.path)).toEqual(parts);
      expect(model.metadata.get('general.architecture')).toBe('olmoe');
    }
  });

  test('other paths are not GGUF', () => {
    const at = directory();
    expect(findGguf(at)).toBeNull();
    expect(findGguf(join(at, 'none.gguf'))).toBeNull();
    writeGguf(join(at, 'mmproj-f16.gguf'), FILE);
    writeGguf(join(at, '._m.gguf'), FILE);
    expect(findGguf(at)).toBeNull();
    const model = writeGguf(join(at, 'm.gguf'), FILE);
    expect(findGguf(at)).toEqual([model]);
    expect(openGguf(at, [model]).ignoredFiles).toEqual(['._m.gguf', 'mmproj-f16.gguf']);
    writeGguf(join(at, 'model.safetensors'), FILE);
    expect(findGguf(at)).toBeNull();
  });

  test('several models in one directory are refused by name', () => {
    const at = directory();
    writeGguf(join(at, 'a.gguf'), FILE);
    writeSplitGguf(join(at, 'b'), FILE, 3);
    expect(() => findGguf(at)).toThrow(/several GGUF models: "a.gguf", "b"/);
  });
});

test('the writer pads tensors to the alignment', () => {
  expect(encodeGguf(FILE).length % 64).toBe(0);
});
