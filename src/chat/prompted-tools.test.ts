import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { describeTools, promptTools } from './prompted-tools.ts';

const TOOLS = [
  { name: 'get_weather', description: 'Weather of a city', parameters: { type: 'object' } },
  { name: 'now' },
];
const user = { role: 'user', content: 'Hi' };
const calls = (...args: unknown[]) =>
  args.map((given, i) => ({
    id: `c${i}`,
    type: 'function',
    function: { name: i === 0 ? 'now' : 'get_weather', arguments: given },
  }));

test('tools go behind the system message of the client, or into one of their own', () => {
  const text = describeTools(TOOLS, 'auto', true);
  expect(text).toContain('{"name":"now","parameters":{}}');
  expect(promptTools([user], TOOLS, 'auto', true)).toEqual([{ role: 'system', content: text }, user]);
  const system = { role: 'system', content: 'Be kind.' };
  const [first, ...rest] = promptTools([system, user], TOOLS, 'auto', true);
  expect([first, rest]).toEqual([{ role: 'system', content: `Be kind.\n\n${text}` }, [user]]);
});

test('the documentation shows the text', () => {
  const document = readFileSync(new URL('../../docs/chat-formats.md', import.meta.url), 'utf8');
  const shown = describeTools([TOOLS[0]], 'auto', true).replace('{"type":"object"}', '{"type":"object", ...}');
  expect(document).toContain(shown);
});

test('what is required is said', () => {
  expect(describeTools(TOOLS, 'required', true)).toContain('Answer with a call of a tool.');
  expect(describeTools(TOOLS, { name: 'now' }, false)).toContain('Answer with a call of the tool now.');
  expect(describeTools(TOOLS, 'auto', false)).toContain('exactly one call');
});

test.each([[[], 'auto'] as const, [TOOLS, 'none'] as const])('without tools nothing is said', (tools, choice) => {
  expect(promptTools([user], tools, choice, true)).toEqual([user]);
});

test('calls and results of a history are text that a template without tools can show', () => {
  const messages = [
    user,
    { role: 'assistant', content: 'Let me see.', tool_calls: calls({}, { city: 'Oslo' }) },
    { role: 'tool', tool_call_id: 'c1', content: 'rain' },
    { role: 'tool', tool_call_id: 'c0', content: 'noon' },
    { role: 'user', content: 'And?' },
    { role: 'assistant', content: null, tool_calls: calls('{"a": 1}') },
    { role: 'tool', tool_call_id: 'other', content: 'x' },
    { role: 'assistant', content: 'Done.' },
  ];
  expect(promptTools(messages, [], 'auto', true)).toEqual([
    user,
    {
      role: 'assistant',
      content:
        'Let me see.\n\n{"tool_calls": [{"name": "now", "arguments": {}}, {"name": "get_weather", "arguments": {"city":"Oslo"}}]}',
    },
    { role: 'user', content: 'Result of get_weather:\nrain\n\nResult of now:\nnoon\n\nAnd?' },
    { role: 'assistant', content: '{"tool_calls": [{"name": "now", "arguments": {"a": 1}}]}' },
    { role: 'user', content: 'Result of the call:\nx' },
    { role: 'assistant', content: 'Done.' },
  ]);
});

test('malformed arguments of a history stay a text', () => {
  const [message] = promptTools([{ role: 'assistant', content: null, tool_calls: calls('{"a') }], [], 'auto', true);
  expect(message.content).toBe('{"tool_calls": [{"name": "now", "arguments": "{\\"a"}]}');
});
