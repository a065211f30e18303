import { expect, test } from 'vitest';
import { parseBody } from './openai-body.ts';
import { portableReasoning } from './responses-reasoning.ts';
import { RESPONSES_UNSUPPORTED, responsesTurn } from './responses-request.ts';
import { ResponsesBody } from './responses-schema.ts';

const tool = {
  type: 'function',
  name: 'weather',
  description: 'Weather',
  parameters: { type: 'object' },
  strict: true,
};
const call = { type: 'function_call', id: 'fc_1', call_id: 'call_1', name: 'weather', arguments: '{"city":"Roma"}' };
const output = { type: 'function_call_output', call_id: 'call_1', output: 'sun' };

function turn(body: object) {
  return responsesTurn(
    parseBody(ResponsesBody, { model: 'nano', input: 'Hello', ...body }, RESPONSES_UNSUPPORTED),
    'me',
  );
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

test('a call at the end is refused: its output is missing', () => {
  const user = { role: 'user', content: 'x' };
  expect(chat({ input: [user, call, output] }).messages).toHaveLength(3);
  for (const end of [[call], [call, { role: 'assistant', content: 'y' }]]) {
    expect(refusalOf({ input: [user, ...end] })).toContain(`BAD_PARAMETER input[${end.length}]: `);
  }
});

test('a plain request', () => {
  expect(turn({})).toEqual({
    client: 'me',
    prompt: {
      kind: 'chat',
      messages: [{ role: 'user', content: 'Hello' }],
      tools: [],
      toolChoice: 'none',
      parallelToolCalls: true,
      thinking: null,
      reasoningEffort: null,
      continueFinal: false,
    },
  });
});

test('every field with a meaning reaches the turn', () => {
  const request = turn({
    instructions: 'Be short.',
    max_output_tokens: 9,
    temperature: 0.5,
    top_p: 0.9,
    seed: 7,
    stop: 'END',
    reasoning: { effort: 'high', summary: 'auto' },
    text: { format: { type: 'json_schema', name: 'x', schema: { type: 'object' }, strict: true }, verbosity: 'medium' },
    top_logprobs: 2,
    parallel_tool_calls: false,
    // harmless
    store: false,
    include: ['reasoning.encrypted_content'],
    truncation: 'disabled',
    service_tier: 'auto',
    metadata: { a: 'b' },
    background: false,
    previous_response_id: null,
    some_future_hint: 1,
  });
  expect(request).toMatchObject({
    maxTokens: 9,
    temperature: 0.5,
    topP: 0.9,
    seed: 7,
    stop: ['END'],
    logprobs: 2,
    format: { kind: 'json_schema', schema: { type: 'object' } },
    prompt: {
      reasoningEffort: 'high',
      thinking: null,
      parallelToolCalls: false,
      messages: [{ role: 'system', content: 'Be short.' }, { role: 'user' }],
    },
  });
  expect(turn({ include: ['message.output_text.logprobs'] }).logprobs).toBe(0);
  expect(turn({ top_logprobs: 0 }).logprobs).toBeUndefined();
  expect(turn({ text: { format: { type: 'json_object' } } }).format).toEqual({ kind: 'json_object' });
  expect(turn({ regex: 'a+' }).format).toEqual({ kind: 'regex', pattern: 'a+' });
  expect(chat({ reasoning: { effort: 'none' } })).toMatchObject({ thinking: false, reasoningEffort: null });
});

test('items become messages of a template', () => {
  const { messages, continueFinal } = chat({
    instructions: 'Be short.',
    input: [
      { role: 'developer', content: 'Be kind.' },
      {
        role: 'user',
        content: [
          { type: 'input_text', text: 'Wea' },
          { type: 'input_text', text: 'ther?' },
        ],
      },
      { type: 'reasoning', id: 'rs_1', summary: [], content: [{ type: 'reasoning_text', text: 'The tool.' }] },
      { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'One moment.' }] },
      call,
      { ...call, call_id: 'call_2', arguments: '' },
      output,
      { ...output, call_id: 'call_2', output: [{ type: 'input_text', text: 'rain' }] },
      { role: 'assistant', content: [{ type: 'refusal', refusal: 'No.' }] },
    ],
  });
  expect(continueFinal).toBe(false);
  const wire = (id: string, args: object) => ({ id, type: 'function', function: { name: 'weather', arguments: args } });
  expect(messages).toEqual([
    { role: 'system', content: 'Be short.\nBe kind.' },
    { role: 'user', content: 'Weather?' },
    {
      role: 'assistant',
      content: 'One moment.',
      reasoning_content: 'The tool.',
      tool_calls: [wire('call_1', { city: 'Roma' }), wire('call_2', {})],
    },
    { role: 'tool', content: 'sun', tool_call_id: 'call_1', name: 'weather' },
    { role: 'tool', content: 'rain', tool_call_id: 'call_2', name: 'weather' },
    { role: 'assistant', content: 'No.' },
  ]);
});

test.each([
  [{ content: [{ type: 'reasoning_text', text: 'text' }], encrypted_content: portableReasoning('other') }, 'text'],
  [{ summary: [], encrypted_content: portableReasoning('perché') }, 'perché'],
  [
    {
      summary: [
        { type: 'summary_text', text: 'a' },
        { type: 'summary_text', text: 'b' },
      ],
    },
    'a\nb',
  ],
  [{ summary: [], encrypted_content: 'gAAAA' }, undefined],
])('reasoning comes back as far as it can be read: %j', (item, reasoning_content) => {
  const input = [
    { role: 'user', content: 'x' },
    { type: 'reasoning', ...item },
    { role: 'assistant', content: 'y' },
  ];
  expect(chat({ input }).messages[1]['reasoning_content']).toBe(reasoning_content);
});

