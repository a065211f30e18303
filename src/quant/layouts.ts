/**
 * Layouts: how a matrix [rows, columns] lies in memory when a kernel reads it. Float layouts are row-major and unpadded.
 * Tile layouts pad rows to 16 and columns to 64; a tile is 16 rows x 64 columns and tiles of one row panel are adjacent:
 * tile(panel, group) starts at (panel * groups + group) * tileBytes. Byte order inside a tile: docs/formats.md.
 */

export const TILE_ROWS = 16;
export const GROUP = 64;

export type FloatLayout = 'f32' | 'bf16' | 'f16';
/** `-f32` variants carry float32 scales (foreign containers, never rounded); the plain ones bf16 scales. */
export type TileLayout = 'q4g64' | 'q4g64-f32' | 'q8g64' | 'q8g64-f32';
export type Layout = FloatLayout | TileLayout;

/** Numbers by which kernels know a layout. */
export const LAYOUT_ID: Readonly<Record<Layout, number>> = {
  f32: 0,
  bf16: 1,
  f16: 2,
  q4g64: 3,
  'q4g64-f32': 4,
  q8g64: 5,
  'q8g64-f32': 6,
};

const FLOAT_BYTES: Readonly<Record<FloatLayout, number>> = { f32: 4, bf16: 2, f16: 2 };

/** Bytes of one tile: codes, then 16 scales. */
export const TILE_BYTES: Readonly<Record<TileLayout, number>> = {
  q4g64: (TILE_ROWS * GROUP) / 2 + TILE_ROWS * 2,
  'q4g64-f32': (TILE_ROWS * GROUP) / 2 + TILE_ROWS * 4,
  q8g64: TILE_ROWS * GROUP + TILE_ROWS * 2,
  'q8g64-f32': TILE_ROWS * GROUP + TILE_ROWS * 4,
};

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
  return rows * columns * FLOAT_BYTES[layout];
}
