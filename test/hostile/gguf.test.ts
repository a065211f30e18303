/**
 * GGUF files that lie, after the published cases: sizes beyond the file (CVE-2026-7482, CVE-2024-21802, CVE-2024-21825,
 * CVE-2024-21836, CVE-2024-23496, CVE-2024-23605), products that wrap (CVE-2025-53630), counts that make a small file allocate.
 */

import fs from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { ConfigError, ModelFileError, TokenizerError } from '../../src/common/errors.ts';
import { readGgufHeader } from '../../src/formats/gguf.ts';
import { MAX_GGUF_HEADER_BYTES } from '../../src/formats/gguf-cursor.ts';
import { findGguf, openGguf } from '../../src/formats/gguf-files.ts';
import { openModel } from '../../src/models/open.ts';
import { resolveRecords } from '../../src/models/records.ts';
import { familyOf } from '../../src/models/registry.ts';
import { readTokenizerFile } from '../../src/tokenizer/tokenizer-file.ts';
import { noise } from '../fixtures/noise.ts';
import { packAsGguf } from '../support/gguf-packs.ts';
import { encodeGguf, type GgufEntry, type GgufField, type GgufFile, writeSplitGguf } from '../support/gguf-writer.ts';
import { packDirectory } from '../support/packs.ts';
import { refusalOf, temporaryDirectory } from './fixtures.ts';

const HUGE = 2n ** 64n - 1n;

function write(bytes: Uint8Array): string {
  const path = join(temporaryDirectory(), 'm.gguf');
  fs.writeFileSync(path, bytes);
  return path;
}

/** Must be refused with this code, by the file's name, without memory that follows the declared size. */
function refused(bytes: Uint8Array, code: string, message: RegExp): void {
  const path = write(bytes);
  const before = process.memoryUsage().arrayBuffers;
  const error = refusalOf(() => readGgufHeader(path));
  expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(16e6);
  expect(error).toBeInstanceOf(ModelFileError);
  expect([error.code, error.message]).toEqual([code, expect.stringMatching(message)]);
  expect(error.message).toContain(path);
  expect(error.hint).toBeTruthy();
}

const tensor = (name: string, dims: (number | bigint)[], more: Partial<GgufEntry> = {}): GgufEntry => ({
  name,
  dims,
  type: 0,
  bytes: new Uint8Array(64),
  ...more,
});

const file = (more: Partial<GgufFile>): Uint8Array => encodeGguf({ metadata: [], tensors: [], ...more });
const keys = (...metadata: [string, GgufField][]): Uint8Array => file({ metadata });
const tensors = (...list: GgufEntry[]): Uint8Array => file({ tensors: list });

/** A file whose bytes at the first place of `marker` are replaced. */
function patched(bytes: Uint8Array, marker: string, at: number, value: bigint, size: 1 | 4 | 8 = 8): Uint8Array {
  const copy = Buffer.from(bytes);
  const place = copy.indexOf(marker) + at;
  if (size === 8) copy.writeBigUInt64LE(value, place);
  else copy.writeUIntLE(Number(value), place, size);
  return copy;
}

