/**
 * Reads of experts that no router has asked for yet. They go only into slots that can be spared, behind every demand, and are called
 * off when their layer has passed. A guess decides what is read early, never what is computed.
 */

import type { LookAheadBudget } from './look-ahead-budget.ts';
import type { ReadQueue, Slots } from './slots.ts';

/** Tickets that reads ahead leave to demands. */
const RESERVED_TICKETS = 64;

export class ReadAhead {
  readonly #slots: Slots;
  readonly #pool: ReadQueue;
  readonly #experts: number;
  readonly #bytesOf: (record: number) => number;
  /** Slots that were marked as read ahead and may still be. */
  readonly #marked: Int32Array;
  #count = 0;

  constructor(slots: Slots, pool: ReadQueue, experts: number, bytesOf: (record: number) => number) {
    this.#slots = slots;
    this.#pool = pool;
    this.#experts = experts;
    this.#bytesOf = bytesOf;
    this.#marked = new Int32Array(slots.count);
  }

  /** Reads the likeliest of the guessed experts of a layer, whose first record is `first`, as far as the budget and spare slots go. */
  guesses(first: number, experts: Int32Array, count: number, budget: LookAheadBudget): void {
    for (let i = 0, left = budget.reads; i < count && left > 0; i++) {
      const record = first + experts[i];
      if (this.#slots.of(record) >= 0) continue;
      const bytes = this.#bytesOf(record);
      if (!budget.holds(bytes) || !this.#read(record, this.#slots.takeSpare(first, first + this.#experts))) return;
      budget.observeGuess(bytes);
      left--;
    }
  }

  /** Reads all experts of a layer that are not in memory, as far as slots allow: nearly all of them are known to be needed. */
  layer(first: number): void {
    for (let expert = 0; expert < this.#experts; expert++) {
      const record = first + expert;
      if (this.#slots.of(record) >= 0) continue;
      // a slot of the coming layer, or one being read, is worth more than the expert it would make room for
      if (this.#isShort || !this.#read(record, this.#slots.take(first, first + this.#experts))) return;
    }
  }

  /**
   * The layer whose first record is given has come: what was read ahead for it, or for layers before it, and not asked for, is called
   * off, or was in vain. `isNewPass`: so is what was read for layers after it.
   */
  expire(first: number, isNewPass: boolean): void {
    let kept = 0;
    for (let i = 0; i < this.#count; i++) {
      const slot = this.#marked[i];
      if (!this.#slots.ahead[slot]) continue;
      const isLater = this.#slots.record(slot) >= first + this.#experts;
      if (isLater && !isNewPass) this.#marked[kept++] = slot;
      else if (!this.#slots.callOff(slot)) this.#slots.waste(slot);
    }
    this.#count = kept;
  }

  /** All reads ahead have ended. */
  forget(): void {
    this.#count = 0;
  }

  get #isShort(): boolean {
    return this.#pool.freeTickets <= RESERVED_TICKETS;
  }

  #read(record: number, slot: number): boolean {
    if (slot < 0 || this.#isShort) return false;
    this.#slots.load(record, slot, true);
    this.#mark(slot);
    return true;
  }

  /** A slot may be in the list already, with an older read that was evicted. */
  #mark(slot: number): void {
    for (let i = 0; i < this.#count; i++) if (this.#marked[i] === slot) return;
    this.#marked[this.#count++] = slot;
  }
}
