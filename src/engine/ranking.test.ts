import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Ranking } from './ranking.ts';

const finite = fc.float({ noNaN: true, noDefaultInfinity: true });
const shapes = fc.oneof(
  fc.array(finite, { minLength: 1, maxLength: 50 }),
  fc.array(fc.constantFrom(0, -0, 1, -1, 1e-45, -1e-45), { minLength: 1, maxLength: 50 }),
  fc.array(fc.float({ min: 10, max: 11, noNaN: true }), { minLength: 1, maxLength: 300 }),
);

const sorted = (logits: Float32Array) => Array.from(logits.keys()).sort((a, b) => logits[b] - logits[a] || a - b);

test('above: what a sort gives, from a floor on', () => {
  fc.assert(
    fc.property(shapes, fc.nat(), (values, seed) => {
      const logits = Float32Array.from(values);
      const ranking = new Ranking(logits.length, 0);
      // twice: nothing may be left of the first time
      for (const floor of [Number.NEGATIVE_INFINITY, logits[seed % logits.length]]) {
        const expected = sorted(logits).filter(id => logits[id] >= floor);
        const count = ranking.above(logits, floor);
        expect([...ranking.ids.subarray(0, count)]).toEqual(expected);
      }
      expect([...logits]).toEqual([...Float32Array.from(values)]);
    }),
    { numRuns: 500 },
  );
});

test('nth: the k-th of a sort', () => {
  fc.assert(
    fc.property(shapes, fc.nat(), (values, seed) => {
      const logits = Float32Array.from(values);
      const k = 1 + (seed % logits.length);
      const nth = new Ranking(logits.length, 1_000_000).nth(logits, k);
      expect(nth + 0).toBe(logits[sorted(logits)[k - 1]] + 0);
    }),
    { numRuns: 500 },
  );
});
