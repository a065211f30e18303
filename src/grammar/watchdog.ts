/** Looks from outside at what the grammar worker is at, and tells when one piece of work takes too long. */

import { BUSY_COUNT, BUSY_ID, BUSY_PHASE, COMPILING, IDLE, LOADING, MASKING } from './protocol.ts';

/** How much longer than its limit a piece of work may take. */
const POLL_MS = 50;

export interface Limits {
  /** Loading the library with a large vocabulary takes a second on a slow core. */
  readonly loadMs: number;
  /** Large schemas take up to a second with 150,000 tokens. */
  readonly compileMs: number;
  /** One mask, with the ids before it when a worker was replaced. Usual ones take less than a tenth of it. */
  readonly maskMs: number;
}

export const LIMITS: Limits = { loadMs: 60_000, compileMs: 10_000, maskMs: 1000 };

export interface Work {
  readonly phase: number;
  /** Constraint, or 0. */
  readonly id: number;
}

export class Watchdog {
  readonly #busy: Int32Array;
  readonly #timer: NodeJS.Timeout;
  #count = -1;
  #since = 0;

  /** `expired` is called once, after which the watchdog has stopped. */
  constructor(busy: Int32Array, limits: Limits, expired: (work: Work) => void) {
    this.#busy = busy;
    const allowed = new Map([
      [LOADING, limits.loadMs],
      [COMPILING, limits.compileMs],
      [MASKING, limits.maskMs],
    ]);
    this.#timer = setInterval(() => {
      const now = performance.now();
      const count = Atomics.load(busy, BUSY_COUNT);
      const work = this.work;
      if (count !== this.#count || work.phase === IDLE) {
        this.#count = count;
        this.#since = now;
      } else if (now - this.#since > allowed.get(work.phase)!) {
        this.stop();
        expired(work);
      }
    }, POLL_MS);
    this.#timer.unref();
  }

  /** What the worker is at, or was when it died. */
  get work(): Work {
    return { phase: Atomics.load(this.#busy, BUSY_PHASE), id: Atomics.load(this.#busy, BUSY_ID) };
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}
