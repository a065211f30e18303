/** Streams of the real server, read byte by byte and through the three APIs. */

import { beforeAll, describe, expect, test } from 'vitest';
import { writeScripts } from '../fixtures/scripts.ts';
import { fileDirectory, type Served, startServe } from '../support/serve.ts';
import { readChatReply, readChatStream, readMessageStream, readResponseStream } from '../support/wire.ts';

const directory = fileDirectory();
let server: Served;

const UNREADABLE = {
  stray: ['stray a', [0x80], 'b'],
  surrogate: ['surrogate ', [0xed], [0xa0, 0x80], 'c'],
  overlong: ['overlong ', [0xf0, 0x80], [0x80, 0x41]],
  broken: ['broken ', [0xe2], [0x80, 0x41, 0x42]],
  truncated: ['truncated ', [0xf0, 0x9f]],
} as const;

beforeAll(async () => {
  writeScripts(directory, {
    scripts: {
      hello: 'Hello there, how are you today?',
      think: '<think>\nLet me see: two and two.\n</think>\n\nThat makes four.',
      emoji: ['look: ', [0xf0], [0x9f], [0x98], [0x84], ' done'],
      dash: ['a dash ', [0xe2, 0x80], ' x'],
      ellipsis: ['an ellipsis ', [0xe2, 0x80, 0xa6]],
      spaces: [' a', ' bb', '<|hidden|>', 'c c'],
      ...UNREADABLE,
    },
    messages: `{#- </think> -#}{%- for message in messages -%}<|{{ message.role }}|>{{ message.content }}<|end|>{%- endfor -%}`,
  });
  server = await startServe({ model: directory, args: ['--ctx', '200', '--slots', '2'] });
});

const say = (name: string, more: object = {}) => ({ messages: [{ role: 'user', content: `say ${name}.` }], ...more });
const streamed = async (name: string, more: object = {}) =>
  readChatStream(await server.stream('/v1/chat/completions', say(name, { stream: true, ...more })));
const whole = async (name: string, more: object = {}) => {
  const { status, body } = await server.post('/v1/chat/completions', say(name, more));
  expect(status).toBe(200);
  return readChatReply(body);
};

describe('usage in a stream', () => {
  test.each([
    ['absent', undefined],
    ['false', { include_usage: false }],
    ['null', null],
  ])('stream_options %s: no chunk has usage', async (_, stream_options) => {
    const events = await server.stream('/v1/chat/completions', say('hello', { stream: true, stream_options }));
    expect(readChatStream(events).usage).toBeNull();
    for (const { data } of events) expect(data).not.toContain('usage');
  });

  test('include_usage: a last chunk without choices has it, all before have null', async () => {
    const body = say('hello', { stream: true, stream_options: { include_usage: true } });
    const events = await server.stream('/v1/chat/completions', body);
    const { usage, content } = readChatStream(events);
    const chunks = events.slice(0, -1).map(event => event.json);
    expect(chunks.slice(0, -1).map(chunk => chunk.usage)).toEqual(chunks.slice(0, -1).map(() => null));
    const { usage: wholeUsage } = await whole('hello');
    expect(content).toBe('Hello there, how are you today?');
    expect({ ...usage, prompt_tokens_details: 0 }).toEqual({ ...wholeUsage, prompt_tokens_details: 0 });
  });

  test('completions: the same rule', async () => {
    const body = { prompt: '<|hello|>', max_tokens: 50, stream: true };
    const without = await server.stream('/v1/completions', body);
    for (const { data } of without) expect(data).not.toContain('usage');
    const options = { ...body, stream_options: { include_usage: true } };
    const withUsage = await server.stream('/v1/completions', options);
    const chunks = withUsage.slice(0, -1).map(event => event.json);
    expect(withUsage.at(-1)?.data).toBe('[DONE]');
    expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { prompt_tokens: 1 } });
    expect(chunks.slice(0, -1).every(chunk => chunk.usage === null)).toBe(true);
    expect(chunks.flatMap(chunk => chunk.choices.map((choice: { text: string }) => choice.text)).join('')).toBe(
      'Hello there, how are you today?',
    );
  });
});

test('reasoning and text come in fields of their own; none is null', async () => {
  const { reasoning, content, finish } = await streamed('think');
  expect({ reasoning, content, finish }).toEqual({
    reasoning: 'Let me see: two and two.',
    content: 'That makes four.',
    finish: 'stop',
  });
});

test('the three APIs stream the same text and the same reasoning', async () => {
  const message = readMessageStream(
    await server.stream(
      '/v1/messages',
      say('think', { max_tokens: 100, stream: true, thinking: { type: 'adaptive' } }),
    ),
  );
  expect(message.blocks).toEqual([
    { type: 'thinking', text: 'Let me see: two and two.' },
    { type: 'text', text: 'That makes four.' },
  ]);
  expect(message.stop).toEqual({ stop_reason: 'end_turn', stop_sequence: null });
  const response = readResponseStream(await server.stream('/v1/responses', { input: 'say think.', stream: true }));
  expect(response.reasoning).toBe('Let me see: two and two.');
  expect(response.text).toBe('That makes four.');
});

