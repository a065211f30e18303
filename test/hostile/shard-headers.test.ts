/** Shards whose header lies: sizes, offsets, names, padding. */

import fs from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { openCheckpoint } from '../../src/formats/checkpoint.ts';
import { readSafetensorsHeader } from '../../src/formats/safetensors.ts';
import { copyPack, editHeader, FIRST_SHARD, INDEX, readShard, refusalOf, sparseFile, writeShard } from './fixtures.ts';

const TENSOR = 'model.layers.0.mlp.experts.0.down_proj.weight'; // BF16 [96, 40], 7680 bytes

/** The pack with one entry of its first shard written as this JSON text. */
function packWithEntry(entry: string): string {
  const directory = copyPack();
  const path = join(directory, FIRST_SHARD);
  const { header, data } = readShard(path);
  const original = `"${TENSOR}":${JSON.stringify(header[TENSOR])}`;
  const text = JSON.stringify(header);
  expect(text).toContain(original);
  writeShard(path, text.replace(original, `"${TENSOR}":${entry}`), data);
  return directory;
}

function openWithEntry(entry: string) {
  const directory = packWithEntry(entry);
  return refusalOf(() => openCheckpoint(directory));
}

test('the undamaged copy opens', () => {
  const { tensors, files, bytesOnDisk } = openCheckpoint(copyPack());
  expect(tensors.size).toBe(174);
  expect(files).toHaveLength(3);
  expect(bytesOnDisk).toBe(504256 + 501384 + 493416);
  expect(tensors.get(TENSOR)).toMatchObject({ dtype: 'BF16', shape: [96, 40], bytes: 7680, file: 0 });
});

test('M01: a shape larger than the bytes it owns', () => {
  const error = openWithEntry('{"dtype":"BF16","shape":[96000,40],"data_offsets":[98496,106176]}');
  expect(error.code).toBe('TENSOR_SIZE_MISMATCH');
  expect(error.message).toContain(FIRST_SHARD);
  expect(error.message).toContain(TENSOR);
  expect(error.message).toContain('7680000');
  expect(error.details).toMatchObject({ expected: '7680000', got: 7680 });
});

describe('M02: shapes that a JavaScript number cannot hold, or that are none', () => {
  test.each([
    ['[8589934592,8589934592]', 'TENSOR_SIZE_MISMATCH'],
    ['[4294967296,4294967296,4]', 'TENSOR_SIZE_MISMATCH'], // the product wraps to 0 in 64 bits
    ['[-1,4]', 'TENSOR_BAD_SHAPE'],
    ['[-96,-40]', 'TENSOR_BAD_SHAPE'],
    ['[1.5]', 'JSON_NOT_INTEGER'],
    ['[3840.0]', 'JSON_NOT_INTEGER'],
    ['[9007199254740993]', 'JSON_NOT_INTEGER'],
    ['[1e300]', 'JSON_NOT_INTEGER'],
    ['[1e400]', 'JSON_NOT_INTEGER'],
    ['[-0,40]', 'JSON_NOT_INTEGER'],
    ['["96",40]', 'TENSOR_BAD_SHAPE'],
    ['3840', 'TENSOR_BAD_SHAPE'],
    ['null', 'TENSOR_BAD_SHAPE'],
    ['[1,1,1,1,1,1,1,96,40]', 'TENSOR_BAD_SHAPE'],
  ])('%s', (shape, code) => {
    const error = openWithEntry(`{"dtype":"BF16","shape":${shape},"data_offsets":[98496,106176]}`);
    expect(error.code).toBe(code);
    expect(error.message).toContain(FIRST_SHARD);
    expect(error.details.tensor).toBe(TENSOR);
  });

  test('the exact size is in the message', () => {
    const error = openWithEntry('{"dtype":"F32","shape":[8589934592,8589934592],"data_offsets":[98496,106176]}');
    expect(error.message).toContain(String(2n ** 66n * 32n)); // bits
  });
});

