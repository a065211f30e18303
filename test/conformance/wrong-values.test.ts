/** Every field of every route with every kind of wrong value: an answer or a 4xx that names the field, never a 5xx. */

import { beforeAll, describe, expect, test } from 'vitest';
import { writeScripts } from '../fixtures/scripts.ts';
import { placesOf, WRONG, withJson } from '../support/fields.ts';
import { functionTool, GOOD_BODIES } from '../support/good-bodies.ts';
import { fileDirectory, type Reply, type Served, startServe } from '../support/serve.ts';

const directory = fileDirectory();
let server: Served;

beforeAll(async () => {
  writeScripts(directory, { scripts: { hi: 'Hello!' } });
  server = await startServe({ model: directory, args: ['--ctx', '2000', '--slots', '4', '--max-queue', '100'] });
});

/** What a refusal must be: JSON in the words of its API, one sentence, no code of ours. */
function messageOf({ status, headers, body, text }: Reply, route: string): string {
  expect(headers.get('content-type'), text).toContain('application/json');
  const { error } = body;
  if (route.startsWith('/v1/messages')) expect(body.type).toBe('error');
  else expect(Object.keys(error).sort()).toEqual(['code', 'message', 'param', 'type']);
  expect(error.type).toBe('invalid_request_error');
  expect(error.message).not.toMatch(/\n|\bat \/|node:|undefined|\[object/);
  expect(status).toBeLessThan(500);
  return `${error.param ?? ''} ${error.message}`;
}

describe.each(Object.entries(GOOD_BODIES))('%s', (_, [route, body]) => {
  test('the body as it stands is answered', async () => {
    const { status, text } = await server.post(route, body);
    expect(status, text).toBe(200);
  });

  test('any field with any wrong value: an answer, or a 4xx that names the field', async () => {
    const places = placesOf(JSON.parse(JSON.stringify(body)));
    for (const path of places) {
      const replies = await Promise.all(WRONG.map(json => server.post(route, withJson(body, path, json))));
      for (const [i, reply] of replies.entries()) {
        const label = `${path.join('.')} = ${WRONG[i]}: ${reply.status} ${reply.text.slice(0, 300)}`;
        if (reply.status === 200) continue;
        expect(reply.status, label).toBeGreaterThanOrEqual(400);
        expect(reply.status, label).toBeLessThan(500);
        const message = messageOf(reply, route);
        // the field, one around it, or one that does not go with it
        const names = path.filter(step => typeof step === 'string');
        expect(
          names.some(name => message.includes(name)),
          label,
        ).toBe(true);
      }
    }
    expect((await server.post(route, body)).status).toBe(200);
  });
});

describe('fields that have a default', () => {
  const OPTIONAL = {
    '/v1/chat/completions': [
      ...[
        'temperature',
        'top_p',
        'top_k',
        'min_p',
        'seed',
        'stop',
        'n',
        'stream',
        'stream_options',
        'user',
        'max_tokens',
      ],
      ...['max_completion_tokens', 'logprobs', 'top_logprobs', 'logit_bias', 'presence_penalty', 'frequency_penalty'],
      ...['repetition_penalty', 'tools', 'tool_choice', 'parallel_tool_calls', 'response_format', 'grammar', 'regex'],
      ...['reasoning_effort', 'enable_thinking', 'chat_template_kwargs', 'model', 'metadata', 'service_tier'],
    ],
    '/v1/messages': [
      ...['system', 'stop_sequences', 'stream', 'temperature', 'top_p', 'top_k', 'tools', 'tool_choice', 'thinking'],
      ...['metadata', 'output_config', 'model', 'service_tier'],
    ],
    '/v1/responses': [
      ...['instructions', 'max_output_tokens', 'temperature', 'top_p', 'tools', 'tool_choice', 'parallel_tool_calls'],
      ...['text', 'reasoning', 'include', 'stream', 'metadata', 'user', 'store', 'truncation', 'previous_response_id'],
    ],
  };
  const MINIMAL = {
    '/v1/chat/completions': { messages: [{ role: 'user', content: 'say hi.' }] },
    '/v1/messages': { messages: [{ role: 'user', content: 'say hi.' }], max_tokens: 5 },
    '/v1/responses': { input: 'say hi.' },
  };

  test.each(Object.keys(MINIMAL) as (keyof typeof MINIMAL)[])(
    '%s: null is the default for all of them',
    async route => {
      const nulls = Object.fromEntries(OPTIONAL[route].map(name => [name, null]));
      const { status, text } = await server.post(route, { ...nulls, ...MINIMAL[route] });
      expect(status, text).toBe(200);
      expect(text).toContain('Hello!');
    },
  );

  test.each(Object.keys(MINIMAL) as (keyof typeof MINIMAL)[])(
    '%s: a field that nobody knows changes nothing',
    async route => {
      const { status, text } = await server.post(route, { ...MINIMAL[route], frobnicate: { a: [1] }, 'x-y': null });
      expect(status, text).toBe(200);
      expect(text).toContain('Hello!');
    },
  );

  test.each([
    ...['store', 'audio', 'prediction', 'web_search_options', 'guided_json', 'ignore_eos', 'min_tokens', 'typical_p'],
    ...['dry_multiplier', 'xtc_probability', 'mirostat', 'thinking', 'chat_template', 'functions', 'best_of', 'suffix'],
  ])('%s has a meaning that is not there: refused by name', async name => {
    const value = { store: true, ignore_eos: true, min_tokens: 3, best_of: 2, functions: [{ name: 'a' }] }[name] ?? 0.5;
    const { status, body } = await server.post('/v1/chat/completions', {
      ...MINIMAL['/v1/chat/completions'],
      [name]: value,
    });
    expect([status, body.error.param, body.error.code]).toEqual([400, name, 'unsupported_parameter']);
  });
});

describe('prompts of /v1/completions', () => {
  const ask = (prompt: unknown, more: object = {}) =>
    server.post('/v1/completions', { prompt, max_tokens: 10, ...more });

  test.each<[string, unknown, string[]]>([
    ['a string', '<|hi|>', ['Hello!']],
    ['one in an array', ['<|hi|>'], ['Hello!']],
    ['several', ['<|hi|>', 'q', '<|hi|>'], ['Hello!', '', 'Hello!']],
  ])('%s: one choice for each, in order', async (_, prompt, texts) => {
    const { status, body } = await ask(prompt);
    expect(status).toBe(200);
    expect(body.choices.map((choice: { index: number; text: string }) => [choice.index, choice.text])).toEqual(
      texts.map((text, index) => [index, text]),
    );
    expect(body.usage.total_tokens).toBe(body.usage.prompt_tokens + body.usage.completion_tokens);
  });

  test('token ids, flat and nested, are the text that they spell', async () => {
    const { tokens } = (await server.post('/tokenize', { content: 'q<|hi|>' })).body;
    expect((await ask(tokens)).body.choices[0].text).toBe('Hello!');
    const nested = (await ask([tokens, [97]])).body;
    expect(nested.choices.map((choice: { text: string }) => choice.text)).toEqual(['Hello!', '']);
    expect(nested.usage.prompt_tokens).toBe(tokens.length + 1);
  });

  test.each([
    [[]],
    [[[]]],
    [['a', 1]],
    [[1, 'a']],
    [[-1]],
    [[1.5]],
    [[10 ** 9]],
    [5],
    [{}],
    [true],
    [null],
    [undefined],
  ])('%j is refused by name', async prompt => {
    const { status, body } = await ask(prompt);
    expect(status).toBe(400);
    expect(body.error.param).toMatch(/^prompt/);
  });

  test('streamed, each choice has its own end', async () => {
    const events = await server.stream('/v1/completions', { prompt: ['<|hi|>', 'q'], max_tokens: 10, stream: true });
    expect(events.at(-1)?.data).toBe('[DONE]');
    const choices = events.slice(0, -1).flatMap(event => event.json.choices);
    for (const [index, text] of ['Hello!', ''].entries()) {
      const own = choices.filter(choice => choice.index === index);
      expect(own.map(choice => choice.text).join('')).toBe(text);
      expect(own.filter(choice => choice.finish_reason !== null)).toHaveLength(1);
    }
  });
});

describe('bodies that are no JSON object of text', () => {
  const chat = (content: string) => `{"messages": [{"role": "user", "content": ${content}}], "max_tokens": 2}`;
  test.each<[string, string | Uint8Array]>([
    ['nothing', ''],
    ['half an object', '{'],
    ['a wrong sign', '{:'],
    ['an array', '[]'],
    ['null', 'null'],
    ['a comma at the end', '{"messages": [],}'],
    ['half a surrogate', chat('"\\ud800"')],
    ['NUL', chat('"a\\u0000b"')],
    ['raw 0xFF', Buffer.from(chat('"a\xff"'), 'latin1')],
    ['an overlong form', Buffer.concat([Buffer.from('{"prompt": "'), Buffer.from([0xc0, 0xaf]), Buffer.from('"}')])],
    [
      'a surrogate in UTF-8',
      Buffer.concat([Buffer.from('{"prompt": "'), Buffer.from([0xed, 0xa0, 0x80]), Buffer.from('"}')]),
    ],
    ['UTF-16', Buffer.from('{"prompt": "a"}', 'utf16le')],
    ['three thousand brackets', '['.repeat(3000)],
    ['a deep tree', `{"a":${'{"a":'.repeat(3000)}1${'}'.repeat(3001)}`],
    ['a field twice', '{"prompt": "a", "prompt": "b", "max_tokens": 1}'],
  ])('%s: 400 on every route, and the next request works', async (_, body) => {
    for (const route of ['/v1/chat/completions', '/v1/completions', '/v1/messages', '/v1/responses', '/tokenize']) {
      const reply = await server.post(route, body);
      expect(reply.status, reply.text).toBe(400);
      messageOf(reply, route);
    }
    expect((await server.post('/v1/completions', { prompt: '<|hi|>', max_tokens: 10 })).body.choices[0].text).toBe(
      'Hello!',
    );
  });

  test('a hundred thousand messages, parts, tools, stops', async () => {
    const many = <T>(item: T) => Array.from({ length: 20_000 }, () => item);
    const user = { role: 'user', content: 'x' };
    for (const body of [
      { messages: many(user) },
      { messages: [{ role: 'user', content: many({ type: 'text', text: '' }) }] },
      { messages: [user], tools: many(functionTool) },
      { messages: [user], stop: many('x') },
      { messages: [user], logit_bias: Object.fromEntries(many(0).map((_, i) => [i, 1])) },
    ]) {
      const reply = await server.post('/v1/chat/completions', body);
      expect(reply.status).toBe(400);
      messageOf(reply, '/v1/chat/completions');
    }
  });
});

test('after all this the server has nothing to complain about', () => {
  expect(server.stderr()).not.toMatch(/"level":50|\n {4}at /);
});
