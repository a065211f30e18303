/**
 * Packers: raw bytes of a record's extents -> one matrix in a kernel layout (layouts.ts). They run in I/O threads, so they
 * keep their scratch between calls and work on 32-bit words. Inputs and output may start at any byte. A packer never
 * judges values: non-finite scales pass through and are found when they are used.
 */

import { ColiError } from '../common/errors.ts';
import { asFloat32, asUint16, bfloatsToFloatBits, halvesToFloatBits } from './floats.ts';
import { GROUP, groupsOf, layoutBytes, panelsOf, TILE_BYTES, TILE_ROWS, type TileLayout } from './layouts.ts';

/** `inputs` in the order that the packer documents; `out` has exactly the bytes of the layout. */
export type Packer = (inputs: readonly Uint8Array[], rows: number, columns: number, out: Uint8Array) => void;

/** Two zero codes of a nibble format. */
const ZERO_NIBBLES = 0x88;

/** Scratch that grows to the largest panel ever packed by this thread and is then reused. */
function scratch(): (words: number) => Uint32Array {
  let kept = new Uint32Array(0);
  return words => {
    if (kept.length < words) kept = new Uint32Array(words);
    return kept;
  };
}
const panelIn = scratch();
const panelOut = scratch();

function expectBytes(packer: string, what: string, got: number, expected: number): void {
  if (got === expected) return;
  throw new ColiError('PACK_SIZE', `${packer}: ${what} has ${got} bytes, expected ${expected}`, {
    details: { packer, expected, got },
  });
}

/** Bytes as they are: `inputs` one after the other. */
function copy(inputs: readonly Uint8Array[], _rows: number, _columns: number, out: Uint8Array): void {
  let at = 0;
  for (const input of inputs) at += input.byteLength;
  expectBytes('copy', 'the input', at, out.byteLength);
  at = 0;
  for (const input of inputs) {
    out.set(input, at);
    at += input.byteLength;
  }
}

function widen(packer: string, convert: (input: Uint16Array, out: Uint32Array) => void): Packer {
  const STEP = 65536;
  return ([input], rows, columns, out) => {
    const elements = rows * columns;
    expectBytes(packer, 'the input', input.byteLength, elements * 2);
    expectBytes(packer, 'the output', out.byteLength, elements * 4);
    const words = panelOut(Math.min(STEP, elements));
    for (let from = 0; from < elements; from += STEP) {
      const count = Math.min(STEP, elements - from);
      convert(asUint16(input.subarray(from * 2, (from + count) * 2)), words);
      out.set(new Uint8Array(words.buffer, 0, count * 4), from * 4);
    }
  };
}

/** How a row-major integer format differs from its tile layout. */
interface RowFormat {
  readonly name: string;
  readonly layout: TileLayout;
  /** Bytes of the codes of one row in the file. */
  rowBytes(columns: number): number;
  /** Columns in one byte. */
  readonly perByte: number;
  /** Byte made of zero codes. */
  readonly zero: number;
  readonly scalesPerRow: (columns: number) => number;
  /** One panel of 16 padded rows -> the codes of its tiles. `stride`: words of a padded row. */
  tiles(input: Uint32Array, stride: number, groups: number, out: Uint32Array): void;
}

/** Bytes to the layout of 8-bit tiles: a transposition of words, 16 rows x 16 column quads. */
function byteTiles(input: Uint32Array, stride: number, groups: number, out: Uint32Array): void {
  for (let g = 0; g < groups; g++) {
    const tile = (g * TILE_BYTES['q8g64-f32']) >> 2;
    for (let row = 0; row < TILE_ROWS; row++) {
      const from = row * stride + g * 16;
      for (let quad = 0; quad < 16; quad++) out[tile + quad * 16 + row] = input[from + quad];
    }
  }
}

/** Nibbles n0..n3 of the low 16 bits -> the low halves of four bytes. */
function spread(word: number): number {
  const pairs = (word | (word << 8)) & 0x00ff00ff;
  return (pairs | (pairs << 4)) & 0x0f0f0f0f;
}

/** Nibbles in column order to 4-bit tiles: column c shares a byte with column c + 32. */
function nibbleTiles(input: Uint32Array, stride: number, groups: number, out: Uint32Array): void {
  for (let g = 0; g < groups; g++) {
    const tile = (g * TILE_BYTES['q4g64-f32']) >> 2;
    for (let row = 0; row < TILE_ROWS; row++) {
      const from = row * stride + g * 8;
      for (let pair = 0; pair < 4; pair++) {
        const low = input[from + pair];
        const high = input[from + 4 + pair];
        const to = tile + pair * 32 + row;
        out[to] = spread(low & 0xffff) | (spread(high & 0xffff) << 4);
        out[to + 16] = spread(low >>> 16) | (spread(high >>> 16) << 4);
      }
    }
  }
}

