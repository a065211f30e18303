import { expect, test } from 'vitest';
import type { Engine, ScoreRequest } from '../engine/api.ts';
import { evalPerplexity } from './perplexity.ts';

/** Every token costs its own value in nats. */
function engineOf(ids: readonly number[], context = 1024) {
  const requests: ScoreRequest[] = [];
  const engine = {
    info: { context, maxContext: 2048 },
    encode: async () => [...ids],
    score: async (request: ScoreRequest) => {
      requests.push(request);
      return { nll: Float64Array.from([...request.ids.slice(1), request.next!]) };
    },
  } as unknown as Engine;
  return { engine, requests };
}

test('windows share one boundary token and predict every token but the first once', async () => {
  const { engine, requests } = engineOf([9, 1, 2, 3, 4, 5]);
  const progress: number[] = [];
  const report = await evalPerplexity(engine, 'abcdef', 2, done => progress.push(done));
  expect(requests.map(({ ids, next }) => [ids, next])).toEqual([
    [[9, 1], 2],
    [[2, 3], 4],
    [[4], 5],
  ]);
  expect(report).toMatchObject({ nll: 3, ppl: Math.exp(3), tokens: 6, predictedTokens: 5, bytes: 6, window: 2 });
  expect(report.bitsPerByte).toBeCloseTo(15 / Math.LN2 / 6, 12);
  expect(progress).toEqual([2, 4, 5]);
});

test('a last window of a single prediction', async () => {
  const { engine, requests } = engineOf([9, 1, 2, 3]);
  const report = await evalPerplexity(engine, 'ab', 2);
  expect(requests.at(-1)).toMatchObject({ ids: [2], next: 3 });
  expect(report.nll).toBe(2);
});

test('the window is 256 predictions, less when the context is shorter', async () => {
  const { engine, requests } = engineOf(Array(600).fill(1));
  expect((await evalPerplexity(engine, 'x')).window).toBe(256);
  expect(requests.map(({ ids }) => ids.length)).toEqual([256, 256, 87]);
  expect((await evalPerplexity(engineOf([1, 2], 100).engine, 'x')).window).toBe(100);
});

test('bytes are those of UTF-8', async () => {
  expect((await evalPerplexity(engineOf([1, 2]).engine, 'è')).bytes).toBe(2);
});

test('a window beyond the context is refused before any work', async () => {
  const { engine, requests } = engineOf([1, 2, 3], 100);
  await expect(evalPerplexity(engine, 'x', 101)).rejects.toMatchObject({
    code: 'WINDOW_TOO_LONG',
    message: 'a window of 101 tokens needs that much context; it is 100',
    hint: 'use --window 100 or a larger --ctx (this model allows 2048)',
  });
  expect(requests).toEqual([]);
});
