import OpenAI from 'openai';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { answers, fails, hangs, startTurnServer, type TurnServer, USAGE } from '../../../test/support/turn-server.ts';
import { InternalError, RequestError } from '../../common/errors.ts';
import type { TurnEvent } from '../turn.ts';
import { responsesDialect } from './responses.ts';
import { RESPONSES_UNSUPPORTED } from './responses-request.ts';
import { ResponsesBody } from './responses-schema.ts';

const KEY = 'secret-key';
let server: TurnServer;
let client: OpenAI;

beforeEach(async () => {
  server = await startTurnServer([responsesDialect], { apiKey: KEY });
  client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: KEY, maxRetries: 0 });
});
afterEach(() => server.close());

const REQUEST = { model: 'nano', input: 'What is the weather in Rome?' };
const TOOLS = [{ type: 'function' as const, name: 'weather', parameters: { type: 'object' }, strict: false }];
const ACCEPTED: TurnEvent = { type: 'accepted', promptTokens: USAGE.promptTokens };
const TURN: TurnEvent[] = [
  { type: 'progress', done: 8, total: 20, etaMs: null },
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

/** Without what differs from answer to answer. */
function comparable(response: object): unknown {
  const same = JSON.stringify(response, (key, value) => {
    if (key === 'created_at' || key === 'completed_at' || key === 'parsed' || key === 'parsed_arguments')
      return undefined;
    if (key === 'output_parsed') return undefined;
    return key === 'id' ? String(value).replace(/_.*/, '') : value;
  });
  return JSON.parse(same);
}

test('an answer in one piece and the same as a stream', async () => {
  server.script = answers(TURN, { finish: 'tool_calls' });
  const body = { ...REQUEST, tools: TOOLS, stream_options: { include_progress: true } as object };
  const whole = await client.responses.create({ ...REQUEST, tools: TOOLS });
  expect(whole.id).toMatch(/^resp_[0-9a-f]{32}$/);
  expect(whole.output_text).toBe('One moment.');
  expect(whole.output.map(({ type }) => type)).toEqual(['reasoning', 'message', 'function_call', 'function_call']);
  expect(whole.output[0]).toMatchObject({ content: [{ type: 'reasoning_text', text: 'I need the tool.' }] });
  expect(whole.output[2]).toMatchObject({ call_id: 'call_a', name: 'weather', arguments: '{"city":"Roma"}' });
  expect(whole.usage).toMatchObject({ input_tokens: 20, output_tokens: 7, total_tokens: 27 });

  let text = '';
  let args = '';
  const stream = client.responses.stream(body);
  stream.on('response.output_text.delta', ({ delta }) => (text += delta));
  stream.on('response.function_call_arguments.delta', ({ delta }) => (args += delta));
  const final = await stream.finalResponse();
  expect([text, args]).toEqual(['One moment.', '{"city":"Roma"}{}']);
  expect(comparable(final)).toEqual(comparable(whole));
});

test('raw events: names as types, one [DONE] at the end', async () => {
  const response = await client.responses.create({ ...REQUEST, stream: true }).asResponse();
  expect(response.headers.get('content-type')).toContain('text/event-stream');
  const frames = (await response.text()).trim().split('\n\n');
  expect(frames.pop()).toBe('data: [DONE]');
  for (const [index, frame] of frames.entries()) {
    const [, name, data] = /^event: ([\w.]+)\ndata: (.*)$/.exec(frame)!;
    expect(JSON.parse(data)).toMatchObject({ type: name, sequence_number: index });
  }
});

test('the output of the model goes back as input', async () => {
  server.script = answers(TURN, { finish: 'tool_calls' });
  const { output } = await client.responses.create({ ...REQUEST, tools: TOOLS });
  server.script = answers([{ type: 'text', text: 'Sunny.' }]);
  const results = ['call_a', 'call_b'].map(call_id => ({
    type: 'function_call_output' as const,
    call_id,
    output: 'sun',
  }));
  const input = [{ role: 'user' as const, content: REQUEST.input }, ...output, ...results];
  const second = await client.responses.create({ ...REQUEST, input: input as never, tools: TOOLS });
  expect(second.output_text).toBe('Sunny.');
  expect(server.requests[1].prompt).toMatchObject({
    messages: [
      { role: 'user' },
      {
        role: 'assistant',
        content: 'One moment.',
        reasoning_content: 'I need the tool.',
        tool_calls: [{ id: 'call_a' }, { id: 'call_b' }],
      },
      { role: 'tool', tool_call_id: 'call_a' },
      { role: 'tool', tool_call_id: 'call_b' },
    ],
  });
});

test('structured output reaches the turn and is parsed by the client', async () => {
  server.script = answers([{ type: 'text', text: '{"a":1}' }]);
  const schema = {
    type: 'object',
    properties: { a: { type: 'integer' } },
    required: ['a'],
    additionalProperties: false,
  };
  const format = { type: 'json_schema' as const, name: 'thing', schema, strict: true };
  const response = await client.responses.parse({ ...REQUEST, text: { format } });
  expect(response.output_parsed).toEqual({ a: 1 });
  expect(server.requests[0].format).toEqual({ kind: 'json_schema', schema });
});

test('an answer that reached its length is incomplete', async () => {
  server.script = answers([{ type: 'text', text: 'One' }], { finish: 'length' });
  const response = await client.responses.create({ ...REQUEST, max_output_tokens: 1 });
  expect(response).toMatchObject({ status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' } });
  const final = await client.responses.stream({ ...REQUEST, max_output_tokens: 1 }).finalResponse();
  expect(comparable(final)).toEqual(comparable(response));
});

test.each([
  [new RequestError('CONTEXT_EXCEEDED', 'too long'), 400, 'context_length_exceeded', OpenAI.BadRequestError],
  [new RequestError('QUEUE_FULL', 'full'), 429, 'queue_full', OpenAI.RateLimitError],
  [new InternalError('X', 'broken'), 500, 'x', OpenAI.InternalServerError],
] as const)('%s before the start is a status, also of a stream', async (error, status, code, Class) => {
  server.script = fails(error);
  for (const stream of [false, true]) {
    const failure = await client.responses.create({ ...REQUEST, stream }).catch(caught => caught);
    expect(failure).toBeInstanceOf(Class);
    expect(failure).toMatchObject({ status, code });
  }
});

test("wrong requests and keys are refused in OpenAI's words", async () => {
  const refused = await client.responses.create({ ...REQUEST, store: true }).catch(caught => caught);
  expect(refused).toBeInstanceOf(OpenAI.BadRequestError);
  expect(refused).toMatchObject({ code: 'unsupported_parameter', param: 'store', type: 'invalid_request_error' });
  await expect(client.responses.create({ ...REQUEST, model: 'x' })).rejects.toBeInstanceOf(OpenAI.NotFoundError);
  const stranger = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'wrong', maxRetries: 0 });
  await expect(stranger.responses.create(REQUEST)).rejects.toBeInstanceOf(OpenAI.AuthenticationError);
});

test('an error behind the start is told as an event that the SDK throws', async () => {
  server.script = fails(new InternalError('NUMERIC', 'not finite'), [ACCEPTED, { type: 'text', text: 'Hel' }]);
  const seen: string[] = [];
  const read = async () => {
    for await (const event of await client.responses.create({ ...REQUEST, stream: true })) seen.push(event.type);
  };
  const failure = await read().catch(caught => caught);
  expect(failure).toBeInstanceOf(OpenAI.APIError);
  expect(failure).toMatchObject({ code: 'numeric', message: expect.stringContaining('not finite') });
  expect(seen.at(-1)).toBe('response.failed');
  await expect(client.responses.stream(REQUEST).finalResponse()).rejects.toBeInstanceOf(OpenAI.APIError);
});

test('abort ends the turn', async () => {
  const { script, aborted } = hangs([{ type: 'text', text: 'Hel' }]);
  server.script = script;
  const stream = client.responses.stream(REQUEST);
  stream.on('response.output_text.delta', () => stream.abort());
  await expect(stream.finalResponse()).rejects.toBeInstanceOf(OpenAI.APIUserAbortError);
  await aborted;
});

const FIELDS = [...Object.keys(ResponsesBody.shape), ...Object.keys(RESPONSES_UNSUPPORTED)];

test.each(FIELDS)('%s of a wrong kind is never a fault of the server', async field => {
  for (const value of [null, '', -1, 1e300, [], {}, true, [[]], [{}], [{ type: '' }], { type: 'x' }, 'x', 1.5]) {
    const headers = { authorization: `Bearer ${KEY}`, 'content-type': 'application/json' };
    const payload = JSON.stringify({ ...REQUEST, [field]: value });
    const response = await server.app.inject({ method: 'POST', url: '/v1/responses', headers, payload });
    expect(response.statusCode, payload).toBeLessThan(500);
    if (response.statusCode >= 400) expect(response.json().error.message, payload).toContain(field);
  }
});
