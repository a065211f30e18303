/**
 * Rows of block layouts as float32. This is the definition: the bytes are those of docs/formats.md, and every line that rounds
 * says so with f(). A scale that is not a number makes its values NaN; an infinite one follows the arithmetic. In the blocks of
 * GGUF every product is exact (float16 has 11 bits, scales and codes at most 13 together), so only the sums with a minimum round, and the
 * values are those of ggml. There, the NaN scale of mxfp4 is a number, and its code 8 is +0 instead of -0.
 */

import { halfValue } from './floats.ts';
import { BLOCKS, type BlockLayout, blockRowBytes, FP8_BLOCK } from './layouts.ts';
import { E2M1, E4M3, e8m0Value } from './small-floats.ts';

const f = Math.fround;

/** Decodes one block: its first byte, where its values go. */
type BlockDecoder = (bytes: DataView, at: number, out: Float32Array, to: number) => void;

/** Codes of iq4_nl and iq4_xs. */
const IQ4_NL: readonly number[] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

const half = (bytes: DataView, at: number): number => halfValue(bytes.getUint16(at, true));

/** 32 values of 16 bytes: low nibbles first, then high ones. */
function nibbles(bytes: DataView, codes: number, out: Float32Array, to: number, value: (n: number) => number): void {
  for (let j = 0; j < 16; j++) {
    const byte = bytes.getUint8(codes + j);
    out[to + j] = value(byte & 15);
    out[to + 16 + j] = value(byte >> 4);
  }
}

/** As nibbles; the fifth bits are those of a word of 32 bits, in the order of the values. */
function fiveBits(bytes: DataView, at: number, out: Float32Array, to: number, value: (n: number) => number): void {
  const fifth = bytes.getUint32(at, true);
  for (let j = 0; j < 32; j++) {
    const byte = bytes.getUint8(at + 4 + (j & 15));
    out[to + j] = value((j < 16 ? byte & 15 : byte >> 4) | (((fifth >>> j) & 1) << 4));
  }
}

/** 6-bit scale and minimum of sub-block j (0..7) of q4_k and q5_k, from 12 bytes. */
function scaleAndMinimum(bytes: DataView, at: number, j: number): [scale: number, minimum: number] {
  const byte = (i: number): number => bytes.getUint8(at + i);
  if (j < 4) return [byte(j) & 63, byte(j + 4) & 63];
  return [(byte(j + 4) & 15) | ((byte(j - 4) >> 6) << 4), (byte(j + 4) >> 4) | ((byte(j) >> 6) << 4)];
}

/** q4_k, and q5_k with a fifth bit: bit j of byte i of `fifth` belongs to value i of sub-block j. */
function kBlock(bytes: DataView, at: number, fifth: number, codes: number, out: Float32Array, to: number): void {
  const d = half(bytes, at);
  const dMinimum = half(bytes, at + 2);
  for (let j = 0; j < 8; j++) {
    const [scale, minimum] = scaleAndMinimum(bytes, at + 4, j);
    const step = f(d * scale);
    const low = f(dMinimum * minimum);
    for (let i = 0; i < 32; i++) {
      const byte = bytes.getUint8(codes + (j >> 1) * 32 + i);
      const bit = fifth === 0 ? 0 : (bytes.getUint8(fifth + i) >> j) & 1;
      const n = (j & 1 ? byte >> 4 : byte & 15) + 16 * bit;
      out[to + j * 32 + i] = f(f(step * n) - low);
    }
  }
}

/** Value i (0..255) is in half i / 128; there, in quarter q of 32: low 4 bits in ql, high 2 bits in qh, a scale per 16. */
function q6kBlock(bytes: DataView, at: number, out: Float32Array, to: number): void {
  const d = half(bytes, at + 208);
  for (let i = 0; i < 256; i++) {
    const upper = i >> 7;
    const q = (i >> 5) & 3;
    const l = i & 31;
    const low = bytes.getUint8(at + upper * 64 + (q & 1) * 32 + l);
    const high = bytes.getUint8(at + 128 + upper * 32 + l);
    const code = (q < 2 ? low & 15 : low >> 4) | (((high >> (2 * q)) & 3) << 4);
    out[to + i] = f(f(d * bytes.getInt8(at + 192 + (i >> 4))) * (code - 32));
  }
}

/** Value i (0..255): bits 2q and 2q+1 of a byte, q = (i / 32) mod 4, in half i / 128; a byte of scale and minimum per 16. */
function q2kBlock(bytes: DataView, at: number, out: Float32Array, to: number): void {
  const d = half(bytes, at + 80);
  const dMinimum = half(bytes, at + 82);
  for (let i = 0; i < 256; i++) {
    const pair = bytes.getUint8(at + (i >> 4));
    const n = twoBits(bytes, at + 16, i);
    out[to + i] = f(f(f(d * (pair & 15)) * n) - f(dMinimum * (pair >> 4)));
  }
}

function twoBits(bytes: DataView, codes: number, i: number): number {
  return (bytes.getUint8(codes + (i >> 7) * 32 + (i & 31)) >> (2 * ((i >> 5) & 3))) & 3;
}