describe('the first bytes', () => {
  test.each([
    ['an empty file', new Uint8Array(0), 'GGUF_TRUNCATED', /ends at byte 0/],
    ['three bytes', Buffer.from('GGU'), 'GGUF_TRUNCATED', /ends at byte 3/],
    ['another magic', file({ magic: 'GGML' }), 'GGUF_BAD_MAGIC', /begins with "GGML"/],
    ['control characters', file({ magic: '\u001b[2J' }), 'GGUF_BAD_MAGIC', /"\\u001b\[2J"/],
    ['a Git LFS pointer', Buffer.from('version https://git-lfs'), 'SHARD_IS_POINTER', /LFS pointer/],
    ['a web page', Buffer.from('<!doctype html>'), 'SHARD_IS_WEB_PAGE', /web page/],
    ['version 0', file({ version: 0 }), 'GGUF_VERSION', /version 0/],
    ['version 1', file({ version: 1 }), 'GGUF_VERSION', /version 1; versions 2 and 3/],
    ['version 4', file({ version: 4 }), 'GGUF_VERSION', /version 4/],
    ['big-endian', file({ version: 0x03000000 }), 'GGUF_BIG_ENDIAN', /big-endian/],
    [
      'too many tensors',
      file({ tensorCount: HUGE }),
      'GGUF_TRUNCATED',
      /18446744073709551615 for the number of tensors/,
    ],
    ['one tensor too many', file({ tensorCount: 1n }), 'GGUF_TRUNCATED', /number of tensors/],
    ['too many keys', file({ pairCount: HUGE }), 'GGUF_TRUNCATED', /number of metadata keys/],
    ['2^61 keys', file({ pairCount: 2n ** 61n }), 'GGUF_TRUNCATED', /number of metadata keys/],
  ])('%s', (_, bytes, code, message) => refused(bytes, code, message));
});

describe('metadata', () => {
  const word = keys(['a.word', ['string', 'value-of-it']]);
  const list = keys(['a.list', ['array', 'u32', [1, 2]]]);
  const nested = (depth: number): GgufField => ['array', 'array', depth === 0 ? [] : [nested(depth - 1)]];

  test.each([
    ['a key of 2^64 - 1 bytes', patched(word, 'a.word', -8, HUGE), 'GGUF_TRUNCATED', /name of key 0/],
    ['a key longer than the file', patched(word, 'a.word', -8, 1000n), 'GGUF_TRUNCATED', /name of key 0/],
    [
      'a key of 2000 bytes',
      keys(['k'.repeat(2000), ['u8', 1]]),
      'GGUF_STRING_TOO_LONG',
      /2000 bytes; the limit is 1024/,
    ],
    ['a string of 2^64 - 1 bytes', patched(word, 'value-of-it', -8, HUGE), 'GGUF_TRUNCATED', /value of "a.word"/],
    ['a string of 2^63 bytes', patched(word, 'value-of-it', -8, 2n ** 63n), 'GGUF_TRUNCATED', /value of "a.word"/],
    ['a string of 5 MB', keys(['a', ['string', 'x'.repeat(5e6)]]), 'GGUF_STRING_TOO_LONG', /5000000 bytes/],
    [
      'a string that is not UTF-8',
      patched(word, 'value-of-it', 0, 0xffn, 1),
      'GGUF_BAD_TEXT',
      /value of "a.word".*UTF-8/,
    ],
    ['a key that is not UTF-8', patched(word, 'a.word', 0, 0x80n, 1), 'GGUF_BAD_TEXT', /name of key 0/],
    ['a key twice', keys(['a', ['u8', 1]], ['a', ['u8', 1]]), 'GGUF_DUPLICATE_KEY', /key "a" twice/],
    ['type 13', patched(word, 'a.word', 6, 13n, 4), 'GGUF_BAD_VALUE', /"a.word" of the unknown type 13/],
    ['type 2^32 - 1', patched(word, 'a.word', 6, 0xffffffffn, 4), 'GGUF_BAD_VALUE', /unknown type 4294967295/],
    [
      'a boolean of 2',
      patched(keys(['a.flag', ['bool', true]]), 'a.flag', 10, 2n, 1),
      'GGUF_BAD_VALUE',
      /"a.flag" with 2/,
    ],
    ['an array of 2^64 - 1', patched(list, 'a.list', 14, HUGE), 'GGUF_TRUNCATED', /elements of the array "a.list"/],
    ['an array whose size wraps', patched(list, 'a.list', 14, 2n ** 62n), 'GGUF_TRUNCATED', /4611686018427387904/],
    ['elements of type 99', patched(list, 'a.list', 10, 99n, 4), 'GGUF_BAD_VALUE', /unknown type 99/],
    ['arrays ten deep', keys(['a', nested(10)]), 'GGUF_BAD_VALUE', /more than 4 deep/],
    ['an array of 5 million', keys(['a', ['array', 'u8', new Array(5e6).fill(0)]]), 'GGUF_ARRAY_TOO_LONG', /5000000/],
  ])('%s', (_, bytes, code, message) => refused(bytes, code, message));

  test.each([
    ['no number', ['string', '32'], /alignment "32"/],
    ['0', ['u32', 0], /alignment "0"/],
    ['odd', ['u32', 33], /alignment "33"; it is a power of two up to 65536/],
    ['large', ['u32', 2 ** 31], /alignment "2147483648"/],
    ['negative', ['i32', -32], /alignment "-32"/],
    ['a fraction', ['f32', 0.5], /alignment "0.5"/],
    ['no number at all', ['f32', Number.NaN], /alignment "NaN"/],
    ['2^63', ['u64', 2n ** 63n], /alignment/],
    ['an array', ['array', 'u32', [32]], /alignment an array/],
  ] as const)('an alignment that is %s', (_, field, message) => {
    refused(keys(['general.alignment', field]), 'GGUF_BAD_ALIGNMENT', message);
  });

  test('an element of an array that is longer than the file', () => {
    const bytes = keys(['a.list', ['array', 'string', ['first-one', 'x']]]);
    refused(patched(bytes, 'first-one', -8, HUGE), 'GGUF_TRUNCATED', /length of an element of the array "a.list"/);
  });

  test('a header that never ends', () => {
    const path = join(temporaryDirectory(), 'm.gguf');
    const bytes = patched(keys(['a.list', ['array', 'u8', [1, 2]]]), 'a.list', 14, BigInt(MAX_GGUF_HEADER_BYTES));
    fs.writeFileSync(path, bytes);
    fs.truncateSync(path, MAX_GGUF_HEADER_BYTES * 4);
    const error = refusalOf(() => readGgufHeader(path));
    expect([error.code, error.message]).toEqual([
      'HEADER_TOO_LARGE',
      expect.stringMatching(/more than 268435456 bytes/),
    ]);
  });
});

