import fs from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { refusalOf, temporaryDirectory } from '../../test/hostile/fixtures.ts';
import { ColiError } from '../common/errors.ts';
import type { SafetensorsDtype } from './checkpoint-types.ts';
import {
  DTYPE_BITS,
  MAX_NAME_CHARACTERS,
  parseSafetensorsHeader,
  readSafetensorsHeader,
  tensorBytes,
} from './safetensors.ts';
import { encodeSafetensorsHeader, type TensorSpec, writeSafetensors } from './safetensors-writer.ts';

const DTYPES = Object.keys(DTYPE_BITS) as SafetensorsDtype[];

/** Tensors of any dtype and rank with at most some kB of data, all sizes whole bytes. */
const specs = fc.uniqueArray(
  fc
    .record({
      name: fc.oneof(fc.string(), fc.constantFrom('0', '12', '__proto__', 'a\\b', '"', 'ü', '\u0000')),
      dtype: fc.constantFrom(...DTYPES),
      shape: fc.array(fc.nat(7), { maxLength: 4 }),
    })
    .filter(({ name, dtype, shape }) => name !== '__metadata__' && tensorBytes(dtype, shape) !== null),
  { selector: spec => spec.name, maxLength: 12 },
);
const metadata = fc.dictionary(
  fc.string().filter(key => key !== '__proto__'),
  fc.string(),
  { maxKeys: 4 },
);

function parse(header: Uint8Array, dataBytes: number) {
  return parseSafetensorsHeader(header.subarray(8), { path: 'x', file: 3, fileBytes: header.length + dataBytes });
}

function totalBytes(list: readonly TensorSpec[]): number {
  return list.reduce((total, { dtype, shape }) => total + tensorBytes(dtype, shape)!, 0);
}

test('any header that is written is read back', () => {
  fc.assert(
    fc.property(specs, metadata, fc.constantFrom(1, 8, 64, 4096), (list, facts, alignDataTo) => {
      const header = encodeSafetensorsHeader(list, { metadata: facts, alignDataTo });
      expect(header.length % alignDataTo).toBe(0);
      const parsed = parse(header, totalBytes(list));
      expect(Object.fromEntries(parsed.metadata)).toEqual(facts);
      let offset = header.length;
      const expected = list.map(({ name, dtype, shape }) => {
        const bytes = tensorBytes(dtype, shape)!;
        offset += bytes;
        return { name, file: 3, dtype, shape, offset: offset - bytes, bytes };
      });
      const byName = (a: { name: string }, b: { name: string }) => (a.name < b.name ? -1 : 1);
      expect(parsed.tensors.toSorted(byName)).toEqual(expected.toSorted(byName));
      for (let i = 1; i < parsed.tensors.length; i++) {
        expect(parsed.tensors[i].offset).toBe(parsed.tensors[i - 1].offset + parsed.tensors[i - 1].bytes);
      }
    }),
    { numRuns: 300, seed: 1 },
  );
});

describe('damaged headers are read or refused with one of our errors, never anything else', () => {
  const base: TensorSpec[] = [
    { name: 'model.embed_tokens.weight', dtype: 'BF16', shape: [512, 96] },
    { name: 'model.layers.0.mlp.experts.0.up_proj.weight', dtype: 'F32', shape: [40, 96] },
    { name: 'scalar', dtype: 'F64', shape: [] },
    { name: 'packed', dtype: 'F4', shape: [3, 2] },
  ];
  const valid = encodeSafetensorsHeader(base, { metadata: { format: 'pt' } });
  const attempt = (header: Uint8Array) => {
    try {
      parse(header, totalBytes(base));
      return 'read';
    } catch (error) {
      if (!(error instanceof ColiError)) throw error;
      return error.code;
    }
  };

  test('random bytes replaced', () => {
    const seen = new Set<string>();
    const change = fc.tuple(fc.integer({ min: 8, max: valid.length - 1 }), fc.integer({ min: 0, max: 255 }));
    fc.assert(
      fc.property(fc.array(change, { minLength: 1, maxLength: 4 }), changes => {
        const header = valid.slice();
        for (const [at, value] of changes) header[at] = value;
        seen.add(attempt(header));
      }),
      { numRuns: 4000, seed: 2 },
    );
    expect(seen.size).toBeGreaterThan(5); // the mutations reach many different checks
  });

  test('digits replaced by digits: sizes and offsets that no longer fit together', () => {
    const digits = [...valid.keys()].filter(i => i >= 8 && valid[i] >= 0x30 && valid[i] <= 0x39);
    for (const at of digits) {
      for (const digit of [0x30, 0x31, 0x39]) {
        const header = valid.slice();
        if (header[at] === digit) continue;
        header[at] = digit;
        const inName = /[a-zF]\d*$|layers\.\d*$|experts\.\d*$/.test(new TextDecoder().decode(valid.subarray(8, at)));
        if (!inName) expect(attempt(header)).not.toBe('read');
      }
    }
  });

  test('cut at every length', () => {
    for (let length = 9; length < valid.length; length++) {
      const text = new TextDecoder().decode(valid.subarray(8, length));
      if (text.trimEnd().endsWith('}}')) continue; // only padding is gone
      expect(attempt(valid.slice(0, length))).not.toBe('read');
    }
  });
});

describe('exact sizes', () => {
  test.each<[SafetensorsDtype, number[], number | null]>([
    ['F32', [], 4],
    ['F4', [3], null],
    ['F4', [2, 3], 3],
    ['U8', [2 ** 33, 2 ** 19], 2 ** 52],
    ['U8', [2 ** 33, 2 ** 33], null],
    ['F64', [2 ** 32, 2 ** 32], null],
    ['U8', [2 ** 33, 2 ** 33, 0], 0],
    ['U8', [94906267, 94906267], null], // just above 2^53: rounding would make it even
  ])('%s %j', (dtype, shape, bytes) => expect(tensorBytes(dtype, shape)).toBe(bytes));
});

test('a file is read from its header alone', () => {
  const path = join(temporaryDirectory(), 'x.safetensors');
  const bytes = Uint8Array.from({ length: 24 }, (_, i) => i);
  writeSafetensors(path, [{ name: 'a', dtype: 'I16', shape: [3, 4], bytes }], {
    metadata: { k: 'v' },
    alignDataTo: 512,
  });
  const header = readSafetensorsHeader(path, 7);
  expect(header).toMatchObject({ headerBytes: 504, dataOffset: 512, metadata: new Map([['k', 'v']]) });
  expect(header.identity).toMatchObject({ path, bytes: 536, inode: fs.statSync(path).ino });
  expect(header.tensors).toEqual([{ name: 'a', file: 7, dtype: 'I16', shape: [3, 4], offset: 512, bytes: 24 }]);
});

test.each([
  ['[]', 'HEADER_NOT_JSON'],
  ['{"a"', 'JSON_INVALID'],
  ['{} {}', 'JSON_INVALID'],
  ['{"__metadata__":[]}', 'HEADER_BAD_METADATA'],
  ['{"__metadata__":{"a":null}}', 'HEADER_BAD_METADATA'],
  [`{"${'n'.repeat(MAX_NAME_CHARACTERS + 1)}":{}}`, 'TENSOR_NAME_TOO_LONG'],
  [`{"a":${'['.repeat(100)}`, 'JSON_TOO_DEEP'],
  ['{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}', 'SHARD_TRUNCATED'],
])('%.40s is refused', (text, code) => {
  const header = new TextEncoder().encode(text);
  const context = { path: 'x', file: 0, fileBytes: 8 + header.length };
  expect(refusalOf(() => parseSafetensorsHeader(header, context)).code).toBe(code);
});