/** Copies the rows of a panel into scratch, each padded to whole groups with zero codes; missing rows are zero codes. */
function loadPanel(format: RowFormat, codes: Uint8Array, firstRow: number, rows: number, columns: number): Uint32Array {
  const rowBytes = format.rowBytes(columns);
  const paddedBytes = (groupsOf(columns) * GROUP) / format.perByte;
  const words = panelIn((TILE_ROWS * paddedBytes) >> 2);
  const bytes = new Uint8Array(words.buffer, 0, TILE_ROWS * paddedBytes);
  for (let r = 0; r < TILE_ROWS; r++) {
    const at = r * paddedBytes;
    const used = firstRow + r < rows ? rowBytes : 0;
    const from = (firstRow + r) * rowBytes;
    if (used > 0) bytes.set(codes.subarray(from, from + used), at);
    bytes.fill(format.zero, at + used, at + paddedBytes);
    // An odd number of columns leaves a nibble in the file that belongs to no column.
    if (used > 0 && columns % format.perByte !== 0) {
      bytes[at + used - 1] = (bytes[at + used - 1] & 0x0f) | (format.zero & 0xf0);
    }
  }
  return words;
}

/** inputs: codes [rows, rowBytes], float32 scales [rows, scalesPerRow]. */
function tilePacker(format: RowFormat): Packer {
  const tileBytes = TILE_BYTES[format.layout];
  const codeBytes = tileBytes - TILE_ROWS * 4;
  return ([codes, scaleBytes], rows, columns, out) => {
    const groups = groupsOf(columns);
    const perRow = format.scalesPerRow(columns);
    expectBytes(format.name, 'the weights', codes.byteLength, rows * format.rowBytes(columns));
    expectBytes(format.name, 'the scales', scaleBytes.byteLength, rows * perRow * 4);
    expectBytes(format.name, 'the output', out.byteLength, layoutBytes(format.layout, rows, columns));
    const scales = asFloat32(scaleBytes);
    const stride = ((groups * GROUP) / format.perByte) >> 2;
    const panelBytes = groups * tileBytes;
    const words = panelOut(panelBytes >> 2);
    const floats = new Float32Array(words.buffer, 0, panelBytes >> 2);
    const packed = new Uint8Array(words.buffer, 0, panelBytes);
    for (let panel = 0; panel < panelsOf(rows); panel++) {
      const row0 = panel * TILE_ROWS;
      format.tiles(loadPanel(format, codes, row0, rows, columns), stride, groups, words);
      for (let g = 0; g < groups; g++) {
        const at = (g * tileBytes + codeBytes) >> 2;
        for (let r = 0; r < TILE_ROWS; r++) {
          const row = row0 + r;
          floats[at + r] = row < rows ? scales[row * perRow + (perRow === 1 ? 0 : g)] : 0;
        }
      }
      out.set(packed, panel * panelBytes);
    }
  };
}

const ONE_SCALE = (): number => 1;
const nibbles = {
  layout: 'q4g64-f32' as const,
  perByte: 2,
  zero: ZERO_NIBBLES,
  rowBytes: (columns: number): number => Math.ceil(columns / 2),
  tiles: nibbleTiles,
};

/** Every packer by the name that `PackStep.packer` carries. */
export const PACKERS: Readonly<Record<string, Packer>> = {
  copy,
  'bf16-to-f32': widen('bf16-to-f32', bfloatsToFloatBits),
  'f16-to-f32': widen('f16-to-f32', halvesToFloatBits),
  /** Two's complement bytes [rows, columns], float32 scales [rows] -> q8g64-f32. */
  'int8-row': tilePacker({
    name: 'int8-row',
    layout: 'q8g64-f32',
    perByte: 1,
    zero: 0,
    rowBytes: columns => columns,
    scalesPerRow: ONE_SCALE,
    tiles: byteTiles,
  }),
  /** Nibbles v + 8, low nibble = even column, [rows, ceil(columns / 2)]; float32 scales [rows] -> q4g64-f32. */
  'int4-row': tilePacker({ ...nibbles, name: 'int4-row', scalesPerRow: ONE_SCALE }),
  /** The same nibbles, float32 scales [rows, ceil(columns / 64)] -> q4g64-f32. */
  'int4-g64': tilePacker({ ...nibbles, name: 'int4-g64', scalesPerRow: groupsOf }),
};
