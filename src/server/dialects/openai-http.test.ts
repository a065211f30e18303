/** Both routes on a real port: the official client, and every field with every kind of wrong value. */

import type { AddressInfo } from 'node:net';
import OpenAI from 'openai';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { RequestError, StorageError } from '../../common/errors.ts';
import type { Engine } from '../../engine/api.ts';
import { AdmissionQueue } from '../admission.ts';
import { createApp, type ServerApp } from '../app.ts';
import { DEFAULT_SETTINGS } from '../settings.ts';
import { ModelState } from '../state.ts';
import type { TurnEvent, TurnRequest, TurnRunner } from '../turn.ts';
import { openAiChat } from './openai-chat.ts';
import { ChatBody } from './openai-chat-request.ts';
import { openAiCompletions } from './openai-completions.ts';
import { CompletionBody } from './openai-completions-request.ts';
import { UNSUPPORTED } from './openai-unsupported.ts';

type Script = (request: TurnRequest, signal: AbortSignal) => AsyncIterable<TurnEvent>;

const usage = { promptTokens: 5, cachedTokens: 2, completionTokens: 3, reasoningTokens: 1 };
const accepted: TurnEvent = { type: 'accepted', promptTokens: 5 };
const end: TurnEvent = { type: 'end', finish: 'stop', stopSequence: null, usage };

/** Yields `events`; an error among them is thrown. */
function script(...events: (TurnEvent | Error)[]): Script {
  return async function* () {
    for (const event of events) {
      if (event instanceof Error) throw event;
      yield event;
    }
  };
}

const plain = script(
  accepted,
  { type: 'progress', done: 5, total: 5, etaMs: 0 },
  { type: 'reasoning', text: 'hm' },
  { type: 'text', text: 'Hel' },
  { type: 'text', text: 'lo' },
  end,
);

let run: Script = plain;
let checked: TurnRequest[] = [];
let check: (request: TurnRequest) => void = () => {};

const runner: TurnRunner = {
  fingerprint: 'fp_0123456789abcdef',
  run: (request, signal) => run(request, signal),
  check: async request => {
    checked.push(request);
    check(request);
  },
  countTokens: async () => 5,
  promptText: async () => '',
};

let server: ServerApp;
let url: string;
let client: OpenAI;

beforeAll(async () => {
  const settings = { ...DEFAULT_SETTINGS, port: 0, modelId: 'nano', version: '0' };
  const state = new ModelState();
  state.ready({} as Engine, runner);
  const queue = new AdmissionQueue({ capacity: 1, maxQueue: 4, queueTimeoutMs: 1000 });
  const stop = new AbortController().signal;
  const dialects = [openAiChat, openAiCompletions];
  server = await createApp({ settings, state, queue, stop, token: null, dialects });
  await server.app.listen({ port: 0, host: '127.0.0.1' });
  url = `http://127.0.0.1:${(server.app.server.address() as AddressInfo).port}/v1`;
  client = new OpenAI({ baseURL: url, apiKey: 'any', maxRetries: 0 });
});

afterAll(() => server.app.close());

afterEach(() => {
  run = plain;
  check = () => {};
  checked = [];
});

const messages = [{ role: 'user' as const, content: 'Hi' }];
const chat = { model: 'nano', messages };

