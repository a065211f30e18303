import { describe, expect, test } from 'vitest';
import { formatNamed } from './formats.ts';
import { parse, piecesOf, TOOLS } from './test-support.ts';

const hermes = formatNamed('hermes', true);
const glm = formatNamed('glm', true);
const xml = formatNamed('qwen-xml', true);
const json = formatNamed('json', false);
const NOW = '<tool_call>{"name": "now", "arguments": {}}</tool_call>';
const now = { name: 'now', arguments: '{}' };

describe('reasoning', () => {
  test.each([
    ['a block', '<think>plan</think>answer', false, 'plan', 'answer'],
    ['white space at its edges', '\n<think>\n a\n\nb \n</think>\n\n answer ', false, 'a\n\nb', 'answer '],
    ['an empty block', '<think>\n\n</think>\n\nanswer', false, '', 'answer'],
    ['opened by the prompt', 'plan</think>answer', true, 'plan', 'answer'],
    ['opened by the prompt and again', '\n<think>plan</think>answer', true, 'plan', 'answer'],
    ['never closed', '<think>plan\n', false, 'plan\n', ''],
    ['closed but never opened', 'plan\n</think>\nanswer', false, '', 'plan\n\nanswer'],
    ['no block', ' answer', false, '', ' answer'],
    ['tags behind the block', '<think>a</think>b <think>c</think>', false, 'a', 'b <think>c</think>'],
    ['tags inside an answer', 'use <think> and </think>', false, '', 'use <think> and </think>'],
    ['a closing tag as code', 'the tag `</think>` ends it', false, '', 'the tag `</think>` ends it'],
  ])('%s', (_, answer, startsInReasoning, reasoning, text) => {
    expect(parse(hermes, answer, { startsInReasoning })).toEqual({ reasoning, text, calls: [] });
  });

  test('a format without tags has none, wherever the prompt ends', () => {
    const answer = '<think>plan</think>answer';
    expect(parse(json, answer, { startsInReasoning: true })).toEqual({ reasoning: '', text: answer, calls: [] });
  });

  test('the parser tells whether it is inside', () => {
    const parser = hermes.parser({ tools: TOOLS, toolChoice: 'auto', startsInReasoning: false });
    const inside = ['<thi', 'nk>', 'a', '</th', 'ink>', 'b'].map(part => {
      parser.push(part);
      return parser.inReasoning;
    });
    expect(inside).toEqual([false, true, true, true, false, false]);
  });
});

describe('where a call is one', () => {
  const nothing = { reasoning: '', calls: [] };
  test.each([
    ['in a fence', `Try:\n\`\`\`xml\n${NOW}\n\`\`\`\nok`],
    ['in a fence of waves', `~~~\n${NOW}\n~~~`],
    ['in backticks', `write \`${NOW}\` like this`],
    ['of an unknown tool', '<tool_call>{"name": "rm", "arguments": {}}</tool_call>'],
    ['of no name', '<tool_call>{"arguments": {}}</tool_call>'],
    ['of two names', '<tool_call>{"name": "now", "name": "now"}</tool_call>'],
    ['with a list of arguments', '<tool_call>{"name": "now", "arguments": []}</tool_call>'],
    ['with malformed arguments', '<tool_call>{"name": "now", "arguments": {a: 1}}</tool_call>'],
    ['without an end', '<tool_call>{"name": "now", "arguments": {"a": "b'],
    ['with more inside', '<tool_call>{"name": "now", "arguments": {}} and</tool_call>'],
  ])('not %s', (_, text) => {
    expect(parse(hermes, text)).toEqual({ ...nothing, text });
  });

  test('after a fence, and after something that only began like one', () => {
    expect(parse(hermes, `\`\`\`\n<tool_call>\n\`\`\`\n${NOW}`)).toMatchObject({ calls: [now] });
    expect(parse(hermes, `<tool_call>\n${NOW}`)).toEqual({ reasoning: '', text: '<tool_call>', calls: [now] });
    expect(parse(hermes, `\`\`\`\`\n\`\`\`\n${NOW}`).calls).toEqual([]);
  });

  test('inside reasoning only when it is the end of an answer that forgot the closing tag', () => {
    expect(parse(hermes, `<think>So:\n${NOW}\n`)).toEqual({ reasoning: 'So:', text: '', calls: [now] });
    expect(parse(hermes, `<think>So:\n${NOW}\n${NOW}`).calls).toEqual([now, now]);
    const quoted = `So ${NOW} would do`;
    expect(parse(hermes, `<think>${quoted}</think>ok`)).toEqual({ reasoning: quoted, text: 'ok', calls: [] });
    expect(parse(hermes, `<think>${quoted}`)).toEqual({ reasoning: quoted, text: '', calls: [] });
    expect(parse(hermes, `<think>${NOW}</think>`)).toEqual({ reasoning: NOW, text: '', calls: [] });
    expect(parse(hermes, `<think>\`\`\`\n${NOW}`)).toMatchObject({ calls: [] });
    // an unclosed call may hide the end of the reasoning
    const hidden = '<think>like <tool_call>now<arg_key>a</arg_key><arg_value>x</think>answer';
    expect(parse(glm, hidden)).toMatchObject({ text: 'answer', calls: [] });
  });

  test('with tool_choice none nowhere, with a name only of that tool', () => {
    expect(parse(hermes, NOW, { toolChoice: 'none' })).toEqual({ ...nothing, text: NOW });
    expect(parse(hermes, NOW, { toolChoice: { name: 'get_weather' } })).toEqual({ ...nothing, text: NOW });
    expect(parse(hermes, NOW, { toolChoice: { name: 'now' } }).calls).toEqual([now]);
  });

  test('white space before and between calls is none of the text, behind other text it is', () => {
    expect(parse(hermes, `a \n${NOW}\n${NOW}\n b\n`)).toEqual({ reasoning: '', text: 'a\n b\n', calls: [now, now] });
    expect(parse(hermes, 'a \n').text).toBe('a \n');
  });
});

