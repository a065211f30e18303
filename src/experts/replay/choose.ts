/** Which policy would have served the last traces best. */

import { DEFAULT_POLICY, makePolicy, type PolicyName } from '../policies/policies.ts';
import { instantStore, replayLease } from './replay.ts';
import { passCount, type Trace } from './trace.ts';

/** Less says nothing: most of its reads are first ones. */
const MIN_PASSES = 256;
/** Another policy must find this much more than the default, as a share of the requests: less is chance. */
const MIN_GAIN = 0.005;
/** Leases between two looks at the clock. */
const SLICE_LEASES = 256;
/** `pin` goes by the history of use, which is longer than a trace: nothing that a replay of the last passes could judge. */
const CANDIDATES: readonly PolicyName[] = [DEFAULT_POLICY, 'lru'];

export interface PolicyVerdict {
  readonly policy: PolicyName;
  /** Hits per request of each policy replayed; empty when the trace is too short to decide. */
  readonly hitRates: Readonly<Partial<Record<PolicyName, number>>>;
}

/**
 * Replays all candidates side by side for at most `budgetMs`, so that what has been seen by then is the same for each. A trace
 * that is missing or too short gives the default.
 */
export function choosePolicy(
  trace: Trace | null,
  slots: number,
  budgetMs: number,
  now: () => number = () => performance.now(),
): PolicyVerdict {
  const undecided: PolicyVerdict = { policy: DEFAULT_POLICY, hitRates: {} };
  if (trace === null || passCount(trace) < MIN_PASSES) return undecided;
  const stores = CANDIDATES.map(name => instantStore(trace.header, slots, makePolicy(name)));
  const end = now() + budgetMs;
  const leases = trace.layer.length;
  for (let lease = 0; lease < leases; lease++) {
    for (const store of stores) replayLease(store, trace, lease);
    if (lease % SLICE_LEASES === SLICE_LEASES - 1 && now() > end) break;
  }
  const rates = stores.map(({ counters }) => counters.hits / counters.requests);
  let best = 0;
  for (let i = 1; i < rates.length; i++) if (rates[i] > rates[best] && rates[i] - rates[0] >= MIN_GAIN) best = i;
  return {
    policy: CANDIDATES[best],
    hitRates: Object.fromEntries(CANDIDATES.map((name, i) => [name, rates[i]])),
  };
}
