/** Ctrl-C: the first stops what runs, the second leaves. */

/** Conventional exit code of a program ended by SIGINT. */
export const EXIT_INTERRUPTED = 130;
/** A launcher passes on the SIGINT that a terminal has already sent here: two within this time are one. */
const SAME_PRESS_MS = 100;

export class Interrupts {
  #running: AbortController | null = null;
  #presses = 0;
  #lastPress = Number.NEGATIVE_INFINITY;
  /** Set by chat: an interrupt while nothing runs. Returns true when it should count. Without it, it leaves. */
  whenIdle: (() => boolean) | null = null;
  /** Puts the terminal right before the process ends. */
  beforeLeaving: () => void = () => {};
  readonly #leave: (code: number) => void;
  readonly #now: () => number;

  constructor(leave: (code: number) => void = code => process.exit(code), now: () => number = () => performance.now()) {
    this.#leave = leave;
    this.#now = now;
  }

  listen(): void {
    process.on('SIGINT', () => this.press());
  }

  /** Runs `work`, which the first interrupt aborts. A new piece of work starts the count again. */
  async during<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    this.#presses = 0;
    this.#running = new AbortController();
    try {
      return await work(this.#running.signal);
    } finally {
      this.#running = null;
    }
  }

  press(): void {
    const now = this.#now();
    if (now - this.#lastPress < SAME_PRESS_MS) return;
    this.#lastPress = now;
    const idleCounts = this.#running ? true : (this.whenIdle?.() ?? true);
    if (!idleCounts) return;
    this.#presses++;
    const last = this.#presses > 1 || (!this.#running && this.whenIdle === null);
    if (!last) {
      this.#running?.abort();
      return;
    }
    this.beforeLeaving();
    this.#leave(EXIT_INTERRUPTED);
  }
}
