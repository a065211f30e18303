import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { RequestError, TokenizerError } from '../common/errors.ts';
import { ChatTemplate, MAX_TEMPLATE_BYTES } from './chat-template.ts';
import { strftime } from './strftime.ts';

const STORED: {
  clock: [number, number, number, number, number, number];
  variables: Record<string, unknown>;
  cases: { name: string; template: string; text: string }[];
} = JSON.parse(readFileSync(new URL('../../test/fixtures/data/templates.json', import.meta.url), 'utf8'));
const NOW = new Date(...STORED.clock);

const scratch = mkdtempSync(join(tmpdir(), 'coli-template-'));
afterAll(() => rmSync(scratch, { recursive: true }));

function template(source: string): ChatTemplate {
  return new ChatTemplate(new Map([['default', source]]));
}

function render(source: string, variables: Record<string, unknown> = {}): string {
  return template(source).render({ messages: [], tools: null, add_generation_prompt: true, ...variables }, NOW);
}

describe('constructs give what jinja2 gives', () => {
  test.each(STORED.cases)('$name', ({ template: source, text }) => {
    expect(template(source).problems).toEqual([]);
    expect(render(source, STORED.variables)).toBe(text);
  });

  test('messages without tools have tools none, as in transformers', () => {
    expect(render('{{ tools is none }} {{ tools is defined }} {{ documents is defined }}')).toBe('True True False');
  });

  test('the first item of nothing is undefined, not a crash', () => {
    expect(render('{{ ([]|first) is defined }}')).toBe('False');
  });
});

test('strftime keeps unknown directives and can be given any date', () => {
  expect(strftime(new Date(2024, 11, 31, 23, 59, 58), '%Q %j %-m/%-d %I%p %U %W %G')).toBe(
    '%Q 366 12/31 11PM 52 53 %G',
  );
  expect(strftime(new Date(2023, 0, 1, 0, 5), '%a %e %I %w %u %U %W')).toBe('Sun  1 12 0 7 01 00');
});

describe('templates that cannot be used', () => {
  test.each([
    ['an unclosed tag', 'a\n{{ messages', 'line 2'],
    [
      'an unclosed block',
      '{% if a %}x{% endif %}\n\n{% for m in messages %}\n{% if m %}y{% endif %}',
      'line 3: a tag or block is not closed',
    ],
    ['a wrong end', 'a\nb\n{% for m in messages %}\n{% endif %}\n', 'line 4'],
    ['an unknown statement', '{{ a }}\n{% include "x" %}\n{{ b }}', 'line 2: Unknown statement type: include'],
    ['a bad expression', '{# {{ #}\n{{ "}}" }}\n\n{{ a + }}\n{{ b }}', 'line 4'],
  ])('%s is named with its line', (_, source, message) => {
    const broken = template(source);
    expect(broken.problems).toEqual([expect.stringContaining(message)]);
    const use = () => broken.render({ messages: [], tools: null, add_generation_prompt: true }, NOW);
    expect(use).toThrow(TokenizerError);
    expect(use).toThrow(message);
  });

  test('filters and tests that are not supported are named at load, and fail only when reached', () => {
    const source = 'ok\n{% if x %}{{ "a"|fromjson }}\n{{ 1 is divisibleby(2) if false }}{% endif %}';
    const both = template('ok\n{% if x %}\n{{ "a"|fromjson }}\n{{ "a" is escaped }}{% endif %}');
    expect(both.problems).toEqual([
      'chat template: filter "fromjson" (line 3) is not supported',
      'chat template: test "escaped" (line 4) is not supported',
    ]);
    expect(both.render({ messages: [], tools: null, add_generation_prompt: true }, NOW)).toBe('ok\n');
    expect(() => render(source, { x: true })).toThrow();
  });

  test('a refusal of the template is the error of the request', () => {
    const refuse = () => render("{{ raise_exception('roles must alternate') }}");
    expect(refuse).toThrow(RequestError);
    expect(refuse).toThrow('roles must alternate');
  });

  test.each([
    ["''", ''],
    ['12', '12'],
    ['{"a": 1}', 'without a text'],
    ['', 'without a text'],
  ])('raise_exception(%s) says what it was given', (argument, message) => {
    expect(() => render(`{{ raise_exception(${argument}) }}`)).toThrow(`refuses this conversation: ${message}`);
  });

  test.each(['break', 'continue'])('%s outside a loop is an error with a text', word => {
    expect(() => render(`{% ${word} %}`)).toThrow('failed: break or continue outside a loop');
  });

  test('a chain of 100000 operators is too deep, when it is used', () => {
    const deep = template(`{{ ${'1+'.repeat(100_000)}1 }}`);
    expect(deep.problems).toEqual([expect.stringContaining('nested too deeply')]);
    const use = () => deep.render({ messages: [], tools: null, add_generation_prompt: true }, NOW);
    expect(use).toThrow(expect.objectContaining({ code: 'CHAT_TEMPLATE_INVALID' }));
  });

  test.each([
    [12, 'not a number'],
    [{ a: 'x' }, 'not an object'],
    [['x'], 'a list of named strings'],
    [[{ name: 'default' }], 'not nothing'],
    [[{ name: 'default', template: 1 }], 'not a number'],
  ])('chat_template %j is an error when it is used', (chat_template, message) => {
    const wrong = ChatTemplate.load(scratch, { chat_template })!;
    const use = () => wrong.render({ messages: [], tools: null, add_generation_prompt: true }, NOW);
    expect(use).toThrow(expect.objectContaining({ code: 'CHAT_TEMPLATE_INVALID' }));
    expect(use).toThrow(message);
  });

  test('a template variable cannot replace a name of the language', () => {
    expect(() => render('x', { range: 1 })).toThrow(RequestError);
  });

  test('a huge template is refused unread', () => {
    expect(template('x'.repeat(MAX_TEMPLATE_BYTES + 1)).problems).toEqual([expect.stringContaining('longer than')]);
  });
});

