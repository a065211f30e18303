/** One line on a terminal that says how far a long step is and how long it still takes. Nothing anywhere else. */

import { formatSeconds } from '../common/units.ts';
import { escapeControls, isTerminal } from './terminal.ts';

/** Shorter steps need no progress line. */
const SHOW_AFTER_MS = 1000;
const REDRAW_MS = 100;

/** "prefill 128/512 tokens, 0:03 left": `unit` writes an amount. */
export function progressText(
  label: string,
  done: number,
  total: number,
  elapsedMs: number,
  unit: (n: number) => string,
) {
  const left = done > 0 ? ((elapsedMs / 1000) * (total - done)) / done : Number.NaN;
  const eta = Number.isFinite(left) ? `, ${formatSeconds(left)} left` : '';
  return `${label} ${unit(done)} of ${unit(total)}${eta}`;
}

export class Progress {
  readonly #stream: NodeJS.WriteStream;
  readonly #now: () => number;
  readonly #startedMs: number;
  #drawnMs = Number.NEGATIVE_INFINITY;
  #shown = false;

  constructor(stream: NodeJS.WriteStream = process.stderr, now: () => number = () => performance.now()) {
    this.#stream = stream;
    this.#now = now;
    this.#startedMs = now();
  }

  update(label: string, done: number, total: number, unit: (n: number) => string): void {
    const now = this.#now();
    const elapsed = now - this.#startedMs;
    if (!isTerminal(this.#stream) || elapsed < SHOW_AFTER_MS || now - this.#drawnMs < REDRAW_MS) return;
    this.#drawnMs = now;
    this.#shown = true;
    const width = Math.max(10, (this.#stream.columns ?? 80) - 1);
    const text = escapeControls(progressText(label, done, total, elapsed, unit)).slice(0, width);
    this.#stream.write(`\r${text}\x1b[K`);
  }

  /** Takes the line away again. */
  clear(): void {
    if (this.#shown) this.#stream.write('\r\x1b[K');
    this.#shown = false;
  }
}
