/** A placed weight matrix: where its bytes are and how kernels read them. */

import { groupsOf, isBlockLayout, isTileLayout, LAYOUT_ID, type Layout, layoutBytes } from '../quant/layouts.ts';

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
  /** Block layouts: a row is decoded before it is used. */
  readonly blocks: boolean;
  readonly rows: number;
  readonly columns: number;
  readonly groups: number;
  /** Float and block layouts: bytes from one row to the next. */
  readonly rowBytes: number;
  readonly pieces: readonly MatrixPiece[];
}

export function matrixOf(layout: Layout, rows: number, columns: number, pieces: readonly MatrixPiece[]): Matrix {
  return {
    layout,
    layoutId: LAYOUT_ID[layout],
    tiled: isTileLayout(layout),
    blocks: isBlockLayout(layout),
    rows,
    columns,
    groups: groupsOf(columns),
    rowBytes: layoutBytes(layout, 1, columns),
    pieces,
  };
}
