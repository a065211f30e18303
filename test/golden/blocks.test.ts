/** Decoders of block layouts against rows that an independent program decoded (blocks.py), bit by bit. */

import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { IMPLEMENTATIONS, memory, reference } from '../../src/kernels/test-support.ts';
import { decodeRow } from '../../src/quant/decode.ts';
import { BLOCKS, type BlockLayout, LAYOUT_ID, layoutBytes } from '../../src/quant/layouts.ts';

interface Golden {
  witnesses: string[];
  /** Rows of a layout: their bytes and their values as float32, in base64. */
  layouts: Record<BlockLayout, { columns: number; row: string; values: string }[]>;
}

const golden: Golden = JSON.parse(readFileSync(new URL('blocks.json', import.meta.url), 'utf8'));

const bytesOf = (text: string): Uint8Array => Uint8Array.from(Buffer.from(text, 'base64'));

/** Bits of float32 numbers; of a NaN only that it is one. */
const bitsOf = (values: Float32Array): number[] =>
  Array.from(new Uint32Array(values.buffer, values.byteOffset, values.length), bits =>
    (bits & 0x7fffffff) > 0x7f800000 ? 0x7fc00000 : bits,
  );

test('there are golden rows of every block layout, and other decoders were asked', () => {
  expect(Object.keys(golden.layouts)).toEqual(Object.keys(BLOCKS));
  expect(golden.witnesses).toEqual(['gguf 0.19.0', 'ml_dtypes 0.6.0']);
});

describe.each(Object.keys(BLOCKS) as BlockLayout[])('%s', layout => {
  const rows = golden.layouts[layout].map(({ columns, row, values }) => ({
    columns,
    row: bytesOf(row),
    wanted: bitsOf(new Float32Array(bytesOf(values).buffer)),
  }));

  test('rows have numbers, infinities and NaN', () => {
    const all = new Float32Array(Uint32Array.from(rows.flatMap(({ wanted }) => wanted)).buffer);
    expect(all.some(v => v !== 0 && Number.isFinite(v))).toBe(true);
    expect(all.some(v => Math.abs(v) === Number.POSITIVE_INFINITY)).toBe(true);
    expect(all.some(Number.isNaN)).toBe(true);
  });

  test('decodeRow gives the same bits, also as the second row of a matrix', () => {
    for (const { columns, row, wanted } of rows) {
      const matrix = new Uint8Array(row.length * 2).fill(0x5a);
      matrix.set(row, row.length);
      const out = new Float32Array(columns);
      expect(layoutBytes(layout, 1, columns)).toBe(row.length);
      decodeRow(layout, matrix, 2, columns, 1, out);
      expect(bitsOf(out)).toEqual(wanted);
    }
  });

  test('every implementation of the kernels gives the same bits, at any byte', () => {
    const [ids, w, y] = [1024, 4096 + 5, 65536];
    for (const { columns, row, wanted } of rows) {
      new Int32Array(memory.buffer, ids, 1)[0] = 2;
      new Uint8Array(memory.buffer).set(row, w + 2 * row.length);
      for (const { name, kernels } of [{ name: 'reference', kernels: reference }, ...IMPLEMENTATIONS]) {
        const out = new Float32Array(memory.buffer, y, columns).fill(1);
        kernels.embed(LAYOUT_ID[layout], w, columns, ids, y, 0, 1);
        expect(bitsOf(out), name).toEqual(wanted);
      }
    }
  });
});
