/**
 * How many experts of the next layer may be read before its router has spoken. Between the last read of a layer and the first
 * of the next the disk is idle while attention computes; what fits into that gap costs nothing when the guess is right and
 * little when it is wrong.
 */

/** Weight of the newest observation in a running mean. */
const NEWEST = 1 / 16;
/** The gap is small against the reads of a layer; more guesses would delay what is really asked for. */
const MAX_READS = 4;
/** Guesses of a token may read at most this part of the bytes that its routers have asked for so far. */
const MAX_SHARE_OF_TOKEN = 1 / 2;

export class LookAheadBudget {
  #gapMs = 0;
  #readMs = 0;
  #askedBytes = 0;
  #guessedBytes = 0;

  /** A forward pass begins. */
  newPass(): void {
    this.#askedBytes = 0;
    this.#guessedBytes = 0;
  }

  /** From the last read of a lease to the next lease. */
  observeGap(ms: number): void {
    this.#gapMs = blend(this.#gapMs, ms);
  }

  /** Time between two experts that arrive one after the other. */
  observeRead(ms: number): void {
    this.#readMs = blend(this.#readMs, ms);
  }

  /** A router asks for an expert of so many bytes, in memory or not. */
  observeUse(bytes: number): void {
    this.#askedBytes += bytes;
  }

  /** Most reads ahead for the layer that comes next; none before a read has been timed. */
  get reads(): number {
    if (this.#readMs === 0) return 0;
    return Math.min(MAX_READS, Math.max(1, Math.round(this.#gapMs / this.#readMs)));
  }

  /** True when the token may read so many bytes more on a guess. */
  holds(bytes: number): boolean {
    return this.#guessedBytes + bytes <= this.#askedBytes * MAX_SHARE_OF_TOKEN;
  }

  observeGuess(bytes: number): void {
    this.#guessedBytes += bytes;
  }
}

function blend(mean: number, newest: number): number {
  return mean === 0 ? newest : mean + (newest - mean) * NEWEST;
}
