/** Weights in block layouts: any codes, scales of a kind. */

import { BLOCKS, type BlockLayout, FP8_BLOCK, layoutBytes } from '../../quant/layouts.ts';
import type { Kind, RandomValues } from '../random-values.ts';

type Put = (view: DataView, at: number, random: RandomValues, kind: Kind) => void;

/** float16 scales: those of ordinary kinds are small numbers, others any pattern of the kind. */
const putHalf: Put = (view, at, random, kind) => {
  const ordinary = (random.bits() & 0x83ff) | ((8 + (random.bits() & 7)) << 10);
  const masks: Partial<Record<Kind, number>> = { denormal: 0x83ff, zero: 0x8000, special: 0xffff };
  const any = random.bits() & (masks[kind] ?? 0xbfff);
  const wild = kind in masks || kind === 'extreme';
  view.setUint16(at, wild ? any : kind === 'huge' ? 0x7bff - (any & 0x83) : ordinary, true);
};

const putFloat: Put = (view, at, random, kind) => view.setFloat32(at, random.float(kind), true);

/** E8M0: the ends of the range, or powers around 1; NaN only among special ones. */
const putE8m0: Put = (view, at, random, kind) => {
  const range: Partial<Record<Kind, [number, number]>> = {
    denormal: [0, 3],
    zero: [0, 0],
    huge: [250, 254],
    extreme: [0, 254],
    special: [0, 255],
  };
  const [from, to] = range[kind] ?? [112, 134];
  view.setUint8(at, kind === 'special' && random.bits() % 4 === 0 ? 255 : random.integer(from, to));
};

/** e4m3: any code, NaN only among special ones. */
const putE4m3: Put = (view, at, random, kind) => {
  const code = random.bits() & (kind === 'denormal' ? 0x87 : kind === 'zero' ? 0x80 : 0xff);
  view.setUint8(at, (code & 0x7f) === 0x7f && kind !== 'special' ? code & 0xf0 : code);
};

/** Where the scales of a block of a GGUF layout are, and how they are written. */
const SCALES: Readonly<Record<Exclude<BlockLayout, 'fp8' | 'mxfp4' | 'nvfp4'>, readonly [number, Put][]>> = {
  q4_0: [[0, putHalf]],
  q5_0: [[0, putHalf]],
  q5_1: [
    [0, putHalf],
    [2, putHalf],
  ],
  q8_0: [[0, putHalf]],
  q4_k: [
    [0, putHalf],
    [2, putHalf],
  ],
  q5_k: [
    [0, putHalf],
    [2, putHalf],
  ],
  q6_k: [[208, putHalf]],
  iq4_nl: [[0, putHalf]],
  'mxfp4-gguf': [[0, putE8m0]],
  q4_1: [
    [0, putHalf],
    [2, putHalf],
  ],
  q2_k: [
    [80, putHalf],
    [82, putHalf],
  ],
  q3_k: [[108, putHalf]],
  iq4_xs: [[0, putHalf]],
};

/** Bytes of a matrix in a block layout. */
export function blockWeights(
  random: RandomValues,
  layout: BlockLayout,
  rows: number,
  columns: number,
  kind: Kind,
): Uint8Array {
  const bytes = random.bytes(layoutBytes(layout, rows, columns));
  const view = new DataView(bytes.buffer);
  const rowBytes = bytes.length / rows;
  const each = (from: number, count: number, step: number, put: Put): void => {
    for (let i = 0; i < count; i++) put(view, from + i * step, random, kind);
  };
  for (let at = 0; at < bytes.length; at += rowBytes) {
    if (layout === 'fp8') {
      const scales = Math.ceil(columns / FP8_BLOCK);
      each(at, scales, 4, putFloat);
      each(at + scales * 4, columns, 1, putE4m3);
    } else if (layout === 'nvfp4') {
      putFloat(view, at, random, kind);
      each(at + 4, columns / 16, 1, putE4m3);
    } else if (layout === 'mxfp4') each(at + columns / 2, columns / 32, 1, putE8m0);
    else {
      const { columns: step, bytes: size } = BLOCKS[layout];
      for (const [first, put] of SCALES[layout]) each(at + first, columns / step, size, put);
    }
  }
  return bytes;
}
