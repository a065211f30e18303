/** Which slot to give up next. A policy changes how often experts are read, never what they compute. */

export interface EvictionPolicy {
  /** The slot was used (or filled) now. */
  touch(slot: number): void;
  /** The slot was filled with what will hardly be used before it is evicted: it is given up first. */
  demote(slot: number): void;
  /** The slot to give up first, then after each the next best; -1 at the end. The store takes the first not in use. */
  first(): number;
  after(slot: number): number;
}

/** Least recently used: a doubly linked list in typed arrays, constant time per use. */
export class LruPolicy implements EvictionPolicy {
  readonly #next: Int32Array;
  readonly #previous: Int32Array;
  /** Index of the list's anchor: next = oldest, previous = newest. */
  readonly #anchor: number;

  constructor(slots: number) {
    this.#anchor = slots;
    this.#next = new Int32Array(slots + 1);
    this.#previous = new Int32Array(slots + 1);
    for (let i = 0; i <= slots; i++) {
      this.#next[i] = (i + 1) % (slots + 1);
      this.#previous[i] = (i + slots) % (slots + 1);
    }
  }

  touch(slot: number): void {
    this.#move(slot, this.#previous[this.#anchor]);
  }

  demote(slot: number): void {
    this.#move(slot, this.#anchor);
  }

  /** Takes the slot out and puts it after another. */
  #move(slot: number, after: number): void {
    if (after === slot) return;
    const next = this.#next;
    const previous = this.#previous;
    next[previous[slot]] = next[slot];
    previous[next[slot]] = previous[slot];
    next[slot] = next[after];
    previous[next[after]] = slot;
    next[after] = slot;
    previous[slot] = after;
  }

  first(): number {
    return this.after(this.#anchor);
  }

  after(slot: number): number {
    const next = this.#next[slot];
    return next === this.#anchor ? -1 : next;
  }
}
