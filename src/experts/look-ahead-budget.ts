/**
 * How many experts of the next layer may be read before its router has spoken. Between the last read of a layer and the first
 * of the next the disk is idle while attention computes; what fits into that gap costs nothing when the guess is right and
 * little when it is wrong. Guesses that are wrong too often are given up, and tried again from time to time.
 */

/** Weight of the newest observation in a running mean. */
const NEWEST = 1 / 16;
/** Below this share of right guesses a read ahead costs more than it saves. */
const MIN_PRECISION = 0.6;
/** While guesses do not pay, one layer in so many tries again. */
const PROBE_EVERY = 64;
/** The gap is small against the reads of a layer; more guesses would delay what is really asked for. */
const MAX_READS = 4;

export class LookAheadBudget {
  #gapMs = 0;
  #readMs = 0;
  #precision = 1;
  #layers = 0;

  /** From the last read of a lease to the next lease. */
  observeGap(ms: number): void {
    this.#gapMs = blend(this.#gapMs, ms);
  }

  /** Time between two experts that arrive one after the other. */
  observeRead(ms: number): void {
    this.#readMs = blend(this.#readMs, ms);
  }

  /** What became of one read ahead. */
  observeGuess(right: boolean): void {
    this.#precision += ((right ? 1 : 0) - this.#precision) * NEWEST;
  }

  /** Reads ahead for the layer that comes next; asked once per layer. */
  reads(): number {
    this.#layers++;
    if (this.#readMs === 0) return 0;
    if (this.#precision < MIN_PRECISION) return this.#layers % PROBE_EVERY === 0 ? 1 : 0;
    return Math.min(MAX_READS, Math.max(1, Math.round(this.#gapMs / this.#readMs)));
  }
}

function blend(mean: number, newest: number): number {
  return mean === 0 ? newest : mean + (newest - mean) * NEWEST;
}
