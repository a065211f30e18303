import { expect, test } from 'vitest';
import type { Engine, GenerateRequest } from '../engine/api.ts';
import { greedyTokens, leadingMatches } from './greedy.ts';

test.each([
  [[1, 2, 3], [1, 2, 3], 3],
  [[1, 9, 3], [1, 2, 3], 1],
  [[9], [1], 0],
  [[1, 2], [1, 2, 3], 2],
  [[1, 2, 3, 4], [1, 2, 3], 3],
  [[], [1], 0],
])('%j agrees with %j in %i leading tokens', (got, expected, matching) => {
  expect(leadingMatches(got, expected)).toBe(matching);
});

test('greedy tokens: temperature 0, past stop ids, as many as asked for', async () => {
  const requests: GenerateRequest[] = [];
  const engine = {
    async *generate(request: GenerateRequest) {
      requests.push(request);
      yield { type: 'start' };
      yield { type: 'end', tokenIds: [4, 5] };
    },
  } as unknown as Engine;
  expect(await greedyTokens(engine, [1, 2], 2)).toEqual([4, 5]);
  expect(requests).toEqual([{ prompt: { ids: [1, 2] }, temperature: 0, maxTokens: 2, ignoreEos: true }]);
});
