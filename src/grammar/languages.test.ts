/** Regular expressions, GBNF, literals and what is put together from them. */

import { describe, expect, it } from 'vitest';
import type { GrammarSpec } from './api.ts';
import { lowerSpec } from './lower.ts';
import { accepts, matcher, randomNumbers, refusal, sample } from './test-support.ts';

const regex = (pattern: string): GrammarSpec => ({ kind: 'regex', pattern });
const gbnf = (text: string): GrammarSpec => ({ kind: 'gbnf', text });
const literal = (text: string): GrammarSpec => ({ kind: 'literal', text });

async function expectTexts(spec: GrammarSpec, inside: readonly string[], outside: readonly string[]): Promise<void> {
  for (const text of inside) expect([text, await accepts(spec, text)]).toEqual([text, true]);
  for (const text of outside) expect([text, await accepts(spec, text)]).toEqual([text, false]);
}

describe('regular expressions', () => {
  it('match the whole answer', async () => {
    await expectTexts(regex('a+b?|c{2,3}'), ['a', 'aab', 'ccc'], ['', 'b', 'c', 'cccc', 'abc']);
    await expectTexts(regex('^(?:yes|no)$'), ['yes', 'no'], ['y', 'yesno']);
    await expectTexts(regex('(?<year>\\d{4})-\\w+?\\s\\S'), ['2024-ab x'], ['2024- x', '24-a x']);
    await expectTexts(regex('[^\\d\\n-]*'), ['', 'é漢 "\\'], ['1', 'a-b', 'a\nb']);
    await expectTexts(regex('.[\\u00e9\\x41\\u{1F600}]'), ['xé', '漢A', '.😀'], ['\né', 'xB']);
  });

  it('agree with the regular expressions of JavaScript', async () => {
    for (const pattern of [
      '[a-c]{2}(?:x|yz)*',
      '(a|b)*c?',
      '\\w{1,3}(-\\d)?',
      '[^\\x00-\\x40\\x80-\\u{10ffff}]+',
      '[\\u0080-\\u{10ffff}]{1,3}',
    ]) {
      const at = await matcher(regex(pattern));
      for (let seed = 0; seed < 10; seed++) {
        const ids: number[] = [];
        const text = await sample(at, randomNumbers(seed), ids);
        at.rollback(ids.length);
        expect(text === null || new RegExp(`^(?:${pattern})$`, 'u').test(text)).toBe(true);
      }
      at.dispose();
    }
  });

  it.each([
    ['(?=a)', 'look-ahead'],
    ['a(?<!b)', 'look-behind'],
    ['(a)\\1', 'back-references'],
    ['(?<n>a)\\k<n>', 'back-references'],
    ['\\bword', 'word boundaries'],
    ['(?i)a', 'flags'],
    ['\\p{L}', 'Unicode properties'],
    ['a^b', '^'],
    ['a$b', '$'],
    ['(^a)', '^'],
    ['a{20000}', 'repetitions'],
    ['('.repeat(60) + ')'.repeat(60), 'groups'],
  ])('refuses %s by name', (pattern, construct) => {
    const error = refusal(regex(pattern));
    expect(error).toMatchObject({ code: 'INVALID_REGEX' });
    expect(error!.message).toContain(construct);
  });

  it.each(['(', ')', '[', 'a**', '*', '[b-a]', 'a{3,2}', '\\', '\\u12', 'a|*', '\ud800'])(
    'refuses %j as none',
    pattern => {
      expect(refusal(regex(pattern))).toMatchObject({ code: 'INVALID_REGEX' });
    },
  );

  it('may be ambiguous and nested without taking long', async () => {
    await expectTexts(regex('((a+)+)+!'), [`${'a'.repeat(60)}!`], ['a'.repeat(60)]);
    await expectTexts(regex('(a|a?)*(a*)*b'), [`${'a'.repeat(60)}b`], ['a'.repeat(60)]);
  });
});

