import Anthropic from '@anthropic-ai/sdk';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { answers, fails, hangs, startTurnServer, type TurnServer, USAGE } from '../../../test/support/turn-server.ts';
import { ConfigError, InternalError, RequestError } from '../../common/errors.ts';
import type { TurnEvent } from '../turn.ts';
import { anthropicDialect } from './anthropic.ts';
import { SIGNATURE } from './anthropic-events.ts';
import { ANTHROPIC_UNSUPPORTED } from './anthropic-request.ts';
import { AnthropicMessageBody } from './anthropic-schema.ts';

const KEY = 'secret-key';
let server: TurnServer;
let client: Anthropic;

beforeEach(async () => {
  server = await startTurnServer([anthropicDialect], { apiKey: KEY });
  client = new Anthropic({ baseURL: server.url, apiKey: KEY, maxRetries: 0 });
});
afterEach(() => server.close());

const REQUEST = {
  model: 'nano',
  max_tokens: 64,
  messages: [{ role: 'user' as const, content: 'What is the weather in Rome?' }],
};
const TOOLS = [{ name: 'weather', input_schema: { type: 'object' as const } }];
const ACCEPTED: TurnEvent = { type: 'accepted', promptTokens: USAGE.promptTokens };
const TURN: TurnEvent[] = [
  { type: 'reasoning', text: 'I need ' },
  { type: 'reasoning', text: 'the tool.' },
  { type: 'text', text: 'One ' },
  { type: 'text', text: 'moment.' },
  { type: 'call', index: 0, id: 'call_a', name: 'weather' },
  { type: 'arguments', index: 0, text: '{"city":"Ro' },
  { type: 'arguments', index: 0, text: 'ma"}' },
  { type: 'call', index: 1, id: 'call_b', name: 'weather' },
  { type: 'arguments', index: 1, text: '{}' },
];
const CONTENT = [
  { type: 'thinking', thinking: 'I need the tool.', signature: SIGNATURE },
  { type: 'text', text: 'One moment.', citations: null },
  { type: 'tool_use', id: 'call_a', name: 'weather', input: { city: 'Roma' } },
  { type: 'tool_use', id: 'call_b', name: 'weather', input: {} },
];

test('a message in one piece and the same as a stream', async () => {
  server.script = answers(TURN, { finish: 'tool_calls' });
  const whole = await client.messages.create({ ...REQUEST, tools: TOOLS });
  expect(whole.content).toEqual(CONTENT);
  expect(whole).toMatchObject({ model: 'nano', stop_reason: 'tool_use', stop_sequence: null });
  expect(whole.usage).toMatchObject({ input_tokens: 8, cache_read_input_tokens: 12, output_tokens: 7 });

  const pieces: Record<string, string> = { thinking: '', text: '', json: '' };
  const stream = client.messages.stream({ ...REQUEST, tools: TOOLS });
  stream.on('thinking', text => (pieces.thinking += text));
  stream.on('text', text => (pieces.text += text));
  stream.on('inputJson', text => (pieces.json += text));
  const final = await stream.finalMessage();
  expect(pieces).toEqual({ thinking: 'I need the tool.', text: 'One moment.', json: '{"city":"Roma"}{}' });
  expect(JSON.parse(JSON.stringify({ ...final, id: whole.id, parsed_output: undefined }))).toEqual(
    JSON.parse(JSON.stringify(whole)),
  );
  expect(whole.id).toMatch(/^msg_[0-9a-f]{32}$/);
  expect(final.id).not.toBe(whole.id);
});

test('raw events: names as types, a ping first, nothing behind message_stop', async () => {
  const response = await client.messages.create({ ...REQUEST, stream: true }).asResponse();
  expect(response.headers.get('content-type')).toContain('text/event-stream');
  expect(response.headers.get('request-id')).toMatch(/^req_/);
  const frames = (await response.text()).trim().split('\n\n');
  const events = frames.map(frame => {
    const [, name, data] = /^event: (\w+)\ndata: (.*)$/.exec(frame)!;
    expect(JSON.parse(data).type).toBe(name);
    return name;
  });
  const block = ['content_block_start', 'content_block_delta', 'content_block_stop'];
  expect(events).toEqual(['message_start', 'ping', ...block, 'message_delta', 'message_stop']);
});

