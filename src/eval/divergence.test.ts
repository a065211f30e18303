import { expect, test } from 'vitest';
import type { Engine, ScoreRequest } from '../engine/api.ts';
import { divergenceOf, evalDivergence } from './divergence.ts';

const row = (...values: number[]) => Float32Array.from(values);

test('the divergence of known distributions', () => {
  expect(divergenceOf(row(1, 2, 3), row(1, 2, 3))).toBe(0);
  // logits are the same up to a constant
  expect(divergenceOf(row(1, 2, 3), row(6, 7, 8))).toBeCloseTo(0, 7);
  // p = (3/4, 1/4), q = (1/2, 1/2): 3/4 ln 3/2 + 1/4 ln 1/2
  const expected = 0.75 * Math.log(1.5) + 0.25 * Math.log(0.5);
  expect(divergenceOf(row(Math.log(3), 0), row(0, 0))).toBeCloseTo(expected, 6);
});

/** Logits that favour the token itself by `strength`. */
function engineOf(ids: readonly number[], strength: number, vocabSize = 4): Engine {
  return {
    info: { context: 64, vocabSize },
    encode: async () => [...ids],
    score: async ({ ids: given }: ScoreRequest) => {
      const logits = new Float32Array(given.length * vocabSize);
      given.forEach((id, i) => {
        logits[i * vocabSize + id] = strength;
      });
      return { logits, nll: Float64Array.from(given, () => 1) };
    },
  } as unknown as Engine;
}

const IDS = [0, 1, 2, 3, 0, 1];

test('a model is as far from itself as nothing', async () => {
  const report = await evalDivergence(engineOf(IDS, 2), engineOf(IDS, 2), 'x', 2);
  expect(report).toMatchObject({ tokens: 5, kl: 0, agreement: 1, klMax: 0 });
  expect(report.ppl).toBeCloseTo(Math.E, 10);
});

test('another likeliest token is no agreement, and every prediction counts once', async () => {
  const progress: number[] = [];
  const report = await evalDivergence(engineOf(IDS, -2), engineOf(IDS, 2), 'x', 3, done => progress.push(done));
  expect(report.agreement).toBe(0);
  expect(report.kl).toBeCloseTo(divergenceOf(row(2, 0, 0, 0), row(-2, 0, 0, 0)), 6);
  expect(progress).toEqual([3, 5]);
});

test('models that read the text differently are refused', async () => {
  const other = [...IDS.slice(0, -1), 2];
  await expect(evalDivergence(engineOf(IDS, 1), engineOf(other, 1), 'x')).rejects.toThrow(
    expect.objectContaining({ code: 'DIFFERENT_TOKENS' }),
  );
  await expect(evalDivergence(engineOf(IDS, 1), engineOf(IDS, 1, 5), 'x')).rejects.toThrow(
    expect.objectContaining({ code: 'DIFFERENT_TOKENS' }),
  );
});

test('a window longer than the context is refused', async () => {
  await expect(evalDivergence(engineOf(IDS, 1), engineOf(IDS, 1), 'x', 65)).rejects.toThrow(
    expect.objectContaining({ code: 'WINDOW_TOO_LONG' }),
  );
});