describe('GBNF', () => {
  it('has rules, classes, groups, repetitions and comments', async () => {
    const source = `
# a list
root  ::= "[" (item ("," ws item)*)? "]"   # as it stands
item  ::= [a-z]+ | "\\"" [^"\\\\\\n]* "\\""
        | number
number ::= "-"? [0-9]{1,3}
ws ::= [ \\t\\x0a]{0,2}
`;
    await expectTexts(gbnf(source), ['[]', '[ab, 12,"é\t"]', '[-7]'], ['[', '[1234]', '[a,   b]', '["\n"]']);
    await expectTexts(gbnf('root ::= . "\\u00e9" [\\U0001F600-\\U0001F610é]{2}'), ['漢éé😁', '\nééé'], ['éé', 'aéxx']);
  });

  it('may be left-recursive and ambiguous', async () => {
    await expectTexts(
      gbnf('root ::= root "+" term | term\nterm ::= [0-9]+ | "(" root ")"'),
      ['1+(2+3)+4'],
      ['+1', '1+'],
    );
    await expectTexts(gbnf('root ::= s "!"\ns ::= s s | "a" | s s s | ""'), ['aaaa!', '!'], ['aa']);
  });

  it('loses what can never end', async () => {
    await expectTexts(gbnf('root ::= "a" x | "b"\nx ::= "c" x'), ['b'], ['a', 'ac']);
    const at = await matcher(gbnf('root ::= "a" x | "b"\nx ::= "c" x'));
    expect(at.forced()).toBe('b');
    at.dispose();
    expect(refusal(gbnf('root ::= "a" root'))?.code).toBe('UNSATISFIABLE');
  });

  it.each([
    ['x ::= "a"', 1, 1, 'no rule called root'],
    ['root ::= a\na ::= b c', 2, 7, 'the rule b is not defined'],
    ['root ::= "a"\nroot ::= "b"', 2, 9, 'defined twice'],
    ['root ::= "a', 1, 12, 'a " is missing'],
    ['root ::= [a', 1, 12, 'a ] is missing'],
    ['root ::= ("a"', 1, 14, 'a ) is missing'],
    ['root ::= "a")', 1, 13, '")" is not expected'],
    ['root = "a"', 1, 5, '::= must follow'],
    ['root ::= "\\q"', 1, 11, '\\q is no escape'],
    ['root ::= <token>', 1, 10, '"<" is not expected'],
    ['root ::= "a"{3,2}', 1, 18, 'wrong way round'],
    ['root ::= "a"{99999}', 1, 20, 'repetitions'],
    [`root ::= ${'('.repeat(200)}"a"${')'.repeat(200)}`, 1, 111, 'groups'],
    ['', 1, 1, 'no rule called root'],
  ])('says where %j is wrong', (source, line, column, problem) => {
    const error = refusal(gbnf(source));
    expect(error).toMatchObject({ code: 'INVALID_GRAMMAR', details: { line, column } });
    expect(error!.message).toContain(problem);
  });

  it('has a limit of its size', () => {
    expect(refusal(gbnf(`root ::= "${'a'.repeat(70_000)}"`))?.code).toBe('GRAMMAR_TOO_LARGE');
  });
});

describe('compositions', () => {
  it('are sequences, choices and repetitions', async () => {
    const call: GrammarSpec = {
      kind: 'sequence',
      parts: [
        literal('<call>'),
        {
          kind: 'choice',
          options: [
            { kind: 'json_schema', schema: { const: 1 } },
            { kind: 'json_object' },
            regex('x+'),
            gbnf('root ::= "y" ws\nws ::= " "'),
          ],
        },
        literal('</call>'),
      ],
    };
    const spec: GrammarSpec = { kind: 'repeat', item: call, separator: '\n' };
    await expectTexts(
      spec,
      ['<call>1</call>', '<call>{"a":[]}</call>\n<call>xx</call>\n<call>y </call>'],
      ['', '<call>2</call>', '<call>1</call>\n', '<call>1</call><call>1</call>'],
    );
  });

  it('keep the rules of their parts apart', async () => {
    const one = gbnf('root ::= a\na ::= "1"');
    const other = gbnf('root ::= a\na ::= "2"');
    await expectTexts({ kind: 'sequence', parts: [one, other, one] }, ['121'], ['111', '222']);
    const schemas = ['p', 'q'].map(
      (key): GrammarSpec => ({
        kind: 'json_schema',
        schema: { type: 'object', properties: { [key]: { type: 'null' } }, required: [key] },
      }),
    );
    await expectTexts({ kind: 'sequence', parts: schemas }, ['{"p":null}{"q":null}'], ['{"p":null}{"p":null}']);
  });

  it('spell literals as they are', async () => {
    await expectTexts(literal('"\\n\n\u2028é😀]'), ['"\\n\n\u2028é😀]'], ['"\n\n\u2028é😀]', '']);
    await expectTexts(literal(''), [''], ['a']);
    expect(refusal(literal('\ud800'))?.code).toBe('INVALID_GRAMMAR');
  });

  it('have a limit of depth and number', () => {
    let deep: GrammarSpec = literal('a');
    for (let i = 0; i < 100; i++) deep = { kind: 'sequence', parts: [deep] };
    expect(refusal(deep)?.code).toBe('GRAMMAR_TOO_LARGE');
    expect(refusal({ kind: 'choice', options: Array.from({ length: 6000 }, (_, i) => literal(`${i}`)) })?.code).toBe(
      'GRAMMAR_TOO_LARGE',
    );
    expect(refusal({ kind: 'choice', options: [] })?.code).toBe('UNSATISFIABLE');
    expect(lowerSpec({ kind: 'sequence', parts: [] })).toContain('root');
  });
});

describe('JSON objects', () => {
  it('are objects of anything, whole', async () => {
    await expectTexts(
      { kind: 'json_object' },
      ['{}', '{"a": [1, -2.5e10, true, null, {"b": "\\u00e9\\ud83d\\ude00\\/"}]}', '{\n  "é": ""\n}'],
      ['', '[]', '1', '{"a"}', '{"a":1,}', '{"a":01}', '{"a":"\\ud83d"}', '{"a":"\n"}', '{} ', '{"a":1}}'],
    );
  });
});
