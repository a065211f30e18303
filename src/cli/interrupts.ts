/** Ctrl-C: the first stops what runs, the second leaves. */

/** Conventional exit code of a program ended by SIGINT. */
export const EXIT_INTERRUPTED = 130;
/** A launcher passes on the SIGINT that a terminal has already sent here: two within this time are one. */
export const SAME_PRESS_MS = 100;

export interface PromptInterrupt {
  /** Drops what was typed; true when there was something: then the press does not count. */
  drop(): boolean;
  /** The next press leaves. */
  warn(): void;
}

export class Interrupts {
  #running: AbortController | null = null;
  #presses = 0;
  #lastPress = Number.NEGATIVE_INFINITY;
  /** Set by chat: what an interrupt at the prompt does. Without it, an interrupt while nothing runs leaves. */
  atPrompt: PromptInterrupt | null = null;
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
    const idle = this.#running === null;
    if (idle && this.atPrompt?.drop()) return;
    this.#presses++;
    if (this.#presses === 1 && (!idle || this.atPrompt)) {
      this.#running?.abort();
      if (idle) this.atPrompt?.warn();
      return;
    }
    this.beforeLeaving();
    this.#leave(EXIT_INTERRUPTED);
  }
}
