/** What stands for a pattern with look-ahead matches that pattern; narrower formats lie within theirs. */

import { describe, expect, it } from 'vitest';
import { Budget, isWithin } from './automaton.ts';
import { narrowerFormats, STRING_FORMATS } from './formats.ts';
import { WITHOUT_LOOK_AHEAD } from './patterns.ts';
import { parseRegex } from './regex.ts';
import { refusal, sampleTexts, schemaSpec } from './test-support.ts';

const parse = (text: string) => parseRegex(text, { code: 'X', what: 'x' });

describe('patterns with look-ahead', () => {
  it.each([...WITHOUT_LOOK_AHEAD.keys()])('%s', async pattern => {
    const texts = await sampleTexts({ type: 'string', pattern }, 60);
    expect(texts.length).toBeGreaterThan(30);
    expect(texts.map(text => JSON.parse(text)).filter(text => !new RegExp(pattern, 'u').test(text))).toEqual([]);
  });

  it('of numbers and addresses lose nothing', () => {
    for (const [pattern, other] of WITHOUT_LOOK_AHEAD) {
      if (other.includes('{0,60}') || pattern.startsWith('^P')) continue;
      const texts = [
        '',
        '.',
        '+',
        '-.',
        '1',
        '1.',
        '.1',
        '-007.50',
        '+a',
        '1.2.3',
        'a@b.co',
        '.a@b.co',
        'a..b@c.de',
        "a'b@x-.com",
      ];
      for (const text of texts) expect(new RegExp(other).test(text), text).toBe(new RegExp(pattern).test(text));
    }
  });
});

it.each(['email', 'uri'])('parts of the format %s lie within it and keep to the length', format => {
  for (const max of [40, 100, 254, 2048, Number.POSITIVE_INFINITY]) {
    for (const part of narrowerFormats(format, max)) {
      expect(isWithin(parse(part).whole, parse(STRING_FORMATS[format]).whole, new Budget())).toBe(true);
    }
  }
});

it('takes patterns, formats and lengths together', async () => {
  for (const schema of [
    { pattern: '^[ab]+c', allOf: [{ pattern: 'c[de]*$' }], maxLength: 9 },
    { pattern: '"|\\\\', allOf: [{ pattern: '^[^]{2,5}$' }] },
    { format: 'date-time', pattern: 'Z$', minLength: 25 },
    { format: 'email', pattern: '@example\\.com$', maxLength: 30 },
  ]) {
    const texts = (await sampleTexts(schema, 20)).map(text => JSON.parse(text) as string);
    expect(texts.length).toBeGreaterThan(5);
    for (const text of texts) {
      for (const pattern of [schema.pattern, ...(schema.allOf ?? []).map(part => part.pattern)]) {
        expect(text).toMatch(new RegExp(pattern, 'u'));
      }
      expect([...text].length).toBeLessThanOrEqual(schema.maxLength ?? 99);
      expect([...text].length).toBeGreaterThanOrEqual(schema.minLength ?? 0);
    }
  }
});

it('refuses patterns whose automata are too large, in bounded time', () => {
  for (const pattern of ['^(a|b)*a(a|b){40}c', '^(((a{1000}){1000}){1000})', '^((((){9999}){9999}){9999})a']) {
    expect(refusal(schemaSpec({ pattern, allOf: [{ pattern: 'c$' }] }))?.code).toBe('UNSUPPORTED_SCHEMA');
  }
});
