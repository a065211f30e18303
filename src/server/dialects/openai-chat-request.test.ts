import { expect, test } from 'vitest';
import { RequestError } from '../../common/errors.ts';
import type { ChatTurn, TurnRequest } from '../turn.ts';
import { chatTurn, parseChat } from './openai-chat-request.ts';

const user = { role: 'user', content: 'Hi' };
const weather = { type: 'function', function: { name: 'weather', parameters: { type: 'object' } } };
const time = { type: 'function', function: { name: 'time' } };

function turn(body: object): TurnRequest {
  return chatTurn(parseChat({ messages: [user], ...body }), 'client');
}

function chat(body: object): ChatTurn {
  return turn(body).prompt as ChatTurn;
}

function mistake(body: object): { code: string; param: unknown; message: string } {
  try {
    turn(body);
  } catch (error) {
    if (error instanceof RequestError)
      return { code: error.code, param: error.details.parameter, message: error.message };
    throw error;
  }
  throw new Error('the body was taken');
}

test('a plain request asks for nothing but its conversation', () => {
  expect(turn({})).toEqual({
    client: 'client',
    prompt: {
      kind: 'chat',
      messages: [user],
      tools: [],
      toolChoice: 'none',
      parallelToolCalls: true,
      thinking: null,
      reasoningEffort: null,
      continueFinal: false,
    },
  });
});

test('sampling fields get the names of the engine, and null is the default', () => {
  const fields = {
    temperature: 0,
    top_p: 0.5,
    top_k: 3,
    min_p: 0.1,
    repetition_penalty: 1.1,
    presence_penalty: -1,
    frequency_penalty: 2,
    seed: 7,
    logit_bias: { 5: -100 },
    stop: 'x',
    logprobs: true,
    top_logprobs: 2,
    max_tokens: 9,
  };
  expect(turn(fields)).toMatchObject({
    temperature: 0,
    topP: 0.5,
    topK: 3,
    minP: 0.1,
    repetitionPenalty: 1.1,
    presencePenalty: -1,
    frequencyPenalty: 2,
    seed: 7,
    logitBias: { 5: -100 },
    stop: ['x'],
    logprobs: 2,
    maxTokens: 9,
  });
  expect(turn(Object.fromEntries(Object.keys(fields).map(name => [name, null])))).toEqual(turn({}));
  expect(turn({ logprobs: true }).logprobs).toBe(0);
  expect(turn({ logprobs: false, stop: [] })).toEqual(turn({}));
});

test('both limits of tokens are accepted, and the smaller one counts', () => {
  expect(turn({ max_completion_tokens: 5 }).maxTokens).toBe(5);
  expect(turn({ max_completion_tokens: 5, max_tokens: 3 }).maxTokens).toBe(3);
  expect(turn({ max_completion_tokens: 5, max_tokens: 1e12 }).maxTokens).toBe(5);
});

test('an error names field and value in the words of the engine', () => {
  expect(mistake({ temperature: -1 })).toEqual({
    code: 'BAD_PARAMETER',
    param: 'temperature',
    message: 'temperature must be a number from 0 (greedy) up, not -1',
  });
  expect(mistake({ temperature: '0.7' }).message).toBe('temperature must be a number from 0 (greedy) up, not "0.7"');
  expect(mistake({ temperature: Number('1e400') }).message).toContain('not Infinity');
  expect(mistake({ seed: 1.5 }).message).toBe('seed must be a whole number from 0 to 2^53 - 1, not 1.5');
  expect(mistake({ stop: ['a', ''] })).toMatchObject({ code: 'BAD_PARAMETER', param: 'stop[1]' });
  expect(mistake({ stop: Array(17).fill('a') }).param).toBe('stop');
  expect(mistake({ logit_bias: { x: 1 } }).message).toContain('names "x", which is no token id');
  expect(mistake({ logit_bias: { 1: 101 } }).param).toBe('logit_bias');
  expect(mistake({ top_logprobs: 2 }).message).toBe('top_logprobs needs logprobs');
  expect(mistake({ stream_options: { include_usage: true } }).message).toBe('stream_options needs stream');
  expect(mistake({ stream: true, stream_options: { include_usage: 1 } }).param).toBe('stream_options.include_usage');
  expect(mistake({ messages: undefined }).message).toBe(
    'messages is missing: it must be an array of 1 to 10000 messages',
  );
});

test('what is known and not done is refused by name; its neutral values and other fields are taken', () => {
  const refused = {
    n: 2,
    best_of: 3,
    suffix: 'x',
    store: true,
    functions: [{}],
    modalities: ['audio'],
    thinking: {},
    echo: true,
  };
  for (const [name, value] of Object.entries(refused)) {
    expect(mistake({ [name]: value }), name).toMatchObject({ code: 'UNSUPPORTED_PARAMETER', param: name });
  }
  const taken = {
    n: 1,
    best_of: 1,
    suffix: '',
    store: false,
    functions: [],
    modalities: ['text'],
    thinking: null,
    echo: false,
  };
  expect(turn({ ...taken, metadata: { a: 'b' }, service_tier: 'auto', made_up: [1] })).toEqual(turn({}));
  expect(mistake({ n: 0 })).toMatchObject({ code: 'BAD_PARAMETER', param: 'n' });
});

