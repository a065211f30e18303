/** Stop strings in streamed text, wherever token boundaries fall. */

import { RequestError } from '../common/errors.ts';

/** Every character of an answer is compared with each stop string; clients use a handful. */
export const MAX_STOP_STRINGS = 16;
/** UTF-16 units. A longer one would hold back pages of an answer. */
export const MAX_STOP_LENGTH = 1024;

export interface StopStep {
  /** Text that can no longer become part of a stop string. */
  readonly emit: string;
  /** The stop string found, or null. */
  readonly matched: string | null;
}

/** Refuses what is no list of non-empty, well-formed strings. */
export function checkStopStrings(stops: unknown): readonly string[] {
  const refuse = (message: string) =>
    new RequestError('BAD_PARAMETER', `stop ${message}`, {
      hint: `give up to ${MAX_STOP_STRINGS} non-empty strings`,
      details: { parameter: 'stop' },
    });
  if (!Array.isArray(stops)) throw refuse('must be a list of strings');
  if (stops.length > MAX_STOP_STRINGS) throw refuse(`has ${stops.length} strings, at most ${MAX_STOP_STRINGS}`);
  for (const [index, stop] of stops.entries()) {
    if (typeof stop !== 'string') throw refuse(`[${index}] must be a string`);
    if (stop === '') throw refuse(`[${index}] is empty`);
    if (stop.length > MAX_STOP_LENGTH) {
      throw refuse(`[${index}] has ${stop.length} characters, at most ${MAX_STOP_LENGTH}`);
    }
    if (!stop.isWellFormed()) throw refuse(`[${index}] holds half of a surrogate pair`);
  }
  return stops;
}

/**
 * Finds the first stop string that is completed; of several completed by the same character the longest wins, so the
 * text ends as early as possible. How the text is cut into pieces makes no difference.
 */
export class StopMatcher {
  readonly #stops: readonly string[];
  readonly #fallbacks: readonly Uint16Array[];
  /** Per stop string: how many of its characters the text's end has matched (Knuth-Morris-Pratt). */
  readonly #progress: Uint16Array;
  #held = '';
  #matched: string | null = null;

  constructor(stopStrings: readonly string[]) {
    this.#stops = checkStopStrings(stopStrings);
    this.#fallbacks = this.#stops.map(fallbackTable);
    this.#progress = new Uint16Array(this.#stops.length);
  }

  get matched(): string | null {
    return this.#matched;
  }

  push(text: string): StopStep {
    if (this.#matched !== null) return { emit: '', matched: this.#matched };
    if (this.#stops.length === 0) return { emit: text, matched: null };
    const pending = this.#held + text;
    for (let i = this.#held.length; i < pending.length; i++) {
      const found = this.#advance(pending.charCodeAt(i));
      if (found === null) continue;
      this.#matched = found;
      this.#held = '';
      return { emit: pending.slice(0, i + 1 - found.length), matched: found };
    }
    let keep = 0;
    for (const length of this.#progress) keep = Math.max(keep, length);
    this.#held = pending.slice(pending.length - keep);
    return { emit: pending.slice(0, pending.length - keep), matched: null };
  }

  /** The text ended without a stop string: returns what was held back. */
  flush(): string {
    const rest = this.#held;
    this.#held = '';
    this.#progress.fill(0);
    return rest;
  }

  /** Takes one character; returns the longest stop string it completes. */
  #advance(unit: number): string | null {
    let found: string | null = null;
    for (let index = 0; index < this.#stops.length; index++) {
      const stop = this.#stops[index];
      const fallback = this.#fallbacks[index];
      let length = this.#progress[index];
      while (length > 0 && stop.charCodeAt(length) !== unit) length = fallback[length - 1];
      if (stop.charCodeAt(length) === unit) length++;
      if (length === stop.length) {
        if (found === null || stop.length > found.length) found = stop;
        length = fallback[length - 1];
      }
      this.#progress[index] = length;
    }
    return found;
  }
}

/** [i] = length of the longest proper prefix of stop[0..i] that is also its suffix. */
function fallbackTable(stop: string): Uint16Array {
  const table = new Uint16Array(stop.length);
  let length = 0;
  for (let i = 1; i < stop.length; i++) {
    while (length > 0 && stop[i] !== stop[length]) length = table[length - 1];
    if (stop[i] === stop[length]) length++;
    table[i] = length;
  }
  return table;
}