test('the answer of the model goes back as history', async () => {
  server.script = answers(TURN, { finish: 'tool_calls' });
  const { content } = await client.messages.create({ ...REQUEST, tools: TOOLS });
  server.script = answers([{ type: 'text', text: 'Sunny.' }]);
  const result = { type: 'tool_result' as const, tool_use_id: 'call_a', content: 'sun' };
  const messages = [
    ...REQUEST.messages,
    { role: 'assistant' as const, content },
    { role: 'user' as const, content: [result] },
  ];
  const answer = await client.messages.create({ ...REQUEST, tools: TOOLS, messages });
  expect(answer.stop_reason).toBe('end_turn');
  expect(server.requests[1].prompt).toMatchObject({
    messages: [
      { role: 'user' },
      {
        role: 'assistant',
        content: 'One moment.',
        reasoning_content: 'I need the tool.',
        tool_calls: [{ id: 'call_a' }, { id: 'call_b' }],
      },
      { role: 'tool', tool_call_id: 'call_a', content: 'sun' },
    ],
  });
});

test('count_tokens counts the same prompt that a message has', async () => {
  const prompt = { model: 'nano', messages: REQUEST.messages, system: 'Be short.', tools: TOOLS };
  expect(await client.messages.countTokens(prompt)).toEqual({ input_tokens: 42 });
  await client.messages.create({ ...prompt, max_tokens: 5 });
  expect(server.counted).toEqual([server.requests[0].prompt]);
});

test('a stop sequence is told', async () => {
  server.script = answers([{ type: 'text', text: 'a' }], { stopSequence: 'END' });
  const message = await client.messages.create({ ...REQUEST, stop_sequences: ['END'] });
  expect(message).toMatchObject({ stop_reason: 'stop_sequence', stop_sequence: 'END' });
  expect(server.requests[0].stop).toEqual(['END']);
});

test.each([
  [new RequestError('CONTEXT_EXCEEDED', 'too long'), 400, 'invalid_request_error', Anthropic.BadRequestError],
  [new RequestError('QUEUE_FULL', 'full'), 429, 'rate_limit_error', Anthropic.RateLimitError],
  [new RequestError('SERVER_STOPPING', 'stopping'), 503, 'overloaded_error', Anthropic.ServiceUnavailableError],
  [new InternalError('X', 'broken'), 500, 'api_error', Anthropic.InternalServerError],
  [new ConfigError('X', 'broken'), 500, 'api_error', Anthropic.InternalServerError],
] as const)('%s before the start is a status, also of a stream', async (error, status, type, Class) => {
  server.script = fails(error);
  for (const stream of [false, true]) {
    const failure = await client.messages.create({ ...REQUEST, stream }).catch(caught => caught);
    expect(failure).toBeInstanceOf(Class);
    expect(failure).toMatchObject({ status, type, apiMessage: expect.stringContaining(error.message) });
    expect(failure.error).toEqual({
      type: 'error',
      error: { type, message: failure.apiMessage },
      request_id: failure.requestID,
    });
  }
});

