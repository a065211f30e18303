import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { decodeElement, tileScale } from '../kernels/reference/decode.ts';
import { decodeRow, scalesFinite } from './decode.ts';
import { bfloatOf, bfloatValue, roundToBfloat } from './floats.ts';
import { groupsOf, LAYOUT_ID, layoutBytes, TILE_BYTES } from './layouts.ts';
import { quantiseMatrix } from './quantise.ts';

const f = Math.fround;
const matrices = fc
  .record({ rows: fc.integer({ min: 1, max: 20 }), columns: fc.integer({ min: 1, max: 150 }) })
  .chain(({ rows, columns }) =>
    fc.record({
      rows: fc.constant(rows),
      columns: fc.constant(columns),
      values: fc
        .array(
          fc.oneof(
            { weight: 8, arbitrary: fc.float({ min: -1, max: 1, noNaN: true }) },
            { weight: 1, arbitrary: fc.float({ min: f(-1e30), max: f(1e30), noNaN: true }) },
            { weight: 1, arbitrary: fc.constantFrom(0, f(1e-40), f(-3e-39)) },
          ),
          { minLength: 8, maxLength: 200 },
        )
        .map(some => Float32Array.from({ length: rows * columns }, (_, i) => some[(i * 7) % some.length])),
    }),
  );

function quantised(layout: 'q4g64' | 'q8g64', values: Float32Array, rows: number, columns: number): Uint8Array {
  const out = new Uint8Array(layoutBytes(layout, rows, columns)).fill(0xee);
  quantiseMatrix(layout, values, rows, columns, out);
  return out;
}

/** Nearest integer, ties to even, by comparison instead of by the rounding of an addition. */
function nearestEven(x: number): number {
  const low = Math.floor(x);
  if (x - low < 0.5) return low;
  if (x - low > 0.5) return low + 1;
  return low % 2 === 0 ? low : low + 1;
}

describe.each(['q4g64', 'q8g64'] as const)('%s', layout => {
  const [low, high] = layout === 'q4g64' ? [-8, 7] : [-127, 127];

  test('codes are those of the rounded scale; padding is the zero code; padding rows have scale 0', () => {
    fc.assert(
      fc.property(matrices, ({ rows, columns, values }) => {
        const bytes = quantised(layout, values, rows, columns);
        const view = new DataView(bytes.buffer);
        const groups = groupsOf(columns);
        for (let row = 0; row < Math.ceil(rows / 16) * 16; row++) {
          for (let c = 0; c < groups * 64; c++) {
            const scale = tileScale(view, LAYOUT_ID[layout], 0, groups, row, c >> 6);
            let expected = 0;
            if (row >= rows) expect(scale).toBe(0);
            else if (c < columns && scale !== 0) {
              expected = Math.max(low, Math.min(high, nearestEven(f(values[row * columns + c] / scale))));
            }
            // `+ 0` makes -0 and 0 equal.
            expect(decodeElement(view, LAYOUT_ID[layout], 0, groups, row, c) + 0).toBe(expected + 0);
          }
        }
      }),
      { numRuns: 40 },
    );
  });

  test('the error stays within the bound of the grid', () => {
    fc.assert(
      fc.property(matrices, ({ rows, columns, values }) => {
        const bytes = quantised(layout, values, rows, columns);
        const out = new Float32Array(columns);
        for (let row = 0; row < rows; row++) {
          decodeRow(layout, bytes, rows, columns, row, out);
          for (let g = 0; g < groupsOf(columns); g++) {
            const from = g * 64;
            const to = Math.min(columns, from + 64);
            const real = values.subarray(row * columns + from, row * columns + to);
            const max = real.reduce((m, x) => Math.max(m, Math.abs(x)), 0);
            let squared = 0;
            let worst = 0;
            for (let c = from; c < to; c++) {
              const difference = Math.abs(out[c] - values[row * columns + c]);
              squared += difference ** 2;
              worst = Math.max(worst, difference);
            }
            // Half a step plus the rounding of the scale (a scale that is flushed to 0 loses at most 127 * 2^-126).
            const tiny = 2 ** -119;
            if (layout === 'q8g64') expect(worst).toBeLessThanOrEqual(max * (0.51 / 127 + 2 ** -8) + tiny);
            // No worse than the scale m / -8, where only the opposite extreme loses a whole step.
            else expect(squared).toBeLessThanOrEqual((to - from) * ((max / 8) * 1.02 + tiny) ** 2);
          }
        }
      }),
      { numRuns: 40 },
    );
  });

  test('a piece of 16 rows quantises as it does inside the whole', () => {
    const columns = 70;
    const values = Float32Array.from({ length: 40 * columns }, (_, i) => f(Math.sin(i * 1.7) * (1 + (i % 13))));
    const whole = quantised(layout, values, 40, columns);
    const tail = quantised(layout, values.subarray(32 * columns), 8, columns);
    expect(whole.subarray(2 * 2 * TILE_BYTES[layout])).toEqual(tail);
  });

  test.each([Number.NaN, Number.POSITIVE_INFINITY])('%s is refused with its place', bad => {
    const values = new Float32Array(3 * 70);
    values[2 * 70 + 65] = bad;
    expect(() => quantised(layout, values, 3, 70)).toThrow(`weight (2, 65) is ${bad}`);
  });
});

