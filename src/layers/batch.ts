/** The rows of one forward pass: which tokens, at which positions, of which session. */

import type { Arenas, Tensor } from '../compute/arenas.ts';
import type { KvCache } from './kv-cache.ts';

/** Consecutive tokens of one session. (Rows of several sessions will be several segments.) */
export class Batch {
  readonly #arenas: Arenas;
  /** i32 [maxRows], in every arena. */
  readonly positions: Tensor;
  readonly maxRows: number;
  ids: ArrayLike<number> = [];
  firstPosition = 0;
  cache!: KvCache;

  constructor(arenas: Arenas, maxRows: number) {
    this.#arenas = arenas;
    this.maxRows = maxRows;
    this.positions = arenas.tensor(maxRows, 1, { replicated: true });
  }

  get rows(): number {
    return this.ids.length;
  }

  /** Longest history that a row of the batch sees, in keys. */
  get keys(): number {
    return this.firstPosition + this.rows;
  }

  set(ids: ArrayLike<number>, firstPosition: number, cache: KvCache): void {
    this.ids = ids;
    this.firstPosition = firstPosition;
    this.cache = cache;
    for (let arena = 0; arena < this.#arenas.count; arena++) {
      const positions = this.#arenas.ints(this.positions, arena);
      for (let i = 0; i < ids.length; i++) positions[i] = firstPosition + i;
    }
  }
}
