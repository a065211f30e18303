import { expect, test } from 'vitest';
import { ANTHROPIC_UNSUPPORTED, messageTurn } from './anthropic-request.ts';
import { AnthropicMessageBody } from './anthropic-schema.ts';
import { parseBody } from './openai-body.ts';

const user = { role: 'user', content: 'Hello' };
const tool = { name: 'weather', description: 'Weather of a city', input_schema: { type: 'object' } };
const call = { type: 'tool_use', id: 'toolu_1', name: 'weather', input: { city: 'Roma' } };

function turn(body: object) {
  const whole = { model: 'nano', max_tokens: 16, messages: [user], ...body };
  return messageTurn(parseBody(AnthropicMessageBody, whole, ANTHROPIC_UNSUPPORTED), 'me');
}

function chat(body: object) {
  const { prompt } = turn(body);
  if (prompt.kind !== 'chat') throw new Error('a chat was expected');
  return prompt;
}

function refusalOf(body: object): string {
  try {
    turn(body);
  } catch (error) {
    const { code, message, details } = error as { code: string; message: string; details: { parameter?: string } };
    return `${code} ${details.parameter}: ${message}`;
  }
  throw new Error('the request was accepted');
}

test('a plain request', () => {
  expect(turn({})).toEqual({
    client: 'me',
    maxTokens: 16,
    prompt: {
      kind: 'chat',
      messages: [user],
      tools: [],
      toolChoice: 'none',
      parallelToolCalls: true,
      thinking: false,
      reasoningEffort: null,
      continueFinal: false,
    },
  });
});

test('every field with a meaning reaches the turn', () => {
  const schema = { type: 'object' };
  const request = turn({
    stop_sequences: ['END'],
    temperature: 0.5,
    top_p: 0.9,
    top_k: 40,
    seed: 7,
    min_p: 0.1,
    thinking: { type: 'adaptive' },
    output_config: { effort: 'high', format: { type: 'json_schema', schema } },
    // harmless
    metadata: { user_id: 'u' },
    service_tier: 'auto',
    cache_control: { type: 'ephemeral' },
    speed: 'standard',
    context_management: { edits: [{ type: 'clear_thinking_20251015', keep: 'all' }] },
    some_future_hint: true,
  });
  expect(request).toMatchObject({
    stop: ['END'],
    temperature: 0.5,
    topP: 0.9,
    topK: 40,
    seed: 7,
    minP: 0.1,
    format: { kind: 'json_schema', schema },
    prompt: { thinking: null, reasoningEffort: 'high' },
  });
});

test('blocks become messages of a template', () => {
  const { messages, continueFinal } = chat({
    system: [
      { type: 'text', text: 'Be short.', cache_control: { type: 'ephemeral' } },
      { type: 'text', text: 'Be kind.' },
    ],
    messages: [
      { role: 'user', content: [{ type: 'text', text: 'Weather?' }] },
      {
        role: 'assistant',
        content: [
          { type: 'thinking', thinking: 'I need the tool.', signature: 'x' },
          { type: 'redacted_thinking', data: 'x' },
          { type: 'text', text: 'One moment.' },
          call,
        ],
      },
      {
        role: 'user',
        content: [
          {
            type: 'tool_result',
            tool_use_id: 'toolu_1',
            content: [{ type: 'text', text: 'no network' }],
            is_error: true,
          },
          { type: 'text', text: 'Try again.' },
        ],
      },
      { role: 'user', content: 'Please.' },
    ],
  });
  expect(continueFinal).toBe(false);
  expect(messages).toEqual([
    { role: 'system', content: 'Be short.\nBe kind.' },
    { role: 'user', content: 'Weather?' },
    {
      role: 'assistant',
      content: 'One moment.',
      reasoning_content: 'I need the tool.',
      tool_calls: [{ id: 'toolu_1', type: 'function', function: { name: 'weather', arguments: { city: 'Roma' } } }],
    },
    { role: 'tool', content: 'Error: no network', tool_call_id: 'toolu_1', name: 'weather' },
    { role: 'user', content: 'Try again.\nPlease.' },
  ]);
});

test('a call without text has no content, and a system message keeps its place', () => {
  const result = { type: 'tool_result', tool_use_id: 'toolu_1' };
  const { messages } = chat({
    messages: [
      user,
      { role: 'assistant', content: [call] },
      { role: 'user', content: [result] },
      { role: 'system', content: 'Hurry.' },
      user,
    ],
  });
  expect(messages.map(({ role, content }) => [role, content])).toEqual([
    ['user', 'Hello'],
    ['assistant', null],
    ['tool', ''],
    ['system', 'Hurry.'],
    ['user', 'Hello'],
  ]);
});

test('a last assistant message is continued; an empty one is not there', () => {
  const prefill = chat({ messages: [user, { role: 'assistant', content: 'The answer is' }] });
  expect(prefill).toMatchObject({
    continueFinal: true,
    messages: [user, { role: 'assistant', content: 'The answer is' }],
  });
  const empty = chat({ messages: [user, { role: 'assistant', content: [] }] });
  expect(empty).toMatchObject({ continueFinal: false, messages: [user] });
});

test.each([
  [{ type: 'auto' }, 'auto', true],
  [{ type: 'auto', disable_parallel_tool_use: true }, 'auto', false],
  [{ type: 'any' }, 'required', true],
  [{ type: 'none' }, 'none', true],
  [{ type: 'tool', name: 'weather' }, { name: 'weather' }, true],
  [null, 'auto', true],
])('tool_choice %j', (tool_choice, toolChoice, parallelToolCalls) => {
  expect(chat({ tools: [tool], tool_choice })).toMatchObject({
    toolChoice,
    parallelToolCalls,
    tools: [{ name: 'weather', description: 'Weather of a city', parameters: { type: 'object' } }],
  });
});

