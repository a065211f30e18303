/**
 * Whether a matrix in memory holds numbers only. Decoding every weight would take minutes where looking at its scales takes seconds:
 * only rows whose scales or codes look wrong are decoded, and the decoder has the last word.
 */

import { decodeRow, scalesFinite } from '../quant/decode.ts';
import { asUint16, asUint32 } from '../quant/floats.ts';
import { BLOCKS, type BlockLayout, blockRowBytes, FP8_BLOCK, isBlockLayout, type Layout } from '../quant/layouts.ts';

/** A row may be wrong: what decides is its decoded values. May say so too often, never too seldom. */
type Suspicion = (row: Uint8Array, columns: number) => boolean;

/** Where the float16 scales and minima of a block lie. Their products with codes are far from the end of float32. */
const HALVES: Readonly<Partial<Record<BlockLayout, readonly number[]>>> = {
  q4_0: [0],
  q4_1: [0, 2],
  q5_0: [0],
  q5_1: [0, 2],
  q8_0: [0],
  q2_k: [80, 82],
  q3_k: [108],
  q4_k: [0, 2],
  q5_k: [0, 2],
  q6_k: [208],
  iq4_nl: [0],
  iq4_xs: [0],
};

const F32_EXPONENT = 0x7f800000;
/** Scales from 2^100 up may leave float32 when they are multiplied. */
const LARGE_EXPONENT = 227;
const LARGE_FLOAT = LARGE_EXPONENT << 23;

const isLarge = (bits: number): boolean => (bits & F32_EXPONENT) >= LARGE_FLOAT;

/** E8M0: an exponent alone, 255 is no number. */
function anyLarge(exponents: Uint8Array): boolean {
  for (let i = 0; i < exponents.length; i++) if (exponents[i] >= LARGE_EXPONENT) return true;
  return false;
}

/** E4M3: all bits but the sign set is no number. Four codes at a time: adding 1 to such a one reaches the bit of its sign. */
function anyNotNumber(codes: Uint8Array): boolean {
  const words = asUint32(codes);
  for (let i = 0; i < words.length; i++) if ((((words[i] & 0x7f7f7f7f) + 0x01010101) & 0x80808080) !== 0) return true;
  for (let i = words.length * 4; i < codes.length; i++) if ((codes[i] & 0x7f) === 0x7f) return true;
  return false;
}

function anyWith(words: Uint16Array | Uint32Array, bits: number): boolean {
  for (let i = 0; i < words.length; i++) if ((words[i] & bits) === bits) return true;
  return false;
}

const fp8: Suspicion = (row, columns) => {
  const scales = Math.ceil(columns / FP8_BLOCK) * 4;
  return asUint32(row.subarray(0, scales)).some(isLarge) || anyNotNumber(row.subarray(scales));
};

const mxfp4: Suspicion = (row, columns) => anyLarge(row.subarray(columns / 2));

const nvfp4: Suspicion = (row, columns) =>
  asUint32(row.subarray(0, 4)).some(isLarge) || anyNotNumber(row.subarray(4, 4 + columns / 16));

function blocks(layout: BlockLayout): Suspicion {
  const { columns: step, bytes } = BLOCKS[layout];
  const halves = HALVES[layout];
  return (row, columns) => {
    const end = (columns / step) * bytes;
    for (let block = 0; block < end; block += bytes) {
      if (halves === undefined) {
        if (row[block] >= LARGE_EXPONENT) return true;
        continue;
      }
      for (const at of halves) if ((row[block + at + 1] & 0x7c) === 0x7c) return true;
    }
    return false;
  };
}

const OTHERS: Readonly<Partial<Record<BlockLayout, Suspicion>>> = { fp8, mxfp4, nvfp4 };

/** `bytes`: the matrix [rows, columns]. Of tile layouts the scales are looked at, of all others every value. */
export function allFinite(layout: Layout, bytes: Uint8Array, rows: number, columns: number): boolean {
  if (layout === 'f32') return !anyWith(asUint32(bytes), F32_EXPONENT);
  if (layout === 'bf16') return !anyWith(asUint16(bytes), 0x7f80);
  if (layout === 'f16') return !anyWith(asUint16(bytes), 0x7c00);
  if (!isBlockLayout(layout)) return scalesFinite(layout, bytes, rows, columns);
  const isSuspect = OTHERS[layout] ?? blocks(layout);
  const rowBytes = blockRowBytes(layout, columns);
  const values = new Float32Array(columns);
  for (let row = 0; row < rows; row++) {
    if (!isSuspect(bytes.subarray(row * rowBytes, (row + 1) * rowBytes), columns)) continue;
    decodeRow(layout, bytes, rows, columns, row, values);
    if (!values.every(Number.isFinite)) return false;
  }
  return true;
}
