import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { formatNamed, TAGGED_FORMATS } from './formats.ts';
import { cutAt, join, parse, piecesOf, TOOLS, withTokens } from './test-support.ts';

const WHOLE: Record<string, string> = {
  json: '{"tool_calls": [{"name": "get_weather", "arguments": {"city": "Z\\u00fcrich 😀", "days": 2}}, {"name": "now", "arguments": {}}]}\nok',
  hermes:
    'See:\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich 😀"}}\n</tool_call>\n<tool_call>\n{"arguments": {}, "name": "now"}\n</tool_call>\n',
  glm: 'See:\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Zürich "😀"\n</arg_value>\n<arg_key>days</arg_key><arg_value>2</arg_value></tool_call><tool_call>now</tool_call> ok',
  'qwen-xml':
    'See:\n<tool_call>\n<function=get_weather>\n<parameter=city>\nZürich\n"😀"\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>\n<function=now></function></tool_call>',
  minimax:
    'See:\n<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Zürich\n"😀"</parameter>\n<parameter name="days">2</parameter>\n</invoke>\n<invoke name="now">\n</invoke>\n</minimax:tool_call> ok',
  deepseek:
    'See:<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Zürich 😀", "days": 2}<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>\n',
  'deepseek-fenced':
    'See:\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{"city": "Zürich 😀"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜> ok',
};

/** Everything that means something to some parser, and what comes near it. */
const FRAGMENTS = [
  ...['<think>', '</think>', '<tool_call>', '</tool_call>', '<function=', '</function>', '<arg_key>', '</arg_key>'],
  ...['<arg_value>', '</arg_value>', '<parameter=city>', '</parameter>', '<', '</', '>', 'get_weather', 'now', 'city'],
  ...['{"tool_calls": [', ']}', '{"name": "now", "arguments": {}}', '{"name": "get_weather", "arguments": {"city": "'],
  ...[
    '{',
    '}',
    '[',
    ']',
    ':',
    ',',
    '"',
    '\\',
    '\n',
    ' ',
    '\n\n',
    '```',
    '```json\n',
    '`',
    '~~~\n',
    'text',
    '5',
    '😀',
    '\u0001',
  ],
  '<tool_call>{"name": "now", "arguments": {}}</tool_call>',
  '<tool_call>now</tool_call>',
  '<tool_call>get_weather<arg_key>city</arg_key><arg_value>',
  '<function=now></function>',
  ...['<minimax:tool_call>', '</minimax:tool_call>', '<invoke name="', 'now">', '</invoke>', '<parameter name="city">'],
  '<invoke name="now"></invoke>',
  ...[
    '<｜tool▁calls▁begin｜>',
    '<｜tool▁calls▁end｜>',
    '<｜tool▁call▁begin｜>',
    '<｜tool▁call▁end｜>',
    '<｜tool▁sep｜>',
  ],
  ...[
    'function',
    '<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}',
    '<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}',
  ],
];
const answers = fc.array(fc.constantFrom(...FRAGMENTS), { maxLength: 30 }).map(parts => parts.join(''));
const cuts = fc.array(fc.nat(1000), { maxLength: 12 });
const booleans = { reasons: fc.boolean(), startsInReasoning: fc.boolean(), cut: fc.boolean() };

/** White space and think tags may be dropped; nothing else. */
const skeleton = (text: string) => text.replace(/<\/?think>|\s/g, '');

describe.each(TAGGED_FORMATS)('%s', name => {
  test.each([false, true])('a whole answer, cut at every two places, is the same (reasoning first: %s)', reasons => {
    const format = formatNamed(name, reasons);
    const answer = (reasons ? '<think>\nplan a\n</think>\n\n' : '') + WHOLE[name];
    const whole = parse(format, answer);
    expect(whole.calls.map(call => call.name)).toEqual(['get_weather', 'now']);
    expect(whole.reasoning).toBe(reasons ? 'plan a' : '');
    for (let a = 0; a <= answer.length; a++) {
      for (const b of [a + 1, a + 7, answer.length]) {
        const parts = cutAt(answer, [Math.min(a, answer.length), Math.min(b, answer.length)]);
        expect(join(piecesOf(format, parts))).toEqual(whole);
      }
    }
    const tokens = withTokens(format, answer).split('');
    expect(join(piecesOf(format, tokens))).toEqual(whole);
    expect(join(piecesOf(format, tokens, { constrained: true }))).toEqual(whole);
    expect(join(piecesOf(format, answer.split('')))).toEqual(whole);
  });

  test('any text: cutting changes nothing, calls are whole, and what is no call is not lost', () => {
    fc.assert(
      fc.property(answers, cuts, fc.record(booleans), (answer, places, { reasons, ...options }) => {
        const format = formatNamed(name, reasons);
        const whole = parse(format, answer, options);
        expect(join(piecesOf(format, cutAt(answer, places), options))).toEqual(whole);
        expect(join(piecesOf(format, answer.split(''), options))).toEqual(whole);
        for (const call of whole.calls) {
          expect(TOOLS.map(tool => tool.name)).toContain(call.name);
          expect(JSON.parse(call.arguments)).toBeTypeOf('object');
        }
        if (whole.calls.length === 0) expect(skeleton(whole.reasoning + whole.text)).toBe(skeleton(answer));
      }),
      { numRuns: 1500 },
    );
  });

  test('without tools or with tool_choice none, and without reasoning, all of it is text as it came', () => {
    fc.assert(
      fc.property(answers, cuts, fc.boolean(), (answer, places, none) => {
        const options = none ? ({ toolChoice: 'none' } as const) : { tools: [] };
        const pieces = piecesOf(formatNamed(name, false), cutAt(answer, places), options);
        expect(join(pieces)).toEqual({ reasoning: '', text: answer, calls: [] });
      }),
    );
  });

  test('a prefix of a whole answer is never a call with other arguments', () => {
    const format = formatNamed(name, false);
    const { calls } = parse(format, WHOLE[name]);
    for (let length = 0; length < WHOLE[name].length; length++) {
      const cut = parse(format, WHOLE[name].slice(0, length), { cut: true });
      expect(calls.slice(0, cut.calls.length)).toEqual(cut.calls);
    }
  });

  test('thousands of opening tags are read in no time', () => {
    const format = formatNamed(name, true);
    const opening: Record<string, string> = {
      json: '{"tool_calls": [',
      hermes: '<tool_call>{"a": "',
      glm: '<tool_call>now<arg_key>',
      'qwen-xml': '<function=now><parameter=a>',
      minimax: '<minimax:tool_call><invoke name="now"><parameter name="a">',
      deepseek: '<｜tool▁call▁begin｜>now<｜tool▁sep｜>{"a": "',
      'deepseek-fenced': '<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{"a": "',
    };
    const hostile = opening[name].repeat(20_000);
    for (const start of ['', '<think>']) {
      const { reasoning, text, calls } = parse(format, start + hostile);
      expect({ length: (reasoning + text).length, calls }).toEqual({ length: hostile.length, calls: [] });
    }
  });
});
