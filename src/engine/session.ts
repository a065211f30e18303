/** One mutable timeline: the tokens fed so far, whose states the session memory holds. Feeding is the only way to extend it. */

import { Cancelled } from '../experts/store.ts';
import { KV_BLOCK } from '../kernels/kernels.ts';
import type { SessionMemory } from '../layers/session-memory.ts';
import type { Observer } from '../models/family.ts';
import type { Runtime } from './runtime.ts';

export class Session {
  readonly #runtime: Runtime;
  /** Which part of the session memory is this session's. */
  readonly slot: number;
  /** Tokens whose states the memory holds. */
  readonly #ids: number[] = [];
  /** States that do not depend on the number of tokens are those after #ids; false after a pass that failed. */
  #isCurrent = true;
  /** At this length a copy of the states is kept, where they cannot be taken back: prompts stop there. */
  #snapshotAt = 0;

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

  /** The states are those after all tokens. */
  get isCurrent(): boolean {
    return this.#isCurrent;
  }

  /** How many leading tokens of `ids` are already here. */
  commonPrefix(ids: ArrayLike<number>): number {
    const most = Math.min(ids.length, this.#ids.length);
    let n = 0;
    while (n < most && this.#ids[n] === ids[n]) n++;
    return n;
  }

  /** The most tokens, at most n, that it can go back to (or stay at). */
  rewindLength(n: number): number {
    return this.#memory.rewindLength(this.slot, this.#ids.length, this.#isCurrent, Math.min(n, this.#ids.length));
  }

  /** Forgets tokens behind the first n; where the states of n cannot be had, more. What is left is `length`. */
  truncate(n: number): void {
    const m = this.rewindLength(n);
    if (m === this.#ids.length && this.#isCurrent) return;
    this.#memory.rewind(this.slot, m);
    this.#ids.length = m;
    this.#isCurrent = true;
  }

  /** ids[from..to) have states now: a forward pass or a file put them there. */
  extend(ids: ArrayLike<number>, from: number, to: number): void {
    for (let i = from; i < to; i++) this.#ids.push(ids[i]);
    if (this.#ids.length === this.#snapshotAt) this.#memory.snapshot(this.slot, this.#snapshotAt);
  }

  /** Becomes the first n tokens of another session, which `rewindLength` of that one has found. */
  copyFrom(other: Session, n: number): void {
    this.#memory.copy(other.slot, this.slot, n, other.isCurrent && n === other.length);
    this.#ids.length = 0;
    for (let i = 0; i < n; i++) this.#ids.push(other.ids[i]);
    this.#isCurrent = true;
  }

  /** A prompt of so many tokens comes: a copy of the states is kept shortly before its end, if they need one. */
  expectPrompt(tokens: number): void {
    this.#snapshotAt = this.#memory.needsSnapshots ? Math.floor((tokens - 1) / KV_BLOCK) * KV_BLOCK : 0;
  }

  /** Tokens, at most n, that can be fed before a copy of the states is due. */
  untilSnapshot(n: number): number {
    const left = this.#snapshotAt - this.#ids.length;
    return left > 0 ? Math.min(n, left) : n;
  }

  /** A pass with this session has failed: states that cannot be taken back are somewhere between two tokens. */
  markFailed(): void {
    if (this.#memory.needsSnapshots) this.#isCurrent = false;
  }

  /** After a pass that failed: makes the states those after all tokens again, by computing what no copy has. */
  repair(): void {
    if (this.#isCurrent) return;
    const ids = [...this.#ids];
    this.truncate(ids.length);
    this.feedAll(ids.slice(this.#ids.length), () => {});
  }

  get #memory(): SessionMemory {
    return this.#runtime.batch.cache;
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
  for (const { session } of feeds) session.repair();
  batch.clear();
  for (const { session, ids, from, to } of feeds) batch.add(session.slot, ids, from, to, session.length);
  try {
    model.forward(batch, {
      ...observer,
      beforeLayer: layer => {
        if (cancelled()) throw new Cancelled();
        onLayer?.(layer / info.layers);
      },
    });
  } catch (error) {
    for (const { session } of feeds) session.markFailed();
    throw error;
  }
  for (const { session, ids, from, to } of feeds) session.extend(ids, from, to);
}
