/** Every field of every route with every kind of wrong value: an answer or a 4xx that names the field, never a 5xx. */

import { beforeAll, describe, expect, test } from 'vitest';
import { writeScripts } from '../fixtures/scripts.ts';
import { placesOf, WRONG, withJson } from '../support/fields.ts';
import { fileDirectory, type Reply, type Served, startServe } from '../support/serve.ts';

const directory = fileDirectory();
let server: Served;

beforeAll(async () => {
  writeScripts(directory, { scripts: { hi: 'Hello!' } });
  server = await startServe({ model: directory, args: ['--ctx', '2000', '--slots', '4', '--max-queue', '100'] });
});

const schema = {
  type: 'object',
  properties: { on: { type: 'boolean' } },
  required: ['on'],
  additionalProperties: false,
};
const sampling = {
  temperature: 0,
  top_p: 1,
  top_k: 0,
  min_p: 0,
  seed: 1,
  presence_penalty: 0,
  frequency_penalty: 0,
  repetition_penalty: 1,
  logit_bias: { 97: 1 },
};
const common = { ...sampling, stop: ['zzz'], n: 1, stream: false, user: 'u', model: undefined };
const functionTool = {
  type: 'function',
  function: { name: 'light', description: 'd', parameters: schema, strict: true },
};

/** A good body of each route that uses as many fields as go together. */
const BODIES: Record<string, [route: string, body: object]> = {
  chat: [
    '/v1/chat/completions',
    {
      ...common,
      max_tokens: 2,
      max_completion_tokens: 2,
      logprobs: true,
      top_logprobs: 1,
      messages: [
        { role: 'system', content: 'x', name: 'n' },
        { role: 'user', content: [{ type: 'text', text: 'x' }] },
        {
          role: 'assistant',
          content: 'x',
          reasoning_content: 'r',
          tool_calls: [{ id: 'a', type: 'function', function: { name: 'light', arguments: '{"on": true}' } }],
        },
        { role: 'tool', tool_call_id: 'a', content: 'x' },
        { role: 'user', content: 'say hi.' },
      ],
      tools: [functionTool],
      tool_choice: 'auto',
      parallel_tool_calls: true,
      enable_thinking: true,
      reasoning_effort: 'low',
      chat_template_kwargs: { enable_thinking: true },
    },
  ],
  'chat, with a form': [
    '/v1/chat/completions',
    {
      messages: [{ role: 'user', content: 'x' }],
      max_tokens: 2,
      stream: true,
      stream_options: { include_usage: true, include_progress: true },
      response_format: { type: 'json_schema', json_schema: { name: 'a', description: 'd', strict: true, schema } },
    },
  ],
  'chat, extensions': [
    '/v1/chat/completions',
    { messages: [{ role: 'user', content: 'x' }], max_tokens: 2, regex: 'a+' },
  ],
  'chat, grammar': [
    '/v1/chat/completions',
    { messages: [{ role: 'user', content: 'x' }], max_tokens: 2, grammar: 'root ::= "a"' },
  ],
  'chat, forced': [
    '/v1/chat/completions',
    {
      messages: [{ role: 'user', content: 'x' }],
      max_tokens: 2,
      tools: [functionTool],
      tool_choice: { type: 'function', function: { name: 'light' } },
    },
  ],
  completions: [
    '/v1/completions',
    { ...common, prompt: ['a', 'b'], max_tokens: 2, echo: false, logprobs: 1, best_of: 1, suffix: '' },
  ],
  'completions, ids': ['/v1/completions', { prompt: [[97, 98], [99]], max_tokens: 1 }],
  messages: [
    '/v1/messages',
    {
      ...sampling,
      max_tokens: 2,
      system: [{ type: 'text', text: 'x', cache_control: { type: 'ephemeral' } }],
      stop_sequences: ['zzz'],
      stream: false,
      metadata: { user_id: 'u' },
      thinking: { type: 'enabled', budget_tokens: 10, display: 'summarized' },
      tools: [{ name: 'light', description: 'd', input_schema: schema }],
      tool_choice: { type: 'auto', disable_parallel_tool_use: false },
      output_config: { effort: 'low' },
      messages: [
        { role: 'user', content: [{ type: 'text', text: 'x' }] },
        {
          role: 'assistant',
          content: [
            { type: 'thinking', thinking: 't', signature: 's' },
            { type: 'tool_use', id: 'a', name: 'light', input: { on: true } },
          ],
        },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'a', content: 'x', is_error: false }] },
      ],
    },
  ],
  'messages, with a form': [
    '/v1/messages',
    {
      max_tokens: 2,
      messages: [{ role: 'user', content: 'x' }],
      output_config: { format: { type: 'json_schema', schema } },
    },
  ],
  count_tokens: [
    '/v1/messages/count_tokens',
    { system: 'x', messages: [{ role: 'user', content: 'x' }], tools: [{ name: 'light', input_schema: schema }] },
  ],
  responses: [
    '/v1/responses',
    {
      ...sampling,
      instructions: 'x',
      max_output_tokens: 2,
      stop: ['zzz'],
      top_logprobs: 1,
      include: ['reasoning.encrypted_content'],
      reasoning: { effort: 'low', summary: 'auto' },
      tools: [{ type: 'function', name: 'light', description: 'd', parameters: schema, strict: true }],
      tool_choice: 'auto',
      parallel_tool_calls: true,
      text: { format: { type: 'text' }, verbosity: 'medium' },
      metadata: { a: 'b' },
      store: false,
      stream: false,
      truncation: 'disabled',
      input: [
        { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'x' }] },
        {
          type: 'reasoning',
          id: 'r',
          summary: [{ type: 'summary_text', text: 't' }],
          content: [],
          encrypted_content: null,
        },
        { type: 'function_call', call_id: 'a', name: 'light', arguments: '{"on": true}' },
        { type: 'function_call_output', call_id: 'a', output: 'x' },
      ],
    },
  ],
  'responses, with a form': [
    '/v1/responses',
    { input: 'x', max_output_tokens: 2, text: { format: { type: 'json_schema', name: 'a', schema, strict: true } } },
  ],
  tokenize: ['/tokenize', { content: 'x', add_special: true, parse_special: true, with_pieces: true }],
  detokenize: ['/detokenize', { tokens: [97, 98] }],
  'apply-template': [
    '/apply-template',
    {
      messages: [{ role: 'user', content: 'x' }],
      tools: [functionTool],
      chat_template_kwargs: { enable_thinking: true },
    },
  ],
};

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

describe.each(Object.entries(BODIES))('%s', (_, [route, body]) => {
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
