import { describe, expect, test } from 'vitest';
import type { GrammarSpec } from '../grammar/api.ts';
import type { ToolDefinition } from './api.ts';
import { chooseFormat, formatNamed, TAGGED_FORMATS } from './formats.ts';
import { textWithout } from './tagged-grammar.ts';
import { parse, TOOLS } from './test-support.ts';

describe('which format a model has', () => {
  const QWEN = ['<think>', '</think>', '<tool_call>', '</tool_call>'];
  test.each([
    ['no template', null, QWEN, 'json', false],
    ['a template without tools', '{{ messages }}', QWEN, 'json', false],
    ['a template that only shows old calls', "{{ '<tool_call>' }}</think>", QWEN, 'json', true],
    [
      'Qwen3',
      '{% if tools %}<tool_call>\n{"name": ...}{% endif %}{{ content.split(\'</think>\') }}',
      QWEN,
      'hermes',
      true,
    ],
    ['Qwen3 Instruct, whose tokenizer has think tags', '{% if tools %}<tool_call>{% endif %}', QWEN, 'hermes', false],
    ['Qwen3 Coder', '{% if tools %}<tool_call>\n<function=name>{% endif %}', QWEN, 'qwen-xml', false],
    ['GLM', '{% if tools %}<tool_call>{f}<arg_key>{k}</arg_key>{% endif %}<think></think>', QWEN, 'glm', true],
    ['unknown call syntax', '{% if tools %}[TOOL_CALLS]{% endif %}', [], 'json', false],
    ['a block that the template only opens', '{{ messages }}<think>\n', QWEN, 'json', true],
    ['a word that no token closes', 'say <think>', [], 'json', false],
  ])('%s', (_, template, addedTokens, name, reasons) => {
    const format = chooseFormat({ template, addedTokens });
    expect({ name: format.name, reasons: format.reasoning !== null }).toEqual({ name, reasons });
    expect(format.templateTakesTools).toBe(name !== 'json');
  });

  test("a family's usual format is taken where the template takes tools, shows no other, and the tokens are there", () => {
    const choose = (template: string, addedTokens: string[]) =>
      chooseFormat({ template, addedTokens, chat: { format: 'hermes' } }).name;
    expect(choose('{{ tools }}', ['<tool_call>'])).toBe('hermes');
    expect(choose('{{ tools }}', [])).toBe('json');
    expect(choose('{{ messages }}', ['<tool_call>'])).toBe('json');
    expect(choose('{{ tools }}<arg_key>', ['<tool_call>'])).toBe('glm');
  });

  test('a format that is not there is named', () => {
    expect(() => formatNamed('xml', false)).toThrow('there is no chat format "xml"');
  });
});

/** The language as an expression; a JSON value is an object without others inside, or anything short. */
function expression(spec: GrammarSpec): string {
  switch (spec.kind) {
    case 'literal':
    case 'token':
      return spec.text.replace(/[^\w\s]/g, '\\$&');
    case 'sequence':
      return spec.parts.map(expression).join('');
    case 'choice':
      return `(?:${spec.options.map(expression).join('|')})`;
    case 'repeat': {
      const item = `(?:${expression(spec.item)})`;
      return `${item}(?:${expression({ kind: 'literal', text: spec.separator })}${item})*`;
    }
    case 'regex':
      return `(?:${spec.pattern})`;
    default:
      return '(?:\\{[^{}]*\\}|[^<{}]+?)';
  }
}

const matches = (spec: GrammarSpec, text: string) => new RegExp(`^(?:${expression(spec)})$`).test(text);

const CALLS: Record<string, { open: string; weather: string; now: string; between: string; close: string }> = {
  json: {
    open: '{"tool_calls": [',
    weather: '{"name": "get_weather", "arguments": {"city": "Oslo"}}',
    now: '{"name": "now", "arguments": {}}',
    between: ', ',
    close: ']}',
  },
  hermes: {
    open: '',
    weather: '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>',
    now: '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
    between: '\n',
    close: '',
  },
  glm: {
    open: '',
    weather: '<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n</tool_call>',
    now: '<tool_call>now\n</tool_call>',
    between: '\n',
    close: '',
  },
  'qwen-xml': {
    open: '',
    weather: '<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>',
    now: '<tool_call>\n<function=now>\n</function>\n</tool_call>',
    between: '\n',
    close: '',
  },
  minimax: {
    open: '<minimax:tool_call>\n',
    weather: '<invoke name="get_weather">\n<parameter name="city">Oslo</parameter>\n</invoke>',
    now: '<invoke name="now">\n</invoke>',
    between: '\n',
    close: '\n</minimax:tool_call>',
  },
  deepseek: {
    open: '<｜tool▁calls▁begin｜>',
    weather: '<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Oslo"}<｜tool▁call▁end｜>',
    now: '<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>',
    between: '',
    close: '<｜tool▁calls▁end｜>',
  },
  'deepseek-fenced': {
    open: '<｜tool▁calls▁begin｜>',
    weather:
      '<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{"city": "Oslo"}\n```<｜tool▁call▁end｜>',
    now: '<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜>',
    between: '\n',
    close: '<｜tool▁calls▁end｜>',
  },
};