describe('tensors', () => {
  const one = tensor('w', [4, 4]);
  const TEN = 10n ** 19n;

  test.each([
    ['five dimensions', tensors(tensor('w', [1, 1, 1, 1, 1])), 'TENSOR_BAD_SHAPE', /5 dimensions; the limit is 4/],
    ['2^32 - 1 dimensions', patched(tensors(one), 'w', 1, 0xffffffffn, 4), 'TENSOR_BAD_SHAPE', /4294967295 dimensions/],
    ['a dimension of 2^64 - 1', tensors(tensor('w', [HUGE])), 'GGUF_TRUNCATED', /would end at byte \d{20}/],
    ['a product that wraps to 0', tensors(tensor('w', [2n ** 32n, 2n ** 32n])), 'GGUF_TRUNCATED', /"w"/],
    ['a product that wraps to 16', tensors(tensor('w', [2n ** 62n + 1n, 4, 4])), 'GGUF_TRUNCATED', /"w"/],
    ['bytes that wrap', tensors(tensor('w', [2n ** 62n, 4])), 'GGUF_TRUNCATED', /"w"/],
    ['no values but a dimension of 2^63', tensors(tensor('w', [0, 2n ** 63n])), 'GGUF_TRUNCATED', /"w"/],
    [
      'more than the file holds',
      tensors(tensor('w', [4, 1000])),
      'GGUF_TRUNCATED',
      /would end at byte 16096.*has 160 bytes/,
    ],
    [
      'an offset beyond the file',
      tensors({ ...one, offset: 2n ** 40n }),
      'GGUF_TRUNCATED',
      /would end at byte 1099511627/,
    ],
    ['an offset of 10^19', tensors({ ...one, offset: TEN - (TEN % 32n) }), 'GGUF_TRUNCATED', /"w"/],
    ['an offset that wraps', tensors({ ...one, offset: HUGE - 31n }), 'GGUF_TRUNCATED', /"w"/],
    ['an offset between', tensors({ ...one, offset: 8 }), 'TENSOR_BAD_OFFSETS', /offset 8 is not a multiple of 32/],
    ['one name twice', tensors(one, one), 'TENSOR_TWICE', /"w" twice/],
    ['a name of 2000 bytes', tensors(tensor('n'.repeat(2000), [1])), 'GGUF_STRING_TOO_LONG', /name of tensor 0/],
    ['overlap', tensors(one, tensor('v', [4, 4], { offset: 32 })), 'TENSOR_OVERLAP', /"v".*overlaps those of "w"/],
    [
      'rows that are no blocks',
      tensors(tensor('w', [33, 2], { type: 2 })),
      'TENSOR_BAD_SHAPE',
      /33 values.*Q4_0.*blocks of 32/,
    ],
    ['rows of K-quants', tensors(tensor('w', [128, 2], { type: 12 })), 'TENSOR_BAD_SHAPE', /128 values.*Q4_K/],
    ['rows of two bits', tensors(tensor('w', [384, 2], { type: 10 })), 'TENSOR_BAD_SHAPE', /384 values.*Q2_K/],
    ['rows of IQ4_XS', tensors(tensor('w', [32, 2], { type: 23 })), 'TENSOR_BAD_SHAPE', /32 values.*IQ4_XS/],
  ])('%s', (_, bytes, code, message) => refused(bytes, code, message));

  test('a file cut anywhere is refused', () => {
    const bytes = file({
      metadata: [
        ['general.architecture', ['string', 'olmoe']],
        ['a.list', ['array', 'string', ['a', 'bc']]],
      ],
      tensors: [tensor('w', [16]), tensor('v', [32], { type: 8, bytes: new Uint8Array(34) })],
    });
    // the padding after the last tensor may be missing
    const end = bytes.length - 30;
    for (let length = 0; length < end; length++) {
      const path = write(bytes.subarray(0, length));
      expect(refusalOf(() => readGgufHeader(path)).code).toBe('GGUF_TRUNCATED');
    }
    expect(readGgufHeader(write(bytes.subarray(0, end))).tensors).toHaveLength(2);
  });
});

