/**
 * Whether guesses about the next layer pay, found by trying: tokens decoded with and without them take turns, a few at a time, and
 * what counts is the time that a layer's experts took. Right guesses alone prove nothing: on a saturated disk, or where the disk
 * would not have been idle, they gain no time. The answer holds for a while, is tried again, and holds longer each time it is the same.
 */

export type Prefetch = 'off' | 'auto' | 'on';

/** Forward passes that decide nothing: slots fill up, and code is compiled. */
const WARM_UP_PASSES = 8;
/** Passes with, then as many without guesses (or the other way round): together a round, which one of the two wins. */
const WINDOW_PASSES = 2;
/** One side is better when it has won so many rounds more than the other. */
const LEAD = 8;
/** A trial without such a lead changes nothing: long, because small differences need it, and cost little while they are looked for. */
const MAX_ROUNDS = 128;
/** Passes between two trials: at first, and at most. */
const FIRST_REST = 256;
const LONGEST_REST = 4096;

export class LookAheadSwitch {
  /** May be changed; what trials have found is kept meanwhile. */
  mode: Prefetch;
  readonly #changed: (pays: boolean) => void;
  /** What the last trial said; before the first, nothing is guessed. */
  #pays = false;
  #rest = WARM_UP_PASSES;
  #nextRest = FIRST_REST;
  // the trial
  #passes = 0;
  #lead = 0;
  #msWith = 0;
  #msWithout = 0;
  #usesWith = 0;
  #usesWithout = 0;

  constructor(mode: Prefetch, changed: (pays: boolean) => void) {
    this.mode = mode;
    this.#changed = changed;
  }

  /** True when pass() must be told how long passes take. */
  get isTrying(): boolean {
    return this.mode === 'auto' && this.#rest === 0;
  }

  /** True when guesses are made always, or the last trial has said that they pay. */
  get pays(): boolean {
    return this.mode === 'on' || (this.mode === 'auto' && this.#pays);
  }

  /** True when the next layer's experts are to be guessed in this forward pass. */
  get isOn(): boolean {
    return this.isTrying ? this.#isWith : this.pays;
  }

  /** Rounds begin with either side in turn, so that what grows or shrinks steadily favours neither. */
  get #isWith(): boolean {
    const window = Math.floor(this.#passes / WINDOW_PASSES);
    return window % 4 === 0 || window % 4 === 3;
  }

  /** A pass in which guesses could have been made has ended: it asked for `uses` experts and took `ms`, which counts in trials only. */
  pass(ms: number, uses: number): void {
    if (this.mode !== 'auto') return;
    if (this.#rest > 0) {
      if (--this.#rest === 0) this.#begin();
      return;
    }
    if (this.#isWith) {
      this.#msWith += ms;
      this.#usesWith += uses;
    } else {
      this.#msWithout += ms;
      this.#usesWithout += uses;
    }
    this.#passes++;
    if (this.#passes % (2 * WINDOW_PASSES) === 0) this.#endRound();
  }

  #begin(): void {
    this.#passes = 0;
    this.#lead = 0;
    this.#clearRound();
  }

  #clearRound(): void {
    this.#msWith = this.#msWithout = this.#usesWith = this.#usesWithout = 0;
  }

  #endRound(): void {
    // neighbours may come and go in the round: what is compared is the time for one expert
    const difference = this.#msWithout * this.#usesWith - this.#msWith * this.#usesWithout;
    this.#lead += Math.sign(difference);
    this.#clearRound();
    if (Math.abs(this.#lead) >= LEAD) this.#endTrial(this.#lead > 0);
    else if (this.#passes === 2 * WINDOW_PASSES * MAX_ROUNDS) this.#endTrial(this.#pays);
  }

  #endTrial(pays: boolean): void {
    this.#rest = this.#nextRest = pays === this.#pays ? Math.min(LONGEST_REST, this.#nextRest * 2) : FIRST_REST;
    if (pays === this.#pays) return;
    this.#pays = pays;
    this.#changed(pays);
  }
}
