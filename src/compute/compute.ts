/**
 * What layers use to compute: commands on tensors and matrices, gathered into jobs that all lanes share. Layers never see a
 * kernel, a thread or an address. Commands of one job must not depend on each other; `run()` ends the job.
 */

import { InternalError } from '../common/errors.ts';
import { Op, type OpCode } from '../kernels/commands.ts';
import type { SelectedKernels } from '../kernels/select.ts';
import { groupsOf } from '../quant/layouts.ts';
import type { Arenas, Tensor } from './arenas.ts';
import { Lanes } from './lanes.ts';
import type { Matrix } from './matrix.ts';

/** Activations that feed matrices: float32 rows and, for integer formats, their int8 codes. */
export interface Input {
  readonly x: Tensor;
  readonly columns: number;
  readonly groups: number;
  readonly codes: Tensor;
  readonly scales: Tensor;
  readonly sums: Tensor;
  /** Bumped whenever the home copy changes; copies remember which version they hold. */
  version: number;
  readonly floatCopy: number[];
  readonly codeCopy: number[];
}

/** What attention needs of a batch: its rows and where their past is. */
export interface History {
  readonly rows: number;
  /** Keys that the last row sees. */
  readonly keys: number;
  readonly positions: Tensor;
  /** kvLayout: id of the layout of keys and values, f32 or bf16. */
  readonly cache: { readonly kvLayout: number; arenaOf(layer: number): number; rowTables(layer: number): Tensor };
}

export interface HeadShape {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly scale: number;
}

// What things cost is counted in multiply-adds of a 4-bit matrix, of which a lane does about 70 in a nanosecond.
/** An element that a float operation reads and writes. */
const ELEMENT_COST = 16;
/** A multiply-add with float weights, or between float activations. */
const FLOAT_COST = 4;
/** An element whose exponential is taken. */
const EXPONENTIAL_COST = 64;

interface CopyBack {
  from: number;
  to: Tensor;
  firstRow: number;
  rows: number;
  n: number;
}

export class Compute {
  readonly arenas: Arenas;
  readonly lanes: Lanes;
  /** Float32 activations against decoded weights everywhere. */
  readonly exact: boolean;
  readonly #copyBacks: CopyBack[] = [];
  /** Lane-owned floats for attention scores and decoded rows. */
  readonly #scratch: Tensor;

  constructor(arenas: Arenas, options: { lanes: number; exact: boolean; scratchFloats: number }) {
    this.arenas = arenas;
    this.lanes = new Lanes(options.lanes);
    this.exact = options.exact;
    // 64 extra floats keep two lanes off one cache line
    this.#scratch = arenas.tensor(options.lanes, Math.ceil(options.scratchFloats / 64) * 64 + 64, { replicated: true });
  }

  /** An input of up to `rows` rows; `x` may be an existing tensor. */
  input(rows: number, columns: number, x?: Tensor): Input {
    const groups = groupsOf(columns);
    const replicated = { replicated: true };
    return {
      x: x ?? this.arenas.tensor(rows, columns, replicated),
      columns,
      groups,
      codes: this.arenas.tensor(rows, this.exact ? 0 : groups * 16, replicated),
      scales: this.arenas.tensor(rows, this.exact ? 0 : groups, replicated),
      sums: this.arenas.tensor(rows, this.exact ? 0 : groups, replicated),
      version: 0,
      floatCopy: [],
      codeCopy: [],
    };
  }

  /** Starts the lanes; call after the arenas are committed. */
  start(selected: SelectedKernels): Promise<void> {
    return this.lanes.start(this.arenas.memories, selected);
  }

  close(): Promise<void> {
    return this.lanes.close();
  }

  // ---- whole operations (run at once) -------------------------------------------------------------------------------

  /** Fills the int8 codes of rows 0..n-1 of an input whose float rows are already there. */
  quantise(input: Input, n: number): void {
    input.version++;
    if (this.exact) return;
    const { x, codes, scales, sums, columns } = input;
    const p = this.#command(Op.quantise, 0, n, columns * ELEMENT_COST);
    this.#args(p, x.at[0], columns, codes.at[0], scales.at[0], sums.at[0]);
    this.run();
  }

  /** input rows = RMSNorm(x rows) * weight, quantised too. */
  rmsNormInto(x: Tensor, weight: Tensor, eps: number, input: Input, n: number): void {
    input.version++;
    const { columns } = input;
    const p = this.#command(this.exact ? Op.rmsNorm : Op.rmsNormQuantise, 0, n, columns * 2 * ELEMENT_COST);
    this.#args(p, x.at[0], weight.at[0], input.x.at[0], columns);
    this.lanes.control.floats[p + 4] = eps;
    this.#args(p + 5, input.codes.at[0], input.scales.at[0], input.sums.at[0]);
    this.run();
  }

  /** Rows of x, in place; columns = the whole row. */
  rmsNorm(x: Tensor, weight: Tensor, eps: number, n: number): void {
    const p = this.#command(Op.rmsNorm, 0, n, x.columns * ELEMENT_COST);
    this.#args(p, x.at[0], weight.at[0], x.at[0], x.columns);
    this.lanes.control.floats[p + 4] = eps;
  }

