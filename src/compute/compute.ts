/**
 * What layers use to compute: commands on tensors and matrices, gathered into jobs that all lanes share. Layers never see a
 * kernel, a thread or an address. Commands of one job must not depend on each other; `run()` ends the job.
 */

import { InternalError } from '../common/errors.ts';
import { Op, type OpCode } from '../kernels/commands.ts';
import type { SelectedKernels } from '../kernels/select.ts';
import { groupsOf } from '../quant/layouts.ts';
import { PhaseClock } from '../telemetry/clock.ts';
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

// What things cost is counted in multiply-adds of a 4-bit matrix, of which a lane does about 70 in a nanosecond.
/** An element that a float operation reads and writes. */
export const ELEMENT_COST = 16;
/** A multiply-add with float weights, or between float activations. */
export const FLOAT_COST = 4;
/** Decoding an element of a block layout, apart from the multiply-adds that it is used in. */
const DECODE_COST = 32;
/** An element whose exponential is taken. */
export const EXPONENTIAL_COST = 64;

interface CopyBack {
  from: number;
  to: Tensor;
  firstRow: number;
  rows: number;
  n: number;
}

/** gpt-oss: gate and up are limited, and the gate's sigmoid is steeper. */
export interface Clamped {
  readonly limit: number;
  readonly alpha: number;
}

/** The columns of a tensor that belong to heads: head h has columns h*stride + first and on. */
export interface HeadColumns {
  readonly tensor: Tensor;
  readonly stride: number;
  readonly first: number;
}

export class Compute {
  readonly arenas: Arenas;
  readonly lanes: Lanes;
  /** Float32 activations against decoded weights everywhere. */
  readonly exact: boolean;
  /** Layers tell it what they are at. */
  readonly clock = new PhaseClock();
  readonly #copyBacks: CopyBack[] = [];
  /** Lane-owned floats for attention scores and decoded rows. */
  readonly scratch: Tensor;