describe('M03: header lengths', () => {
  const size = 504256;
  test.each([
    [0n, 'HEADER_TOO_SMALL'],
    [1n, 'HEADER_TOO_SMALL'],
    [BigInt(size - 7), 'SHARD_TRUNCATED'],
    [BigInt(size + 1), 'SHARD_TRUNCATED'],
    [2n ** 31n, 'SHARD_TRUNCATED'],
    [2n ** 53n, 'SHARD_TRUNCATED'],
    [2n ** 64n - 1n, 'SHARD_TRUNCATED'],
  ])('%d', (length, code) => {
    const directory = copyPack();
    const path = join(directory, FIRST_SHARD);
    const bytes = fs.readFileSync(path);
    expect(bytes.length).toBe(size);
    bytes.writeBigUInt64LE(length);
    fs.writeFileSync(path, bytes);
    const error = refusalOf(() => readSafetensorsHeader(path), 8);
    expect(error.code).toBe(code);
    expect(error.message).toContain(FIRST_SHARD);
    expect(error.message).toContain(String(length));
  });

  test('beyond the limit in a file that is large enough', () => {
    const directory = copyPack();
    const path = join(directory, FIRST_SHARD);
    sparseFile(path, 2 ** 32);
    const fd = fs.openSync(path, 'r+');
    const length = Buffer.alloc(8);
    length.writeBigUInt64LE(2n ** 31n);
    fs.writeSync(fd, length, 0, 8, 0);
    fs.closeSync(fd);
    expect(refusalOf(() => readSafetensorsHeader(path), 8).code).toBe('HEADER_TOO_LARGE');
  });

  test.each([
    [Buffer.alloc(0), 'SHARD_TRUNCATED'],
    [Buffer.from('{"a"'), 'SHARD_TRUNCATED'],
    [Buffer.from('version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n'), 'SHARD_IS_POINTER'],
    [Buffer.from('<!DOCTYPE html><html></html>'), 'SHARD_IS_WEB_PAGE'],
  ])('no header at all: %s', (content, code) => {
    const directory = copyPack();
    fs.writeFileSync(join(directory, FIRST_SHARD), content);
    expect(refusalOf(() => openCheckpoint(directory)).code).toBe(code);
  });
});

describe('M04: the same key twice', () => {
  const entry = (begin: number) => `{"dtype":"U8","shape":[4],"data_offsets":[${begin},${begin + 4}]}`;
  test.each([
    ['a tensor', `{"a":${entry(0)},"b":${entry(4)},"a":${entry(8)}}`, '"a"'],
    ['a tensor in escaped spelling', `{"a":${entry(0)},"\\u0061":${entry(4)}}`, '"a"'],
    ['__metadata__', `{"__metadata__":{},"a":${entry(0)},"__metadata__":{"x":"y"}}`, '"__metadata__"'],
    ['a key of __metadata__', `{"__metadata__":{"k":"1","k":"2"},"a":${entry(0)}}`, '"k"'],
    ['a field', `{"a":{"dtype":"U8","shape":[4],"shape":[2],"data_offsets":[0,4]}}`, '"shape"'],
  ])('%s', (_, header, key) => {
    const directory = copyPack();
    writeShard(join(directory, FIRST_SHARD), header, new Uint8Array(12));
    const error = refusalOf(() => openCheckpoint(directory));
    expect(error.code).toBe('JSON_DUPLICATE_KEY');
    expect(error.message).toContain(FIRST_SHARD);
    expect(error.message).toContain(`the key ${key} appears twice`);
  });

  test('a tensor in the index', () => {
    const directory = copyPack();
    const path = join(directory, INDEX);
    const text = fs.readFileSync(path, 'utf8');
    fs.writeFileSync(path, text.replace('"weight_map": {', `"weight_map": {"${TENSOR}":"model.safetensors",`));
    const error = refusalOf(() => openCheckpoint(directory));
    expect(error.code).toBe('JSON_DUPLICATE_KEY');
    expect(error.message).toContain(TENSOR);
  });
});

