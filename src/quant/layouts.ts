/**
 * Layouts: how a matrix [rows, columns] lies in memory when a kernel reads it. Float layouts are row-major and unpadded. Block
 * layouts are row-major too: a row holds its own scales and is decoded to float32 before it is used. Tile layouts pad rows to 16 and
 * columns to 64; a tile is 16 rows x 64 columns and tiles of one row panel are adjacent: tile(panel, group) starts at
 * (panel * groups + group) * tileBytes. Byte order inside a tile: docs/formats.md.
 */

export const TILE_ROWS = 16;
export const GROUP = 64;

export type FloatLayout = 'f32' | 'bf16' | 'f16';
/** `-f32` variants carry float32 scales (foreign containers, never rounded); the plain ones bf16 scales. */
export type TileLayout = 'q4g64' | 'q4g64-f32' | 'q8g64' | 'q8g64-f32';
/**
 * fp8: float32 scales of 128 columns each, then e4m3 codes. mxfp4: codes (low nibble = even column), then one E8M0 scale per 32
 * columns. nvfp4: the float32 scale of the tensor, e4m3 scales of 16 columns each, then codes as mxfp4. The others are the
 * blocks of GGUF, as they are in the file. Byte order: docs/formats.md.
 */
export type BlockLayout =
  | 'fp8'
  | 'mxfp4'
  | 'nvfp4'
  | 'q4_0'
  | 'q5_0'
  | 'q5_1'
  | 'q8_0'
  | 'q4_k'
  | 'q5_k'
  | 'q6_k'
  | 'iq4_nl'
  | 'mxfp4-gguf'
  | 'q4_1'
  | 'q2_k'
  | 'q3_k'
  | 'iq4_xs';
export type Layout = FloatLayout | TileLayout | BlockLayout;

/** Numbers by which kernels know a layout. */
export const LAYOUT_ID: Readonly<Record<Layout, number>> = {
  f32: 0,
  bf16: 1,
  f16: 2,
  q4g64: 3,
  'q4g64-f32': 4,
  q8g64: 5,
  'q8g64-f32': 6,
  fp8: 7,
  mxfp4: 8,
  nvfp4: 9,
  q4_0: 10,
  q5_0: 11,
  q5_1: 12,
  q8_0: 13,
  q4_k: 14,
  q5_k: 15,
  q6_k: 16,
  iq4_nl: 17,
  'mxfp4-gguf': 18,
  q4_1: 19,
  q2_k: 20,
  q3_k: 21,
  iq4_xs: 22,
};

const FLOAT_BYTES: Readonly<Record<FloatLayout, number>> = { f32: 4, bf16: 2, f16: 2 };

/** Bytes of one tile: codes, then 16 scales. */
export const TILE_BYTES: Readonly<Record<TileLayout, number>> = {
  q4g64: (TILE_ROWS * GROUP) / 2 + TILE_ROWS * 2,
  'q4g64-f32': (TILE_ROWS * GROUP) / 2 + TILE_ROWS * 4,
  q8g64: TILE_ROWS * GROUP + TILE_ROWS * 2,
  'q8g64-f32': TILE_ROWS * GROUP + TILE_ROWS * 4,
};

export function isTileLayoutId(id: number): boolean {
  return id >= LAYOUT_ID.q4g64 && id <= LAYOUT_ID['q8g64-f32'];
}

export function isBlockLayoutId(id: number): boolean {
  return id >= LAYOUT_ID.fp8;
}

/** Columns of one fp8 scale. */
export const FP8_BLOCK = 128;

/** Columns that a row must be a multiple of, and bytes of so many. fp8 rows may end inside a block. */
export const BLOCKS: Readonly<Record<BlockLayout, { readonly columns: number; readonly bytes: number }>> = {
  fp8: { columns: FP8_BLOCK, bytes: 4 + FP8_BLOCK },
  mxfp4: { columns: 32, bytes: 17 },
  nvfp4: { columns: 16, bytes: 9 },
  q4_0: { columns: 32, bytes: 18 },
  q5_0: { columns: 32, bytes: 22 },
  q5_1: { columns: 32, bytes: 24 },
  q8_0: { columns: 32, bytes: 34 },
  q4_k: { columns: 256, bytes: 144 },
  q5_k: { columns: 256, bytes: 176 },
  q6_k: { columns: 256, bytes: 210 },
  iq4_nl: { columns: 32, bytes: 18 },
  'mxfp4-gguf': { columns: 32, bytes: 17 },
  q4_1: { columns: 32, bytes: 20 },
  q2_k: { columns: 256, bytes: 84 },
  q3_k: { columns: 256, bytes: 110 },
  iq4_xs: { columns: 256, bytes: 136 },
};

export function isBlockLayout(layout: Layout): layout is BlockLayout {
  return layout in BLOCKS;
}

/** Bytes of one row of a block layout. */
export function blockRowBytes(layout: BlockLayout, columns: number): number {
  if (layout === 'fp8') return Math.ceil(columns / FP8_BLOCK) * 4 + columns;
  const { columns: step, bytes } = BLOCKS[layout];
  return (columns / step) * bytes + (layout === 'nvfp4' ? 4 : 0);
}

export function isTileLayout(layout: Layout): layout is TileLayout {
  return layout in TILE_BYTES;
}

export function groupsOf(columns: number): number {
  return Math.ceil(columns / GROUP);
}

export function panelsOf(rows: number): number {
  return Math.ceil(rows / TILE_ROWS);
}

/** Bytes of a whole matrix in a layout. */
export function layoutBytes(layout: Layout, rows: number, columns: number): number {
  if (isTileLayout(layout)) return panelsOf(rows) * groupsOf(columns) * TILE_BYTES[layout];
  if (isBlockLayout(layout)) return rows * blockRowBytes(layout, columns);
  return rows * columns * FLOAT_BYTES[layout];
}
