/** Greedy continuations, compared with recorded ones. */

import type { Engine } from '../engine/api.ts';

/** The `tokens` greedy tokens after `prompt`; stop ids do not stop it. */
export async function greedyTokens(
  engine: Engine,
  prompt: readonly number[],
  tokens: number,
): Promise<readonly number[]> {
  const request = { prompt: { ids: prompt }, temperature: 0, maxTokens: tokens, ignoreEos: true };
  for await (const event of engine.generate(request)) if (event.type === 'end') return event.tokenIds;
  return [];
}

/** How many leading tokens agree. */
export function leadingMatches(got: readonly number[], expected: readonly number[]): number {
  const wrong = expected.findIndex((id, i) => id !== got[i]);
  return wrong < 0 ? expected.length : wrong;
}
