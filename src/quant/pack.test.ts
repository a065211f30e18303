import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { noise } from '../../test/support/checkpoint-bytes.ts';
import { decodeElement, tileScale } from '../kernels/reference/decode.ts';
import { bfloatToFloat, halfToFloat } from '../kernels/reference/math.ts';
import { groupsOf, LAYOUT_ID, layoutBytes, panelsOf } from './layouts.ts';
import { PACKERS } from './pack.ts';

/** A copy of `bytes` that starts `shift` bytes into its buffer. */
function shifted(bytes: Uint8Array, shift: number): Uint8Array {
  const buffer = new Uint8Array(bytes.length + shift + 3);
  buffer.set(bytes, shift);
  return buffer.subarray(shift, shift + bytes.length);
}

function bytesOf(values: Float32Array): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}

const shapes = fc.record({
  rows: fc.integer({ min: 1, max: 50 }),
  columns: fc.oneof(fc.integer({ min: 1, max: 200 }), fc.constantFrom(24, 40, 64, 96, 128, 144, 160)),
  shift: fc.integer({ min: 0, max: 5 }),
  seed: fc.integer(),
});

function packed(name: string, inputs: Uint8Array[], rows: number, columns: number, bytes: number, shift: number) {
  const out = shifted(new Uint8Array(bytes).fill(0xee), shift);
  PACKERS[name](
    inputs.map((input, i) => shifted(input, shift + i)),
    rows,
    columns,
    out,
  );
  return new DataView(out.buffer, out.byteOffset, out.byteLength);
}

/** Checks every code and scale, the padding included, against what the file says. */
function checkTiles(
  view: DataView,
  layout: 'q4g64-f32' | 'q8g64-f32',
  rows: number,
  columns: number,
  code: (row: number, column: number) => number,
  scale: (row: number, group: number) => number,
): void {
  const groups = groupsOf(columns);
  const id = LAYOUT_ID[layout];
  for (let row = 0; row < panelsOf(rows) * 16; row++) {
    for (let c = 0; c < groups * 64; c++) {
      const expected = row < rows && c < columns ? code(row, c) : 0;
      const got = decodeElement(view, id, 0, groups, row, c);
      if (got !== expected) throw new Error(`code (${row}, ${c}): ${got}, expected ${expected}`);
    }
    for (let g = 0; g < groups; g++) {
      expect(tileScale(view, id, 0, groups, row, g)).toBe(row < rows ? scale(row, g) : 0);
    }
  }
}

describe('packers of the C engine formats', () => {
  test('int8-row: every code, the scale in every group, zero padding, any alignment', () => {
    fc.assert(
      fc.property(shapes, ({ rows, columns, shift, seed }) => {
        const next = noise(seed);
        const codes = Uint8Array.from({ length: rows * columns }, () => next() & 255);
        const scales = Float32Array.from({ length: rows }, () => (next() - 2 ** 23) / 2 ** 23);
        const bytes = layoutBytes('q8g64-f32', rows, columns);
        const view = packed('int8-row', [codes, bytesOf(scales)], rows, columns, bytes, shift);
        const signed = new Int8Array(codes.buffer);
        checkTiles(
          view,
          'q8g64-f32',
          rows,
          columns,
          (r, c) => signed[r * columns + c],
          r => scales[r],
        );
      }),
      { numRuns: 60 },
    );
  });

  test.each(['int4-row', 'int4-g64'])('%s: every nibble and scale, odd widths, padding, any alignment', name => {
    fc.assert(
      fc.property(shapes, ({ rows, columns, shift, seed }) => {
        const next = noise(seed);
        const rowBytes = Math.ceil(columns / 2);
        const perRow = name === 'int4-row' ? 1 : groupsOf(columns);
        const codes = Uint8Array.from({ length: rows * rowBytes }, () => next() & 255);
        const scales = Float32Array.from({ length: rows * perRow }, () => (next() - 2 ** 23) / 2 ** 23);
        const bytes = layoutBytes('q4g64-f32', rows, columns);
        const view = packed(name, [codes, bytesOf(scales)], rows, columns, bytes, shift);
        const nibble = (r: number, c: number): number => {
          const byte = codes[r * rowBytes + (c >> 1)];
          return (c % 2 === 0 ? byte % 16 : Math.floor(byte / 16)) - 8;
        };
        checkTiles(view, 'q4g64-f32', rows, columns, nibble, (r, g) => scales[r * perRow + (perRow === 1 ? 0 : g)]);
      }),
      { numRuns: 60 },
    );
  });

  test('non-finite scales pass through', () => {
    const scales = Float32Array.of(Number.NaN, Number.POSITIVE_INFINITY);
    const view = packed('int8-row', [new Uint8Array(2), bytesOf(scales)], 2, 1, layoutBytes('q8g64-f32', 2, 1), 0);
    expect(tileScale(view, LAYOUT_ID['q8g64-f32'], 0, 1, 0, 0)).toBeNaN();
    expect(tileScale(view, LAYOUT_ID['q8g64-f32'], 0, 1, 1, 0)).toBe(Number.POSITIVE_INFINITY);
  });

  test('inputs and outputs of another size are refused with the numbers', () => {
    const out = new Uint8Array(layoutBytes('q8g64-f32', 2, 3));
    expect(() => PACKERS['int8-row']([new Uint8Array(5), new Uint8Array(8)], 2, 3, out)).toThrow(/5 bytes, expected 6/);
    expect(() => PACKERS['int8-row']([new Uint8Array(6), new Uint8Array(4)], 2, 3, out)).toThrow(/4 bytes, expected 8/);
    expect(() => PACKERS['int8-row']([new Uint8Array(6), new Uint8Array(8)], 2, 3, out.subarray(1))).toThrow(/output/);
  });
});

describe('packers of float tensors', () => {
  test.each([
    ['bf16-to-f32', bfloatToFloat],
    ['f16-to-f32', halfToFloat],
  ] as const)('%s: all 65536 bit patterns', (name, decode) => {
    const bits = Uint16Array.from({ length: 65536 + 7 }, (_, i) => i & 0xffff);
    const view = packed(name, [new Uint8Array(bits.buffer)], 1, bits.length, bits.length * 4, 3);
    for (let i = 0; i < bits.length; i++) {
      const got = view.getFloat32(i * 4, true);
      if (!Object.is(got, decode(bits[i]))) throw new Error(`${bits[i]}: ${got}`);
    }
  });

  test('copy keeps the bytes and their order', () => {
    const out = new Uint8Array(5);
    PACKERS['copy']([Uint8Array.of(1, 2), Uint8Array.of(3, 4, 5)], 1, 5, out);
    expect([...out]).toEqual([1, 2, 3, 4, 5]);
    expect(() => PACKERS['copy']([Uint8Array.of(1)], 1, 5, out)).toThrow(/1 bytes, expected 5/);
  });
});
