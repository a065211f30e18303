/** A placed weight matrix: where its bytes are and how kernels read them. */

import { groupsOf, isTileLayout, LAYOUT_ID, type Layout } from '../quant/layouts.ts';

/** Consecutive rows of a matrix in one arena. Matrices larger than an arena have several. */
export interface MatrixPiece {
  readonly arena: number;
  readonly offset: number;
  readonly firstRow: number;
  readonly rows: number;
}

export interface Matrix {
  readonly layout: Layout;
  readonly layoutId: number;
  /** Tile layouts: integer dot (unless `activations: exact`). */
  readonly tiled: boolean;
  readonly rows: number;
  readonly columns: number;
  readonly groups: number;
  readonly pieces: readonly MatrixPiece[];
}

export function matrixOf(layout: Layout, rows: number, columns: number, pieces: readonly MatrixPiece[]): Matrix {
  return {
    layout,
    layoutId: LAYOUT_ID[layout],
    tiled: isTileLayout(layout),
    rows,
    columns,
    groups: groupsOf(columns),
    pieces,
  };
}