test('errors before any handler have the same shape', async () => {
  const post = (body: string, headers: Record<string, string> = {}, path = '/v1/messages') =>
    fetch(server.url + path, {
      method: 'POST',
      body,
      headers: { 'content-type': 'application/json', 'x-api-key': KEY, ...headers },
    });
  const cases: [Promise<Response>, number, string][] = [
    [post('{}', { 'x-api-key': 'wrong' }), 401, 'authentication_error'],
    [post('{'), 400, 'invalid_request_error'],
    [post('[]'), 400, 'invalid_request_error'],
    [post('x', { 'content-type': 'text/plain' }), 415, 'invalid_request_error'],
    [post(JSON.stringify({ x: 'x'.repeat(5 * 1024 * 1024) })), 413, 'request_too_large'],
    [post(JSON.stringify({ ...REQUEST, model: 'other' })), 404, 'not_found_error'],
    [post(JSON.stringify({ ...REQUEST, model: 'other' }), {}, '/v1/messages/count_tokens'), 404, 'not_found_error'],
    [post('{}', {}, '/v1/messages/count_tokens'), 400, 'invalid_request_error'],
  ];
  for (const [sent, status, type] of cases) {
    const response = await sent;
    expect(response.status).toBe(status);
    expect(await response.json()).toEqual({
      type: 'error',
      error: { type, message: expect.any(String) },
      request_id: response.headers.get('request-id'),
    });
  }
});

test('an error behind the start is an event that the SDK throws', async () => {
  server.script = fails(new InternalError('NUMERIC', 'not finite'), [ACCEPTED, { type: 'text', text: 'Hel' }]);
  const failure = await client.messages
    .stream(REQUEST)
    .finalMessage()
    .catch(caught => caught);
  expect(failure).toBeInstanceOf(Anthropic.APIError);
  expect(failure).toMatchObject({ type: 'api_error', apiMessage: 'not finite' });
});

test('abort ends the turn', async () => {
  const { script, aborted } = hangs([{ type: 'text', text: 'Hel' }]);
  server.script = script;
  const stream = client.messages.stream(REQUEST);
  stream.on('text', () => stream.abort());
  await expect(stream.finalMessage()).rejects.toBeInstanceOf(Anthropic.APIUserAbortError);
  await aborted;
});

test('silence is filled with pings', async () => {
  await server.close();
  server = await startTurnServer([anthropicDialect], { keepaliveMs: 1, keepaliveComments: false });
  const { script } = hangs([]);
  server.script = script;
  const body = JSON.stringify({ ...REQUEST, stream: true });
  const response = await fetch(`${server.url}/v1/messages`, {
    method: 'POST',
    body,
    headers: { 'content-type': 'application/json' },
  });
  let text = '';
  for await (const chunk of response.body!.pipeThrough(new TextDecoderStream())) {
    text += chunk;
    if (text.split('event: ping\ndata: {"type":"ping"}\n\n').length > 4) break;
  }
  expect(text).toMatch(/^event: message_start\n/);
});

const FIELDS = [
  ...Object.keys(AnthropicMessageBody.shape),
  ...Object.keys(ANTHROPIC_UNSUPPORTED),
  'context_management',
];

test.each(FIELDS)('%s of a wrong kind is never a fault of the server', async field => {
  for (const value of [null, '', -1, 1e300, [], {}, true, [[]], [{}], [{ type: '' }], { type: 'x' }, 'x', 1.5]) {
    for (const url of ['/v1/messages', '/v1/messages/count_tokens']) {
      const headers = { 'x-api-key': KEY, 'content-type': 'application/json' };
      const payload = JSON.stringify({ ...REQUEST, [field]: value });
      const response = await server.app.inject({ method: 'POST', url, headers, payload });
      expect(response.statusCode, payload).toBeLessThan(500);
      if (response.statusCode >= 400) expect(response.json().error.message, payload).toContain(field);
    }
  }
});

test('a field of content of a wrong kind is named with its path', async () => {
  const block = (content: unknown) => ({ ...REQUEST, messages: [{ role: 'user', content }] });
  for (const value of [null, -1, {}, true, [null], [{}], [{ type: 'text' }], [{ type: 'text', text: [] }]]) {
    const headers = { 'x-api-key': KEY };
    const response = await server.app.inject({ method: 'POST', url: '/v1/messages', headers, payload: block(value) });
    expect(response.statusCode).toBe(400);
    expect(response.json().error.message).toMatch(/^messages\[0\]\.content/);
  }
});
