/** SIGINT and SIGTERM of a server: the first asks it to finish what runs, the second ends it at once. */

import { EXIT_INTERRUPTED, SAME_PRESS_MS } from './interrupts.ts';

/** Conventional exit code of a program ended by SIGTERM. */
export const EXIT_TERMINATED = 143;

type StopSignal = 'SIGINT' | 'SIGTERM';

export class StopSignals {
  /** Resolves with the first signal. */
  readonly first: Promise<StopSignal>;
  readonly #tell: (signal: StopSignal) => void;
  readonly #leave: (code: number) => void;
  readonly #now: () => number;
  #last: number | null = null;

  constructor(leave: (code: number) => void = code => process.exit(code), now: () => number = () => performance.now()) {
    const { promise, resolve } = Promise.withResolvers<StopSignal>();
    this.first = promise;
    this.#tell = resolve;
    this.#leave = leave;
    this.#now = now;
  }

  listen(): void {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => this.receive(signal));
  }

  receive(signal: StopSignal): void {
    const now = this.#now();
    const last = this.#last;
    // a launcher passes on the signal that the terminal has already sent here
    if (last !== null && now - last < SAME_PRESS_MS) return;
    this.#last = now;
    if (last === null) this.#tell(signal);
    else this.#leave(signal === 'SIGINT' ? EXIT_INTERRUPTED : EXIT_TERMINATED);
  }
}
