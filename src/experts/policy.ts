/** Which slot to give up next. A policy changes how often experts are read, never what they compute. */

/** Nothing here may allocate: all of it is called for every layer of every token. */
export interface EvictionPolicy {
  /** A lease of so many distinct experts of a layer begins. */
  begin(layer: number, wanted: number): void;
  /** The expert in the slot is asked for; it is there, or on its way. */
  use(slot: number): void;
  /** A record begins to be read into the slot: because it is asked for, or ahead of that. */
  fill(slot: number, record: number, ahead: boolean): void;
  /** The slot is empty again. */
  clear(slot: number): void;
  /** The slot to give up among those allowed, which is asked in the order of preference and may change what it answers; -1 = none. */
  victim(allowed: (slot: number) => boolean): number;
}

/** What a policy may know from the start. */
export interface PolicyFacts {
  readonly slots: number;
  /** Experts per layer. */
  readonly experts: number;
  /** First record of each layer's experts, -1 for layers that do not route. */
  readonly firstRecord: readonly number[];
}

/**
 * Layers come round in a circle, so when each wants more experts than its share of the slots, the least recently used one is
 * always the next to be wanted, and nothing would ever be found. Then new ones are given up first and the others stay; one in
 * so many is kept, so that the stock follows the text.
 */
const KEPT_OF_FLOOD = 16;

/** Least recently used: a doubly linked list in typed arrays, constant time per use. */
export class LruPolicy implements EvictionPolicy {
  readonly #next: Int32Array;
  readonly #previous: Int32Array;
  /** Index of the list's anchor: next = oldest, previous = newest. */
  readonly #anchor: number;
  /** Slots that were filled ahead and not asked for since. */
  readonly #ahead: Uint8Array;
  /** Slots over layers, and whether the lease asks for more though all slots are taken. */
  readonly #fairShare: number;
  #isFlood = false;
  #fills = 0;

  constructor({ slots, firstRecord }: PolicyFacts) {
    this.#fairShare = slots / firstRecord.filter(first => first >= 0).length;
    this.#anchor = slots;
    this.#ahead = new Uint8Array(slots);
    this.#next = new Int32Array(slots + 1);
    this.#previous = new Int32Array(slots + 1);
    for (let i = 0; i <= slots; i++) {
      this.#next[i] = (i + 1) % (slots + 1);
      this.#previous[i] = (i + slots) % (slots + 1);
    }
  }

  begin(_layer: number, wanted: number): void {
    this.#isFlood = wanted > this.#fairShare && this.#fills >= this.#anchor;
  }

  use(slot: number): void {
    if (!this.#isFlood || !this.#ahead[slot]) this.#move(slot, this.#previous[this.#anchor]);
    this.#ahead[slot] = 0;
  }

  fill(slot: number, _record: number, ahead: boolean): void {
    this.#fills++;
    this.#ahead[slot] = ahead ? 1 : 0;
    const isKept = !this.#isFlood || this.#fills % KEPT_OF_FLOOD === 0;
    this.#move(slot, isKept ? this.#previous[this.#anchor] : this.#anchor);
  }

  clear(slot: number): void {
    this.#ahead[slot] = 0;
    this.#move(slot, this.#anchor);
  }

  victim(allowed: (slot: number) => boolean): number {
    for (let slot = this.#next[this.#anchor]; slot !== this.#anchor; ) {
      // asking may move the slot
      const after = this.#next[slot];
      if (allowed(slot)) return slot;
      slot = after;
    }
    return -1;
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
}
