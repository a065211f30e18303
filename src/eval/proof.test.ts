import { expect, test } from 'vitest';
import type { Engine } from '../engine/api.ts';
import type { GoldenSample } from './golden.ts';
import { checkSample, type DomainResult, groupDomains } from './proof.ts';

const SAMPLE: GoldenSample = {
  prompt: 'hi',
  prompt_ids: [1, 2],
  greedy_ids: [3, 0, 1],
  stop_at: 1,
  top5: [
    [
      [3, 5],
      [1, 4],
    ],
    [
      [0, 6],
      [1, 3.5],
    ],
    [
      [1, 9],
      [2, 8.75],
    ],
  ],
};

/** Answers `tokens`; its logits are the reference's plus `offset`. */
function engineOf(tokens: readonly number[], offset = 0) {
  const scored: (readonly number[])[] = [];
  const engine = {
    info: { vocabSize: 4 },
    async *generate() {
      yield { type: 'end', tokenIds: tokens };
    },
    score: async ({ ids }: { ids: readonly number[] }) => {
      scored.push(ids);
      const logits = new Float32Array(ids.length * 4);
      for (const [step, row] of SAMPLE.top5.entries()) {
        for (const [id, logit] of row) logits[(step + 1) * 4 + id] = logit + offset;
      }
      return { logits };
    },
  } as unknown as Engine;
  return { engine, scored };
}

test('a sample that agrees', async () => {
  const { engine, scored } = engineOf([3, 0, 1]);
  expect(await checkSample(engine, SAMPLE)).toEqual({
    prompt: 'hi',
    tokens: 3,
    matching: 3,
    sameAnswer: true,
    difference: null,
    maxLogitDifference: 0,
  });
  expect(scored).toEqual([[1, 2, 3, 0]]);
});

test('a sample that differs after its answer', async () => {
  const { engine } = engineOf([3, 0, 2], 0.5);
  expect(await checkSample(engine, SAMPLE)).toMatchObject({
    matching: 2,
    sameAnswer: true,
    difference: { position: 2, expected: 1, got: 2, referenceMargin: 0.25 },
    maxLogitDifference: 0.5,
  });
});

test('an answer that goes on where the reference stops is another answer', async () => {
  expect(await checkSample(engineOf([3, 1, 1]).engine, SAMPLE)).toMatchObject({ matching: 1, sameAnswer: false });
  expect(await checkSample(engineOf([3]).engine, SAMPLE)).toMatchObject({ difference: { position: 1, got: null } });
});

test('without a stop id every token counts', async () => {
  const sample = { ...SAMPLE, stop_at: null };
  expect((await checkSample(engineOf([3, 0, 1]).engine, sample)).sameAnswer).toBe(true);
  expect((await checkSample(engineOf([3, 0, 2]).engine, sample)).sameAnswer).toBe(false);
});

test('a logit that is no number is not lost', async () => {
  expect((await checkSample(engineOf([3, 0, 1], Number.NaN).engine, SAMPLE)).maxLogitDifference).toBeNaN();
});

test('groups weigh every token the same', () => {
  const domain = (name: string, predictedTokens: number, nll: number, reference: number): DomainResult => ({
    name,
    predictedTokens,
    sameTokens: true,
    nll,
    ppl: Math.exp(nll),
    referencePpl: Math.exp(reference),
    differencePercent: 0,
  });
  const groups = groupDomains([domain('chat_a', 10, 1, 1), domain('chat_b', 30, 2, 3), domain('code', 5, 4, 4)]);
  expect(groups.map(({ name, domains, predictedTokens }) => [name, domains, predictedTokens])).toEqual([
    ['chat', 2, 40],
    ['plain', 1, 5],
  ]);
  expect(groups[0].ppl).toBeCloseTo(Math.exp(1.75), 12);
  expect(groups[0].referencePpl).toBeCloseTo(Math.exp(2.5), 12);
  expect(groups[0].differencePercent).toBeCloseTo(100 * (Math.exp(-0.75) - 1), 10);
  expect(groups[1].differencePercent).toBeCloseTo(0, 12);
});
