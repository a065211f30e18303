/** Decoders of block layouts that are wrong in one way each: from how the reference decodes a row to how they do. */

import { decodeBlockRow } from '../../../quant/blocks.ts';
import { BLOCKS, type BlockLayout, blockRowBytes, LAYOUT_ID } from '../../../quant/layouts.ts';
import { E2M1, E4M3 } from '../../../quant/small-floats.ts';
import type { Kernels } from '../../kernels.ts';
import { memory, reference } from '../../test-support.ts';

const f = Math.fround;

/** A row as the mutant sees it. `right`: its values as they should be; what it returns goes there. */
interface Row {
  readonly row: DataView;
  readonly columns: number;
  readonly right: Float32Array;
}
type Flaw = (row: Row) => ArrayLike<number>;

export interface BlockMutant {
  readonly layout: BlockLayout;
  readonly embed: Kernels['embed'];
}

function mutant(layout: BlockLayout, flaw: Flaw): BlockMutant {
  const bytes = new Uint8Array(memory.buffer);
  const f32 = new Float32Array(memory.buffer);
  const i32 = new Int32Array(memory.buffer);
  const embed: Kernels['embed'] = (id, w, columns, ids, y, row0, row1) => {
    reference.embed(id, w, columns, ids, y, row0, row1);
    if (id !== LAYOUT_ID[layout]) return;
    const size = blockRowBytes(layout, columns);
    for (let i = row0; i < row1; i++) {
      const at = w + i32[ids / 4 + i] * size;
      const to = y / 4 + i * columns;
      const row = new DataView(bytes.slice(at, at + size).buffer);
      f32.set(flaw({ row, columns, right: f32.slice(to, to + columns) }), to);
    }
  };
  return { layout, embed };
}

const each = (change: (value: number, column: number, row: DataView, columns: number) => number): Flaw => {
  return ({ row, columns, right }) => right.map((value, c) => change(value, c, row, columns));
};

/** The row decoded after its bytes have been changed. */
const edited = (layout: BlockLayout, edit: (row: Uint8Array, columns: number) => void): Flaw => {
  return ({ row, columns, right }) => {
    edit(new Uint8Array(row.buffer), columns);
    decodeBlockRow(layout, row, 0, columns, right);
    return right;
  };
};

const swapNibbles = (row: Uint8Array, from: number, to: number): void => {
  for (let i = from; i < to; i++) row[i] = (row[i] >> 4) | (row[i] << 4);
};

const eachBlock = (layout: BlockLayout, edit: (block: Uint8Array) => void): Flaw => {
  const { bytes } = BLOCKS[layout];
  return edited(layout, row => {
    for (let at = 0; at < row.length; at += bytes) edit(row.subarray(at, at + bytes));
  });
};

const flushed = each(value => (Math.abs(value) < 2 ** -126 ? 0 : value));

const nvfp4ScalesFirst: Flaw = ({ row, columns, right }) =>
  right.map((_, c) => {
    const whole = row.getFloat32(0, true);
    const byte = row.getUint8(4 + columns / 16 + (c >> 1));
    return E2M1[(byte >> (4 * (c & 1))) & 15] * f(E4M3[row.getUint8(4 + (c >> 4))] * whole);
  });

/** Of q4_1 and of the layouts with few bits. */
const SMALL_BITS: Readonly<Record<string, BlockMutant>> = {
  'q4_1: minimum subtracted': mutant(
    'q4_1',
    eachBlock('q4_1', block => {
      block[3] ^= 0x80;
    }),
  ),
  'q2_k: scale and minimum exchanged': mutant(
    'q2_k',
    eachBlock('q2_k', block => swapNibbles(block, 0, 16)),
  ),
  'q2_k: quarters backwards': mutant(
    'q2_k',
    each((_, c, row, columns) => {
      const right = new Float32Array(columns);
      decodeBlockRow('q2_k', row, 0, columns, right);
      return right[c ^ 96];
    }),
  ),
  'q3_k: third bit inverted': mutant(
    'q3_k',
    eachBlock('q3_k', block => {
      for (let i = 0; i < 32; i++) block[i] ^= 0xff;
    }),
  ),
  'q3_k: third bits of the two halves exchanged': mutant(
    'q3_k',
    eachBlock('q3_k', block => swapNibbles(block, 0, 32)),
  ),
  'q3_k: upper bits of the scales lost': mutant(
    'q3_k',
    eachBlock('q3_k', block => block.fill(0, 104, 108)),
  ),
  'q3_k: scales in pairs': mutant(
    'q3_k',
    eachBlock('q3_k', block => swapNibbles(block, 96, 104)),
  ),
  'iq4_xs: scales of neighbours exchanged': mutant(
    'iq4_xs',
    eachBlock('iq4_xs', block => swapNibbles(block, 4, 8)),
  ),
  'iq4_xs: upper bits of the scales in the other byte order': mutant(
    'iq4_xs',
    eachBlock('iq4_xs', block => block.subarray(2, 4).reverse()),
  ),
};

