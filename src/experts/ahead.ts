/**
 * Reads of experts that no router has asked for yet. They go only into slots that nobody uses, behind every demand, and are called
 * off when their layer has passed. A guess decides what is read early, never what is computed.
 */

import { LookAheadBudget } from './look-ahead-budget.ts';
import type { ReadQueue, Slots } from './slots.ts';

/** Tickets that reads ahead leave to demands. */
const RESERVED_TICKETS = 64;

export class ReadAhead {
  readonly budget = new LookAheadBudget();
  readonly #slots: Slots;
  readonly #pool: ReadQueue;
  readonly #experts: number;
  /** Slots that were marked as read ahead and may still be. */
  readonly #marked: Int32Array;
  #count = 0;

  constructor(slots: Slots, pool: ReadQueue, experts: number) {
    this.#slots = slots;
    this.#pool = pool;
    this.#experts = experts;
    this.#marked = new Int32Array(slots.count);
  }

  /** Reads record first + expert of the layer whose first record is given, unless it is there or no slot is to be had; true when it does. */
  expert(first: number, expert: number): boolean {
    const record = first + expert;
    if (this.#slots.of(record) >= 0 || this.#pool.freeTickets <= RESERVED_TICKETS) return false;
    // a slot of the coming layer, or one being read, is worth more than the expert it would make room for
    const slot = this.#slots.take(first, first + this.#experts);
    if (slot < 0) return false;
    this.#slots.load(record, slot, true);
    this.#mark(slot);
    return true;
  }

  /** Reads all experts of a layer that are not in memory, as far as slots allow. */
  layer(first: number): void {
    for (let expert = 0; expert < this.#experts; expert++) {
      if (this.#slots.of(first + expert) < 0 && !this.expert(first, expert)) return;
    }
  }

  /** The layer has come without asking for these reads: those not begun are called off, the others were in vain. */
  expire(first: number): void {
    let kept = 0;
    for (let i = 0; i < this.#count; i++) {
      const slot = this.#marked[i];
      if (!this.#slots.ahead[slot]) continue;
      const record = this.#slots.record(slot);
      if (record < first || record >= first + this.#experts) {
        this.#marked[kept++] = slot;
      } else if (!this.#slots.callOff(slot)) {
        this.#slots.waste(slot);
        this.budget.observeGuess(false);
      }
    }
    this.#count = kept;
  }

  /** All reads ahead have ended. */
  forget(): void {
    this.#count = 0;
  }

  /** A slot may be in the list already, with an older read that was evicted. */
  #mark(slot: number): void {
    for (let i = 0; i < this.#count; i++) if (this.#marked[i] === slot) return;
    this.#marked[this.#count++] = slot;
  }
}
