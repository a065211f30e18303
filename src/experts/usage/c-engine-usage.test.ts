import { expect, test } from 'vitest';
import { engineId, importCUsage, MAX_C_USAGE_BYTES } from './c-engine-usage.ts';
import { HALF_LIFE_TOKENS } from './heat.ts';

const SHAPE = { layers: 3, experts: 4, topK: 2 };
const HEADER = `-1 3 4\n-2 1 ${engineId('glm_moe_dsa')}\n`;

function imported(text: string, chosen = false) {
  return importCUsage(Buffer.from(text, 'latin1'), { shape: SHAPE, engine: 'glm_moe_dsa', chosen });
}

const refusal = (text: string, chosen = false) => {
  const result = imported(text, chosen);
  return result.usage === null ? result.why : 'imported';
};

test('the number of an engine is that of the C engine', () => {
  expect(engineId('glm_moe_dsa')).toBe(3_815_245_270);
});

test('counts become counts, and heat with the same ranks', () => {
  const { usage } = imported(`${HEADER}1 0 20\n1 3 60\n2 1 80\n`);
  expect(usage?.tokens).toBe(40);
  expect([...usage!.counts]).toEqual([0, 0, 0, 0, 20, 0, 0, 60, 0, 80, 0, 0]);
  expect(usage!.heat(9)).toBeGreaterThan(usage!.heat(7));
  expect(usage!.heat(9)).toBeCloseTo(80, 0);
});

test('a long history has no more heat than its last part', () => {
  const tokens = 100 * HALF_LIFE_TOKENS;
  const { usage } = imported(`${HEADER}1 0 ${tokens}\n1 1 ${tokens}\n`);
  expect(usage!.heat(4)).toBeCloseTo(HALF_LIFE_TOKENS / Math.LN2, 3);
});

test('what the oldest files lack, and what newer ones may add', () => {
  expect(refusal('1 0 20\n')).toBe('imported');
  expect(refusal(`${HEADER}-7 1 2\r\n\n1 0 20\r\n`)).toBe('imported');
  expect(refusal('')).toBe('imported');
  expect(imported('').usage!.tokens).toBe(0);
});

test.each([
  ['other dimensions', '-1 3 5\n', /3 layers of 5 experts/],
  ['another version', '-1 3 4\n-2 2 1\n', /version 2/],
  ['another engine', '-1 3 4\n-2 1 77\n', /another kind of model/],
  ['two numbers', `${HEADER}1 0\n`, /not three numbers \(3\)/],
  ['four numbers', `${HEADER}1 0 1 1\n`, /not three numbers/],
  ['a fraction', `${HEADER}1 0 1.5\n`, /not three numbers/],
  ['no number', `${HEADER}1 0 nan\n`, /not three numbers/],
  ['a negative count', `${HEADER}1 0 -4\n`, /not three numbers/],
  ['an endless number', `${HEADER}1 0 ${'9'.repeat(400)}\n`, /not three numbers/],
  ['a layer too many', `${HEADER}3 0 1\n`, /expert 0 of layer 3/],
  ['an expert too many', `${HEADER}1 4 1\n`, /expert 4 of layer 1/],
  ['binary', 'IKU1\0\0\0', /binary/],
  ['garbage', '\0\xff\x80', /not three numbers \(1\)/],
])('a file with %s is refused', (_what, text, why) => {
  expect(refusal(text)).toMatch(why);
});

test('a file of another engine counts when it was named', () => {
  const result = imported('-1 3 4\n-2 1 77\n1 0 9\n', true);
  expect(result.usage?.counts[4]).toBe(9);
  expect(result.usage && result.note).toMatch(/was named/);
  expect(refusal('-1 3 5\n', true)).toMatch(/5 experts/);
});

test('a file beyond the limit is not looked at', () => {
  expect(
    importCUsage(Buffer.alloc(MAX_C_USAGE_BYTES + 1, '1 0 1\n'), { shape: SHAPE, engine: 'x', chosen: true }),
  ).toEqual({
    usage: null,
    why: 'is too large',
  });
});