  clamp(x: Tensor, limit: number, n: number): void {
    const p = this.#command(Op.clamp, 0, n * x.columns, ELEMENT_COST);
    this.#args(p, x.at[0]);
    this.lanes.control.floats[p + 1] = limit;
  }

  rope(
    x: Tensor,
    heads: number,
    headDim: number,
    rotaryDim: number,
    table: Tensor,
    positions: Tensor,
    n: number,
  ): void {
    const p = this.#command(Op.rope, 0, n, x.columns * ELEMENT_COST);
    this.#args(p, x.at[0], heads, headDim, rotaryDim, table.at[0], positions.at[0]);
  }

  add(x: Tensor, y: Tensor, n: number): void {
    this.#args(this.#command(Op.add, 0, n * x.columns, ELEMENT_COST), x.at[0], y.at[0]);
  }

  softmax(x: Tensor, n: number): void {
    this.#args(this.#command(Op.softmax, 0, n, x.columns * EXPONENTIAL_COST), x.at[0], x.at[0], x.columns);
  }

  topK(x: Tensor, k: number, ids: Tensor, weights: Tensor, normalise: boolean, n: number): void {
    const p = this.#command(Op.topK, 0, n, x.columns * k * ELEMENT_COST);
    this.#args(p, x.at[0], x.columns, k, ids.at[0], weights.at[0], normalise ? 1 : 0);
  }

  /** x[r] += sum over slots, in slot order, of weights[r, s] * parts[r*k + s]. */
  combine(x: Tensor, parts: Tensor, weights: Tensor, k: number, n: number): void {
    const p = this.#command(Op.combine, 0, n, x.columns * k * ELEMENT_COST);
    this.#args(p, x.at[0], parts.at[0], weights.at[0], k, x.columns);
  }