test('thinking can be asked for in several ways that may not contradict each other', () => {
  expect(chat({ enable_thinking: true })).toMatchObject({ thinking: true, reasoningEffort: null });
  expect(chat({ chat_template_kwargs: { enable_thinking: false } }).thinking).toBe(false);
  expect(chat({ chat_template_kwargs: { thinking: true } }).thinking).toBe(true);
  expect(chat({ reasoning_effort: 'high' })).toMatchObject({ thinking: null, reasoningEffort: 'high' });
  expect(chat({ reasoning_effort: 'none' })).toMatchObject({ thinking: false, reasoningEffort: null });
  expect(mistake({ reasoning_effort: 'none', enable_thinking: true }).param).toBe('reasoning_effort');
  expect(mistake({ enable_thinking: true, chat_template_kwargs: { enable_thinking: false } }).param).toBe(
    'chat_template_kwargs.enable_thinking',
  );
  expect(mistake({ chat_template_kwargs: { mood: 'gay' } })).toMatchObject({
    code: 'UNSUPPORTED_PARAMETER',
    param: 'chat_template_kwargs.mood',
  });
});

test('the form of the answer is one of response_format, grammar and regex', () => {
  const schema = { type: 'object' };
  const format = { type: 'json_schema', json_schema: { name: 'a', strict: true, schema } };
  expect(turn({ response_format: format }).format).toEqual({ kind: 'json_schema', schema });
  expect(turn({ response_format: { type: 'json_object' } }).format).toEqual({ kind: 'json_object' });
  expect(turn({ response_format: { type: 'text' }, regex: 'a+' }).format).toEqual({ kind: 'regex', pattern: 'a+' });
  expect(turn({ grammar: 'root ::= "a"' }).format).toEqual({ kind: 'gbnf', text: 'root ::= "a"' });
  expect(mistake({ regex: 'a', grammar: 'b' }).param).toBe('regex');
  expect(mistake({ response_format: { type: 'xml' } }).param).toBe('response_format.type');
  expect(mistake({ response_format: { type: 'json_schema', json_schema: { name: 'a' } } }).param).toBe(
    'response_format.json_schema.schema',
  );
  expect(mistake({ response_format: 'json' }).message).toBe('response_format must be an object, not "json"');
});

test('tools, and the choice among them', () => {
  const tools = [weather, time];
  expect(chat({ tools })).toMatchObject({
    tools: [{ name: 'weather', parameters: { type: 'object' } }, { name: 'time' }],
    toolChoice: 'auto',
    parallelToolCalls: true,
  });
  const named = { type: 'function', function: { name: 'time' } };
  expect(chat({ tools, tool_choice: named, parallel_tool_calls: false })).toMatchObject({
    toolChoice: { name: 'time' },
    parallelToolCalls: false,
  });
  expect(chat({ tools, tool_choice: 'required' }).toolChoice).toBe('required');
  expect(chat({ tool_choice: null, tools: null })).toEqual(chat({}));
  expect(chat({ tool_choice: 'auto', tools: [] })).toEqual(chat({}));
  expect(mistake({ tool_choice: 'required' }).param).toBe('tool_choice');
  expect(mistake({ tools: [weather], tool_choice: named }).message).toContain('"time"');
  expect(mistake({ tools, tool_choice: { type: 'allowed_tools' } }).param).toBe('tool_choice.type');
  expect(mistake({ tools: [time, weather, time] }).param).toBe('tools[2].function.name');
  expect(mistake({ tools: [{ type: 'function', function: { name: 'a b' } }] }).param).toBe('tools[0].function.name');
  expect(mistake({ tools: [{ type: 'custom', custom: {} }] }).param).toBe('tools[0].type');
  const list = { name: 'x', parameters: { type: 'array' } };
  expect(mistake({ tools: [{ type: 'function', function: list }] }).param).toBe('tools[0].function.parameters.type');
});

test('messages become what templates expect', () => {
  const call = { id: 'c1', type: 'function', function: { name: 'weather', arguments: '{"city":"Roma"}' } };
  const messages = [
    {
      role: 'developer',
      content: [
        { type: 'text', text: 'Be ' },
        { type: 'text', text: 'brief' },
      ],
    },
    { role: 'user', content: 'Hi', name: 'ada' },
    { role: 'assistant', content: null, tool_calls: [call], reasoning_content: 'hm' },
    { role: 'tool', tool_call_id: 'c1', content: [{ type: 'text', text: 'sun' }] },
    { role: 'assistant', content: null, refusal: 'no' },
    { role: 'system', content: 'And now' },
  ];
  expect(chat({ messages }).messages).toEqual([
    { role: 'system', content: 'Be brief' },
    { role: 'user', content: 'Hi', name: 'ada' },
    {
      role: 'assistant',
      content: null,
      reasoning_content: 'hm',
      tool_calls: [{ id: 'c1', type: 'function', function: { name: 'weather', arguments: { city: 'Roma' } } }],
    },
    { role: 'tool', content: 'sun', tool_call_id: 'c1', name: 'weather' },
    { role: 'assistant', content: 'no' },
    { role: 'system', content: 'And now' },
  ]);
});

