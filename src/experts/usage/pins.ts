/**
 * Which experts keep their slot for good, by heat; and which of them give it to others when a text has moved on. Both only look at
 * histories: a pin decides how often an expert is read, never what it computes.
 */

import type { Usage } from './heat.ts';

/** With less history than this the hottest experts are those of one text. */
export const MIN_TOKENS = 512;
/** A pinned expert goes for one whose score is larger by this factor and this much heat: what it gains must pay its read. */
const SWAP_FACTOR = 1.25;
const SWAP_HEAT = 4;
/** A re-read costs time that the next request may want. */
export const MAX_SWAPS = 4;
/** Heat decides, and among equals the age in tokens. */
const SCORE_PER_HEAT = 256;
const MAX_AGE = 255;

/** Indexes of the experts with the most heat, hottest first; among equals the lower index. Never used ones are not among them. */
export function hottest(usage: Usage, most: number): number[] {
  const used: number[] = [];
  for (let i = 0; i < usage.size; i++) if (usage.heat(i) > 0) used.push(i);
  used.sort((a, b) => usage.heat(b) - usage.heat(a) || a - b);
  return used.slice(0, most);
}

export interface Swap {
  readonly out: number;
  readonly in: number;
}

/** The swaps that pay, best first: the coldest pinned one against the hottest other one, and so on. */
export function chooseSwaps(usage: Usage, pinned: readonly number[]): Swap[] {
  if (pinned.length === 0) return [];
  const isPinned = new Set(pinned);
  const cold = [...pinned].sort((a, b) => score(usage, a) - score(usage, b) || a - b).slice(0, MAX_SWAPS);
  const hot = hottest(usage, pinned.length + MAX_SWAPS)
    .filter(index => !isPinned.has(index))
    .sort((a, b) => score(usage, b) - score(usage, a) || a - b);
  const swaps: Swap[] = [];
  for (let i = 0; i < cold.length && i < hot.length; i++) {
    const limit = SWAP_FACTOR * score(usage, cold[i]) + SWAP_HEAT * SCORE_PER_HEAT;
    if (score(usage, hot[i]) <= limit) break;
    swaps.push({ out: cold[i], in: hot[i] });
  }
  return swaps;
}

export function score(usage: Usage, index: number): number {
  return usage.heat(index) * SCORE_PER_HEAT + Math.max(0, MAX_AGE - usage.age(index));
}
