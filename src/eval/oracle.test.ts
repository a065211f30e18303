import { expect, test } from 'vitest';
import type { Engine } from '../engine/api.ts';
import { compareWithReference } from './oracle.ts';
import type { Reference } from './reference.ts';

/** Two tokens, one layer, hidden size 2, vocabulary 3, top-2 of some experts. */
const REFERENCE: Reference = {
  inputIds: [1, 2],
  logits: Float32Array.of(1, 2, 3, 4, 5, 6),
  hidden: [Float32Array.of(1, 2, 3, 4)],
  hiddenRows: null,
  routerIds: [[5, 7, 0, 1]],
  selected: [[[0], [0, 1]]],
  mtp: { rows: 1, logits: Float32Array.of(7, 8, 9), hidden: Float32Array.of(5, 6) },
  tolerance: 0.01,
  greedy: [{ prompt_ids: [1], generated_ids: [2, 0] }],
};

interface Computed {
  logits?: number[];
  hidden?: number[];
  router?: number[];
  selected?: number[][] | null;
  mtp?: number[];
  tokens?: number[];
}

function compare(computed: Computed, reference = REFERENCE) {
  const engine = {
    info: { layers: 1, vocabSize: 3, hiddenSize: 2, topK: 2 },
    score: async () => ({
      logits: Float32Array.from(computed.logits ?? REFERENCE.logits),
      hidden: [Float32Array.from(computed.hidden ?? REFERENCE.hidden[0]!)],
      router: [{ ids: Int32Array.from(computed.router ?? REFERENCE.routerIds[0]!), weights: new Float32Array(4) }],
      selected: [
        (computed.selected === undefined ? [[0], [0, 1]] : computed.selected)?.map(keys => Int32Array.from(keys)),
      ],
      mtp: { logits: Float32Array.from(computed.mtp ?? [7, 8, 9]), hidden: Float32Array.of(5, 6.25) },
    }),
    async *generate() {
      yield { type: 'end', tokenIds: computed.tokens ?? [2, 0] };
    },
  } as unknown as Engine;
  return compareWithReference(engine, reference);
}

test('the same numbers pass, experts in any order', async () => {
  expect(await compare({ router: [7, 5, 1, 0] })).toEqual({
    passed: true,
    tolerance: 0.01,
    maxLogitDifference: 0,
    hiddenDifferences: [0],
    routerMismatches: 0,
    selectionMismatches: 0,
    prediction: { maxLogitDifference: 0, hiddenDifference: 0.25 },
    greedy: [{ promptTokens: 1, matching: 2, total: 2 }],
    firstDifference: null,
  });
});

test.each<[string, Computed, RegExp]>([
  ['an expert', { router: [5, 7, 0, 2], logits: [9, 9, 9, 9, 9, 9] }, /^layer 0: 1 token chooses other experts$/],
  ['two experts', { router: [5, 6, 0, 2] }, /^layer 0: 2 tokens choose/],
  ['a key', { selected: [[0], [0]], router: [5, 7, 0, 2] }, /^layer 0: 1 token chooses other keys$/],
  ['no indexer', { selected: null }, /^layer 0: 2 tokens choose other keys$/],
  ['a predicted logit', { mtp: [7, 8, 9.5] }, /^logits of the prediction head differ by 5\.00e-1$/],
  ['a predicted logit that is no number', { mtp: [7, 8, Number.NaN] }, /^logits of the prediction head differ by NaN$/],
  ['a hidden state', { hidden: [1, 2, 3, 4.5] }, /^layer 0: hidden state differs by 5\.00e-1/],
  ['a logit', { logits: [1, 2, 3, 4, 5, 6.5] }, /^logits differ by 5\.00e-1 \(tolerance 1\.0e-2\)/],
  ['a logit that is no number', { logits: [Number.NaN, 2, 3, 4, 5, 6] }, /^logits differ by NaN/],
  ['a token', { tokens: [2, 1] }, /^greedy: token 1 after a prompt of 1 differs/],
])('%s that differs is the first difference', async (_, computed, first) => {
  const report = await compare(computed);
  expect(report.passed).toBe(false);
  expect(report.firstDifference).toMatch(first);
});

test('what the pack does not have is not compared', async () => {
  const report = await compare(
    { hidden: [9, 9, 9, 9], selected: null, mtp: [0, 0, 0] },
    { ...REFERENCE, hidden: [null], routerIds: [null], selected: [null], mtp: null },
  );
  expect(report).toMatchObject({
    passed: true,
    hiddenDifferences: [null],
    selectionMismatches: null,
    prediction: null,
  });
});

test('hidden states of some tokens are compared with those of the same tokens', async () => {
  const some = { ...REFERENCE, hidden: [Float32Array.of(3, 4)], hiddenRows: [1] };
  expect(await compare({ hidden: [9, 9, 3, 4] }, some)).toMatchObject({ passed: true, hiddenDifferences: [0] });
  expect(await compare({ hidden: [3, 4, 9, 9] }, some)).toMatchObject({ passed: false, hiddenDifferences: [6] });
  await expect(compare({}, { ...some, hiddenRows: [2] })).rejects.toMatchObject({
    code: 'BAD_REFERENCE',
    message: 'hidden_rows names token 2 of 2',
  });
  await expect(compare({}, { ...some, hidden: [Float32Array.of(1, 2, 3, 4)] })).rejects.toMatchObject({
    message: 'hidden.0 has 4 values for 1 tokens; this model makes 2 per token',
  });
});

test('a pack of another model is refused', async () => {
  const logits = new Float32Array(8);
  await expect(compare({}, { ...REFERENCE, logits })).rejects.toMatchObject({
    code: 'BAD_REFERENCE',
    message: 'logits has 8 values for 2 tokens; this model makes 3 per token',
  });
});