describe('hermes', () => {
  const call = (body: string) => parse(hermes, `<tool_call>${body}</tool_call>`).calls;
  test.each([
    ['arguments first', '{"arguments": {"a": 1}, "name": "now"}', '{"a": 1}'],
    ['arguments as a text', '{"name": "now", "arguments": "{\\"a\\": 1}"}', '{"a": 1}'],
    ['no arguments', '{"name": "now"}', '{}'],
    ['null', '{"name": "now", "arguments": null}', '{}'],
    ['parameters', '{"name": "now", "parameters": {"a": "}"}}', '{"a": "}"}'],
    ['other members', '{"id": 0, "x": [{"y": "]"}], "name": "now", "arguments": {}}', '{}'],
    ['line breaks in a text', '{"name": "now", "arguments": {"a": "b\n\tc"}}', '{"a": "b\\n\\tc"}'],
    ['a backslash before a line break', '{"name": "now", "arguments": {"a": "b \\\nc"}}', '{"a": "b \\\\\\nc"}'],
    ['a closing tag in a text', '{"name": "now", "arguments": {"a": "</tool_call>"}}', '{"a": "</tool_call>"}'],
  ])('%s', (_, body, args) => {
    expect(call(body)).toEqual([{ name: 'now', arguments: args }]);
  });

  test('without its closing tag a whole object is a call', () => {
    const open = '<tool_call>{"name": "now", "arguments": {}}';
    for (const end of ['', '\n', '\n</tool', `\n${NOW}`]) {
      for (const cut of [true, false]) expect(parse(hermes, open + end, { cut }).calls[0]).toEqual(now);
    }
  });
});

