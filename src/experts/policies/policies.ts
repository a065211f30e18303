/** The eviction policies by name. */

import { type EvictionPolicy, LruPolicy, type PolicyFacts } from '../policy.ts';
import { FrequencyPolicy } from './frequency.ts';

/** `pin` is `lfru` for all slots whose experts are not pinned; who is pinned is decided from the history of use. */
export const POLICY_NAMES = ['lru', 'lfru', 'pin'] as const;
export type PolicyName = (typeof POLICY_NAMES)[number];
/** `auto`: the one that would have read least in the last traces; without any, the default. */
export type PolicyChoice = PolicyName | 'auto';
export const POLICY_CHOICES: readonly PolicyChoice[] = ['auto', ...POLICY_NAMES];

export const DEFAULT_POLICY: PolicyName = 'lfru';

/** Without traces. */
export function chosenPolicy(choice: PolicyChoice = 'auto'): PolicyName {
  return choice === 'auto' ? DEFAULT_POLICY : choice;
}

export function makePolicy(name: PolicyName): (facts: PolicyFacts) => EvictionPolicy {
  return facts => (name === 'lru' ? new LruPolicy(facts) : new FrequencyPolicy(facts));
}
