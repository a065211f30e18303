/**
 * Keys and values of one session in float32 blocks of KV_BLOCK tokens. The keys and values of one layer stay in one arena.
 * A block table per layer maps token blocks to addresses, so that attention kernels never assume one contiguous stretch.
 */

import type { Arenas, Place, Tensor } from '../compute/arenas.ts';
import { KV_BLOCK } from '../kernels/kernels.ts';

const MAX_COPIED_BY_HAND = 2048;

export class KvCache {
  readonly #arenas: Arenas;
  readonly #columns: number;
  readonly #layers: Place[] = [];
  /** i32 [blocks] per layer, and i32 [maxRows] with the table's address for each row of a batch. */
  readonly #tables: Tensor[] = [];
  readonly #rowTables: Tensor[] = [];
  readonly #blocks: number;
  readonly #blockBytes: number;
  readonly #layerCount: number;
  /** Tokens held. */
  length = 0;

  /** `columns` = kvHeads * headDim. Reserves room for `context` tokens. */
  constructor(arenas: Arenas, shape: { layers: number; columns: number; context: number; maxRows: number }) {
    this.#arenas = arenas;
    this.#columns = shape.columns;
    this.#blocks = Math.ceil(shape.context / KV_BLOCK);
    this.#blockBytes = KV_BLOCK * shape.columns * 2 * 4;
    for (let layer = 0; layer < shape.layers; layer++) {
      this.#tables.push(arenas.tensor(1, this.#blocks, { replicated: true }));
      this.#rowTables.push(arenas.tensor(1, shape.maxRows, { replicated: true }));
    }
    this.#layerCount = shape.layers;
    arenas.onCommit(() => this.#fillTables());
  }

  /** Reserves the blocks; separate from the tables, which must be in arena 0 before something large fills it. */
  placeBlocks(): void {
    for (let layer = 0; layer < this.#layerCount; layer++) {
      this.#layers.push(this.#arenas.place(this.#blocks * this.#blockBytes, 'kv'));
    }
  }

  get bytes(): number {
    return this.#layers.length * this.#blocks * this.#blockBytes;
  }

  arenaOf(layer: number): number {
    return this.#layers[layer].arena;
  }

  /** i32 [rows]: where each row of a batch finds this session's block table (address in the layer's arena). */
  rowTables(layer: number): Tensor {
    return this.#rowTables[layer];
  }

  /** Copies n rows of keys and values [n, columns] from arena 0 to positions first..first+n-1 of a layer. */
  write(layer: number, keys: Tensor, values: Tensor, first: number, n: number): void {
    const { arena, offset } = this.#layers[layer];
    const columns = this.#columns;
    for (let done = 0; done < n; ) {
      const position = first + done;
      const inBlock = position % KV_BLOCK;
      const rows = Math.min(n - done, KV_BLOCK - inBlock);
      const block = (offset + Math.floor(position / KV_BLOCK) * this.#blockBytes) / 4;
      this.#copy(keys.at[0] / 4 + done * columns, arena, block + inBlock * columns, rows * columns);
      this.#copy(values.at[0] / 4 + done * columns, arena, block + (KV_BLOCK + inBlock) * columns, rows * columns);
      done += rows;
    }
  }

  /** `count` words of arena 0 to another place. One row is copied by hand: a view for it would cost more. */
  #copy(from: number, arena: number, to: number, count: number): void {
    const { words } = this.#arenas;
    const source = words[0];
    const target = words[arena];
    if (count > MAX_COPIED_BY_HAND) target.set(source.subarray(from, from + count), to);
    else for (let i = 0; i < count; i++) target[to + i] = source[from + i];
  }

  /** Forgets everything after the first n tokens. */
  truncate(n: number): void {
    this.length = Math.min(this.length, n);
  }

  #fillTables(): void {
    for (let layer = 0; layer < this.#layers.length; layer++) {
      const { arena, offset } = this.#layers[layer];
      const table = this.#arenas.ints(this.#tables[layer], arena);
      for (let block = 0; block < this.#blocks; block++) table[block] = offset + block * this.#blockBytes;
      this.#arenas.ints(this.#rowTables[layer], arena).fill(this.#tables[layer].at[arena]);
    }
  }
}
