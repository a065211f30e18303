/**
 * What all sessions keep between tokens: the states of a family (state.ts) behind one interface. Layers write and read by the number
 * of a state; the engine goes back to earlier lengths, takes copies and moves beginnings between sessions.
 */

import type { Arenas, Tensor } from '../compute/arenas.ts';
import type { Compute } from '../compute/compute.ts';
import { LAYOUT_ID } from '../quant/layouts.ts';
import { FixedMemory } from './fixed-memory.ts';
import { type KvEncoding, RowMemory, type RowMemoryOptions, rowBlockBytes } from './row-memory.ts';
import type { FixedState, StateShape } from './state.ts';

/** Bytes of one block of KV_BLOCK tokens of all states that grow with the tokens. */
export function blockBytesOf(states: readonly StateShape[], encoding: KvEncoding): number {
  return states.reduce((sum, state) => sum + (state.kind === 'rows' ? rowBlockBytes(state, encoding) : 0), 0);
}

/** Every earlier length can be had again, so that blocks of tokens are all there is to a session. */
export function isRewindable(states: readonly StateShape[]): boolean {
  return states.every(state => state.kind === 'rows' && state.window === 0);
}

export class SessionMemory {
  /** Id of the layout of rows. */
  readonly kvLayout: number;
  readonly #arenas: Arenas;
  /** By number of the state; null for a fixed one. */
  readonly #rows: readonly (RowMemory | null)[];
  readonly #fixed: FixedMemory | null;
  /** Number of a state -> its place among the fixed ones. */
  readonly #fixedIndex: readonly number[];
  /** i32 [maxRows]: address of the table of each row of the batch, for the state that was pointed to last. */
  readonly #rowTables: Tensor;

  /** Reserves tables and fixed states; the blocks come with `placeBlocks`. */
  constructor(arenas: Arenas, states: readonly StateShape[], options: RowMemoryOptions) {
    this.#arenas = arenas;
    this.kvLayout = LAYOUT_ID[options.encoding];
    this.#rows = states.map(state => (state.kind === 'rows' ? new RowMemory(arenas, state, options) : null));
    const fixed = states.filter((state): state is FixedState => state.kind === 'fixed');
    this.#fixed = fixed.length > 0 ? new FixedMemory(arenas, fixed, options.sessions) : null;
    let count = 0;
    this.#fixedIndex = states.map(state => (state.kind === 'fixed' ? count++ : -1));
    this.#rowTables = arenas.tensor(1, options.maxRows, { replicated: true });
  }

  placeBlocks(): void {
    for (const rows of this.#rows) rows?.placeBlocks();
    this.#fixed?.placeSnapshots();
  }

  // ---- for layers ---------------------------------------------------------------------------------------------------

  arenaOf(state: number): number {
    return this.#rowsOf(state).arena;
  }

  /** i32 [rows]: where each row of the batch finds its session's block table (address in the state's arena); see pointRows. */
  rowTables(_state: number): Tensor {
    return this.#rowTables;
  }

  /** Gives n rows of the batch, from `row` on, the block table of a session, for one state. */
  pointRows(state: number, row: number, n: number, session: number): void {
    const memory = this.#rowsOf(state);
    this.#arenas.ints(this.#rowTables, memory.arena).fill(memory.tableOf(session), row, row + n);
  }

  /** See RowMemory.write. */
  write(
    compute: Compute,
    state: number,
    keys: Tensor,
    values: Tensor | null,
    row: number,
    session: number,
    first: number,
    n: number,
  ): void {
    this.#rowsOf(state).write(compute, keys, values, row, session, first, n);
  }

  /** Address in arena 0 of a session's part of a fixed state. */
  fixedAddress(state: number, session: number): number {
    return this.#fixed!.address(this.#fixedIndex[state], session);
  }

  // ---- for the engine -----------------------------------------------------------------------------------------------

  /** A session cannot go back to every earlier length: snapshots decide to which. */
  get needsSnapshots(): boolean {
    return this.#fixed !== null;
  }

  /**
   * The largest m <= n to which a session of `length` tokens can go back. isCurrent: its fixed states are those after `length`
   * tokens (a pass that failed leaves them between two).
   */
  rewindLength(session: number, length: number, isCurrent: boolean, n: number): number {
    const candidates = this.#fixed ? this.#fixed.lengths(session, n) : [n, 0];
    if (n >= length && isCurrent) candidates.unshift(length);
    return candidates.find(m => this.#rows.every(rows => rows === null || rows.reaches(session, m))) ?? 0;
  }

  /** Goes back to m tokens, which `rewindLength` has found. */
  rewind(session: number, m: number): void {
    this.#fixed?.restore(session, m);
    if (m === 0) for (const rows of this.#rows) rows?.clear(session);
  }

  /** Keeps the fixed states of a session, which are those after `length` tokens; see FixedMemory.snapshot. */
  snapshot(session: number, length: number, replaces: number): void {
    this.#fixed?.snapshot(session, length, replaces);
  }

  /** `to` becomes what `from` was after n tokens, which `rewindLength` has found. isLive: `from` has just these now. */
  copy(from: number, to: number, n: number, isLive: boolean): void {
    for (const rows of this.#rows) rows?.copy(from, to, n);
    this.#fixed?.copy(from, to, n, isLive);
  }

  /** Bytes of one block of tokens of all states, as readBlock and writeBlock move it. */
  get blockBytes(): number {
    return this.#rows.reduce((sum, rows) => sum + (rows?.blockBytes ?? 0), 0);
  }

  /** Copies a session's block, state after state, keys before values, to `into`. */
  readBlock(session: number, block: number, into: Uint8Array): void {
    this.#eachBlock(session, block, (memory, at) => into.set(memory, at));
  }

  writeBlock(session: number, block: number, from: Uint8Array): void {
    this.#eachBlock(session, block, (memory, at) => memory.set(from.subarray(at, at + memory.length)));
  }

  #eachBlock(session: number, block: number, visit: (memory: Uint8Array, at: number) => void): void {
    let at = 0;
    for (const rows of this.#rows) {
      if (rows === null) continue;
      visit(rows.block(session, block), at);
      at += rows.blockBytes;
    }
  }

  #rowsOf(state: number): RowMemory {
    return this.#rows[state] as RowMemory;
  }
}