describe('parts', () => {
  const whole: GgufFile = {
    metadata: [['general.architecture', ['string', 'olmoe']]],
    tensors: ['a', 'b', 'c', 'd'].map(name => tensor(name, [16])),
  };
  const stem = () => join(temporaryDirectory(), 'm');
  const open = (path: string) => openGguf(path, findGguf(path)!);

  test('a missing part is named', () => {
    const [first, second] = writeSplitGguf(stem(), whole, 2);
    fs.rmSync(second);
    expect(() => open(first)).toThrow(/1 of 2 parts are missing: "m-00002-of-00002.gguf"/);
  });

  test.each([
    [
      'parts in another order',
      ([a, b]: string[]) => swap(a, b),
      /part 2 of 2 by its metadata, but its name says 1 of 2/,
    ],
    ['the same part twice', ([a, b]: string[]) => fs.copyFileSync(a, b), /part 1 of 2.*its name says 2 of 2/],
    [
      'a whole model in a part',
      ([, b]: string[]) => fs.writeFileSync(b, encodeGguf(whole)),
      /is a whole model.*2 of 2/,
    ],
  ])('%s', (_, damage, message) => {
    const parts = writeSplitGguf(stem(), whole, 2);
    damage(parts);
    expect(() => open(parts[0])).toThrow(message);
    expect(refusalOf(() => open(parts[0])).code).toBe('GGUF_BAD_SPLIT');
  });

  test('a part under another name', () => {
    const [first] = writeSplitGguf(stem(), whole, 2);
    const renamed = join(temporaryDirectory(), 'renamed.gguf');
    fs.copyFileSync(first, renamed);
    expect(() => open(renamed)).toThrow(/part 1 of 2.*its name does not tell/);
  });

  test('a tensor in two parts, and fewer tensors than promised', () => {
    const same = [...whole.tensors.slice(0, 3), whole.tensors[0]];
    const twice = writeSplitGguf(stem(), { ...whole, tensors: same }, 2);
    expect(refusalOf(() => open(twice[0])).code).toBe('TENSOR_TWICE');
    const parts = writeSplitGguf(stem(), whole, 2);
    const promised: [string, GgufField][] = [
      ['split.no', ['u16', 1]],
      ['split.count', ['u16', 2]],
    ];
    fs.writeFileSync(parts[1], encodeGguf({ metadata: promised, tensors: whole.tensors.slice(2, 3) }));
    expect(() => open(parts[0])).toThrow(/promises 4 tensors in all parts, but they hold 3/);
  });

  test.each(['00000-of-00000', '00001-of-99999', '00007-of-00002'])('parts named %s', name => {
    const path = join(temporaryDirectory(), `m-${name}.gguf`);
    fs.writeFileSync(path, encodeGguf(whole));
    expect(['GGUF_BAD_SPLIT', 'SHARD_MISSING']).toContain(refusalOf(() => open(path)).code);
  });

  test('a pipe under the name of a model is not opened', () => {
    const directory = temporaryDirectory();
    const path = join(directory, 'm.gguf');
    fs.symlinkSync('/dev/zero', path);
    expect(findGguf(path)).toBeNull();
    expect(refusalOf(() => openModel(directory)).code).toBe('NOT_A_FILE');
  });
});

