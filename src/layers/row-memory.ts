/**
 * One row per token (keys and values, latents, index keys) of all sessions, in blocks of KV_BLOCK tokens in one arena. Each session
 * has a block table, which maps token blocks to addresses, so that kernels never assume one contiguous stretch. With a window the
 * table goes round: blocks that no query can see any more are used again.
 */

import type { Arenas, Place, Tensor } from '../compute/arenas.ts';
import type { Compute } from '../compute/compute.ts';
import { storeBf16 } from '../compute/rows.ts';
import { KV_BLOCK } from '../kernels/kernels.ts';
import { layoutBytes } from '../quant/layouts.ts';
import type { RowState } from './state.ts';

const MAX_COPIED_BY_HAND = 2048;

/**
 * With a window, so many tokens more than queries see are kept: the end of a conversation can be changed by as much without
 * computing it anew.
 */
export const REWIND_TOKENS = 256;

/** bf16 is rounded to nearest even when it is written; attention decodes it and computes as with float32. */
export type KvEncoding = 'f32' | 'bf16';

export interface RowMemoryOptions {
  /** Tokens of one session. */
  readonly context: number;
  readonly sessions: number;
  readonly encoding: KvEncoding;
  /** Most rows of a batch. */
  readonly maxRows: number;
}

/** Bytes of KV_BLOCK tokens. */
export function rowBlockBytes({ keyColumns, valueColumns }: RowState, encoding: KvEncoding): number {
  return layoutBytes(encoding, KV_BLOCK, keyColumns + valueColumns);
}

export class RowMemory {
  readonly shape: RowState;
  /** Bytes of one block. */
  readonly blockBytes: number;
  readonly #arenas: Arenas;
  readonly #options: RowMemoryOptions;
  /** Of one session's table. */
  readonly #tableBlocks: number;
  /** Of one session: fewer than in its table when the table goes round. */
  readonly #blocks: number;
  /** i32 [sessions, tableBlocks] */
  readonly #tables: Tensor;
  /** Per session the end of the longest stretch that was written since it was empty: what lies far behind it is gone. */
  readonly #written: number[];
  #place!: Place;

  /** Reserves the tables; the blocks come with `placeBlocks`. */
  constructor(arenas: Arenas, shape: RowState, options: RowMemoryOptions) {
    this.#arenas = arenas;
    this.shape = shape;
    this.#options = options;
    this.blockBytes = rowBlockBytes(shape, options.encoding);
    this.#tableBlocks = Math.ceil(options.context / KV_BLOCK);
    const kept = shape.window - 1 + options.maxRows + REWIND_TOKENS;
    this.#blocks = shape.window > 0 ? Math.min(this.#tableBlocks, Math.ceil(kept / KV_BLOCK)) : this.#tableBlocks;
    this.#tables = arenas.tensor(options.sessions, this.#tableBlocks, { replicated: true });
    this.#written = new Array<number>(options.sessions).fill(0);
    arenas.onCommit(() => this.#fillTables());
  }

  /** Reserves the blocks; separate from the tables, which must be in arena 0 before something large fills it. */
  placeBlocks(): void {
    this.#place = this.#arenas.place(this.#options.sessions * this.#blocks * this.blockBytes, 'kv');
  }

  get arena(): number {
    return this.#place.arena;
  }

  /** Blocks are used again, so not every earlier state can be had. */
  get goesRound(): boolean {
    return this.#blocks < this.#tableBlocks;
  }

  /** Address of a session's block table in the arena of the blocks. */
  tableOf(session: number): number {
    return this.#tables.at[this.arena] + session * this.#tableBlocks * 4;
  }

  /**
   * Puts n rows, from `row` on, at positions first..first+n-1 of a session. values: null when there are none. With bf16 that is
   * done by commands, which the caller runs.
   */
  write(
    compute: Compute,
    keys: Tensor,
    values: Tensor | null,
    row: number,
    session: number,
    first: number,
    n: number,
  ): void {
    const keyBytes = layoutBytes(this.#options.encoding, 1, this.shape.keyColumns);
    const valueBytes = layoutBytes(this.#options.encoding, 1, this.shape.valueColumns);
    for (let done = 0; done < n; ) {
      const position = first + done;
      const inBlock = position % KV_BLOCK;
      const rows = Math.min(n - done, KV_BLOCK - inBlock);
      const block = this.#blockAt(session, Math.floor(position / KV_BLOCK));
      this.#store(compute, keys, row + done, rows, block + inBlock * keyBytes);
      if (values) this.#store(compute, values, row + done, rows, block + KV_BLOCK * keyBytes + inBlock * valueBytes);
      done += rows;
    }
    this.#written[session] = Math.max(this.#written[session], first + n);
  }

  /** Whether all that a query at position n sees is still there. */
  reaches(session: number, n: number): boolean {
    if (!this.goesRound || n === 0) return true;
    const firstKept = this.#written[session] - this.#blocks * KV_BLOCK;
    return Math.max(0, n - this.shape.window + 1) >= firstKept;
  }

  /** The session starts anew. */
  clear(session: number): void {
    this.#written[session] = 0;
  }

  /** Copies what a session with its first n tokens needs from one to another. */
  copy(from: number, to: number, n: number): void {
    const blocks = this.goesRound ? this.#blocks : Math.ceil(n / KV_BLOCK);
    const memory = new Uint8Array(this.#arenas.memories[this.arena].buffer);
    const start = this.#blockAt(from, 0);
    memory.copyWithin(this.#blockAt(to, 0), start, start + blocks * this.blockBytes);
    this.#written[to] = this.goesRound ? this.#written[from] : n;
  }

  /** The bytes of a session's block of tokens. */
  block(session: number, block: number): Uint8Array {
    return new Uint8Array(this.#arenas.memories[this.arena].buffer, this.#blockAt(session, block), this.blockBytes);
  }

  /** Rows of x to an address in the arena of the blocks. */
  #store(compute: Compute, x: Tensor, row: number, rows: number, to: number): void {
    if (this.#options.encoding === 'bf16') storeBf16(compute, x, row, rows, this.arena, to);
    else this.#copyWords(x.at[0] / 4 + row * x.columns, to / 4, rows * x.columns);
  }

  #blockAt(session: number, block: number): number {
    return this.#place.offset + (session * this.#blocks + (block % this.#blocks)) * this.blockBytes;
  }

  /** `count` words of arena 0 to the arena of the blocks. One row is copied by hand: a view for it would cost more. */
  #copyWords(from: number, to: number, count: number): void {
    const { words } = this.#arenas;
    const source = words[0];
    const target = words[this.arena];
    if (count > MAX_COPIED_BY_HAND) target.set(source.subarray(from, from + count), to);
    else for (let i = 0; i < count; i++) target[to + i] = source[from + i];
  }

  #fillTables(): void {
    const table = this.#arenas.ints(this.#tables, this.arena);
    for (let session = 0; session < this.#options.sessions; session++) {
      for (let block = 0; block < this.#tableBlocks; block++) {
        table[session * this.#tableBlocks + block] = this.#blockAt(session, block);
      }
    }
  }
}
