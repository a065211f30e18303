/** One mutable timeline: the tokens fed so far, whose keys and values the cache holds. Feeding is the only way to extend it. */

import { Cancelled } from '../experts/store.ts';
import type { Observer } from '../models/family.ts';
import type { Runtime } from './runtime.ts';

export class Session {
  readonly #runtime: Runtime;
  /** Which part of the KV cache is this session's. */
  readonly slot: number;
  /** Tokens whose keys and values are in the cache. */
  readonly #ids: number[] = [];

  constructor(runtime: Runtime, slot = 0) {
    this.#runtime = runtime;
    this.slot = slot;
  }

  get length(): number {
    return this.#ids.length;
  }

  get ids(): readonly number[] {
    return this.#ids;
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
  }

  /** ids[from..to) have keys and values now: a forward pass or a file put them there. */
  extend(ids: ArrayLike<number>, from: number, to: number): void {
    for (let i = from; i < to; i++) this.#ids.push(ids[i]);
  }

  /**
   * Runs one chunk (at most the plan's) through the model. After an error or a cancellation the session is as before.
   * `onLayer` gets the share of the layers that are done.
   */
  feed(ids: ArrayLike<number>, observer: Observer = {}, onLayer?: (share: number) => void): void {
    const feed = { session: this, ids, from: 0, to: ids.length };
    forward(this.#runtime, [feed], this.#runtime.cancelled, observer, onLayer);
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

/** Consecutive tokens of one session: ids[from..to). */
export interface Feed {
  readonly session: Session;
  readonly ids: ArrayLike<number>;
  readonly from: number;
  readonly to: number;
}

/**
 * One forward pass with tokens of several sessions, one row each, in the order of the list. `cancelled` is asked before each
 * layer. Sessions grow only when all layers are done; after an error all are as before.
 */
export function forward(
  { batch, model, info }: Runtime,
  feeds: readonly Feed[],
  cancelled: () => boolean,
  observer: Observer = {},
  onLayer?: (share: number) => void,
): void {
  batch.clear();
  for (const { session, ids, from, to } of feeds) batch.add(session.slot, ids, from, to, session.length);
  model.forward(batch, {
    ...observer,
    beforeLayer: layer => {
      if (cancelled()) throw new Cancelled();
      onLayer?.(layer / info.layers);
    },
  });
  for (const { session, ids, from, to } of feeds) session.extend(ids, from, to);
}