test('an empty answer at the end is dropped, and one with text is continued', () => {
  for (const content of ['', null, undefined, [{ type: 'text', text: '' }]]) {
    const prompt = chat({ messages: [user, { role: 'assistant', content }], tools: [time] });
    expect(prompt).toMatchObject({ messages: [user], continueFinal: false });
  }
  const half = { role: 'assistant', content: 'Half an' };
  expect(chat({ messages: [user, half] })).toMatchObject({ messages: [user, half], continueFinal: true });
  expect(mistake({ messages: [user, half], tools: [time] }).param).toBe('messages[1]');
  expect(mistake({ messages: [{ role: 'assistant', content: '' }] }).param).toBe('messages');
  const call = { id: 'c', type: 'function', function: { name: 'time', arguments: '' } };
  expect(mistake({ messages: [user, { role: 'assistant', tool_calls: [call] }] }).param).toBe('messages[1]');
});

test('the result of a tool must follow its call', () => {
  const result = { role: 'tool', tool_call_id: 'c1', content: 'sun' };
  const call = { id: 'c1', type: 'function', function: { name: 'weather', arguments: '' } };
  const assistant = { role: 'assistant', tool_calls: [call] };
  expect(chat({ messages: [user, assistant, result] }).messages).toHaveLength(3);
  for (const messages of [
    [user, result],
    [result, assistant, user],
  ]) {
    const { code, param } = mistake({ messages });
    expect([code, param]).toEqual(['BAD_PARAMETER', `messages[${messages.indexOf(result)}].tool_call_id`]);
  }
});

test('fields about how messages end must agree with them', () => {
  const half = { role: 'assistant', content: 'Half an' };
  const whole = { add_generation_prompt: true, continue_final_message: false };
  const continued = { add_generation_prompt: false, continue_final_message: true };
  expect(chat(whole).continueFinal).toBe(false);
  expect(chat({ messages: [user, half], ...continued }).continueFinal).toBe(true);
  for (const [field, value] of Object.entries(continued)) expect(mistake({ [field]: value }).param).toBe(field);
  for (const [field, value] of Object.entries(whole)) {
    expect(mistake({ messages: [user, half], [field]: value })).toMatchObject({
      code: 'UNSUPPORTED_PARAMETER',
      param: field,
    });
  }
});

test('a value that is not supported is told as such', () => {
  expect(mistake({ audio: { voice: 'x' } }).message).toBe('audio is not supported');
  expect(mistake({ mirostat: 2 }).message).toBe('mirostat is 2, which is not supported');
  expect(mistake({ grammar: '' }).message).toBe('grammar must not be empty');
  expect(mistake({ stop: ['a', ''] }).message).toBe('stop[1] must be a string of 1 to 1024 characters, not ""');
});

test('a wrong message is named', () => {
  const at = (message: unknown) => mistake({ messages: [user, message] });
  expect(at({ role: 'wizard', content: 'x' })).toMatchObject({ code: 'BAD_PARAMETER', param: 'messages[1].role' });
  expect(at('x').message).toBe('messages[1] must be an object, not "x"');
  expect(at({ role: 'user' }).message).toBe('messages[1].content is missing: it must be a string or an array of parts');
  expect(at({ role: 'user', content: 5 }).param).toBe('messages[1].content');
  const image = { type: 'image_url', image_url: { url: 'data:' } };
  expect(at({ role: 'user', content: [{ type: 'text', text: 'a' }, image] })).toMatchObject({
    code: 'UNSUPPORTED_CONTENT_TYPE',
    param: 'messages[1].content[1]',
  });
  expect(at({ role: 'user', content: [{ type: 'text' }] }).param).toBe('messages[1].content[0].text');
  expect(at({ role: 'tool', content: 'x' }).param).toBe('messages[1].tool_call_id');
  for (const json of ['{"a":', '[1]', '1', '{"a":"\\ud800"}', '{"a":{"\\u0000":1}}']) {
    const call = { id: 'c', type: 'function', function: { name: 'time', arguments: json } };
    const wrong = at({ role: 'assistant', tool_calls: [call] });
    expect(wrong.param, json).toBe('messages[1].tool_calls[0].function.arguments');
  }
  expect(at({ role: 'assistant', content: 'x', audio: { id: 'a' } }).code).toBe('UNSUPPORTED_PARAMETER');
});

test('a body of very many values is refused before each is looked at', () => {
  expect(mistake({ messages: [{ role: 'user', content: Array(60_000).fill(1) }] }).code).toBe('TOO_MANY_VALUES');
});
