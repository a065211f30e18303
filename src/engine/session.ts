/** One mutable timeline: the tokens fed so far, whose states the session memory holds. Feeding is the only way to extend it. */

import { Cancelled } from '../experts/store.ts';
import type { SessionMemory } from '../layers/session-memory.ts';
import type { Observer } from '../models/family.ts';
import type { Runtime } from './runtime.ts';

/**
 * A chat template ends a prompt with the beginning of an answer, which the next prompt of the conversation may write otherwise (without
 * reasoning, say): a copy of the states shortly before the end is one that it can begin with.
 */
const PROMPT_TAIL = 16;
/** Fewer new tokens of a prompt than this are computed again rather than by a pass of their own. */
const MIN_NEW_TOKENS = 128;
/** A pass of so many tokens takes much longer than copying the states after it. */
const LONG_PASS = 32;

export class Session {
  readonly #runtime: Runtime;
  /** Which part of the session memory is this session's. */
  readonly slot: number;
  /** Tokens whose states the memory holds. */
  readonly #ids: number[] = [];
  /** States that do not depend on the number of tokens are those after #ids; false after a pass that failed. */
  #isCurrent = true;
  // where states cannot be taken back:
  /** Lengths at which a copy of them is kept: passes end there. Ascending. */
  #due: readonly number[] = [];
  /** Tokens of the prompt that is computed. */
  #promptTokens = 0;
  /** Length of the copy that goes along with the prompt; 0 = none. */
  #moving = 0;

  /** Takes over a part of the session memory, empty, whatever another session has left there. */
  constructor(runtime: Runtime, slot = 0) {
    this.#runtime = runtime;
    this.slot = slot;
    this.#memory.rewind(slot, 0);
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
    this.#expectNothing();
    this.#goBack(n);
  }

  #goBack(n: number): void {
    const m = this.rewindLength(n);
    if (m === this.#ids.length && this.#isCurrent) return;
    this.#memory.rewind(this.slot, m);
    this.#ids.length = m;
    this.#isCurrent = true;
  }

  /** ids[from..to) have states now: a forward pass or a file put them there. */
  extend(ids: ArrayLike<number>, from: number, to: number): void {
    for (let i = from; i < to; i++) this.#ids.push(ids[i]);
    const { length } = this.#ids;
    if (length >= this.#promptTokens) return;
    const isDue = this.#due.includes(length);
    if (!isDue && to - from < LONG_PASS) return;
    this.#memory.snapshot(this.slot, length, this.#moving);
    this.#moving = isDue ? 0 : length;
  }

  /** Becomes the first n tokens of another session, which `rewindLength` of that one has found. */
  copyFrom(other: Session, n: number): void {
    this.#memory.copy(other.slot, this.slot, n, other.isCurrent && n === other.length);
    this.#ids.length = 0;
    for (let i = 0; i < n; i++) this.#ids.push(other.ids[i]);
    this.#isCurrent = true;
    this.#expectNothing();
  }

  /**
   * A prompt of so many tokens comes, which the session holds a beginning of. Where states cannot be taken back a copy of them is kept
   * near its end, and one where it parts from another prompt (after `shared` tokens): others may part there too.
   */
  expectPrompt(tokens: number, shared: number): void {
    this.#expectNothing();
    if (!this.#memory.needsSnapshots) return;
    const { length } = this.#ids;
    this.#promptTokens = tokens;
    const end = tokens - PROMPT_TAIL;
    if (end - length >= MIN_NEW_TOKENS) this.#due = [end];
    else if (length > 0 && this.#isCurrent) this.#memory.snapshot(this.slot, length, 0);
    if (shared - length >= MIN_NEW_TOKENS && end - shared >= MIN_NEW_TOKENS) this.#due = [shared, end];
  }

  #expectNothing(): void {
    this.#due = [];
    this.#promptTokens = 0;
    this.#moving = 0;
  }

  /** Tokens, at most n, that can be fed before a copy of the states is due. */
  untilSnapshot(n: number): number {
    const { length } = this.#ids;
    const next = this.#due.find(due => due > length);
    return next === undefined ? n : Math.min(n, next - length);
  }

  /** A pass with this session has failed: states that cannot be taken back are somewhere between two tokens. */
  markFailed(): void {
    if (this.#memory.needsSnapshots) this.#isCurrent = false;
  }

  /**
   * After a pass that failed: makes the states those after all tokens again, by computing what no copy has. When that fails too, the
   * session is as before.
   */
  repair(): void {
    if (this.#isCurrent) return;
    const ids = [...this.#ids];
    this.#goBack(ids.length);
    const kept = this.#ids.length;
    try {
      this.feedAll(ids.slice(kept), () => {});
    } catch (error) {
      for (let i = this.#ids.length; i < ids.length; i++) this.#ids.push(ids[i]);
      this.#isCurrent = false;
      throw error;
    }
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
    for (let from = 0; from < ids.length; ) {
      const chunk = ids.slice(from, from + this.untilSnapshot(maxRows));
      this.feed(chunk, observer, share => onProgress(from, chunk.length, share));
      onProgress(from, chunk.length, 1);
      from += chunk.length;
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
  runtime: Runtime,
  feeds: readonly Feed[],
  cancelled: () => boolean,
  observer: Observer = {},
  onLayer?: (share: number) => void,
): void {
  const { batch, model, info } = runtime;
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
  } finally {
    runtime.passDone();
  }
  for (const { session, ids, from, to } of feeds) session.extend(ids, from, to);
}
