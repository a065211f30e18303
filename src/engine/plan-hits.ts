/** How many of a token's experts will be in memory: by a replay of what the model was used for last, or by a formula. */

import { chosenPolicy } from '../experts/policies/policies.ts';
import { choosePolicy } from '../experts/replay/choose.ts';
import { decodeHits } from '../experts/replay/decode-hits.ts';
import type { EngineOptions } from './api.ts';
import type { ModelFiles } from './model-files.ts';
import { type HitRates, modelledHitRates } from './plan-prediction.ts';
import { recentTrace } from './routing.ts';
import { usageMode } from './usage-mode.ts';

/** A plan may take this much longer to replay; traces of 2,000 tokens take a tenth of it. */
const REPLAY_MS = 2000;

/** `moeLayers`: those that route, without the prediction head. */
export function hitRates(
  files: ModelFiles,
  { policy = 'auto', usage }: Pick<EngineOptions, 'policy' | 'usage'>,
  { slots, moeLayers }: { readonly slots: number; readonly moeLayers: number },
): HitRates {
  const { experts, topK } = files.shape;
  const modelled = modelledHitRates(slots, moeLayers * experts, moeLayers * topK);
  if (slots >= moeLayers * experts || usageMode(usage) !== 'on') return modelled;
  const trace = recentTrace(files);
  if (trace === null) return modelled;
  const name = policy === 'auto' ? choosePolicy(trace, slots, REPLAY_MS).policy : chosenPolicy(policy);
  const found = decodeHits(trace, slots, name, REPLAY_MS);
  if (found === null) return modelled;
  const { low, likely, high, passes } = found;
  return { low, likely, high, source: 'replay', replayed_tokens: passes };
}
