import { expect, test } from 'vitest';
import { shown } from './shown.ts';

test.each([
  ['a', '"a"'],
  [5, '5'],
  [null, 'null'],
  [undefined, 'undefined'],
  [true, 'true'],
  [[], 'an empty array'],
  [[1, 2], 'an array of 2'],
  [{}, 'an object'],
  [() => 1, 'a function'],
])('%o is shown as %s', (value, text) => {
  expect(shown(value)).toBe(text);
});

test('long texts are cut', () => {
  expect(shown('x'.repeat(1000))).toBe(`"${'x'.repeat(56)}...`);
});
