/**
 * Keys and values of one session in float32 blocks of KV_BLOCK tokens. The keys and values of one layer stay in one arena.
 * A block table per layer maps token blocks to addresses, so that attention kernels never assume one contiguous stretch.
 */

import type { Arenas, Place, Tensor } from '../compute/arenas.ts';
import { KV_BLOCK } from '../kernels/kernels.ts';

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
  write(layer: number, keys: Float32Array, values: Float32Array, first: number, n: number): void {
    const { arena, offset } = this.#layers[layer];
    const buffer = this.#arenas.memories[arena].buffer;
    const columns = this.#columns;
    for (let done = 0; done < n; ) {
      const position = first + done;
      const inBlock = position % KV_BLOCK;
      const rows = Math.min(n - done, KV_BLOCK - inBlock);
      const block = new Float32Array(
        buffer,
        offset + Math.floor(position / KV_BLOCK) * this.#blockBytes,
        this.#blockBytes / 4,
      );
      block.set(keys.subarray(done * columns, (done + rows) * columns), inBlock * columns);
      block.set(values.subarray(done * columns, (done + rows) * columns), (KV_BLOCK + inBlock) * columns);
      done += rows;
    }
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
