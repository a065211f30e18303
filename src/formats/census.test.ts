import { expect, test } from 'vitest';
import { census, formatRanges, requireTensors } from './census.ts';

const layer = (n: number) => ['a', 'b', 'c'].map(part => `model.layers.${n}.${part}.weight`);

test('counts by layer', () => {
  const required = ['embed.weight', ...layer(0), ...layer(1), ...layer(2), 'head.weight'];
  const present = new Set(['embed.weight', ...layer(0), layer(1)[1]]);
  const result = census(present, required);
  expect(result.required).toBe(11);
  expect(result.missing).toEqual([layer(1)[0], layer(1)[2], ...layer(2), 'head.weight']);
  expect(result.outside).toEqual(['head.weight']);
  expect(Object.fromEntries(result.layers)).toEqual({
    0: { missing: 0, required: 3 },
    1: { missing: 2, required: 3 },
    2: { missing: 3, required: 3 },
  });
});

test('one error for a model of which half is there', () => {
  const required = [0, 1, 2, 3].flatMap(layer);
  const present = new Set([0, 1].flatMap(layer));
  expect(() => requireTensors('/m', present, required)).toThrow(
    expect.objectContaining({
      code: 'TENSORS_MISSING',
      message: expect.stringMatching(/^\/m: 6 of 12 tensors are absent; absent layers: 2-3 \(2 of 4\); first: /),
      details: expect.objectContaining({ count: 6, layers: [2, 3] }),
    }),
  );
});

test('the expert number is not taken for the layer', () => {
  const name = 'model.layers.7.mlp.experts.31.up_proj.weight';
  expect([...census(new Set(), [name]).layers.keys()]).toEqual([7]);
});

test('long lists are cut', () => {
  const required = Array.from({ length: 5000 }, (_, i) => `model.layers.${i % 50}.x${i}`);
  const present = new Set(required.slice(0, 50));
  try {
    requireTensors('/m', present, required);
    expect.unreachable();
  } catch (error) {
    expect((error as Error).message.length).toBeLessThan(600);
  }
});

test('ranges', () => {
  expect(formatRanges([])).toBe('');
  expect(formatRanges([0, 1, 2, 5, 7, 8])).toBe('0-2, 5, 7-8');
});
