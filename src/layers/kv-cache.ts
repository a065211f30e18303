/**
 * Keys and values of all sessions in blocks of KV_BLOCK tokens. Those of one layer stay in one arena. Each session has a block
 * table per layer, which maps token blocks to addresses, so that attention kernels never assume one contiguous stretch.
 */

import type { Arenas, Place, Tensor } from '../compute/arenas.ts';
import type { Compute } from '../compute/compute.ts';
import { KV_BLOCK } from '../kernels/kernels.ts';
import { LAYOUT_ID, layoutBytes } from '../quant/layouts.ts';

const MAX_COPIED_BY_HAND = 2048;

/** bf16 is rounded to nearest even when it is written; attention decodes it and computes as with float32. */
export type KvEncoding = 'f32' | 'bf16';

/** Keys and values of KV_BLOCK tokens of one layer. columns = kvHeads * headDim. */
export function kvBlockBytes(columns: number, encoding: KvEncoding): number {
  return layoutBytes(encoding, KV_BLOCK * 2, columns);
}

export interface KvShape {
  readonly layers: number;
  /** kvHeads * headDim */
  readonly columns: number;
  /** Tokens of one session. */
  readonly context: number;
  readonly sessions: number;
  readonly encoding: KvEncoding;
  /** Most rows of a batch. */
  readonly maxRows: number;
}

export class KvCache {
  /** Id of the layout of keys and values. */
  readonly kvLayout: number;
  readonly #arenas: Arenas;
  readonly #shape: KvShape;
  readonly #layers: Place[] = [];
  /** i32 [sessions, blocks] per layer. */
  readonly #tables: Tensor[] = [];
  /** i32 [maxRows]: address of the table of each row of the batch, for the layer that is computed. */
  readonly #rowTables: Tensor;
  /** Of one session. */
  readonly #blocks: number;
  /** Keys and values of one layer. */
  readonly #blockBytes: number;

  /** Reserves the tables; the blocks come with `placeBlocks`. */
  constructor(arenas: Arenas, shape: KvShape) {
    this.#arenas = arenas;
    this.#shape = shape;
    this.#blocks = Math.ceil(shape.context / KV_BLOCK);
    this.#blockBytes = kvBlockBytes(shape.columns, shape.encoding);
    this.kvLayout = LAYOUT_ID[shape.encoding];
    for (let layer = 0; layer < shape.layers; layer++) {
      this.#tables.push(arenas.tensor(shape.sessions, this.#blocks, { replicated: true }));
    }
    this.#rowTables = arenas.tensor(1, shape.maxRows, { replicated: true });
    arenas.onCommit(() => this.#fillTables());
  }

  /** Reserves the blocks; separate from the tables, which must be in arena 0 before something large fills it. */
  placeBlocks(): void {
    const { layers, sessions } = this.#shape;
    for (let layer = 0; layer < layers; layer++) {
      this.#layers.push(this.#arenas.place(sessions * this.#blocks * this.#blockBytes, 'kv'));
    }
  }

  arenaOf(layer: number): number {
    return this.#layers[layer].arena;
  }

  /** i32 [rows]: where each row of the batch finds its session's block table (address in the layer's arena); see pointRows. */
  rowTables(_layer: number): Tensor {
    return this.#rowTables;
  }

  /** Gives n rows of the batch, from `row` on, the block table of a session, for one layer. */
  pointRows(layer: number, row: number, n: number, session: number): void {
    const { arena } = this.#layers[layer];
    const rows = this.#arenas.ints(this.#rowTables, arena);
    const table = this.#tables[layer].at[arena] + session * this.#blocks * 4;
    for (let i = row; i < row + n; i++) rows[i] = table;
  }

  /**
   * Puts n rows of keys and values [rows, columns], from `row` on, at positions first..first+n-1 of a session. With bf16 that is
   * done by commands, which the caller runs.
   */
  write(
    compute: Compute,
    layer: number,
    keys: Tensor,
    values: Tensor,
    row: number,
    session: number,
    first: number,
    n: number,
  ): void {
    const half = this.#blockBytes / 2;
    const rowBytes = half / KV_BLOCK;
    for (let done = 0; done < n; ) {
      const position = first + done;
      const inBlock = position % KV_BLOCK;
      const rows = Math.min(n - done, KV_BLOCK - inBlock);
      const at = this.#blockAt(layer, session, Math.floor(position / KV_BLOCK)) + inBlock * rowBytes;
      this.#store(compute, layer, keys, row + done, rows, at);
      this.#store(compute, layer, values, row + done, rows, at + half);
      done += rows;
    }
  }

  /** Rows of x to an address in the layer's arena. */
  #store(compute: Compute, layer: number, x: Tensor, row: number, rows: number, to: number): void {
    const { arena } = this.#layers[layer];
    const { columns, encoding } = this.#shape;
    if (encoding === 'bf16') compute.storeBf16(x, row, rows, arena, to);
    else this.#copy(x.at[0] / 4 + row * columns, arena, to / 4, rows * columns);
  }

  /** Copies the first n tokens of one session to another. */
  copy(from: number, to: number, n: number): void {
    const bytes = Math.ceil(n / KV_BLOCK) * this.#blockBytes;
    for (let layer = 0; layer < this.#shape.layers; layer++) {
      const memory = new Uint8Array(this.#arenas.memories[this.#layers[layer].arena].buffer);
      const start = this.#blockAt(layer, from, 0);
      memory.copyWithin(this.#blockAt(layer, to, 0), start, start + bytes);
    }
  }

  /** Bytes of one block of all layers, as readBlock and writeBlock move it. */
  get blockBytes(): number {
    return this.#shape.layers * this.#blockBytes;
  }

  /** Copies a session's block, layer after layer, keys before values, to `into`. */
  readBlock(session: number, block: number, into: Uint8Array): void {
    this.#eachLayer(session, block, (memory, at) => into.set(memory, at));
  }

  writeBlock(session: number, block: number, from: Uint8Array): void {
    this.#eachLayer(session, block, (memory, at) => memory.set(from.subarray(at, at + memory.length)));
  }

  #eachLayer(session: number, block: number, visit: (memory: Uint8Array, at: number) => void): void {
    for (let layer = 0; layer < this.#shape.layers; layer++) {
      const { buffer } = this.#arenas.memories[this.#layers[layer].arena];
      const address = this.#blockAt(layer, session, block);
      visit(new Uint8Array(buffer, address, this.#blockBytes), layer * this.#blockBytes);
    }
  }

  #blockAt(layer: number, session: number, block: number): number {
    return this.#layers[layer].offset + (session * this.#blocks + block) * this.#blockBytes;
  }

  /** `count` words of arena 0 to another place. One row is copied by hand: a view for it would cost more. */
  #copy(from: number, arena: number, to: number, count: number): void {
    const { words } = this.#arenas;
    const source = words[0];
    const target = words[arena];
    if (count > MAX_COPIED_BY_HAND) target.set(source.subarray(from, from + count), to);
    else for (let i = 0; i < count; i++) target[to + i] = source[from + i];
  }

  #fillTables(): void {
    for (let layer = 0; layer < this.#layers.length; layer++) {
      const { arena } = this.#layers[layer];
      const table = this.#arenas.ints(this.#tables[layer], arena);
      for (let i = 0; i < this.#shape.sessions * this.#blocks; i++) table[i] = this.#blockAt(layer, 0, i);
    }
  }
}