describe('arguments between tags', () => {
  const weather = (...args: string[]) => `<tool_call>get_weather\n${args.join('\n')}\n</tool_call>`;
  const arg = (key: string, value: string) => `<arg_key>${key}</arg_key>\n<arg_value>${value}</arg_value>`;
  const read = (...args: string[]) => JSON.parse(parse(glm, weather(...args)).calls[0].arguments);

  test('are JSON where the schema allows it', () => {
    expect(read(arg('city', '5'), arg('days', ' 3 '))).toEqual({ city: '5', days: 3 });
    expect(read(arg('city', '"x"'), arg('days', 'many'), arg('more', '[1]'))).toEqual({
      city: '"x"',
      days: 'many',
      more: [1],
    });
    expect(['null', 'None', '5', ' x'].map(value => read(arg('detail', value)).detail)).toEqual([
      null,
      null,
      '5',
      ' x',
    ]);
    expect(read(arg('more', 'True'))).toEqual({ more: 'True' });
  });

  test.each([
    ['a second value', weather(arg('city', 'a'), arg('city', 'b'))],
    ['a missing key tag', '<tool_call>get_weather\ncity</arg_key>\n<arg_value>a</arg_value>\n</tool_call>'],
    ['an open value', '<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>a'],
    ['a missing argument', '<tool_call>get_weather\n<arg_key>days</arg_key><arg_value>2</arg_value>'],
    ['a name that may go on', '<tool_call>now'],
  ])('%s makes it text', (_, text) => {
    expect(parse(glm, text)).toEqual({ reasoning: '', text, calls: [] });
  });

  test('what is cut is a call only where nothing can be missing', () => {
    const open = `<tool_call>get_weather\n${arg('city', 'a')}`;
    const called = (end: string, cut: boolean) => parse(glm, open + end, { cut }).calls.length;
    expect([called('', false), called('\n', false), called('\n</tool_', true)]).toEqual([1, 1, 1]);
    // another argument may have been on its way
    expect([called('', true), called('\n<', true)]).toEqual([0, 0]);
    expect(called('<tool_call>now</tool_call>', true)).toBe(2);
  });

  test('Qwen leaves out the outer tag, and one line break on each side of a value is not its own', () => {
    const body = '<function=get_weather>\n<parameter=city>\n\n a\n\n</parameter>\n</function>';
    const call = { name: 'get_weather', arguments: JSON.stringify({ city: '\n a\n' }).replace(':', ': ') };
    for (const answer of [body, `${body}\n</tool_call>`, `<tool_call>\n${body}\n</tool_call>`, `<tool_call>${body}`]) {
      expect(parse(xml, answer)).toEqual({ reasoning: '', text: '', calls: [call] });
    }
    expect(parse(xml, `${body} and so on`).text).toBe(' and so on');
  });
});

describe('prompted json', () => {
  const CALL = '{"name": "now", "arguments": {}}';
  test.each([
    ['the object', `{"tool_calls": [${CALL}]}`, ''],
    ['loosely written', ` {\n "tool_calls" : [ ${CALL} ,\n ${CALL} ] }\n`, ''],
    ['in a fence', `\`\`\`json\n{"tool_calls": [${CALL}]}\n\`\`\`\n`, ''],
    ['with text behind', `{"tool_calls": [${CALL}]} done`, ' done'],
    ['without its brackets', `{"tool_calls": [${CALL}`, ''],
    ['in a fence without its end', `\`\`\`\n{"tool_calls": [${CALL}]}\n`, ''],
  ])('%s', (_, answer, text) => {
    const read = parse(json, answer);
    expect(read.text).toBe(text);
    expect(read.calls[0]).toEqual(now);
  });

  test.each([
    ['text before it', `Sure: {"tool_calls": [${CALL}]}`],
    ['a fence with text behind', `\`\`\`json\n{"tool_calls": [${CALL}]}\n\`\`\`\nis a call`],
    ['no calls', '{"tool_calls": []}'],
    ['another object', '{"tools": 1}'],
    ['one of two cut', `{"tool_calls": [${CALL}, {"name": "now", "argu`],
    ['one of two unknown', `{"tool_calls": [${CALL}, {"name": "rm", "arguments": {}}]}`],
    ['a fence of another language', `\`\`\`js\n{"tool_calls": [${CALL}]}\n\`\`\``],
  ])('%s is text', (_, text) => {
    expect(parse(json, text)).toEqual({ reasoning: '', text, calls: [] });
  });
});

test('arguments of a call that is guaranteed come while they are written, of others when the call is whole', () => {
  const parts = ['<tool_call>{"name": "now", ', '"arguments": {"a": "', 'long', '"}}</tool_call>'];
  const types = (constrained: boolean) => {
    const parser = hermes.parser({ tools: TOOLS, toolChoice: 'required', startsInReasoning: false, constrained });
    return parts.map(part => parser.push(part).map(piece => piece.type));
  };
  expect(types(true)).toEqual([['call'], ['arguments'], ['arguments'], ['arguments']]);
  expect(types(false)).toEqual([[], [], [], ['call', 'arguments']]);
});

test('text is given as it comes, a possible tag apart', () => {
  const parser = hermes.parser({ tools: TOOLS, toolChoice: 'auto', startsInReasoning: false });
  const texts = ['He', 'llo', ' ', 'you <', 'b> x', '<tool_', 'box>'].map(part => parser.push(part));
  expect(texts.map(pieces => pieces.map(piece => ('text' in piece ? piece.text : '')).join(''))).toEqual([
    'He',
    'llo',
    '',
    ' you',
    ' <b> x',
    '',
    '<tool_box>',
  ]);
  expect(piecesOf(hermes, ['a', '', 'b'])).toEqual([
    { type: 'text', text: 'a' },
    { type: 'text', text: 'b' },
  ]);
});
