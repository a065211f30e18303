/**
 * Integer rows -> tiles of 16 rows x 64 columns with float32 scales. params of all of them: columns of one scale (a multiple of
 * 64, or 0: one scale per row), kind of the scales (NUMBER_KIND), step (every step-th row is taken). inputs: codes, scales.
 */

import { GROUP, groupsOf, layoutBytes, panelsOf, TILE_BYTES, TILE_ROWS, type TileLayout } from '../layouts.ts';
import { expectBytes, KIND_BYTES, numbersOf, type Packer, scratch } from './packer.ts';

const panelIn = scratch();
const panelOut = scratch();

/** Two zero codes of a nibble format. */
const ZERO_NIBBLES = 0x88;

/** How a row-major integer format differs from its tile layout. */
interface RowFormat {
  readonly name: string;
  readonly layout: TileLayout;
  /** Bytes of the codes of one row in the file. */
  rowBytes(columns: number): number;
  /** Columns in one byte of a padded row. */
  readonly perByte: number;
  /** Byte of a padded row that is made of zero codes. */
  readonly zero: number;
  /** One row of the file to a padded row at byte `at`, in the codes of the layout; what follows the columns may be anything. */
  loadRow(row: Uint8Array, bytes: Uint8Array, words: Uint32Array, at: number): void;
  /** One panel of 16 padded rows -> the codes of its tiles. `stride`: words of a padded row. */
  tiles(input: Uint32Array, stride: number, groups: number, out: Uint32Array): void;
}

const asItIs: RowFormat['loadRow'] = (row, bytes, _words, at) => bytes.set(row, at);

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

/** Four fields of two bits -> the low two bits of four nibbles. */
const PAIRS = Uint32Array.from({ length: 256 }, (_, b) => {
  return (b & 3) | ((b & 12) << 2) | ((b & 48) << 4) | ((b & 192) << 6);
});
/** Eight bits -> the third bit of eight nibbles. */
const THIRD_BITS = Uint32Array.from({ length: 256 }, (_, b) => {
  let word = 0;
  for (let bit = 0; bit < 8; bit++) word |= ((b >> bit) & 1) << (4 * bit + 2);
  return word >>> 0;
});

/** Codes v + 2 of two bits; v + 8 = code + 6. */
const loadTwoBits: RowFormat['loadRow'] = (row, _bytes, words, at) => {
  for (let i = 0, to = at >> 2; i < row.length; i += 2, to++) {
    words[to] = (PAIRS[row[i]] | (PAIRS[i + 1 < row.length ? row[i + 1] : 0] << 16)) + 0x66666666;
  }
};

/** Codes v + 4 of three bits, per 64: 16 bytes of low bit pairs, 8 bytes of high bits; v + 8 = code + 4. */
const loadThreeBits: RowFormat['loadRow'] = (row, _bytes, words, at) => {
  for (let g = 0, to = at >> 2; g < row.length; g += 24) {
    for (let i = 0; i < 8; i++, to++) {
      const low = PAIRS[row[g + 2 * i]] | (PAIRS[row[g + 2 * i + 1]] << 16);
      words[to] = (low | THIRD_BITS[row[g + 16 + i]]) + 0x44444444;
    }
  }
};

/** Brings the rows of a panel into scratch, each padded to whole groups with zero codes; missing rows are zero codes. */
function loadPanel(format: RowFormat, codes: Uint8Array, row0: number, rows: number, columns: number, step: number) {
  const rowBytes = format.rowBytes(columns);
  const paddedBytes = (groupsOf(columns) * GROUP) / format.perByte;
  const words = panelIn((TILE_ROWS * paddedBytes) >> 2);
  const bytes = new Uint8Array(words.buffer, 0, TILE_ROWS * paddedBytes);
  const used = Math.ceil(columns / format.perByte);
  for (let r = 0; r < TILE_ROWS; r++) {
    const at = r * paddedBytes;
    if (row0 + r >= rows) {
      bytes.fill(format.zero, at, at + paddedBytes);
      continue;
    }
    const from = (row0 + r) * step * rowBytes;
    format.loadRow(codes.subarray(from, from + rowBytes), bytes, words, at);
    bytes.fill(format.zero, at + used, at + paddedBytes);
    // An odd number of columns leaves a nibble in the file that belongs to no column.
    if (columns % format.perByte !== 0) {
      bytes[at + used - 1] = (bytes[at + used - 1] & 0x0f) | (format.zero & 0xf0);
    }
  }
  return words;
}