describe('M05, M06: offsets', () => {
  const entry = (offsets: string, dtype = 'BF16') => `{"dtype":"${dtype}","shape":[96,40],"data_offsets":${offsets}}`;
  test.each([
    ['overlap', entry('[98494,106174]'), 'TENSOR_OVERLAP'],
    ['gap', entry('[98498,106178]'), 'TENSOR_GAP'],
    ['begin > end', entry('[106176,98496]'), 'TENSOR_BAD_OFFSETS'],
    ['end past the data', entry('[98496,1000000]'), 'TENSOR_SIZE_MISMATCH'],
    ['element size', entry('[98496,106176]', 'F32'), 'TENSOR_SIZE_MISMATCH'],
    ['unknown dtype', entry('[98496,106176]', 'BF17'), 'TENSOR_UNKNOWN_DTYPE'],
    ['dtype from the prototype', entry('[98496,106176]', 'constructor'), 'TENSOR_UNKNOWN_DTYPE'],
    ['M06 far beyond the file', entry(`[${2 ** 40},${2 ** 40 + 7680}]`), 'TENSOR_OUTSIDE_FILE'],
    ['M06 negative', entry('[-16,7664]'), 'TENSOR_BAD_OFFSETS'],
    ['M06 beyond 2^53', entry('[9007199254740993,9007199254748673]'), 'JSON_NOT_INTEGER'],
    ['one offset', entry('[98496]'), 'TENSOR_BAD_OFFSETS'],
    ['unknown field', '{"dtype":"BF16","shape":[96,40],"data_offsets":[98496,106176],"x":1}', 'TENSOR_BAD_ENTRY'],
    ['no object', '[]', 'TENSOR_BAD_ENTRY'],
  ])('%s', (_, text, code) => {
    const error = openWithEntry(text);
    expect(error.message).toContain(FIRST_SHARD);
    expect(error.code).toBe(code);
    expect(error.message).toContain(TENSOR);
  });

  test('M06: the last tensor far beyond the file', () => {
    const directory = copyPack();
    const path = join(directory, FIRST_SHARD);
    const { header } = readShard(path);
    const last = Object.keys(header).reduce((a, b) =>
      header[a].data_offsets?.[1] > header[b].data_offsets?.[1] ? a : b,
    );
    editHeader(path, h => {
      h[last].data_offsets = h[last].data_offsets.map(o => o + 2 ** 40) as [number, number];
    });
    const error = refusalOf(() => openCheckpoint(directory));
    expect(error.code).toBe('TENSOR_OUTSIDE_FILE');
    expect(error.message).toContain(last);
  });

  test('a swapped pair of equal tensors is an overlap', () => {
    const directory = copyPack();
    editHeader(join(directory, FIRST_SHARD), header => {
      header['model.layers.0.mlp.experts.0.gate_proj.weight'].data_offsets = header[TENSOR].data_offsets;
    });
    expect(refusalOf(() => openCheckpoint(directory)).code).toBe('TENSOR_OVERLAP');
  });
});

describe('M08: padding of the header', () => {
  const header = '{"a":{"dtype":"U8","shape":[100],"data_offsets":[0,100]}}   ';
  test('NUL is refused by name', () => {
    const directory = copyPack();
    writeShard(join(directory, FIRST_SHARD), header, new Uint8Array(100), '\0');
    const error = refusalOf(() => openCheckpoint(directory));
    expect(error.code).toBe('HEADER_NUL_PADDING');
    expect(error.message).toContain(`${FIRST_SHARD} pads its header with 4 NUL bytes`);
  });

  test('spaces are accepted, before the brace they are not', () => {
    const directory = copyPack();
    const path = join(directory, FIRST_SHARD);
    const { header: entries, data } = readShard(path);
    writeShard(path, `${JSON.stringify(entries)}${' '.repeat(4000)}`, data);
    expect(openCheckpoint(directory).tensors.size).toBe(174);
    writeShard(path, ` ${JSON.stringify(entries)}`, data);
    expect(refusalOf(() => openCheckpoint(directory)).code).toBe('HEADER_NOT_JSON');
  });
});
