/** Tensor types of GGUF files for tests: simple quantisers, and random blocks whose values are moderate. */

import type { GgufBlockDtype } from '../../src/formats/checkpoint-types.ts';
import { decodeBlockRow } from '../../src/quant/blocks.ts';
import { GGUF_LAYOUT } from '../../src/quant/encodings/gguf.ts';
import { bfloatOf, bfloatValue, halfValue } from '../../src/quant/floats.ts';
import { noise } from '../fixtures/noise.ts';

export type GgufFloat = 'F32' | 'F16' | 'BF16';
export type GgufBlock = GgufBlockDtype;
export type GgufDtype = GgufFloat | GgufBlock;

/** Number, values and bytes of a block, and where its float16 scales lie. */
const TYPES: Readonly<Record<GgufDtype, { id: number; columns: number; bytes: number; scales?: readonly number[] }>> = {
  F32: { id: 0, columns: 1, bytes: 4 },
  F16: { id: 1, columns: 1, bytes: 2 },
  BF16: { id: 30, columns: 1, bytes: 2 },
  Q4_0: { id: 2, columns: 32, bytes: 18, scales: [0] },
  Q5_0: { id: 6, columns: 32, bytes: 22, scales: [0] },
  Q5_1: { id: 7, columns: 32, bytes: 24, scales: [0, 2] },
  Q8_0: { id: 8, columns: 32, bytes: 34, scales: [0] },
  Q4_K: { id: 12, columns: 256, bytes: 144, scales: [0, 2] },
  Q5_K: { id: 13, columns: 256, bytes: 176, scales: [0, 2] },
  Q6_K: { id: 14, columns: 256, bytes: 210, scales: [208] },
  IQ4_NL: { id: 20, columns: 32, bytes: 18, scales: [0] },
  MXFP4: { id: 39, columns: 32, bytes: 17 },
  Q4_1: { id: 3, columns: 32, bytes: 20, scales: [0, 2] },
  Q2_K: { id: 10, columns: 256, bytes: 84, scales: [80, 82] },
  Q3_K: { id: 11, columns: 256, bytes: 110, scales: [108] },
  IQ4_XS: { id: 23, columns: 256, bytes: 136, scales: [0] },
};

/** Size of a step between neighbouring codes that makes values of about 0.2. */
const STEP: Partial<Record<GgufDtype, number>> = {
  Q8_0: 2e-3,
  IQ4_NL: 2e-3,
  Q4_K: 2e-4,
  Q5_K: 1e-4,
  Q6_K: 1e-4,
  Q2_K: 5e-3,
  Q3_K: 2e-3,
  IQ4_XS: 1e-4,
};

export const typeId = (dtype: GgufDtype): number => TYPES[dtype].id;
export const blockColumns = (dtype: GgufDtype): number => TYPES[dtype].columns;

/** `values` weights with random bits but sane scales. */
export function randomBlocks(dtype: GgufBlock, name: string, values: number): Uint8Array {
  const { columns, bytes, scales = [] } = TYPES[dtype];
  const blocks = values / columns;
  const random = noise(`${name} ${dtype}`, blocks * bytes, 128, 7);
  const result = Uint8Array.from(random, value => Math.floor(value) + 128);
  const view = new DataView(result.buffer);
  const steps = noise(`${name} scales`, blocks * 2, 1, 8);
  for (let block = 0; block < blocks; block++) {
    for (const [i, at] of scales.entries()) {
      view.setUint16(block * bytes + at, halfOf((STEP[dtype] ?? 0.02) * steps[block * 2 + i]), true);
    }
    // 2^-6 to 2^-3
    if (dtype === 'MXFP4') result[block * bytes] = 121 + (result[block * bytes] & 3);
  }
  return result;
}

export function decode(dtype: GgufDtype, bytes: Uint8Array): Float32Array {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const { columns, bytes: size } = TYPES[dtype];
  const values = new Float32Array((bytes.length / size) * columns);
  if (dtype === 'F32') for (let i = 0; i < values.length; i++) values[i] = view.getFloat32(i * 4, true);
  else if (dtype === 'BF16')
    for (let i = 0; i < values.length; i++) values[i] = bfloatValue(view.getUint16(i * 2, true));
  else if (dtype === 'F16') for (let i = 0; i < values.length; i++) values[i] = halfValue(view.getUint16(i * 2, true));
  else decodeBlockRow(GGUF_LAYOUT[dtype]!, view, 0, values.length, values);
  return values;
}

/** Floats, Q8_0 and Q4_0: the scale is the largest value's, codes are the nearest ones. */
export function encode(dtype: GgufFloat | 'Q8_0' | 'Q4_0', values: Float32Array): Uint8Array {
  const { columns, bytes } = TYPES[dtype];
  const result = new Uint8Array((values.length / columns) * bytes);
  const view = new DataView(result.buffer);
  if (dtype === 'F32') values.forEach((value, i) => void view.setFloat32(i * 4, value, true));
  else if (dtype === 'BF16') values.forEach((value, i) => void view.setUint16(i * 2, bfloatOf(value), true));
  else if (dtype === 'F16') values.forEach((value, i) => void view.setUint16(i * 2, halfOf(value), true));
  else {
    for (let at = 0, from = 0; from < values.length; at += bytes, from += columns) {
      const block = values.subarray(from, from + columns);
      const largest = block.reduce((max, value) => Math.max(max, Math.abs(value)), 0);
      const top = dtype === 'Q8_0' ? 127 : 7;
      view.setUint16(at, halfOf(largest / top), true);
      const scale = halfValue(view.getUint16(at, true)) || 1;
      const codes = Array.from(block, value => Math.max(-top, Math.min(top, Math.round(value / scale))));
      if (dtype === 'Q8_0') for (let j = 0; j < 32; j++) result[at + 2 + j] = codes[j];
      else for (let j = 0; j < 16; j++) result[at + 2 + j] = (codes[j] + 8) | ((codes[j + 16] + 8) << 4);
    }
  }
  return result;
}

/** Bits of the nearest float16; small numbers only, as scales and weights are. */
export function halfOf(value: number): number {
  const sign = value < 0 ? 0x8000 : 0;
  const size = Math.abs(value);
  if (size === 0) return sign;
  const exponent = Math.max(-14, Math.floor(Math.log2(size)));
  const mantissa = Math.round(size * 2 ** (10 - exponent));
  // a mantissa that was rounded up to 2048 carries into the exponent by itself
  return sign | (exponent === -14 && mantissa < 1024 ? mantissa : ((exponent + 14) << 10) + mantissa);
}