describe('limits', () => {
  test.each([
    ['a huge range', '{% for i in range(10**9) %}x{% endfor %}', 'range() of 1000000000 items'],
    [
      'nested loops',
      '{% for i in range(10000) %}{% for j in range(10000) %}{% endfor %}{% endfor %}',
      'too many steps',
    ],
    [
      'doubling a string',
      '{% set ns = namespace(s="ab") %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}',
      'a text grew too long',
    ],
    [
      'doubling a list',
      '{% set ns = namespace(s=range(1000)) %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}',
      'a list grew too long',
    ],
    [
      'a long output',
      '{% set b %}{% for i in range(1000) %}0123456789{% endfor %}{% endset %}{% for i in range(5000) %}{{ b }}{% endfor %}',
      'a text grew too long',
    ],
    [
      'walking a long string again and again',
      '{% set b %}{% for i in range(100000) %}0123456789{% endfor %}{% endset %}{% for i in range(100000) %}{{ "z" in b }}{% endfor %}',
      'too many steps',
    ],
    ['calls that make lists', '{% for i in range(100000) %}{{ range(190000)|length }}{% endfor %}', 'too many steps'],
    [
      'slices of a list',
      '{% set l = range(190000) %}{% for i in range(100000) %}{{ l[::-1]|length }}{% endfor %}',
      'too many steps',
    ],
    [
      'slices of a string',
      '{% set b %}{% for i in range(100000) %}0123456789{% endfor %}{% endset %}{% for i in range(10000) %}{{ b[:1] }}{% endfor %}',
      'too many steps',
    ],
    ...['ns.a|tojson', 'ns.a', 'ns.a ~ ""', 'ns.a|string'].map(use => [
      `a list that contains itself 2^40 times, in ${use}`,
      `{% set ns = namespace(a=[1]) %}{% for i in range(40) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}{{ ${use} }}`,
      'too many steps',
    ]),
  ])('%s is stopped', (_, source, message) => {
    expect(() => render(source)).toThrow(
      expect.objectContaining({ code: 'CHAT_TEMPLATE_LIMIT', message: expect.stringContaining(message) }),
    );
  });

  test('recursion without end is an error', () => {
    expect(() => render('{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}')).toThrow(TokenizerError);
  });

  test('long honest conversations stay far below', () => {
    const messages = Array.from({ length: 2000 }, (_, i) => ({
      role: i % 2 ? 'assistant' : 'user',
      content: 'word '.repeat(100),
    }));
    const source =
      '{% for m in messages %}{% if m.role == "user" and loop.index0 % 2 == 0 %}{{ m.content|trim }}{% else %}{{ messages[loop.index0 - 1].role }}{% endif %}{% endfor %}';
    expect(render(source, { messages }).length).toBe(1000 * 499 + 1000 * 4);
  });
});

describe('where templates come from', () => {
  test('a string, a list of names, or a file, which wins', () => {
    expect(ChatTemplate.load(scratch, {})).toBeNull();
    expect(ChatTemplate.load(scratch, { chat_template: 'a' })!.names).toEqual(['default']);
    const named = ChatTemplate.load(scratch, {
      chat_template: [
        { name: 'default', template: 'plain' },
        { name: 'tool_use', template: 'tools' },
        { name: 'rag', template: 'rag' },
      ],
    })!;
    const base = { messages: [], add_generation_prompt: true };
    expect(named.render({ ...base, tools: null }, NOW)).toBe('plain');
    expect(named.render({ ...base, tools: [{}] }, NOW)).toBe('tools');
    expect(named.render({ ...base, tools: [{}] }, NOW, undefined, 'rag')).toBe('rag');
    expect(() => named.render({ ...base, tools: null }, NOW, undefined, 'none')).toThrow(
      'no chat template named "none"',
    );
    writeFileSync(join(scratch, 'chat_template.jinja'), 'from the file');
    expect(ChatTemplate.load(scratch, { chat_template: 'a' })!.render({ ...base, tools: null }, NOW)).toBe(
      'from the file',
    );
  });
});
