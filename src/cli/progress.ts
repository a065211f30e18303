/** One line on a terminal that says how far a long step is and how long it still takes. Nothing anywhere else. */

import { formatBytes, formatSeconds } from '../common/units.ts';
import { escapeControls, isTerminal } from './terminal.ts';

/** Shorter steps need no progress line. */
const SHOW_AFTER_MS = 1000;
const REDRAW_MS = 100;
/** Redrawn this often without news, so that a long first part does not look like a hang. */
const TICK_MS = 500;

export type Amount = (done: number, total: number) => string;
export const tokenAmount: Amount = (done, total) => `${done} of ${total} tokens`;
export const byteAmount: Amount = (done, total) => `${formatBytes(done)} of ${formatBytes(total)}`;

/** "prefill 128 of 512 tokens, 6.0 s left". `leftMs`: by somebody who knows better; null when nobody can tell. */
export function progressText(
  label: string,
  done: number,
  total: number,
  elapsedMs: number,
  amount: Amount,
  leftMs = done > 0 ? (elapsedMs * (total - done)) / done : null,
): string {
  const time = leftMs === null ? `${formatSeconds(elapsedMs / 1000)} so far` : `${formatSeconds(leftMs / 1000)} left`;
  return `${label} ${amount(done, total)}, ${time}`;
}

export class Progress {
  readonly #stream: NodeJS.WriteStream;
  readonly #now: () => number;
  readonly #startedMs: number;
  #drawnMs = Number.NEGATIVE_INFINITY;
  #text: ((elapsedMs: number) => string) | null = null;
  #timer: NodeJS.Timeout | undefined;
  #shown = false;

  constructor(stream: NodeJS.WriteStream = process.stderr, now: () => number = () => performance.now()) {
    this.#stream = stream;
    this.#now = now;
    this.#startedMs = now();
  }

  /** `etaMs`: what remains, when this is not to be told from the time since the start; null: nobody knows. */
  update(label: string, done: number, total: number, amount: Amount, etaMs?: number | null): void {
    if (!isTerminal(this.#stream)) return;
    const toldMs = this.#now() - this.#startedMs;
    this.#text = elapsedMs => {
      const leftMs = typeof etaMs === 'number' ? Math.max(0, etaMs - (elapsedMs - toldMs)) : etaMs;
      return progressText(label, done, total, elapsedMs, amount, leftMs);
    };
    this.#timer ??= setInterval(() => this.#draw(), TICK_MS).unref();
    this.#draw();
  }

  /** Takes the line away again. */
  clear(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    if (this.#shown) this.#stream.write('\r\x1b[K');
    this.#shown = false;
  }

  #draw(): void {
    const now = this.#now();
    const elapsed = now - this.#startedMs;
    if (!this.#text || elapsed < SHOW_AFTER_MS || now - this.#drawnMs < REDRAW_MS) return;
    this.#drawnMs = now;
    this.#shown = true;
    const width = Math.max(10, (this.#stream.columns ?? 80) - 1);
    this.#stream.write(`\r${escapeControls(this.#text(elapsed)).slice(0, width)}\x1b[K`);
  }
}
