import { expect, test } from 'vitest';
import { decodeRow, scalesFinite } from '../quant/decode.ts';
import { BLOCKS, isBlockLayout, isTileLayout, LAYOUT_ID, type Layout, layoutBytes } from '../quant/layouts.ts';
import { allFinite } from './finite.ts';

const LAYOUTS = Object.keys(LAYOUT_ID) as Layout[];
const ROWS = 3;
const COLUMNS = 256;

/** 32-bit xorshift. */
function randomBytes(count: number, seed: number): Uint8Array {
  let state = seed | 1;
  return Uint8Array.from({ length: count }, () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return state >>> 24;
  });
}

function decidedByDecoder(layout: Layout, bytes: Uint8Array): boolean {
  if (isTileLayout(layout)) return scalesFinite(layout, bytes, ROWS, COLUMNS);
  const out = new Float32Array(COLUMNS);
  return Array.from({ length: ROWS }, (_, row) => {
    decodeRow(layout, bytes, ROWS, COLUMNS, row, out);
    return out.every(Number.isFinite);
  }).every(Boolean);
}

test('every block layout is here', () => {
  expect(LAYOUTS.filter(isBlockLayout).sort()).toEqual(Object.keys(BLOCKS).sort());
});

test.each(LAYOUTS)('%s: one wrong byte anywhere gives the answer of the decoder', layout => {
  const size = layoutBytes(layout, ROWS, COLUMNS);
  // small exponents and codes everywhere: nothing is wrong yet
  const sound = randomBytes(size, 7).map(byte => byte & 0x3b);
  expect(decidedByDecoder(layout, sound)).toBe(true);
  expect(allFinite(layout, sound, ROWS, COLUMNS)).toBe(true);
  let wrong = 0;
  for (let at = 0; at < size; at++) {
    for (const values of [[0xff], [0x7f, 0x80], [0x00, 0x7c], [0x00, 0xfc], [0xff, 0xff, 0x7f, 0x7f]]) {
      const bytes = sound.slice();
      bytes.set(values.slice(0, size - at), at);
      const expected = decidedByDecoder(layout, bytes);
      if (!expected) wrong++;
      if (allFinite(layout, bytes, ROWS, COLUMNS) !== expected) expect.fail(`${values} at ${at}: not ${expected}`);
    }
  }
  expect(wrong).toBeGreaterThan(0);
});

test.each(LAYOUTS)('%s: random bytes give the answer of the decoder', layout => {
  for (let seed = 1; seed < 60; seed++) {
    const bytes = randomBytes(layoutBytes(layout, ROWS, COLUMNS), seed * 7919);
    expect(allFinite(layout, bytes, ROWS, COLUMNS)).toBe(decidedByDecoder(layout, bytes));
  }
});