test.each([
  ['auto', 'auto'],
  ['none', 'none'],
  ['required', 'required'],
  [{ type: 'function', name: 'weather' }, { name: 'weather' }],
  [null, 'auto'],
])('tool_choice %j', (tool_choice, toolChoice) => {
  const tools = [{ name: 'weather', description: 'Weather', parameters: { type: 'object' } }];
  expect(chat({ tools: [tool], tool_choice })).toMatchObject({ toolChoice, tools });
});

test('allowed_tools leaves only those', () => {
  const allowed = { type: 'allowed_tools', mode: 'required', tools: [{ type: 'function', name: 'time' }] };
  const prompt = chat({ tools: [tool, { ...tool, name: 'time' }], tool_choice: allowed });
  expect(prompt.tools.map(({ name }) => name)).toEqual(['time']);
  expect(prompt.toolChoice).toBe('required');
});

const image = { type: 'input_image', image_url: 'http://x' };

test.each<[string, object, string]>([
  ['no input', { input: undefined }, 'BAD_PARAMETER input'],
  ['an empty input', { input: [] }, 'BAD_PARAMETER input'],
  [
    'an image',
    { input: [{ role: 'user', content: [image] }] },
    'BAD_PARAMETER input[0].content[0].type: input[0].content[0].type must be "input_text", "output_text" or "refusal", not "input_image"',
  ],
  [
    'a reference',
    { input: [{ type: 'item_reference', id: 'x' }] },
    'BAD_PARAMETER input[0].type: input[0].type must be "message", "function_call", "function_call_output" or "reasoning", not "item_reference"',
  ],
  ['a wrong role', { input: [{ role: 'tool', content: 'x' }] }, 'BAD_PARAMETER input[0].role'],
  [
    'arguments that are no JSON',
    { input: [{ ...call, arguments: '{"city' }, output] },
    'BAD_PARAMETER input[0].arguments',
  ],
  ['an output of nothing', { input: [output] }, 'BAD_PARAMETER input[0].call_id'],
  ['store', { store: true }, 'UNSUPPORTED_PARAMETER store'],
  ['previous_response_id', { previous_response_id: 'resp_1' }, 'UNSUPPORTED_PARAMETER previous_response_id'],
  ['conversation', { conversation: 'c' }, 'UNSUPPORTED_PARAMETER conversation'],
  ['background', { background: true }, 'UNSUPPORTED_PARAMETER background'],
  ['truncation', { truncation: 'auto' }, 'UNSUPPORTED_PARAMETER truncation'],
  ['prompt', { prompt: { id: 'x' } }, 'UNSUPPORTED_PARAMETER prompt'],
  ['messages', { messages: [] }, 'UNSUPPORTED_PARAMETER messages'],
  ['max_tokens', { max_tokens: 5 }, 'UNSUPPORTED_PARAMETER max_tokens'],
  [
    'another tool',
    { tools: [{ type: 'web_search' }] },
    'BAD_PARAMETER tools[0].type: tools[0].type must be "function", not "web_search"',
  ],
  ['two tools of one name', { tools: [tool, tool] }, 'BAD_PARAMETER tools[1].name'],
  [
    'parameters that are no object',
    { tools: [{ ...tool, parameters: { type: 'array' } }] },
    'BAD_PARAMETER tools[0].parameters.type',
  ],
  ['a deferred tool', { tools: [{ ...tool, defer_loading: true }] }, 'UNSUPPORTED_PARAMETER tools[0].defer_loading'],
  [
    'callers',
    { tools: [{ ...tool, allowed_callers: ['programmatic'] }] },
    'UNSUPPORTED_PARAMETER tools[0].allowed_callers',
  ],
  ['required without tools', { tool_choice: 'required' }, 'BAD_PARAMETER tool_choice'],
  [
    'an unknown function',
    { tools: [tool], tool_choice: { type: 'function', name: 'x' } },
    'BAD_PARAMETER tool_choice.name',
  ],
  [
    'a choice of another kind',
    { tools: [tool], tool_choice: { type: 'web_search_preview' } },
    'BAD_PARAMETER tool_choice.type: tool_choice.type must be "function" or "allowed_tools"',
  ],
  [
    'no tool allowed',
    { tools: [tool], tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [] } },
    'BAD_PARAMETER tool_choice.tools',
  ],
  [
    'an unknown tool allowed',
    { tools: [tool], tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'x' }] } },
    'BAD_PARAMETER tool_choice.tools[0].name',
  ],
  ['verbosity', { text: { verbosity: 'low' } }, 'UNSUPPORTED_PARAMETER text.verbosity'],
  ['a format of another kind', { text: { format: { type: 'grammar' } } }, 'BAD_PARAMETER text.format.type'],
  ['two formats', { text: { format: { type: 'json_object' } }, regex: 'a' }, 'BAD_PARAMETER text.format'],
  ['reasoning mode', { reasoning: { mode: 'pro' } }, 'UNSUPPORTED_PARAMETER reasoning.mode'],
  ['reasoning context', { reasoning: { context: 'all_turns' } }, 'UNSUPPORTED_PARAMETER reasoning.context'],
  ['an effort', { reasoning: { effort: 'huge' } }, 'BAD_PARAMETER reasoning.effort'],
  ['include', { include: ['x'] }, 'BAD_PARAMETER include[0]'],
  ['top_logprobs', { top_logprobs: 21 }, 'BAD_PARAMETER top_logprobs'],
  ['stream_options without stream', { stream_options: {} }, 'BAD_PARAMETER stream_options'],
])('%s is refused by name', (_, body, message) => {
  expect(refusalOf(body)).toContain(message);
});
