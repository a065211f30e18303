/** One mutable timeline: the tokens fed so far and their keys and values. Feeding is the only way to change it. */

import { Cancelled } from '../experts/store.ts';
import type { Observer } from '../models/family.ts';
import type { Runtime } from './runtime.ts';

export class Session {
  readonly #runtime: Runtime;
  /** Tokens whose keys and values are in the cache. */
  readonly #ids: number[] = [];

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  get length(): number {
    return this.#ids.length;
  }

  /** How many leading tokens of `ids` are already here. */
  commonPrefix(ids: ArrayLike<number>): number {
    const most = Math.min(ids.length, this.#ids.length);
    let n = 0;
    while (n < most && this.#ids[n] === ids[n]) n++;
    return n;
  }

  truncate(n: number): void {
    this.#ids.length = Math.min(this.#ids.length, n);
    this.#runtime.cache.truncate(this.#ids.length);
  }

  /**
   * Runs one chunk (at most the plan's) through the model. After an error or a cancellation the session is as before: the
   * length moves only when all layers are done. `onLayer` gets the share of the layers that are done.
   */
  feed(ids: ArrayLike<number>, observer: Observer = {}, onLayer?: (share: number) => void): void {
    const { batch, cache, model, info } = this.#runtime;
    batch.set(ids, this.#ids.length, cache);
    model.forward(batch, {
      ...observer,
      beforeLayer: layer => {
        if (this.#runtime.cancelled()) throw new Cancelled();
        onLayer?.(layer / info.layers);
      },
    });
    for (let i = 0; i < ids.length; i++) this.#ids.push(ids[i]);
    cache.length = this.#ids.length;
  }

  /**
   * Feeds in chunks. `onProgress(before, rows, share)`: `before` tokens in earlier chunks, and a share of the layers for the
   * `rows` of this one; share 1 exactly once per chunk.
   */
  feedAll(
    ids: readonly number[],
    onProgress: (before: number, rows: number, share: number) => void,
    observer?: Observer,
  ): void {
    const { maxRows } = this.#runtime.batch;
    for (let from = 0; from < ids.length; from += maxRows) {
      const chunk = ids.slice(from, from + maxRows);
      this.feed(chunk, observer, share => onProgress(from, chunk.length, share));
      onProgress(from, chunk.length, 1);
    }
  }
}
