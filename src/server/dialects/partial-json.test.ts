import fc from 'fast-check';
import { expect, test } from 'vitest';
import { parsePartialObject } from './partial-json.ts';

test.each([
  ['{"a": 1, "b": [1, 2, {"c": "x"', { a: 1, b: [1, 2, { c: 'x' }] }],
  ['{"a": 1, "b": [1, 2, {"c": "x', { a: 1, b: [1, 2, {}] }],
  ['{"a": 1, "b"', { a: 1 }],
  ['{"a": 1, "b": ', { a: 1 }],
  ['{"a": 1, "b": tru', { a: 1 }],
  ['{"a": 12', {}],
  ['{"a": "} ] \\" {"', { a: '} ] " {' }],
  ['{"a": {}, ', { a: {} }],
  ['{"a": ["b", "c"', { a: ['b', 'c'] }],
  ['{', {}],
  ['', {}],
  ['[1, 2', {}],
  ['no json', {}],
])('%s', (text, object) => {
  expect(parsePartialObject(text)).toEqual(object);
});

test('every beginning of an object gives an object, and the whole gives itself', () => {
  const objects = fc.dictionary(fc.string(), fc.jsonValue());
  fc.assert(
    fc.property(objects, fc.nat(), (object, cut) => {
      const text = JSON.stringify(object);
      const part = parsePartialObject(text.slice(0, cut % (text.length + 1)));
      expect(Object.keys(object).slice(0, Object.keys(part).length)).toEqual(Object.keys(part));
      expect(JSON.stringify(parsePartialObject(text))).toBe(JSON.stringify(JSON.parse(text)));
    }),
  );
});
