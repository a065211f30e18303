/** The rows of one forward pass: which tokens, at which positions, of which sessions. */

import type { Arenas, Tensor } from '../compute/arenas.ts';
import type { Compute } from '../compute/compute.ts';
import type { SessionMemory } from './session-memory.ts';

/** Segments, one after the other: consecutive tokens of one session each. A session has one segment at most. */
export class Batch {
  readonly #arenas: Arenas;
  readonly cache: SessionMemory;
  /** i32 [maxRows], in every arena. */
  readonly positions: Tensor;
  readonly maxRows: number;
  readonly ids: number[] = [];
  /** Longest history that a row sees, in keys. */
  keys = 0;
  // per segment
  #segments = 0;
  readonly #session: Int32Array;
  readonly #firstRow: Int32Array;
  readonly #firstPosition: Int32Array;

  constructor(arenas: Arenas, cache: SessionMemory, maxRows: number) {
    this.#arenas = arenas;
    this.cache = cache;
    this.maxRows = maxRows;
    this.positions = arenas.tensor(maxRows, 1, { replicated: true });
    this.#session = new Int32Array(maxRows);
    this.#firstRow = new Int32Array(maxRows + 1);
    this.#firstPosition = new Int32Array(maxRows);
  }

  get rows(): number {
    return this.ids.length;
  }

  clear(): void {
    this.ids.length = 0;
    this.keys = 0;
    this.#segments = 0;
  }

  /** Adds ids[from..to) as the tokens at `firstPosition` and after it; returns the row of the first. */
  add(session: number, ids: ArrayLike<number>, from: number, to: number, firstPosition: number): number {
    const row = this.ids.length;
    const segment = this.#segments++;
    this.#session[segment] = session;
    this.#firstRow[segment] = row;
    this.#firstRow[segment + 1] = row + to - from;
    this.#firstPosition[segment] = firstPosition;
    for (let i = from; i < to; i++) this.ids.push(ids[i]);
    this.keys = Math.max(this.keys, firstPosition + to - from);
    for (let arena = 0; arena < this.#arenas.count; arena++) {
      const positions = this.#arenas.ints(this.positions, arena);
      for (let i = 0; i < to - from; i++) positions[row + i] = firstPosition + i;
    }
    return row;
  }

  /** Consecutive rows of one session each. */
  get segmentCount(): number {
    return this.#segments;
  }

  firstRow(segment: number): number {
    return this.#firstRow[segment];
  }

  rowsOf(segment: number): number {
    return this.#firstRow[segment + 1] - this.#firstRow[segment];
  }

  /** Address in arena 0 of the fixed state of a segment's session. */
  fixedAddress(state: number, segment: number): number {
    return this.cache.fixedAddress(state, this.#session[segment]);
  }

  /**
   * Puts the rows' keys and values [rows, columns] into their sessions, and tells attention where those lie: until rows of another
   * state are remembered.
   */
  remember(compute: Compute, state: number, keys: Tensor, values: Tensor | null): void {
    for (let segment = 0; segment < this.#segments; segment++) {
      const row = this.#firstRow[segment];
      const n = this.rowsOf(segment);
      const session = this.#session[segment];
      this.cache.write(compute, state, keys, values, row, session, this.#firstPosition[segment], n);
      this.cache.pointRows(state, row, n, session);
    }
    compute.run();
  }
}
