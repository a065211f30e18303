/** Guesses about the experts of the next layer: whether they are wanted, how many may be read, and how many come true. */

import type { ExpertCounters } from './counters.ts';
import { LookAheadBudget } from './look-ahead-budget.ts';
import { LookAheadSwitch, type Prefetch } from './look-ahead-switch.ts';

export class Guesses {
  readonly budget = new LookAheadBudget();
  readonly switch: LookAheadSwitch;
  readonly #counters: ExpertCounters;
  readonly #now: () => number;
  /** The layer that was guessed about, by its first record, and its experts that were among the guesses. */
  #guessed = -1;
  readonly #isGuessed: Uint8Array;
  // the forward pass
  #layer = Number.POSITIVE_INFINITY;
  #uses = 0;
  #isAsked = false;
  #beganMs = 0;
  #endedMs = 0;
  // the gap between two leases
  #lastArrivalMs = 0;

  constructor(experts: number, counters: ExpertCounters, now: () => number, changed: (pays: boolean) => void) {
    this.switch = new LookAheadSwitch('off', changed);
    this.#isGuessed = new Uint8Array(experts);
    this.#counters = counters;
    this.#now = now;
  }

  /** From the next forward pass on; the one under way belongs to neither mode. */
  setMode(mode: Prefetch): void {
    this.switch.mode = mode;
    this.#isAsked = false;
  }

  /** True: the next layer's experts should be guessed. To be asked in every pass in which they could be. */
  wanted(): boolean {
    this.#isAsked = true;
    return this.switch.isOn && this.budget.reads > 0;
  }

  /** These experts of the layer with this first record are guessed. */
  name(first: number, experts: Int32Array, count: number): void {
    this.#guessed = first;
    this.#isGuessed.fill(0);
    for (let i = 0; i < count; i++) this.#isGuessed[experts[i]] = 1;
  }

  /** A lease begins; true when it is the first of a forward pass, in which layers come in ascending order. */
  leaseBegins(layer: number): boolean {
    if (this.#lastArrivalMs > 0) this.budget.observeGap(this.#now() - this.#lastArrivalMs);
    this.#lastArrivalMs = 0;
    const isNewPass = layer <= this.#layer;
    this.#layer = layer;
    if (isNewPass) this.#newPass();
    return isNewPass;
  }

  /** The lease asks for an expert of so many bytes. */
  use(first: number, expert: number, bytes: number): void {
    this.#uses++;
    this.budget.observeUse(bytes);
    if (first !== this.#guessed) return;
    this.#counters.guessable++;
    this.#counters.guessed += this.#isGuessed[expert];
  }

  /** The last expert of the lease that had to be read is there; `waitedMs` for each of them. */
  lastArrives(waitedMs: number): void {
    this.#lastArrivalMs = this.#now();
    this.budget.observeRead(waitedMs);
  }

  leaseEnds(): void {
    if (this.switch.isTrying) this.#endedMs = this.#now();
  }

  #newPass(): void {
    if (this.#isAsked) this.switch.pass(this.#endedMs - this.#beganMs, this.#uses);
    this.budget.newPass();
    this.#guessed = -1;
    this.#isAsked = false;
    this.#uses = 0;
    if (this.switch.isTrying) this.#beganMs = this.#now();
  }
}
