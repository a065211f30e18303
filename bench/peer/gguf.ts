/**
 * GGUF version 3, what llama.cpp loads. Only what the benchmarks need; the layout is
 * magic, version, counts, metadata, tensor table, padding to ALIGNMENT, tensor data (each tensor aligned).
 */

import { closeSync, openSync, writeSync } from 'node:fs';
import { alignUp } from '../../src/common/units.ts';
import { bfloatValue } from '../../src/quant/floats.ts';
import { GROUP, groupsOf, TILE_BYTES, TILE_ROWS } from '../../src/quant/layouts.ts';

const MAGIC = 0x46554747;
const VERSION = 3;
export const ALIGNMENT = 32;
/** Q4_0: 32 codes of one row, float16 scale first; element i in the low nibble of byte i, i + 16 in the high one. */
export const Q4_0_BLOCK = 32;
export const Q4_0_BYTES = 18;

/** Types of tensors by their GGUF numbers. */
export const GGUF_TYPE = { F32: 0, Q4_0: 2, Q4_K: 12, Q6_K: 14 } as const;

/** Elements and bytes of a block. */
const BLOCKS: Readonly<Record<keyof typeof GGUF_TYPE, readonly [elements: number, bytes: number]>> = {
  F32: [1, 4],
  Q4_0: [Q4_0_BLOCK, Q4_0_BYTES],
  Q4_K: [256, 144],
  Q6_K: [256, 210],
};

/** A metadata value with its type; lists hold one type. */
export type GgufValue =
  | { readonly uint32: number }
  | { readonly float32: number }
  | { readonly string: string }
  | { readonly strings: readonly string[] }
  | { readonly int32s: readonly number[] };

export interface GgufTensor {
  readonly name: string;
  readonly type: keyof typeof GGUF_TYPE;
  /** Innermost dimension first: columns, rows, experts. */
  readonly dims: readonly number[];
}

export function tensorBytes({ type, dims }: GgufTensor): number {
  const elements = dims.reduce((product, n) => product * n, 1);
  const [perBlock, bytes] = BLOCKS[type];
  return (elements / perBlock) * bytes;
}

/** Everything before the data of the first tensor. */
export function ggufHeader(metadata: ReadonlyMap<string, GgufValue>, tensors: readonly GgufTensor[]): Buffer {
  const parts: Buffer[] = [u32(MAGIC), u32(VERSION), u64(tensors.length), u64(metadata.size)];
  for (const [key, value] of metadata) parts.push(text(key), valueBytes(value));
  let offset = 0;
  for (const tensor of tensors) {
    parts.push(text(tensor.name), u32(tensor.dims.length), ...tensor.dims.map(u64));
    parts.push(u32(GGUF_TYPE[tensor.type]), u64(offset));
    offset += alignUp(tensorBytes(tensor), ALIGNMENT);
  }
  const bytes = Buffer.concat(parts);
  return Buffer.concat([bytes, Buffer.alloc(alignUp(bytes.length, ALIGNMENT) - bytes.length)]);
}

/** Writes a file whose tensors come in pieces, so that none has to be in memory whole. Returns its size. */
export function writeGguf(
  path: string,
  metadata: ReadonlyMap<string, GgufValue>,
  tensors: readonly (GgufTensor & { pieces(): Iterable<Uint8Array> })[],
): number {
  const fd = openSync(path, 'wx');
  try {
    let at = writeSync(fd, ggufHeader(metadata, tensors));
    for (const tensor of tensors) {
      let bytes = 0;
      for (const piece of tensor.pieces()) bytes += writeAll(fd, piece);
      if (bytes !== tensorBytes(tensor)) throw new Error(`${tensor.name}: ${bytes} bytes, not ${tensorBytes(tensor)}`);
      at += bytes + writeAll(fd, Buffer.alloc(alignUp(bytes, ALIGNMENT) - bytes));
    }
    return at;
  } finally {
    closeSync(fd);
  }
}

/**
 * A q4g64 matrix as Q4_0: the same codes and the same scales (each twice), so both formats hold equal weights. Rows and
 * columns must be multiples of 16 and 64. Throws RangeError for a scale that float16 cannot hold exactly.
 */
export function tilesToQ4_0(tiles: Uint8Array, rows: number, columns: number): Uint8Array {
  if (rows % TILE_ROWS !== 0 || columns % GROUP !== 0) throw new RangeError(`${rows} x ${columns} needs padding`);
  const groups = groupsOf(columns);
  const rowBytes = (columns / Q4_0_BLOCK) * Q4_0_BYTES;
  const out = new Uint8Array(rows * rowBytes);
  const half = new DataView(out.buffer);
  const view = new DataView(tiles.buffer, tiles.byteOffset, tiles.byteLength);
  const codeBytes = (TILE_ROWS * GROUP) / 2;
  for (let row = 0; row < rows; row++) {
    const r = row % TILE_ROWS;
    for (let g = 0; g < groups; g++) {
      const tile = ((row >> 4) * groups + g) * TILE_BYTES.q4g64;
      const scale = halfFromBfloat(view.getUint16(tile + codeBytes + r * 2, true));
      const first = row * rowBytes + g * 2 * Q4_0_BYTES;
      const second = first + Q4_0_BYTES;
      half.setUint16(first, scale, true);
      half.setUint16(second, scale, true);
      for (let i = 0; i < 16; i++) {
        // columns i and 32 + i share a byte of the tile, and so do i + 16 and i + 48, four quads on
        const low = tiles[tile + (i >> 2) * 64 + r * 4 + (i & 3)];
        const high = tiles[tile + ((i >> 2) + 4) * 64 + r * 4 + (i & 3)];
        out[first + 2 + i] = (low & 15) | ((high & 15) << 4);
        out[second + 2 + i] = (low >> 4) | (high & 0xf0);
      }
    }
  }
  return out;
}

/** float16 bits of a bfloat16; its seven bits of fraction always fit, its exponent must. */
function halfFromBfloat(bits: number): number {
  const exponent = ((bits >> 7) & 255) - 112;
  if ((bits & 0x7fff) === 0) return bits;
  if (exponent < 1 || exponent > 30) throw new RangeError(`a scale of ${bfloatValue(bits)} is no float16`);
  return (bits & 0x8000) | (exponent << 10) | ((bits & 127) << 3);
}

function writeAll(fd: number, bytes: Uint8Array): number {
  for (let done = 0; done < bytes.length; ) done += writeSync(fd, bytes, done);
  return bytes.length;
}

/** Value types by their GGUF numbers, and how a list of them begins. */
function valueBytes(value: GgufValue): Buffer {
  if ('uint32' in value) return Buffer.concat([u32(4), u32(value.uint32)]);
  if ('float32' in value) return Buffer.concat([u32(6), f32(value.float32)]);
  if ('string' in value) return Buffer.concat([u32(8), text(value.string)]);
  const list = 'strings' in value ? value.strings.map(text) : value.int32s.map(n => u32(n >>> 0));
  return Buffer.concat([u32(9), u32('strings' in value ? 8 : 5), u64(list.length), ...list]);
}

function u32(n: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(n);
  return bytes;
}

function u64(n: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(n));
  return bytes;
}

function f32(n: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeFloatLE(n);
  return bytes;
}

function text(s: string): Buffer {
  const bytes = Buffer.from(s, 'utf8');
  return Buffer.concat([u64(bytes.length), bytes]);
}
