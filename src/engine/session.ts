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
   * length moves only when all layers are done.
   */
  feed(ids: ArrayLike<number>, observer: Observer = {}): void {
    const { batch, cache, model } = this.#runtime;
    batch.set(ids, this.#ids.length, cache);
    model.forward(batch, {
      ...observer,
      beforeLayer: () => {
        if (this.#runtime.cancelled()) throw new Cancelled();
      },
    });
    for (let i = 0; i < ids.length; i++) this.#ids.push(ids[i]);
    cache.length = this.#ids.length;
  }

  /** Feeds in chunks; `onChunk` sees how many tokens are done. */
  feedAll(ids: readonly number[], onChunk: (done: number, rows: number) => void, observer?: Observer): void {
    const { maxRows } = this.#runtime.batch;
    for (let from = 0; from < ids.length; from += maxRows) {
      const chunk = ids.slice(from, from + maxRows);
      this.feed(chunk, observer);
      onChunk(from + chunk.length, chunk.length);
    }
  }
}