/** As q2_k, with a third bit: bit i / 32 of byte i mod 32. 16 scales of 6 bits in 12 bytes: 4 low bits, then 2 high ones. */
function q3kBlock(bytes: DataView, at: number, out: Float32Array, to: number): void {
  const d = half(bytes, at + 108);
  for (let i = 0; i < 256; i++) {
    const j = i >> 4;
    const low = (bytes.getUint8(at + 96 + (j & 7)) >> (4 * (j >> 3))) & 15;
    const high = (bytes.getUint8(at + 104 + (j & 3)) >> (2 * (j >> 2))) & 3;
    const third = (bytes.getUint8(at + (i & 31)) >> (i >> 5)) & 1;
    const n = twoBits(bytes, at + 32, i) + 4 * third - 4;
    out[to + i] = f(f(d * ((low | (high << 4)) - 32)) * n);
  }
}

/** As iq4_nl, with a scale of 6 bits for each of 8 sub-blocks: 4 low bits in 4 bytes, 2 high ones in a word of 16. */
function iq4xsBlock(bytes: DataView, at: number, out: Float32Array, to: number): void {
  const d = half(bytes, at);
  for (let j = 0; j < 8; j++) {
    const low = (bytes.getUint8(at + 4 + (j >> 1)) >> (4 * (j & 1))) & 15;
    const high = (bytes.getUint16(at + 2, true) >> (2 * j)) & 3;
    const step = f(d * ((low | (high << 4)) - 32));
    nibbles(bytes, at + 8 + 16 * j, out, to + 32 * j, n => f(step * IQ4_NL[n]));
  }
}

/** Layouts whose rows are blocks one after the other. */
const DECODERS: Readonly<Record<Exclude<BlockLayout, 'fp8' | 'mxfp4' | 'nvfp4'>, BlockDecoder>> = {
  q4_0(bytes, at, out, to) {
    const d = half(bytes, at);
    nibbles(bytes, at + 2, out, to, n => f(d * (n - 8)));
  },
  q5_0(bytes, at, out, to) {
    const d = half(bytes, at);
    fiveBits(bytes, at + 2, out, to, n => f(d * (n - 16)));
  },
  q5_1(bytes, at, out, to) {
    const d = half(bytes, at);
    const m = half(bytes, at + 2);
    fiveBits(bytes, at + 4, out, to, n => f(f(d * n) + m));
  },
  q8_0(bytes, at, out, to) {
    const d = half(bytes, at);
    for (let j = 0; j < 32; j++) out[to + j] = f(d * bytes.getInt8(at + 2 + j));
  },
  q4_k: (bytes, at, out, to) => kBlock(bytes, at, 0, at + 16, out, to),
  q5_k: (bytes, at, out, to) => kBlock(bytes, at, at + 16, at + 48, out, to),
  q6_k: q6kBlock,
  iq4_nl(bytes, at, out, to) {
    const d = half(bytes, at);
    nibbles(bytes, at + 2, out, to, n => f(d * IQ4_NL[n]));
  },
  'mxfp4-gguf'(bytes, at, out, to) {
    const scale = e8m0Value(bytes.getUint8(at));
    nibbles(bytes, at + 1, out, to, n => f(E2M1[n] * scale));
  },
  q4_1(bytes, at, out, to) {
    const d = half(bytes, at);
    const m = half(bytes, at + 2);
    nibbles(bytes, at + 4, out, to, n => f(f(d * n) + m));
  },
  q2_k: q2kBlock,
  q3_k: q3kBlock,
  iq4_xs: iq4xsBlock,
};

function fp8Row(bytes: DataView, at: number, columns: number, out: Float32Array): void {
  const codes = at + Math.ceil(columns / FP8_BLOCK) * 4;
  for (let c = 0; c < columns; c++) {
    const scale = bytes.getFloat32(at + Math.floor(c / FP8_BLOCK) * 4, true);
    out[c] = f(E4M3[bytes.getUint8(codes + c)] * scale);
  }
}

/** Code of column c of a row of nibbles: the low one is the even column's. */
const pairCode = (bytes: DataView, codes: number, c: number): number =>
  (bytes.getUint8(codes + (c >> 1)) >> (4 * (c & 1))) & 15;

function mxfp4Row(bytes: DataView, at: number, columns: number, out: Float32Array): void {
  for (let c = 0; c < columns; c++) {
    const scale = e8m0Value(bytes.getUint8(at + columns / 2 + (c >> 5)));
    out[c] = f(E2M1[pairCode(bytes, at, c)] * scale);
  }
}

function nvfp4Row(bytes: DataView, at: number, columns: number, out: Float32Array): void {
  const tensorScale = bytes.getFloat32(at, true);
  for (let c = 0; c < columns; c++) {
    // e2m1 * e4m3 has at most 6 significant bits: exact in float32
    const value = E2M1[pairCode(bytes, at + 4 + columns / 16, c)] * E4M3[bytes.getUint8(at + 4 + (c >> 4))];
    out[c] = f(value * tensorScale);
  }
}

/** The row of `columns` weights that begins at byte `at` (whole blocks, fp8 excepted), into the first elements of `out`. */
export function decodeBlockRow(
  layout: BlockLayout,
  bytes: DataView,
  at: number,
  columns: number,
  out: Float32Array,
): void {
  if (layout === 'fp8') fp8Row(bytes, at, columns, out);
  else if (layout === 'mxfp4') mxfp4Row(bytes, at, columns, out);
  else if (layout === 'nvfp4') nvfp4Row(bytes, at, columns, out);
  else {
    const { columns: step } = BLOCKS[layout];
    const blockBytes = blockRowBytes(layout, step);
    for (let c = 0; c < columns; c += step) DECODERS[layout](bytes, at + (c / step) * blockBytes, out, c);
  }
}