  constructor(arenas: Arenas, options: { lanes: number; exact: boolean; scratchFloats: number }) {
    this.arenas = arenas;
    this.lanes = new Lanes(options.lanes);
    this.exact = options.exact;
    // 64 extra floats keep two lanes off one cache line
    this.scratch = arenas.tensor(options.lanes, Math.ceil(options.scratchFloats / 64) * 64 + 64, { replicated: true });
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

  /** Arguments of commands that are numbers, at the positions that `command` gives. */
  get floats(): Float32Array {
    return this.lanes.control.floats;
  }

  // ---- whole operations (run at once) -------------------------------------------------------------------------------

  /** Fills the int8 codes of rows 0..n-1 of an input whose float rows are already there. */
  quantise(input: Input, n: number): void {
    input.version++;
    if (this.exact) return;
    this.#quantiseIn(input, 0, n);
    this.run();
  }

  /** input rows = RMSNorm(x rows) * weight, quantised too. */
  rmsNormInto(x: Tensor, weight: Tensor, eps: number, input: Input, n: number): void {
    input.version++;
    const { columns } = input;
    const p = this.command(this.exact ? Op.rmsNorm : Op.rmsNormQuantise, 0, n, columns * 2 * ELEMENT_COST);
    this.args(p, x.at[0], columns, weight.at[0], input.x.at[0], columns, columns);
    this.floats[p + 6] = eps;
    this.args(p + 7, input.codes.at[0], input.scales.at[0], input.sums.at[0]);
    this.run();
  }

  /** y rows = w x rows. Output columns beyond w.rows are left alone. */
  linear(w: Matrix, input: Input, y: Tensor, n: number): void {
    for (let i = 0; i < w.pieces.length; i++) {
      const piece = w.pieces[i];
      this.stage(input, piece.arena, w, n);
      const to = y.at[piece.arena] + piece.firstRow * 4;
      this.matmul(w, piece.arena, piece.offset, piece.rows, input, 0, 0, to, y.columns, 0, n);
      if (piece.arena !== 0) {
        this.copyBack(piece.arena, y, piece.firstRow, piece.rows, n);
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
      const p = this.command(Op.matmulTiles, arena, Math.ceil(rows / 16), columns * 16 * n);
      this.args(
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
    const decoded = w.tiled || w.blocks;
    const cost = columns * (n * FLOAT_COST + (decoded ? DECODE_COST : 0));
    const p = this.command(decoded ? Op.matmulExact : Op.matmulFloat, arena, rows, cost);
    this.args(
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
      this.scratch.at[arena],
      this.scratch.columns * 4,
    );
  }

  /**
   * A small matrix per head: y[:, h*yStride + yFirst ..] = w_h x[:, h*xStride + xFirst ..] for every head h, where w_h is the h-th
   * part of the rows of w (a float or block layout) and strides count the floats of a head in a row. x, y: replicated.
   */
  headLinear(w: Matrix, heads: number, x: HeadColumns, y: HeadColumns, n: number): void {
    const rowsPerHead = w.rows / heads;
    for (const piece of w.pieces) {
      const { arena } = piece;
      if (arena !== 0) this.copyRows(x.tensor, arena, n);
      const end = piece.firstRow + piece.rows;
      for (let row = piece.firstRow; row < end; ) {
        const head = Math.floor(row / rowsPerHead);
        const inHead = row - head * rowsPerHead;
        const rows = Math.min(rowsPerHead - inHead, end - row);
        const column = head * y.stride + y.first + inHead;
        const p = this.command(w.blocks ? Op.matmulExact : Op.matmulFloat, arena, rows, w.columns * n * FLOAT_COST);
        this.args(
          p,
          w.layoutId,
          piece.offset + (row - piece.firstRow) * w.rowBytes,
          w.columns,
          x.tensor.at[arena] + (head * x.stride + x.first) * 4,
          x.tensor.columns,
          0,
          y.tensor.at[arena] + column * 4,
          y.tensor.columns,
          0,
          n,
          this.scratch.at[arena],
          this.scratch.columns * 4,
        );
        if (arena !== 0) this.copyBack(arena, y.tensor, column, rows, n);
        row += rows;
      }
    }
  }

  /**
   * gate = silu(gate) * up (or the clamped form) for rows 0..n-1 of one arena, quantised into `input` (whose x is `gate`). The
   * clamped form runs the job.
   */
  swigluInto(input: Input, up: Tensor, arena: number, n: number, clamped: Clamped | null = null): void {
    const { columns, codes, scales, sums } = input;
    const gate = input.x.at[arena];
    if (clamped) {
      const p = this.command(Op.swigluClamped, arena, n * columns, EXPONENTIAL_COST);
      this.args(p, gate, up.at[arena]);
      this.floats[p + 2] = clamped.limit;
      this.floats[p + 3] = clamped.alpha;
      this.run();
      if (!this.exact) this.#quantiseIn(input, arena, n);
    } else if (this.exact) {
      this.args(this.command(Op.swiglu, arena, n * columns, EXPONENTIAL_COST), gate, up.at[arena]);
    } else {
      const p = this.command(Op.swigluQuantise, arena, n, columns * (EXPONENTIAL_COST + ELEMENT_COST));
      this.args(p, gate, up.at[arena], columns, codes.at[arena], scales.at[arena], sums.at[arena]);
    }
  }

  #quantiseIn(input: Input, arena: number, n: number): void {
    const { x, codes, scales, sums, columns } = input;
    const p = this.command(Op.quantise, arena, n, columns * ELEMENT_COST);
    this.args(p, x.at[arena], columns, codes.at[arena], scales.at[arena], sums.at[arena]);
  }

  /** y[i] = row ids[i] of w as float32. Serial: it only copies. */
  embed(w: Matrix, ids: ArrayLike<number>, y: Tensor): void {
    for (let i = 0; i < ids.length; i++) {
      const { arena, offset, firstRow } = pieceOfRow(w, ids[i]);
      const staging = this.scratch.at[arena];
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

  /** Of rows first..first+n-1 where the arena has them. */
  allFinite(x: Tensor, n: number, arena = 0, first = 0): boolean {
    const at = x.at[arena] + first * x.columns * 4;
    return this.lanes.kernels[arena].allFinite(at, n * x.columns) === 1;
  }

  /** Makes sure an arena has the current rows of an input in the form that `w` reads. */
  stage(input: Input, arena: number, w: Matrix, n: number): void {
    if (arena === 0) return;
    if (w.tiled && !this.exact) {
      if (input.codeCopy[arena] === input.version) return;
      for (const tensor of [input.codes, input.scales, input.sums]) this.copyRows(tensor, arena, n);
      input.codeCopy[arena] = input.version;
    } else if (input.floatCopy[arena] !== input.version) {
      this.copyRows(input.x, arena, n);
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

  /** Starts a command; its arguments follow with `args`. items = what it is cut along, cost of one in multiply-adds. */
  command(op: OpCode, arena: number, items: number, cost: number): number {
    return this.lanes.command(op, arena, items, cost);
  }

  /** The arguments from position p on. Always writes twelve words: a rest parameter would allocate for every command. */
  args(p: number, a: number, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0, i = 0, j = 0, k = 0, l = 0): void {
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

  /** After the job: columns first..first+count-1 of n rows of `to`, from another arena to home. */
  copyBack(from: number, to: Tensor, first: number, count: number, n: number): void {
    this.#copyBacks.push({ from, to, firstRow: first, rows: count, n });
  }

  /** Rows of a replicated tensor from home to another arena. */
  copyRows(tensor: Tensor, arena: number, n: number, firstRow = 0): void {
    const { words } = this.arenas;
    const skipped = firstRow * tensor.columns;
    const from = tensor.at[0] / 4 + skipped;
    words[arena].set(words[0].subarray(from, from + n * tensor.columns), tensor.at[arena] / 4 + skipped);
  }

  /** A vector of arena 0 to the place that `copies` has in another arena. */
  copyVector(vector: Tensor, copies: Tensor, arena: number): void {
    const { words } = this.arenas;
    const from = vector.at[0] / 4;
    words[arena].set(words[0].subarray(from, from + vector.columns), copies.at[arena] / 4);
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