describe('characters', () => {
  test('an emoji in four tokens comes whole, or not at all', async () => {
    const { content, pieces } = await streamed('emoji');
    expect(content).toBe('look: 😄 done');
    expect(pieces).toContain('😄');
    // cut inside: the bytes that are there are told once, at the end
    const cut = await streamed('emoji', { max_tokens: 3 });
    expect(cut).toMatchObject({ content: 'look: \ufffd', finish: 'length' });
  });

  test.each([
    ['a stray continuation byte', 'stray', 'stray a\ufffdb'],
    ['a surrogate', 'surrogate', 'surrogate \ufffd\ufffd\ufffdc'],
    ['an overlong form', 'overlong', 'overlong \ufffd\ufffd\ufffdA'],
    ['a character that is broken off', 'broken', 'broken \ufffdAB'],
    ['a character cut by the end', 'truncated', 'truncated \ufffd'],
    ['bytes broken off before a space', 'dash', 'a dash \ufffd x'],
    ['bytes that are completed', 'ellipsis', 'an ellipsis …'],
    ['spaces around a special token', 'spaces', ' a bbc c'],
  ])('%s: as Unicode recommends, the same in a stream and whole', async (_, name, expected) => {
    expect((await streamed(name)).content).toBe(expected);
    expect((await whole(name)).content).toBe(expected);
    const { body } = await server.post('/v1/completions', { prompt: `<|${name}|>`, max_tokens: 50 });
    expect(body.choices[0].text).toBe(expected);
    const message = await server.post('/v1/messages', say(name, { max_tokens: 50 }));
    expect(message.body.content[0].text).toBe(expected);
    expect((await server.post('/v1/responses', { input: `say ${name}.` })).body.output[0].content[0].text).toBe(
      expected,
    );
  });
});

describe('logprobs', () => {
  test.each(['hello', 'emoji', 'think'])('%s: a stream has the same numbers as a whole answer', async name => {
    const more = { logprobs: true, top_logprobs: 3, temperature: 0 };
    const [stream, reply] = [await streamed(name, more), await whole(name, more)];
    expect(stream.logprobs).toEqual(reply.logprobs);
    expect(
      Buffer.from(stream.logprobs.flatMap(({ bytes }) => bytes))
        .toString()
        .trim(),
    ).toBe(stream.content);
  });

  test('completions: a stream has the same numbers', async () => {
    const body = { prompt: '<|emoji|>', max_tokens: 20, logprobs: 2 };
    const { body: reply } = await server.post('/v1/completions', body);
    const events = await server.stream('/v1/completions', { ...body, stream: true });
    const parts = events
      .slice(0, -1)
      .flatMap(event => event.json.choices.map((c: { logprobs: unknown }) => c.logprobs));
    const joined = (field: string) => parts.flatMap(part => (part as Record<string, unknown[]> | null)?.[field] ?? []);
    const { logprobs } = reply.choices[0];
    for (const field of ['tokens', 'token_logprobs', 'top_logprobs', 'text_offset']) {
      expect(joined(field)).toEqual(logprobs[field]);
    }
  });
});

describe('a prompt that does not fit, streamed', () => {
  const tooLong = 'x'.repeat(300);
  test.each([
    ['/v1/chat/completions', { messages: [{ role: 'user', content: tooLong }], stream: true }],
    ['/v1/completions', { prompt: tooLong, stream: true }],
    ['/v1/messages', { messages: [{ role: 'user', content: tooLong }], max_tokens: 5, stream: true }],
    ['/v1/responses', { input: tooLong, stream: true }],
  ])('%s: a status with the numbers before anything is sent', async (route, body) => {
    const { status, text, headers } = await server.post(route, body);
    expect(status).toBe(400);
    expect(headers.get('content-type')).toContain('application/json');
    expect(text).toMatch(/30[0-9].*200/);
    if (route !== '/v1/messages') expect(JSON.parse(text).error.code).toBe('context_length_exceeded');
    else expect(JSON.parse(text).error.type).toBe('invalid_request_error');
  });
});

test('headers of a stream keep proxies from collecting it', async () => {
  const { headers } = await server.post('/v1/chat/completions', say('hello', { stream: true }));
  expect(headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
  expect(headers.get('cache-control')).toContain('no-cache');
  expect(headers.get('x-accel-buffering')).toBe('no');
  expect(headers.get('content-length')).toBeNull();
});

test('include_progress tells how much of the prompt is read, and only then', async () => {
  const long = { messages: [{ role: 'user', content: `${'.'.repeat(150)} say hello.` }], stream: true };
  const events = await server.stream('/v1/chat/completions', { ...long, stream_options: { include_progress: true } });
  readChatStream(events);
  const told = events.slice(0, -1).flatMap(event => event.json.progress ?? []);
  expect(told.at(-1)).toMatchObject({ done: told[0].total });
  const without = await server.stream('/v1/chat/completions', long);
  expect(without.slice(0, -1).some(event => 'progress' in event.json)).toBe(false);
});
