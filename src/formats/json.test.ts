import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { findJsonProblem, formatJsonPath, MAX_JSON_DEPTH, parseJson } from './json.ts';

test('everything that JSON.stringify makes passes and is parsed to the same value', () => {
  fc.assert(
    fc.property(fc.json(), text => {
      expect(findJsonProblem(text)).toBeNull();
      expect(parseJson(text, 'x')).toEqual(JSON.parse(text));
    }),
    { seed: 3 },
  );
});

test('a duplicate is found in any object of any document', () => {
  const key = fc.string();
  const documents = fc.tuple(fc.array(fc.oneof(key, fc.nat(5)), { maxLength: 8 }), key, fc.json());
  fc.assert(
    fc.property(documents, ([path, name, value]) => {
      const quoted = JSON.stringify(name);
      const escaped = `"${[...Array(name.length).keys()].map(i => `\\u${name.charCodeAt(i).toString(16).padStart(4, '0')}`).join('')}"`;
      let text = `{${quoted}:${value},"_${quoted.slice(1)}:0,${escaped}:${value}}`;
      for (const step of path.toReversed()) {
        text = typeof step === 'number' ? `[${'0,'.repeat(step)}${text}]` : `{${JSON.stringify(step)}:${text}}`;
      }
      const problem = findJsonProblem(text);
      // A value may itself hold duplicates no more: fc.json() comes from a real object.
      expect(problem).toMatchObject({ code: 'JSON_DUPLICATE_KEY', path: [...path, name] });
      expect(text.startsWith(escaped, problem!.position)).toBe(true);
    }),
    { seed: 4 },
  );
});

test('the same key in different objects is no duplicate, nor is a value', () => {
  expect(findJsonProblem('[{"a":1},{"a":{"a":"a"}},["a","a"],{"b":"a","a":"b"}]')).toBeNull();
});

test('depth', () => {
  expect(findJsonProblem('['.repeat(MAX_JSON_DEPTH) + ']'.repeat(MAX_JSON_DEPTH))).toBeNull();
  const problem = findJsonProblem('['.repeat(MAX_JSON_DEPTH + 1) + ']'.repeat(MAX_JSON_DEPTH + 1));
  expect(problem).toMatchObject({ code: 'JSON_TOO_DEEP', position: MAX_JSON_DEPTH });
  expect(findJsonProblem(`"${'['.repeat(100)}"`)).toBeNull(); // brackets in a string do not count
  expect(findJsonProblem(`[${'[],'.repeat(100)}[]]`)).toBeNull();
});

describe('exact integers', () => {
  test.each(['0', '7', '-16', '9007199254740991', '-9007199254740991', '"1.5"'])('%s passes', number =>
    expect(findJsonProblem(`{"a":[${number}]}`, true)).toBeNull(),
  );
  const bad = [
    '1.5',
    '1.0',
    '1e2',
    '1E2',
    '-0',
    '9007199254740992',
    '9007199254740993',
    '1e300',
    '01',
    '9'.repeat(1e6),
  ];
  test.each(bad)('%.20s is refused', number => {
    const problem = findJsonProblem(`{"a":[1,${number}]}`, true);
    expect(problem).toMatchObject({ code: 'JSON_NOT_INTEGER', path: ['a', 1], position: 8 });
    expect(problem!.what.length).toBeLessThan(100);
  });
});

test('errors carry file, path and position', () => {
  const run = () => parseJson('{"a":[0,{"b c":1,"b c":2}]}', 'some/config.json');
  expect(run).toThrow(
    expect.objectContaining({
      code: 'JSON_DUPLICATE_KEY',
      message: expect.stringMatching(/^some\/config\.json: .*\$\.a\[1\]\["b c"\] \(character 17\)$/),
      details: { file: 'some/config.json', path: '$.a[1]["b c"]', position: 17 },
    }),
  );
});

test('text that is not JSON is refused whatever it is', () => {
  fc.assert(
    fc.property(fc.string({ unit: fc.constantFrom(...'{}[]:,"\\0-1e.tfn \n') }), text => {
      let expected: unknown;
      try {
        expected = JSON.parse(text);
      } catch {
        expect(() => parseJson(text, 'x')).toThrow(expect.objectContaining({ name: 'ModelFileError' }));
        return;
      }
      if (findJsonProblem(text) === null) expect(parseJson(text, 'x')).toEqual(expected);
    }),
    { numRuns: 2000, seed: 5 },
  );
});

test('paths', () => {
  expect(formatJsonPath([])).toBe('$');
  expect(formatJsonPath(['a', 0, 'b.c', '\u001b'])).toBe('$.a[0]["b.c"]["\\u001b"]');
});
