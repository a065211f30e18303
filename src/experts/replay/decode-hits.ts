/** How many of the experts that decoding asks for were there, by a replay of what was decoded last. */

import { makePolicy, type PolicyName } from '../policies/policies.ts';
import { instantStore, replayLease } from './replay.ts';
import type { Trace } from './trace.ts';

/** Leases between two looks at the clock. */
const SLICE_LEASES = 256;
/** What is counted is divided so, and the worst and the best of these parts are told. */
const STRETCHES = 8;
/** Passes of a stretch that says something. */
const MIN_STRETCH_PASSES = 32;

export interface DecodeHits {
  /** Hits per request of everything counted, and of the worst and the best stretch. */
  readonly likely: number;
  readonly low: number;
  readonly high: number;
  /** Passes of one row that were counted. */
  readonly passes: number;
}

/**
 * The first half of the trace fills the slots, the second is counted, prompts not. Null: too short to say anything, or the clock ran out
 * before enough was seen.
 */
export function decodeHits(
  trace: Trace,
  slots: number,
  policy: PolicyName,
  budgetMs: number,
  now: () => number = () => performance.now(),
): DecodeHits | null {
  const store = instantStore(trace.header, slots, makePolicy(policy));
  const { counters } = store;
  const end = now() + budgetMs;
  const { layer, rows } = trace;
  const leases = layer.length;
  const hits: number[] = [];
  const requests: number[] = [];
  for (let lease = 0; lease < leases; lease++) {
    if (lease % SLICE_LEASES === SLICE_LEASES - 1 && now() > end) break;
    const [hitsBefore, requestsBefore] = [counters.hits, counters.requests];
    replayLease(store, trace, lease);
    if (rows[lease] !== 1 || lease < leases >> 1) continue;
    if (requests.length === 0 || lease === 0 || layer[lease] <= layer[lease - 1]) {
      hits.push(0);
      requests.push(0);
    }
    hits[hits.length - 1] += counters.hits - hitsBefore;
    requests[requests.length - 1] += counters.requests - requestsBefore;
  }
  const passes = requests.length;
  if (passes < STRETCHES * MIN_STRETCH_PASSES) return null;
  const rate = (from: number, to: number) => sumOf(hits, from, to) / sumOf(requests, from, to);
  const each = Array.from({ length: STRETCHES }, (_, i) =>
    rate(Math.floor((i * passes) / STRETCHES), Math.floor(((i + 1) * passes) / STRETCHES)),
  );
  return { likely: rate(0, passes), low: Math.min(...each), high: Math.max(...each), passes };
}

function sumOf(values: readonly number[], from: number, to: number): number {
  return values.slice(from, to).reduce((sum, value) => sum + value, 0);
}