  /** Attention in the arena that holds the layer's keys and values. q and out are replicated tensors. */
  attention(q: Tensor, out: Tensor, history: History, layer: number, shape: HeadShape): void {
    const arena = history.cache.arenaOf(layer);
    const n = history.rows;
    const { heads, kvHeads, headDim, scale } = shape;
    if (arena !== 0) this.#copyRows(q, arena, n);
    const p = this.#command(Op.attention, arena, n * heads, history.keys * headDim * 2 * FLOAT_COST);
    this.#args(p, q.at[arena], out.at[arena], heads, kvHeads, headDim);
    this.lanes.control.floats[p + 5] = scale;
    const tables = history.cache.rowTables(layer).at[arena];
    const { kvLayout } = history.cache;
    this.#args(
      p + 6,
      history.positions.at[arena],
      tables,
      kvLayout,
      this.#scratch.at[arena],
      this.#scratch.columns * 4,
    );
    if (arena !== 0) this.#copyBacks.push({ from: arena, to: out, firstRow: 0, rows: out.columns, n });
  }

  /**
   * Rows firstRow..firstRow+n-1 of x (replicated) as bfloat16, rounded to nearest even, at the even address `to` of an arena.
   */
  storeBf16(x: Tensor, firstRow: number, n: number, arena: number, to: number): void {
    if (arena !== 0) this.#copyRows(x, arena, n, firstRow);
    const p = this.#command(Op.toBf16, arena, n * x.columns, ELEMENT_COST);
    this.#args(p, x.at[arena] + firstRow * x.columns * 4, to);
  }

  /** y rows = w x rows. Output columns beyond w.rows are left alone. */
  linear(w: Matrix, input: Input, y: Tensor, n: number): void {
    for (let i = 0; i < w.pieces.length; i++) {
      const piece = w.pieces[i];
      this.stage(input, piece.arena, w, n);
      const to = y.at[piece.arena] + piece.firstRow * 4;
      this.matmul(w, piece.arena, piece.offset, piece.rows, input, 0, 0, to, y.columns, 0, n);
      if (piece.arena !== 0) {
        this.#copyBacks.push({ from: piece.arena, to: y, firstRow: piece.firstRow, rows: piece.rows, n });
      }
    }
  }

  /**
   * `rows` rows of a matrix at an address, on rows of a staged input. `firstRow` = first activation row when there is no
   * index; xIndex, yIndex and y are addresses in the same arena (0 = no index).
   */
  matmul(
    w: Matrix,
    arena: number,
    offset: number,
    rows: number,
    input: Input,
    firstRow: number,
    xIndex: number,
    y: number,
    yStride: number,
    yIndex: number,
    n: number,
  ): void {
    const { columns, groups } = w;
    if (w.tiled && !this.exact) {
      const p = this.#command(Op.matmulTiles, arena, Math.ceil(rows / 16), columns * 16 * n);
      this.#args(
        p,
        w.layoutId,
        offset,
        rows,
        groups,
        input.codes.at[arena] + firstRow * groups * 64,
        input.scales.at[arena] + firstRow * groups * 4,
        input.sums.at[arena] + firstRow * groups * 4,
        xIndex,
        y,
        yStride,
        yIndex,
        n,
      );
      return;
    }
    const p = this.#command(w.tiled ? Op.matmulExact : Op.matmulFloat, arena, rows, columns * n * FLOAT_COST);
    this.#args(
      p,
      w.layoutId,
      offset,
      columns,
      input.x.at[arena] + firstRow * columns * 4,
      columns,
      xIndex,
      y,
      yStride,
      yIndex,
      n,
      this.#scratch.at[arena],
      this.#scratch.columns * 4,
    );
  }

  /** gate = silu(gate) * up for rows 0..n-1 of one arena, quantised into `input` (whose x is `gate`). */
  swigluInto(input: Input, up: Tensor, arena: number, n: number): void {
    const { columns } = input;
    if (this.exact) {
      this.#args(this.#command(Op.swiglu, arena, n * columns, EXPONENTIAL_COST), input.x.at[arena], up.at[arena]);
      return;
    }
    const p = this.#command(Op.swigluQuantise, arena, n, columns * (EXPONENTIAL_COST + ELEMENT_COST));
    this.#args(
      p,
      input.x.at[arena],
      up.at[arena],
      columns,
      input.codes.at[arena],
      input.scales.at[arena],
      input.sums.at[arena],
    );
  }

  /** y[i] = row ids[i] of w as float32. Serial: it only copies. */
  embed(w: Matrix, ids: ArrayLike<number>, y: Tensor): void {
    for (let i = 0; i < ids.length; i++) {
      const { arena, offset, firstRow } = pieceOfRow(w, ids[i]);
      const staging = this.#scratch.at[arena];
      this.arenas.words[arena][staging / 4] = ids[i] - firstRow;
      const home = y.at[0] + i * w.columns * 4;
      const row = arena === 0 ? home : staging + 64;
      this.lanes.kernels[arena].embed(w.layoutId, offset, w.columns, staging, row, 0, 1);
      if (arena !== 0) {
        const from = this.arenas.words[arena].subarray(row / 4, row / 4 + w.columns);
        this.arenas.words[0].set(from, home / 4);
      }
    }
  }

  allFinite(x: Tensor, n: number): boolean {
    return this.lanes.kernels[0].allFinite(x.at[0], n * x.columns) === 1;
  }

  /** Makes sure an arena has the current rows of an input in the form that `w` reads. */
  stage(input: Input, arena: number, w: Matrix, n: number): void {
    if (arena === 0) return;
    if (w.tiled && !this.exact) {
      if (input.codeCopy[arena] === input.version) return;
      for (const tensor of [input.codes, input.scales, input.sums]) this.#copyRows(tensor, arena, n);
      input.codeCopy[arena] = input.version;
    } else if (input.floatCopy[arena] !== input.version) {
      this.#copyRows(input.x, arena, n);
      input.floatCopy[arena] = input.version;
    }
  }

  // ---- jobs ---------------------------------------------------------------------------------------------------------

  /** Runs the gathered commands on all lanes and returns when all are done. */
  run(): void {
    try {
      this.lanes.run();
      if (this.#copyBacks.length > 0) this.#finishCopies();
    } finally {
      this.#copyBacks.length = 0;
    }
  }

  #command(op: OpCode, arena: number, items: number, cost: number): number {
    return this.lanes.command(op, arena, items, cost);
  }

  /** Always writes twelve words: a rest parameter would allocate for every command. */
  #args(p: number, a: number, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0, i = 0, j = 0, k = 0, l = 0): void {
    const { unsigned } = this.lanes.control;
    unsigned[p] = a;
    unsigned[p + 1] = b;
    unsigned[p + 2] = c;
    unsigned[p + 3] = d;
    unsigned[p + 4] = e;
    unsigned[p + 5] = f;
    unsigned[p + 6] = g;
    unsigned[p + 7] = h;
    unsigned[p + 8] = i;
    unsigned[p + 9] = j;
    unsigned[p + 10] = k;
    unsigned[p + 11] = l;
  }

  #copyRows(tensor: Tensor, arena: number, n: number, firstRow = 0): void {
    const { words } = this.arenas;
    const skipped = firstRow * tensor.columns;
    const from = tensor.at[0] / 4 + skipped;
    words[arena].set(words[0].subarray(from, from + n * tensor.columns), tensor.at[arena] / 4 + skipped);
  }

  #finishCopies(): void {
    for (const { from, to, firstRow, rows, n } of this.#copyBacks) {
      const source = this.arenas.floats(to, from);
      const target = this.arenas.floats(to, 0);
      for (let i = 0; i < n; i++) {
        const at = i * to.columns + firstRow;
        target.set(source.subarray(at, at + rows), at);
      }
    }
  }
}

function pieceOfRow(w: Matrix, row: number): Matrix['pieces'][number] {
  for (const piece of w.pieces) if (row >= piece.firstRow && row < piece.firstRow + piece.rows) return piece;
  throw new InternalError('BAD_TOKEN_ID', `token id ${row} is outside the embedding of ${w.rows} rows`);
}