function swap(a: string, b: string): void {
  const bytes = fs.readFileSync(a);
  fs.copyFileSync(b, a);
  fs.writeFileSync(b, bytes);
}

describe('mutations', () => {
  const pack = encodeGguf(packAsGguf(packDirectory('olmoe'), 'olmoe'));

  test('any byte of the header may be anything: a name for what is wrong, or a model', () => {
    const path = write(pack);
    const { dataOffset } = readGgufHeader(path);
    const places = noise('places', 500, 0.5, 1);
    const values = noise('values', 500, 128, 2);
    const codes = new Set<string>();
    for (const [i, place] of places.entries()) {
      const copy = pack.slice();
      // counts and keys, the vocabulary, and the table of tensors
      const [from, to] = [
        [0, 2000],
        [2000, dataOffset],
        [dataOffset - 3000, dataOffset],
      ][i % 3];
      const at = from + Math.floor((place + 0.5) * (to - from));
      copy[at] = values[i] + 128;
      // half of them: four bytes of 0xff, sizes become huge
      if (i % 2) copy.fill(0xff, at, at + 4);
      fs.writeFileSync(path, copy);
      codes.add(outcome(() => resolve(path)));
      codes.add(outcome(() => readTokenizerFile(path)));
    }
    // mutations reach many checks
    expect(codes.size).toBeGreaterThan(8);
    expect(codes).toContain('OPENED');
  });

  /** All that is done before memory is taken for a model. */
  function resolve(path: string): void {
    const checkpoint = openModel(path);
    const family = familyOf(checkpoint.config);
    const config = family.parseConfig(checkpoint.config);
    const parts = { mtp: false };
    resolveRecords(checkpoint, family.tensors(config, parts), family.shape(config, parts), 1e9);
  }

  /** Throws what is no error of ours. */
  function outcome(run: () => unknown): string {
    try {
      run();
      return 'OPENED';
    } catch (error) {
      const isOurs = [ModelFileError, ConfigError, TokenizerError].some(kind => error instanceof kind);
      if (!isOurs) throw error;
      const { code, hint } = error as ModelFileError;
      expect(hint).toBeTruthy();
      return code;
    }
  }
});
