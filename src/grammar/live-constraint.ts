/** The worker's end of one constraint: brings the matcher to the ids in the shared words, and the mask with it. */

import type { Matcher } from './adapter.ts';
import {
  COUNT,
  type ConstraintChannel,
  CRASHED,
  IDS,
  maskAt,
  maskWords,
  READY,
  RUNNING,
  STATUS,
  TIMED_OUT,
} from './api.ts';

/**
 * All masks of one answer may take so long, and so much more for each token. One thread finds the masks of all answers: whose masks
 * are slow one after the other would hold up those of others for as long as it lasts. Usual ones take less than a millisecond.
 */
export const MASKS_MS = 5000;
export const MASKS_PER_TOKEN_MS = 100;

export class LiveConstraint {
  readonly #matcher: Matcher;
  readonly #words: Int32Array;
  readonly #maxTokens: number;
  readonly #mask: Int32Array;
  readonly #fault: 'hang' | 'crash' | undefined;
  readonly #now: () => number;
  #spentMs = 0;
  /** Ids that the matcher has accepted. */
  readonly #accepted: number[] = [];
  /** The mask in the words is that of `#accepted`. */
  #masked = false;
  /** Nothing has been looked at yet; another worker may have left a mask. */
  #isNew = true;

  constructor(
    matcher: Matcher,
    channel: ConstraintChannel,
    fault?: 'hang' | 'crash',
    now: () => number = () => performance.now(),
  ) {
    this.#matcher = matcher;
    this.#words = channel.words;
    this.#maxTokens = channel.maxTokens;
    const first = maskAt(channel);
    this.#mask = channel.words.subarray(first, first + maskWords(channel.vocabSize));
    this.#fault = fault;
    this.#now = now;
  }

  /** The engine waits, or will, for another mask than the one that is there. */
  get isBehind(): boolean {
    if (Atomics.load(this.#words, STATUS) !== RUNNING) return false;
    if (!this.#masked) return true;
    const count = this.#count;
    return count !== this.#accepted.length || this.#commonPrefix(count) < count;
  }

  /** Computes the mask after the ids that are there now. An id that the language does not allow ends the constraint. */
  async catchUp(): Promise<void> {
    this.#misbehave();
    const begun = this.#now();
    const count = this.#count;
    const common = this.#commonPrefix(count);
    this.#masked = false;
    if (common < this.#accepted.length) {
      this.#matcher.rollback(this.#accepted.length - common);
      this.#accepted.length = common;
    }
    while (this.#accepted.length < count) {
      const id = this.#words[IDS + this.#accepted.length];
      if (!this.#matcher.accept(id)) return this.#fail();
      this.#accepted.push(id);
    }
    const isThere = this.#isNew && Atomics.load(this.#words, READY) === count;
    this.#isNew = false;
    if (!isThere && !(await this.#matcher.mask(this.#mask))) return this.#fail();
    this.#masked = true;
    this.#spentMs += this.#now() - begun;
    if (this.#spentMs > MASKS_MS + MASKS_PER_TOKEN_MS * count) return this.#fail(TIMED_OUT);
    if (isThere) return;
    Atomics.store(this.#words, READY, count);
    Atomics.notify(this.#words, READY);
  }

  dispose(): void {
    this.#matcher.dispose();
  }

  get #count(): number {
    return Math.min(Atomics.load(this.#words, COUNT), this.#maxTokens);
  }

  #commonPrefix(count: number): number {
    const end = Math.min(count, this.#accepted.length);
    let same = 0;
    while (same < end && this.#words[IDS + same] === this.#accepted[same]) same++;
    return same;
  }

  #fail(status = CRASHED): void {
    Atomics.compareExchange(this.#words, STATUS, RUNNING, status);
    Atomics.notify(this.#words, READY);
  }

  /** Once the engine has chosen something. */
  #misbehave(): void {
    if (this.#count === 0) return;
    if (this.#fault === 'crash') throw new Error('a fault was asked for');
    while (this.#fault === 'hang') Atomics.load(this.#words, STATUS);
  }
}