export const BLOCK_MUTANTS: Readonly<Record<string, BlockMutant>> = {
  ...SMALL_BITS,
  'fp8: NaN is 480': mutant(
    'fp8',
    each((value, c, row, columns) => {
      const blocks = Math.ceil(columns / 128) * 4;
      const code = row.getUint8(blocks + c);
      if ((code & 0x7f) !== 0x7f) return value;
      return (code & 0x80 ? -480 : 480) * row.getFloat32((c >> 7) * 4, true);
    }),
  ),
  'fp8: denormal codes flushed': mutant(
    'fp8',
    edited('fp8', (row, columns) => {
      for (let i = row.length - columns; i < row.length; i++) if ((row[i] & 0x78) === 0) row[i] &= 0x80;
    }),
  ),
  'fp8: first scale for all': mutant(
    'fp8',
    edited('fp8', (row, columns) => {
      for (let i = 4; i < row.length - columns; i++) row[i] = row[i & 3];
    }),
  ),
  'mxfp4: nibbles swapped': mutant(
    'mxfp4',
    edited('mxfp4', (row, columns) => swapNibbles(row, 0, columns / 2)),
  ),
  'mxfp4: NaN scale is a number': mutant(
    'mxfp4',
    edited('mxfp4', (row, columns) => {
      for (let i = columns / 2; i < row.length; i++) if (row[i] === 255) row[i] = 254;
    }),
  ),
  'mxfp4: denormals flushed': mutant('mxfp4', flushed),
  'mxfp4: minus zero lost': mutant(
    'mxfp4',
    each(value => value + 0),
  ),
  'nvfp4: scales multiplied first': mutant('nvfp4', nvfp4ScalesFirst),
  'nvfp4: unsigned scales': mutant(
    'nvfp4',
    edited('nvfp4', (row, columns) => {
      for (let i = 4; i < 4 + columns / 16; i++) row[i] &= 0x7f;
    }),
  ),
  'q4_0: nibbles swapped': mutant(
    'q4_0',
    eachBlock('q4_0', block => swapNibbles(block, 2, 18)),
  ),
  'q5_0: fifth bits of the two halves swapped': mutant(
    'q5_0',
    eachBlock('q5_0', block => block.copyWithin(2, 4, 6)),
  ),
  'q5_1: scale and minimum exchanged': mutant(
    'q5_1',
    eachBlock('q5_1', block => block.set([block[2], block[3], block[0], block[1]])),
  ),
  'q8_0: codes backwards': mutant(
    'q8_0',
    eachBlock('q8_0', block => block.subarray(2).reverse()),
  ),
  'q4_k: minima added': mutant(
    'q4_k',
    eachBlock('q4_k', block => {
      block[3] ^= 0x80;
    }),
  ),
  'q4_k: upper bits of the last scales lost': mutant(
    'q4_k',
    eachBlock('q4_k', block => {
      for (let i = 4; i < 8; i++) block[i] &= 0x3f;
    }),
  ),
  'q4_k: upper bits of the last minima lost': mutant(
    'q4_k',
    eachBlock('q4_k', block => {
      for (let i = 8; i < 12; i++) block[i] &= 0x3f;
    }),
  ),
  'q5_k: fifth bits one sub-block late': mutant(
    'q5_k',
    eachBlock('q5_k', block => {
      for (let i = 16; i < 48; i++) block[i] <<= 1;
    }),
  ),
  'q6_k: halves of the upper bits swapped': mutant(
    'q6_k',
    eachBlock('q6_k', block => {
      const first = block.slice(128, 160);
      block.copyWithin(128, 160, 192);
      block.set(first, 160);
    }),
  ),
  'q6_k: unsigned scales': mutant(
    'q6_k',
    eachBlock('q6_k', block => {
      for (let i = 192; i < 208; i++) block[i] &= 0x7f;
    }),
  ),
  'iq4_nl: codes of q4_0': mutant('iq4_nl', ({ row, columns, right }) => {
    decodeBlockRow('q4_0', row, 0, columns, right);
    return right;
  }),
  'mxfp4-gguf: columns in pairs': mutant('mxfp4-gguf', ({ columns, right }) =>
    right.map((_, c) => right[(c & ~31) + (c & 1) * 16 + ((c & 31) >> 1)]).subarray(0, columns),
  ),
};

/** Changes nothing: must not be found. */
export const HEALTHY: BlockMutant = mutant(
  'q4_k',
  eachBlock('q4_k', () => {}),
);