test.each([
  [{ type: 'enabled', budget_tokens: 2000 }, true],
  [{ type: 'disabled' }, false],
  [{ type: 'adaptive' }, null],
  [undefined, false],
])('thinking %j', (thinking, expected) => {
  expect(chat({ thinking }).thinking).toBe(expected);
});

const prefilled = { messages: [user, { role: 'assistant', content: 'So' }] };
const image = { type: 'image', source: { type: 'url', url: 'http://x' } };

test.each<[string, object, string]>([
  ['no max_tokens', { max_tokens: undefined }, 'BAD_PARAMETER max_tokens'],
  ['max_tokens 0', { max_tokens: 0 }, 'BAD_PARAMETER max_tokens'],
  ['no messages', { messages: [] }, 'BAD_PARAMETER messages'],
  [
    'an image',
    { messages: [{ role: 'user', content: [{ type: 'text', text: 'x' }, image] }] },
    'BAD_PARAMETER messages[0].content[1].type: messages[0].content[1].type must be "text", "thinking", "redacted_thinking", "tool_use" or "tool_result", not "image"',
  ],
  [
    'an image in a result',
    {
      messages: [
        user,
        { role: 'assistant', content: [call] },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'toolu_1', content: [image] }] },
      ],
    },
    'BAD_PARAMETER messages[2].content[0].content[0].type: messages[2].content[0].content[0].type must be "text", not "image"',
  ],
  [
    'a wrong text',
    { messages: [{ role: 'user', content: [{ type: 'text', text: 3 }] }] },
    'BAD_PARAMETER messages[0].content[0].text',
  ],
  [
    'a tool of the server',
    { tools: [{ type: 'web_search_20250305', name: 'web_search' }] },
    'UNSUPPORTED_PARAMETER tools[0].type: tools[0].type is "web_search_20250305", which is not available',
  ],
  ['no input_schema', { tools: [{ name: 'x' }] }, 'BAD_PARAMETER tools[0].input_schema'],
  ['two tools of one name', { tools: [tool, tool] }, 'BAD_PARAMETER tools[1].name'],
  ['a deferred tool', { tools: [{ ...tool, defer_loading: true }] }, 'UNSUPPORTED_PARAMETER tools[0].defer_loading'],
  [
    'callers',
    { tools: [{ ...tool, allowed_callers: ['code_execution_20250825'] }] },
    'UNSUPPORTED_PARAMETER tools[0].allowed_callers',
  ],
  ['any without tools', { tool_choice: { type: 'any' } }, 'BAD_PARAMETER tool_choice'],
  ['an unknown tool', { tools: [tool], tool_choice: { type: 'tool', name: 'x' } }, 'BAD_PARAMETER tool_choice.name'],
  [
    'a result of nothing',
    { messages: [{ role: 'user', content: [{ type: 'tool_result', tool_use_id: 'x' }] }] },
    'BAD_PARAMETER messages[0].content[0].tool_use_id',
  ],
  [
    'a call of the user',
    { messages: [{ role: 'user', content: [call] }] },
    'BAD_PARAMETER messages[0].content[0].type',
  ],
  ['a call at the end', { messages: [user, { role: 'assistant', content: [call] }] }, 'BAD_PARAMETER messages[1]'],
  [
    'thinking at the end',
    { messages: [user, { role: 'assistant', content: [{ type: 'thinking', thinking: 'x' }] }] },
    'BAD_PARAMETER messages[1]',
  ],
  [
    'a prefill that thinks',
    { ...prefilled, thinking: { type: 'enabled', budget_tokens: 1024 } },
    'BAD_PARAMETER thinking',
  ],
  ['a prefill with tools', { ...prefilled, tools: [tool] }, 'BAD_PARAMETER tools'],
  [
    'a prefill with a format',
    { ...prefilled, output_format: { type: 'json_schema', schema: {} } },
    'BAD_PARAMETER output_format',
  ],
  [
    'two formats',
    {
      output_format: { type: 'json_schema', schema: {} },
      output_config: { format: { type: 'json_schema', schema: {} } },
    },
    'BAD_PARAMETER output_format',
  ],
  ['a container', { container: 'c' }, 'UNSUPPORTED_PARAMETER container'],
  ['MCP servers', { mcp_servers: [{}] }, 'UNSUPPORTED_PARAMETER mcp_servers'],
  ['speed', { speed: 'fast' }, 'UNSUPPORTED_PARAMETER speed'],
  [
    'context edits',
    { context_management: { edits: [{ type: 'clear_tool_uses_20250919' }] } },
    'UNSUPPORTED_PARAMETER context_management',
  ],
  ["another API's field", { response_format: { type: 'json_object' } }, 'UNSUPPORTED_PARAMETER response_format'],
  ['an empty stop', { stop_sequences: [''] }, 'BAD_PARAMETER stop_sequences[0]'],
  ['many stops', { stop_sequences: Array(17).fill('x') }, 'BAD_PARAMETER stop_sequences'],
  ['temperature', { temperature: -1 }, 'BAD_PARAMETER temperature'],
  ['logit_bias', { logit_bias: { x: 1 } }, 'BAD_PARAMETER logit_bias'],
])('%s is refused by name', (_, body, message) => {
  expect(refusalOf(body)).toContain(message);
});