describe.each(TAGGED_FORMATS)('the language of required calls: %s', name => {
  const format = formatNamed(name, false);
  const { open, weather, now, between, close } = CALLS[name];
  const answer = (...calls: string[]) => open + calls.join(between) + close;

  test('its texts are what the parser reads', () => {
    const spec = format.forced(TOOLS, 'required', true);
    for (const calls of [[weather], [now], [weather, now, weather]]) {
      expect(matches(spec, answer(...calls))).toBe(true);
      const names = calls.map(call => (call === now ? 'now' : 'get_weather'));
      const read = parse(format, answer(...calls));
      expect({ names: read.calls.map(call => call.name), text: read.text }).toEqual({ names, text: '' });
      expect(JSON.parse(read.calls[0].arguments)).toEqual(calls[0] === now ? {} : { city: 'Oslo' });
    }
    for (const text of [
      '',
      'hello',
      answer(weather).slice(0, -1),
      `${answer(weather)} `,
      answer(weather.replace('get', 'got')),
    ]) {
      expect(matches(spec, text)).toBe(false);
    }
  });

  test('one call where several are not wanted, and only the named tool', () => {
    const one = format.forced(TOOLS, 'required', false);
    expect([answer(now), answer(now, now)].map(text => matches(one, text))).toEqual([true, false]);
    const named = format.forced(TOOLS, { name: 'now' }, true);
    expect([answer(now), answer(now, now), answer(weather)].map(text => matches(named, text))).toEqual([
      true,
      false,
      false,
    ]);
    expect(() => format.forced(TOOLS, { name: 'later' }, true)).toThrow('no tool "later"');
    expect(() => format.forced([], 'required', true)).toThrow('there are no tools');
  });
});

describe('calls whose arguments stand between tags', () => {
  const glm = formatNamed('glm', false);
  const tool = (parameters: ToolDefinition['parameters']) => glm.forced([{ name: 'f', parameters }], 'required', false);
  const call = (...args: [string, string][]) =>
    `<tool_call>f\n${args.map(([key, value]) => `<arg_key>${key}</arg_key>\n<arg_value>${value}</arg_value>\n`).join('')}</tool_call>`;

  test('what is not required may be missing, in the order of the schema', () => {
    const spec = tool({
      type: 'object',
      properties: { a: { type: 'string' }, b: { enum: ['x', 'y', 3] } },
      required: ['b'],
    });
    expect(matches(spec, call(['a', 'any\n<b>text</b>'], ['b', 'y']))).toBe(true);
    expect(matches(spec, call(['b', '3']))).toBe(true);
    expect(matches(spec, call(['a', '1']))).toBe(false);
    expect(matches(spec, call(['b', 'z']))).toBe(false);
  });

  test('line breaks between the tags of GLM may be missing, as its later models leave them out', () => {
    const spec = glm.forced(TOOLS, 'required', true);
    const bare = '<tool_call>get_weather<arg_key>city</arg_key><arg_value>Oslo</arg_value></tool_call>';
    expect([bare, bare + bare, `${bare}\n${bare}`].map(text => matches(spec, text))).toEqual([true, true, true]);
    expect(parse(glm, bare + bare).calls).toHaveLength(2);
  });

  test('lengths are kept', () => {
    const lengths = (minLength?: number, maxLength?: number) =>
      tool({ properties: { a: { type: 'string', minLength, maxLength } }, required: ['a'] });
    const fits = (spec: GrammarSpec) => ['', 'ab', 'abcd'].map(text => matches(spec, call(['a', text])));
    expect(fits(lengths(1))).toEqual([false, true, true]);
    expect(fits(lengths(0, 2))).toEqual([true, true, false]);
  });

  test('definitions go with the property that refers to them', () => {
    const $defs = { n: { type: 'integer' } };
    const spec = tool({ properties: { a: { $ref: '#/$defs/n' } }, required: ['a'], $defs });
    expect(JSON.stringify(spec)).toContain(
      '{"kind":"json_schema","schema":{"$ref":"#/$defs/n","$defs":{"n":{"type":"integer"}}}}',
    );
  });

  test.each([
    [false, 'false'],
    [{ type: 'array' }, 'type'],
    [{ anyOf: [] }, 'anyOf'],
    [{ required: ['a'] }, 'required'],
    [{ properties: { 'a<b': {} } }, 'properties'],
    [{ properties: { a: { type: 'string', pattern: 'x' } } }, 'pattern'],
    [{ properties: { a: { type: 'string', format: 'date' } } }, 'format'],
  ])('%j is refused by the keyword', (parameters, keyword) => {
    expect(() => tool(parameters)).toThrow(
      expect.objectContaining({ code: 'UNSUPPORTED_SCHEMA', details: { keyword, tool: 'f' } }),
    );
  });

  test('a text without a tag may have all that only looks like it', () => {
    const spec = textWithout('</p>');
    for (const text of ['', 'a', '<', '<p>', '</a>', '</p >', '<<b>', 'x < y </ p>']) {
      // its end may not be the tag's beginning
      expect([text, matches(spec, `${text}.`)]).toEqual([text, true]);
    }
    for (const text of ['</p>', 'a</p>b', '<</p>']) expect([text, matches(spec, text)]).toEqual([text, false]);
  });
});