test('a ragged last group takes its scale from its own columns', () => {
  const values = Float32Array.from({ length: 66 }, (_, i) => (i < 64 ? 100 : 0.5));
  const out = new Float32Array(66);
  decodeRow('q8g64', quantised('q8g64', values, 1, 66), 1, 66, 0, out);
  expect(Math.abs(out[65] - 0.5)).toBeLessThan(0.004);
});

test('q4 picks at least the best of its documented scales, and may use a negative one', () => {
  const values = Float32Array.from({ length: 64 }, (_, i) => f(i === 5 ? 1 : Math.sin(i) * 0.4));
  const bytes = quantised('q4g64', values, 1, 64);
  const scale = tileScale(new DataView(bytes.buffer), LAYOUT_ID.q4g64, 0, 1, 0, 0);
  expect(scale).toBeLessThan(0);
  const error = (s: number): number =>
    values.reduce((sum, x) => sum + (x - Math.max(-8, Math.min(7, nearestEven(f(x / s)))) * s) ** 2, 0);
  for (const divisor of [8, 8.5, 9, 7.5]) {
    expect(error(scale)).toBeLessThanOrEqual(error(bfloatValue(bfloatOf(-1 / divisor))));
  }
});

describe('bfloat16 rounding', () => {
  const bits = new Uint32Array(1);
  const float = new Float32Array(bits.buffer);
  test('nearest, ties to even, NaN stays NaN', () => {
    const cases: [number, number][] = [
      [0x3f800000, 0x3f80],
      [0x3f808000, 0x3f80],
      [0x3f808001, 0x3f81],
      [0x3f818000, 0x3f82],
      [0x7f7fffff, 0x7f80],
      [0xff800000, 0xff80],
      [0x7f800001, 0x7fc0],
      [0x80000001, 0x8000],
    ];
    for (const [from, to] of cases) expect(roundToBfloat(from)).toBe(to);
  });
  test('never further than half a step', () => {
    fc.assert(
      fc.property(fc.float({ min: f(-1e38), max: f(1e38), noNaN: true }), x => {
        float[0] = x;
        const at = bits[0] & 0xffff0000;
        bits[0] = at;
        const down = float[0];
        bits[0] = at + 0x10000;
        const up = float[0];
        const got = bfloatValue(bfloatOf(x));
        expect(Math.abs(got - x)).toBe(Math.min(Math.abs(down - x), Math.abs(up - x)));
      }),
    );
  });
});

describe('decodeRow and scalesFinite', () => {
  test('float layouts', () => {
    const halves = new Uint8Array(Uint16Array.of(0x3c00, 0xc000, 0x0001, 0x7bff).buffer);
    const out = new Float32Array(2);
    decodeRow('f16', halves, 2, 2, 1, out);
    expect([...out]).toEqual([2 ** -24, 65504]);
    decodeRow('bf16', new Uint8Array(Uint16Array.of(0, 0, 0x3f80, 0xbf80).buffer), 2, 2, 1, out);
    expect([...out]).toEqual([1, -1]);
    decodeRow('f32', new Uint8Array(Float32Array.of(0, 0, 3, -4).buffer), 2, 2, 1, out);
    expect([...out]).toEqual([3, -4]);
    expect(() => decodeRow('f32', new Uint8Array(16), 2, 2, 2, out)).toThrow(RangeError);
    expect(scalesFinite('f16', Uint8Array.of(0, 0x7c), 1, 1)).toBe(false);
    expect(scalesFinite('f16', Uint8Array.of(0xff, 0x7b), 1, 1)).toBe(true);
  });

  test('tile layouts: any one bad scale is found', () => {
    for (const [layout, bad] of [
      ['q4g64', [0x80, 0x7f]],
      ['q8g64', [0xc0, 0xff]],
      ['q4g64-f32', [0, 0, 0x80, 0xff]],
      ['q8g64-f32', [1, 0, 0x80, 0x7f]],
    ] as const) {
      const bytes = new Uint8Array(layoutBytes(layout, 17, 65));
      expect(scalesFinite(layout, bytes, 17, 65)).toBe(true);
      for (const row of [0, 15]) {
        const copy = bytes.slice();
        copy.set(bad, copy.length - 16 * bad.length + row * bad.length);
        expect(scalesFinite(layout, copy, 17, 65)).toBe(false);
      }
    }
  });
});