/** `group`: columns of one scale unless params say otherwise. */
function tilePacker(format: RowFormat, group: number): Packer {
  const tileBytes = TILE_BYTES[format.layout];
  const codeBytes = tileBytes - TILE_ROWS * 4;
  const { name } = format;
  return ([codes, scaleBytes], rows, columns, out, params = [group, 0, 1]) => {
    const [perScale, kind, step] = params;
    const groups = groupsOf(columns);
    const scalesPerRow = perScale === 0 ? 1 : Math.ceil(columns / perScale);
    const groupsPerScale = perScale === 0 ? groups : perScale / GROUP;
    const storedRows = (rows - 1) * step + 1;
    expectBytes(name, 'the weights', codes.byteLength, storedRows * format.rowBytes(columns));
    expectBytes(name, 'the scales', scaleBytes.byteLength, storedRows * scalesPerRow * KIND_BYTES[kind]);
    expectBytes(name, 'the output', out.byteLength, layoutBytes(format.layout, rows, columns));
    const scales = numbersOf(scaleBytes, kind);
    const stride = ((groups * GROUP) / format.perByte) >> 2;
    const panelBytes = groups * tileBytes;
    const words = panelOut(panelBytes >> 2);
    const floats = new Float32Array(words.buffer, 0, panelBytes >> 2);
    const packed = new Uint8Array(words.buffer, 0, panelBytes);
    for (let panel = 0; panel < panelsOf(rows); panel++) {
      const row0 = panel * TILE_ROWS;
      format.tiles(loadPanel(format, codes, row0, rows, columns, step), stride, groups, words);
      for (let g = 0; g < groups; g++) {
        const at = (g * tileBytes + codeBytes) >> 2;
        const s = Math.floor(g / groupsPerScale);
        for (let r = 0; r < TILE_ROWS; r++) {
          const row = row0 + r;
          floats[at + r] = row < rows ? scales[row * step * scalesPerRow + s] : 0;
        }
      }
      out.set(packed, panel * panelBytes);
    }
  };
}

const nibbles = { layout: 'q4g64-f32' as const, perByte: 2, zero: ZERO_NIBBLES, tiles: nibbleTiles };
const fourBits = { ...nibbles, rowBytes: (columns: number): number => Math.ceil(columns / 2), loadRow: asItIs };

export const TILE_PACKERS: Readonly<Record<string, Packer>> = {
  /** Two's complement bytes -> q8g64-f32. */
  'int8-row': tilePacker(
    {
      name: 'int8-row',
      layout: 'q8g64-f32',
      perByte: 1,
      zero: 0,
      rowBytes: columns => columns,
      loadRow: asItIs,
      tiles: byteTiles,
    },
    0,
  ),
  /** Nibbles v + 8, low nibble = even column, ceil(columns / 2) bytes a row -> q4g64-f32. */
  'int4-row': tilePacker({ ...fourBits, name: 'int4-row' }, 0),
  'int4-g64': tilePacker({ ...fourBits, name: 'int4-g64' }, GROUP),
  /** Bit planes, 24 bytes per 64 columns -> q4g64-f32. */
  'int3-g64': tilePacker(
    { ...nibbles, name: 'int3-g64', rowBytes: columns => groupsOf(columns) * 24, loadRow: loadThreeBits },
    GROUP,
  ),
  /** Four codes a byte, the first in the lowest bits -> q4g64-f32. */
  'int2-row': tilePacker(
    { ...nibbles, name: 'int2-row', rowBytes: columns => Math.ceil(columns / 4), loadRow: loadTwoBits },
    0,
  ),
};