async function post(route: string, body: unknown): Promise<{ status: number; text: string }> {
  const reply = await fetch(`${url}${route}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
  return { status: reply.status, text: await reply.text() };
}

/** The payloads of a stream. */
async function payloads(route: string, body: object): Promise<string[]> {
  const { text } = await post(route, { ...body, stream: true });
  return text
    .split('\n\n')
    .filter(line => line.startsWith('data: '))
    .map(line => line.slice('data: '.length));
}

test('a whole answer', async () => {
  const reply = await client.chat.completions.create(chat);
  expect(reply).toMatchObject({ object: 'chat.completion', model: 'nano', system_fingerprint: runner.fingerprint });
  expect(reply.id).toMatch(/^chatcmpl-[0-9a-f]{32}$/);
  expect(reply.choices[0]).toMatchObject({
    message: { content: 'Hello', reasoning_content: 'hm' },
    finish_reason: 'stop',
  });
  expect(reply.usage).toMatchObject({ total_tokens: 8, prompt_tokens_details: { cached_tokens: 2 } });
});

test('the streaming helper puts an answer together, with progress and usage between', async () => {
  // an extension that the client's types do not know
  const stream_options = { include_usage: true, include_progress: true } as { include_usage: boolean };
  const stream = client.chat.completions.stream({ ...chat, stream_options });
  const deltas: string[] = [];
  stream.on('content', delta => deltas.push(delta));
  const final = await stream.finalChatCompletion();
  expect(deltas).toEqual(['Hel', 'lo']);
  expect(final.choices[0]).toMatchObject({ message: { content: 'Hello', role: 'assistant' }, finish_reason: 'stop' });
  expect(final.usage?.total_tokens).toBe(8);
});

test('tool calls are put together from their deltas', async () => {
  run = script(
    accepted,
    { type: 'call', index: 0, id: 'call_a', name: 'weather' },
    { type: 'arguments', index: 0, text: '{"city":' },
    { type: 'arguments', index: 0, text: '"Roma"}' },
    { type: 'call', index: 1, id: 'call_b', name: 'weather' },
    { type: 'arguments', index: 1, text: '{}' },
    { ...end, finish: 'tool_calls' } as TurnEvent,
  );
  const tools = [{ type: 'function' as const, function: { name: 'weather', parameters: { type: 'object' } } }];
  const { choices } = await client.chat.completions.stream({ ...chat, tools }).finalChatCompletion();
  const whole = await client.chat.completions.create({ ...chat, tools });
  const call = (id: string, args: string) => ({ id, type: 'function', function: { name: 'weather', arguments: args } });
  const calls = [call('call_a', '{"city":"Roma"}'), call('call_b', '{}')];
  for (const choice of [choices[0], whole.choices[0]]) {
    expect(choice).toMatchObject({ finish_reason: 'tool_calls', message: { tool_calls: calls } });
  }
});

test('frames: the role first, one [DONE], usage only when asked for', async () => {
  const frames = await payloads('/chat/completions', chat);
  expect(JSON.parse(frames[0]).choices[0].delta).toEqual({ role: 'assistant', content: '' });
  expect(frames.filter(frame => frame === '[DONE]')).toHaveLength(1);
  expect(frames.at(-1)).toBe('[DONE]');
  expect(frames.join('')).not.toContain('usage');
  const counted = await payloads('/chat/completions', { ...chat, stream_options: { include_usage: true } });
  expect(counted.slice(0, -2).every(frame => JSON.parse(frame).usage === null)).toBe(true);
  expect(JSON.parse(counted.at(-2)!)).toMatchObject({ choices: [], usage: { total_tokens: 8 } });
});

test('what goes wrong before the start is a status, also for a stream', async () => {
  run = script(new RequestError('CONTEXT_EXCEEDED', 'the prompt has 9000 tokens, the context 4096'));
  for (const stream of [true, false]) {
    await expect(client.chat.completions.create({ ...chat, stream })).rejects.toMatchObject({
      constructor: OpenAI.BadRequestError,
      code: 'context_length_exceeded',
    });
  }
  run = script(new RequestError('QUEUE_FULL', 'full'));
  await expect(client.chat.completions.create(chat)).rejects.toBeInstanceOf(OpenAI.RateLimitError);
  await expect(client.chat.completions.create({ ...chat, model: 'gpt' })).rejects.toBeInstanceOf(OpenAI.NotFoundError);
  await expect(client.chat.completions.create({ ...chat, n: 2 })).rejects.toMatchObject({
    status: 400,
    code: 'unsupported_parameter',
    param: 'n',
  });
});

test('what goes wrong after the start ends the stream with an error, and the client raises it', async () => {
  run = script(accepted, { type: 'text', text: 'Hel' }, new StorageError('READ_FAILED', 'expert 3 cannot be read'));
  const frames = await payloads('/chat/completions', chat);
  expect(JSON.parse(frames.at(-1)!)).toMatchObject({
    error: { code: 'read_failed', type: 'server_error', param: null },
  });
  expect(frames).not.toContain('[DONE]');
  const stream = await client.chat.completions.create({ ...chat, stream: true });
  const read = async () => {
    for await (const chunk of stream) expect(chunk.object).toBe('chat.completion.chunk');
  };
  await expect(read()).rejects.toBeInstanceOf(OpenAI.APIError);
  await expect(client.chat.completions.create(chat)).rejects.toBeInstanceOf(OpenAI.InternalServerError);
});

test('a client that leaves stops its turn', async () => {
  let tell = () => {};
  const stopped = new Promise<void>(resolve => (tell = resolve));
  run = async function* (_, signal) {
    yield accepted;
    await new Promise<void>(resolve => signal.addEventListener('abort', () => resolve()));
    tell();
    throw signal.reason;
  };
  const stream = await client.chat.completions.create({ ...chat, stream: true });
  for await (const _ of stream) break;
  await stopped;
});

test('completions: one choice for each prompt, in order, after all have been checked', async () => {
  const seen: unknown[] = [];
  run = async function* ({ prompt }) {
    seen.push((prompt as { prompt: unknown }).prompt);
    yield accepted;
    yield { type: 'text', text: `${seen.length}` };
    yield end;
  };
  const reply = await client.completions.create({ model: 'nano', prompt: ['a', 'b', 'c'] });
  expect(reply.choices).toEqual(
    [0, 1, 2].map(index => ({ index, text: `${index + 1}`, logprobs: null, finish_reason: 'stop' })),
  );
  expect([seen, checked.length]).toEqual([['a', 'b', 'c'], 3]);
  expect(reply).toMatchObject({ object: 'text_completion', usage: { total_tokens: 24 } });

  const texts = ['', '', ''];
  const stream = await client.completions.create({ model: 'nano', prompt: ['a', 'b', 'c'], stream: true });
  for await (const { choices } of stream) texts[choices[0].index] += choices[0].text;
  expect(texts).toEqual(['4', '5', '6']);

  check = request => {
    if ((request.prompt as { prompt: unknown }).prompt === 'c') throw new RequestError('CONTEXT_EXCEEDED', 'too long');
  };
  await expect(client.completions.create({ model: 'nano', prompt: ['a', 'b', 'c'] })).rejects.toMatchObject({
    status: 400,
  });
  expect(seen).toHaveLength(6);
});

/** As JSON text, because 1e400 is no value of JavaScript. */
const VALUES = [
  'null',
  '""',
  '-1',
  '[]',
  '{}',
  'true',
  '1e400',
  '0.5',
  '"x"',
  '[1]',
  '[{}]',
  '{"a":1}',
  '123456789012345678901',
];

const ROUTES = [
  { route: '/chat/completions', fields: Object.keys(ChatBody.shape), needed: { messages: JSON.stringify(messages) } },
  { route: '/completions', fields: Object.keys(CompletionBody.shape), needed: { prompt: '"a"' } },
];

test.each(ROUTES)('$route: any value of any field is taken or refused by name', async ({ route, fields, needed }) => {
  for (const field of [...fields, ...Object.keys(UNSUPPORTED)]) {
    for (const value of VALUES) {
      const parts = Object.entries({ ...needed, [field]: value }).map(([name, json]) => `"${name}":${json}`);
      const { status, text } = await post(route, `{${parts.join()}}`);
      const told = `${field}: ${value} -> ${status} ${text.slice(0, 200)}`;
      if (status === 200) continue;
      expect([400, 404], told).toContain(status);
      expect(JSON.parse(text).error.param, told).toMatch(new RegExp(`^${field}([.[]|$)`));
    }
  }
});

test.each([
  ['messages', '[%]'],
  ['messages', '[{"role":%,"content":"a"}]'],
  ['messages', '[{"role":"user","content":%}]'],
  ['messages', '[{"role":"user","content":[%]}]'],
  ['messages', '[{"role":"user","content":[{"type":"text","text":%}]}]'],
  ['messages', '[{"role":"user","content":"a"},{"role":"assistant","tool_calls":%},{"role":"user","content":"a"}]'],
  ['messages', '[{"role":"user","content":"a"},{"role":"assistant","tool_calls":[%]},{"role":"user","content":"a"}]'],
  ['messages', '[{"role":"tool","content":"a","tool_call_id":%}]'],
  ['tools', '[%]'],
  ['tools', '[{"type":%,"function":{"name":"a"}}]'],
  ['tools', '[{"type":"function","function":%}]'],
  ['tools', '[{"type":"function","function":{"name":%}}]'],
  ['tools', '[{"type":"function","function":{"name":"a","parameters":%}}]'],
  ['response_format', '{"type":%}'],
  ['response_format', '{"type":"json_schema","json_schema":%}'],
  ['response_format', '{"type":"json_schema","json_schema":{"schema":%}}'],
  ['stop', '[%]'],
  ['logit_bias', '{"1":%}'],
  ['tool_choice', '{"type":"function","function":%}'],
  ['chat_template_kwargs', '{"enable_thinking":%}'],
])('%s as %s: any value inside is taken or refused by name', async (field, pattern) => {
  for (const value of VALUES) {
    const rest = field === 'messages' ? '' : `,"messages":${JSON.stringify(messages)}`;
    const { status, text } = await post('/chat/completions', `{"${field}":${pattern.replace('%', value)}${rest}}`);
    if (status === 200) continue;
    expect(status, `${value}: ${text}`).toBe(400);
    expect(JSON.parse(text).error.param, `${value}: ${text}`).toMatch(new RegExp(`^${field}([.[]|$)`));
  }
});

test('both routes are in the OpenAPI document, with their fields described', async () => {
  const { paths, components } = (server.app as unknown as { swagger(): OpenApi }).swagger();
  const schemaOf = ({ content }: Content) =>
    components.schemas[content['application/json'].schema.$ref.split('/').at(-1)!];
  const bodies = { '/v1/chat/completions': ChatBody.shape, '/v1/completions': CompletionBody.shape };
  for (const [path, fields] of Object.entries(bodies)) {
    const { requestBody, responses } = paths[path].post;
    const { properties } = schemaOf(requestBody);
    expect(Object.keys(properties)).toEqual(Object.keys(fields));
    for (const [name, { description }] of Object.entries(properties)) expect(description, name).toBeTypeOf('string');
    expect(schemaOf(responses['200']).properties).toHaveProperty('choices');
  }
});

interface Content {
  content: { 'application/json': { schema: { $ref: string } } };
}
interface OpenApi {
  paths: Record<string, { post: { requestBody: Content; responses: Record<string, Content> } }>;
  components: { schemas: Record<string, { properties: Record<string, { description?: string }> }> };
}
