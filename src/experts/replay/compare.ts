/** Every policy and the optimum at several numbers of slots. */

import { makePolicy, POLICY_NAMES, type PolicyName } from '../policies/policies.ts';
import { belady } from './belady.ts';
import { type ReplayResult, replay } from './replay.ts';
import { expertCount, type Trace } from './trace.ts';

/** Parts of all experts, where nobody says how many slots. */
const SHARES = [0.1, 0.25, 0.5, 0.75];

export interface PolicyResult extends ReplayResult {
  readonly policy: PolicyName | 'belady';
  /** Share of the optimum's hits that the policy misses; 0 where the optimum has none. */
  readonly regret: number;
}

export interface SlotsResult {
  readonly slots: number;
  readonly policies: readonly PolicyResult[];
}

/** Without those that a trace has too few experts for, or that its model could not run with. */
export function defaultSlots({ header }: Trace): number[] {
  const counts = SHARES.map(share => Math.max(header.topK, Math.round(share * expertCount(header))));
  return [...new Set(counts)];
}

/** `onProgress` gets leases replayed and in all. */
export function comparePolicies(
  trace: Trace,
  slotCounts: readonly number[],
  onProgress: (done: number, total: number) => void = () => {},
): SlotsResult[] {
  const leases = trace.layer.length;
  const total = leases * slotCounts.length * (POLICY_NAMES.length + 1);
  let before = 0;
  const results: SlotsResult[] = [];
  for (const slots of slotCounts) {
    const tell = (done: number) => onProgress(before + done, total);
    const best = belady(trace, slots, tell);
    before += leases;
    const policies: PolicyResult[] = [];
    for (const policy of POLICY_NAMES) {
      const result = replay(trace, slots, makePolicy(policy), tell, policy === 'pin');
      before += leases;
      policies.push({ policy, ...result, regret: best.hits === 0 ? 0 : 1 - result.hits / best.hits });
    }
    policies.push({ policy: 'belady', ...best, regret: 0 });
    results.push({ slots, policies });
  }
  return results;
}
