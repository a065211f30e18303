/** What decides which experts are in memory when, as people and programs read it. */

import type { EngineInfo } from '../engine/api.ts';

type Placed = Pick<EngineInfo, 'policy' | 'prefetch' | 'directIo' | 'usage'>;

/** `usage.tokens`: what the history knew when the model was opened. */
export function placementJson({ policy, prefetch, directIo, usage }: Placed) {
  return { policy, prefetch, io: directIo ? 'direct' : 'buffered', usage };
}

/** "policy lfru, prefetch auto, direct reads, history of 700 tokens" */
export function placementText({ policy, prefetch, directIo, usage }: Placed): string {
  return `policy ${policy}, prefetch ${prefetch}, ${directIo ? 'direct' : 'buffered'} reads, ${historyText(usage)}`;
}

function historyText({ mode, tokens }: Placed['usage']): string {
  if (mode === 'off') return 'no history (--usage off)';
  return tokens > 0 ? `history of ${tokens} ${tokens === 1 ? 'token' : 'tokens'}` : 'no history yet';
}
