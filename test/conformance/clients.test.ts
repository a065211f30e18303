/** The official clients against the real server: what they raise, retry, parse and put together. */

import path from 'node:path';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { zodResponseFormat, zodTextFormat } from 'openai/helpers/zod';
import { beforeAll, describe, expect, test } from 'vitest';
import * as z from 'zod';
import { writeFlat } from '../fixtures/chain.ts';
import { writeScripts } from '../fixtures/scripts.ts';
import { TOOL_FORMATS } from '../fixtures/tool-formats.ts';
import { fileDirectory, type Served, startServe } from '../support/serve.ts';

const directory = fileDirectory();
const KEY = 'sk-real-key';
/** The bundled model; one that thinks and calls tools; one that talks for long, takes a single request and has a key. */
let nano: Served;
let agent: Served;
let busy: Served;

const { messages: template, call } = TOOL_FORMATS['hermes'];

beforeAll(async () => {
  const model = path.join(directory, 'agent');
  writeScripts(model, {
    scripts: {
      call: `<think>\nI need the weather.\n</think>\n\nOne moment.\n${call('weather', { city: 'Roma' })}`,
      sunny: 'It is sunny in Roma.',
    },
    messages: template,
    tags: ['<think>', '</think>'],
  });
  const endless = path.join(directory, 'endless');
  writeFlat(endless, { choices: ['z'] });
  [nano, agent, busy] = await Promise.all([
    startServe({ args: ['--ctx', '512', '--slots', '4'] }),
    startServe({ model, args: ['--ctx', '3000', '--slots', '2'] }),
    startServe({
      model: endless,
      args: ['--ctx', '4000', '--max-queue', '0'],
      env: { COLI_API_KEY: KEY },
    }),
  ]);
});

const openai = (server: Served, more: object = {}) =>
  new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'any', maxRetries: 0, ...more });
const anthropic = (server: Served, more: object = {}) =>
  new Anthropic({ baseURL: server.url, apiKey: 'any', maxRetries: 0, ...more });

const hello = [{ role: 'user' as const, content: 'Hello, who are you?' }];
const say = (name: string) => [{ role: 'user' as const, content: `say ${name}.` }];
const tool = {
  type: 'function' as const,
  function: {
    name: 'weather',
    description: 'Tells the weather.',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  },
};

describe('openai', () => {
  test('models', async () => {
    const { data } = await openai(nano).models.list();
    expect(data.map(({ id }) => id)).toEqual(['nano']);
    expect((await openai(nano).models.retrieve('nano')).object).toBe('model');
    await expect(openai(nano).models.retrieve('gpt-4')).rejects.toBeInstanceOf(OpenAI.NotFoundError);
  });

  test('whole and streamed answers are the same, with exact usage', async () => {
    const client = openai(nano);
    const asked = { model: 'nano', messages: hello, temperature: 0, max_tokens: 40 };
    const whole = await client.chat.completions.create(asked);
    const stream = client.chat.completions.stream({ ...asked, stream_options: { include_usage: true } });
    const deltas: string[] = [];
    stream.on('content', delta => deltas.push(delta));
    const streamed = await stream.finalChatCompletion();
    const text = whole.choices[0].message.content!;
    expect(text).not.toBe('');
    expect(deltas.join('')).toBe(text);
    expect(streamed.choices[0].message.content).toBe(text);
    const { prompt } = (await nano.post('/apply-template', { messages: hello })).body;
    const count = async (content: string) =>
      (await nano.post('/tokenize', { content, add_special: true })).body.tokens.length;
    expect(whole.usage?.prompt_tokens).toBe(await count(prompt));
    // the token that ended it has no text
    const said = (await nano.post('/tokenize', { content: text })).body.tokens.length;
    expect(whole.usage!.completion_tokens - said).toBeLessThanOrEqual(1);
    for (const usage of [whole.usage!, streamed.usage!]) {
      expect(usage.total_tokens).toBe(usage.prompt_tokens + usage.completion_tokens);
    }
    expect(streamed.usage!.prompt_tokens_details!.cached_tokens).toBe(whole.usage!.prompt_tokens - 1);
  });

  test('a conversation of three turns uses what is kept', async () => {
    const client = openai(nano);
    const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: 'system', content: 'Be kind.' }];
    let before = 0;
    for (const content of ['Hello!', 'What is a river?', 'Thank you.']) {
      messages.push({ role: 'user', content });
      const { choices, usage } = await client.chat.completions.create({
        model: 'nano',
        messages,
        temperature: 0,
        max_tokens: 30,
      });
      expect(usage!.prompt_tokens_details!.cached_tokens!).toBeGreaterThanOrEqual(Math.max(0, before - 2));
      before = usage!.prompt_tokens;
      messages.push(choices[0].message);
    }
  });

  test('structured output is parsed by the client', async () => {
    const Answer = z.object({ ok: z.boolean(), size: z.enum(['small', 'large']) });
    const completion = await openai(nano).chat.completions.parse({
      model: 'nano',
      messages: hello,
      response_format: zodResponseFormat(Answer, 'answer'),
      temperature: 0,
    });
    expect(Answer.safeParse(completion.choices[0].message.parsed).success).toBe(true);
    const response = await openai(nano).responses.parse({
      model: 'nano',
      input: 'Hello',
      text: { format: zodTextFormat(Answer, 'answer') },
      temperature: 0,
    });
    expect(Answer.safeParse(response.output_parsed).success).toBe(true);
  });

  test.each([false, true])('the tool runner calls the tool and gets the answer, stream %s', async stream => {
    const cities: string[] = [];
    const tools = [
      {
        ...tool,
        function: {
          ...tool.function,
          parse: JSON.parse,
          function: ({ city }: { city: string }) => {
            cities.push(city);
            return 'say sunny.';
          },
        },
      },
    ];
    const asked = { model: 'agent', messages: say('call'), tools };
    const runner = stream
      ? openai(agent).chat.completions.runTools({ ...asked, stream: true } as never)
      : openai(agent).chat.completions.runTools(asked as never);
    expect(await (runner as { finalContent(): Promise<string> }).finalContent()).toBe('It is sunny in Roma.');
    expect(cities).toEqual(['Roma']);
  });

  test('responses: whole, streamed, with a call and its result', async () => {
    const client = openai(agent);
    const tools = [{ type: 'function' as const, strict: false, ...tool.function }];
    const stream = client.responses.stream({ model: 'agent', input: 'say call.', tools });
    const types = new Set<string>();
    for await (const event of stream) types.add(event.type);
    const first = await stream.finalResponse();
    expect(types).toContain('response.function_call_arguments.delta');
    expect(first.output.map(({ type }) => type)).toEqual(['reasoning', 'message', 'function_call']);
    const made = first.output.find(item => item.type === 'function_call')!;
    const result = { type: 'function_call_output' as const, call_id: made.call_id, output: 'say sunny.' };
    const input = [{ role: 'user' as const, content: 'say call.' }, ...first.output, result];
    const second = await client.responses.create({ model: 'agent', input: input as never, tools });
    expect(second.output_text).toBe('It is sunny in Roma.');
    expect(second.usage?.total_tokens).toBe(second.usage!.input_tokens + second.usage!.output_tokens);
  });

  test('completions', async () => {
    const { choices } = await openai(agent).completions.create({ model: 'agent', prompt: '<|sunny|>', max_tokens: 50 });
    expect(choices[0].text).toBe('It is sunny in Roma.');
    let text = '';
    const stream = await openai(agent).completions.create({
      model: 'agent',
      prompt: '<|sunny|>',
      max_tokens: 50,
      stream: true,
    });
    for await (const chunk of stream) text += chunk.choices[0]?.text ?? '';
    expect(text).toBe('It is sunny in Roma.');
  });

  test('errors are of the classes that programs catch, with code and field', async () => {
    const client = openai(nano);
    const create = (more: object) => client.chat.completions.create({ model: 'nano', messages: hello, ...more });
    const failure = (more: object) =>
      create(more).then(
        () => expect.unreachable(),
        error => error,
      );
    const tooHot = await failure({ temperature: -1 });
    expect(tooHot).toBeInstanceOf(OpenAI.BadRequestError);
    expect([tooHot.param, tooHot.code, tooHot.type]).toEqual(['temperature', 'invalid_value', 'invalid_request_error']);
    expect(tooHot.requestID).toMatch(/^req_/);
    expect(await failure({ model: 'gpt-4o' })).toMatchObject({ status: 404, code: 'model_not_found', param: 'model' });
    for (const stream of [false, true]) {
      const long = { messages: [{ role: 'user' as const, content: 'word '.repeat(2000) }], stream };
      expect(await failure(long)).toMatchObject({ status: 400, code: 'context_length_exceeded' });
    }
    await expect(openai(busy).models.list()).rejects.toBeInstanceOf(OpenAI.AuthenticationError);
    expect((await openai(busy, { apiKey: KEY }).models.list()).data).toHaveLength(1);
  });

  test('a full queue is a 429, which the client tries again by itself', async () => {
    const client = openai(busy, { apiKey: KEY });
    const long = await client.chat.completions.create({ model: 'endless', messages: hello, stream: true });
    const iterator = long[Symbol.asyncIterator]();
    await iterator.next();
    const short = { model: 'endless', messages: hello, max_tokens: 2 };
    const refused = await client.chat.completions.create(short).then(
      () => expect.unreachable(),
      error => error,
    );
    expect(refused).toBeInstanceOf(OpenAI.RateLimitError);
    expect([refused.code, refused.headers.get('retry-after')]).toEqual(['queue_full', '1']);
    const claude = await anthropic(busy, { apiKey: KEY })
      .messages.create(short)
      .then(
        () => expect.unreachable(),
        error => error,
      );
    expect(claude).toBeInstanceOf(Anthropic.RateLimitError);
    const patient = openai(busy, { apiKey: KEY, maxRetries: 8 }).chat.completions.create(short);
    while (!(await iterator.next()).done);
    expect((await patient).choices[0].message.content).toBe('zz');
  });

  test('an aborted request frees its place', async () => {
    const controller = new AbortController();
    const asked = { model: 'endless', messages: hello, stream: true as const };
    const client = openai(busy, { apiKey: KEY, maxRetries: 8 });
    const stream = await client.chat.completions.create(asked, { signal: controller.signal });
    for await (const _ of stream) controller.abort();
    const next = await client.chat.completions.create({ model: 'endless', messages: hello, max_tokens: 2 });
    expect(next.choices[0].message.content).toBe('zz');
  });
});

describe('anthropic', () => {
  const tools = [{ name: 'weather', input_schema: tool.function.parameters as { type: 'object' } }];

  test('models', async () => {
    const { data } = await anthropic(nano).models.list();
    expect(data.map(({ id, type }) => [id, type])).toEqual([['nano', 'model']]);
    expect((await anthropic(nano).models.retrieve('nano')).id).toBe('nano');
    await expect(anthropic(nano).models.retrieve('claude')).rejects.toBeInstanceOf(Anthropic.NotFoundError);
  });

  test('whole and streamed messages are the same, and count_tokens is exact', async () => {
    const client = anthropic(nano);
    const asked = { model: 'nano', messages: hello, max_tokens: 40, temperature: 0, system: 'Be kind.' };
    const whole = await client.messages.create(asked);
    const stream = client.messages.stream(asked);
    let text = '';
    stream.on('text', delta => {
      text += delta;
    });
    const streamed = await stream.finalMessage();
    expect(streamed.content).toEqual(whole.content);
    expect(whole.content).toMatchObject([{ type: 'text', text }]);
    const { input_tokens } = await client.messages.countTokens({ model: 'nano', messages: hello, system: 'Be kind.' });
    for (const { usage } of [whole, streamed])
      expect(usage.input_tokens + usage.cache_read_input_tokens!).toBe(input_tokens);
    expect(streamed.usage.cache_read_input_tokens).toBe(input_tokens - 1);
  });

  test('thinking, text and a call in a stream: blocks in order, then the turn with the result', async () => {
    const client = anthropic(agent);
    const asked = { model: 'agent', max_tokens: 500, tools, thinking: { type: 'adaptive' as const } };
    const stream = client.messages.stream({ ...asked, messages: say('call') });
    const seen: string[] = [];
    stream.on('streamEvent', ({ type }) => {
      if (seen.at(-1) !== type) seen.push(type);
    });
    const json: string[] = [];
    stream.on('inputJson', part => json.push(part));
    const message = await stream.finalMessage();
    expect(seen.slice(0, 2)).toEqual(['message_start', 'content_block_start']);
    expect(seen.slice(-2)).toEqual(['message_delta', 'message_stop']);
    expect(message.content.map(({ type }) => type)).toEqual(['thinking', 'text', 'tool_use']);
    expect(JSON.parse(json.join(''))).toEqual({ city: 'Roma' });
    expect(message.stop_reason).toBe('tool_use');
    const use = message.content[2] as Anthropic.ToolUseBlock;
    const result = { type: 'tool_result' as const, tool_use_id: use.id, content: 'say sunny.' };
    const history = [
      ...say('call'),
      { role: 'assistant' as const, content: message.content },
      { role: 'user' as const, content: [result] },
    ];
    const next = await client.messages.create({ ...asked, messages: history });
    expect(next.content).toMatchObject([{ type: 'text', text: 'It is sunny in Roma.' }]);
  });

  test('fields of the API: obeyed, harmless, or refused by name', async () => {
    const client = anthropic(agent);
    const create = (more: object) =>
      client.messages.create({ model: 'agent', max_tokens: 100, messages: say('sunny'), ...more });
    const stopped = await create({
      stop_sequences: ['in'],
      top_k: 1,
      metadata: { user_id: 'u' },
      service_tier: 'auto',
    });
    expect(stopped).toMatchObject({
      stop_reason: 'stop_sequence',
      stop_sequence: 'in',
      content: [{ text: 'It is sunny ' }],
    });
    const cached = [{ type: 'text' as const, text: 'x', cache_control: { type: 'ephemeral' as const } }];
    expect((await create({ system: cached })).stop_reason).toBe('end_turn');
    const failure = (more: object) =>
      create(more).then(
        () => expect.unreachable(),
        error => error,
      );
    for (const [name, value] of Object.entries({ container: 'c', mcp_servers: [{}], top_k: -1, stop_sequences: 'x' })) {
      const error = await failure({ [name]: value });
      expect(error).toBeInstanceOf(Anthropic.BadRequestError);
      expect(error.message).toContain(name);
    }
    const search = await failure({ tools: [{ type: 'web_search_20250305', name: 'web_search' }] });
    expect(search.message).toContain('tools[0].type');
  });

  test('errors are of the classes that programs catch', async () => {
    const failure = (client: Anthropic, more: object = {}) =>
      client.messages.create({ model: 'nano', max_tokens: 10, messages: hello, ...more }).then(
        () => expect.unreachable(),
        error => error,
      );
    const bad = await failure(anthropic(nano), { temperature: 'hot' });
    expect(bad).toBeInstanceOf(Anthropic.BadRequestError);
    expect(bad.error).toMatchObject({
      type: 'error',
      error: { type: 'invalid_request_error', message: expect.stringContaining('temperature') },
    });
    expect(bad.requestID).toMatch(/^req_/);
    expect(await failure(anthropic(nano), { model: 'claude-3' })).toBeInstanceOf(Anthropic.NotFoundError);
    const long = [{ role: 'user', content: 'word '.repeat(2000) }];
    expect(await failure(anthropic(nano), { messages: long })).toBeInstanceOf(Anthropic.BadRequestError);
    expect(await failure(anthropic(busy))).toBeInstanceOf(Anthropic.AuthenticationError);
    for (const keys of [{ apiKey: KEY }, { apiKey: null, authToken: KEY }]) {
      expect((await anthropic(busy, keys).models.list()).data).toHaveLength(1);
    }
  });
});

test('a page that reads events as browsers do', async () => {
  const { headers, text } = await agent.post('/v1/chat/completions', { messages: say('sunny'), stream: true });
  expect(headers.get('content-type')).toContain('text/event-stream');
  // the browser's own rules: lines by CR, LF or both, one space behind the colon, an empty line ends an event
  let data = '';
  const events: string[] = [];
  for (const line of text.split(/\r\n|\r|\n/)) {
    if (line === '') {
      if (data !== '') events.push(data.slice(0, -1));
      data = '';
    } else if (line.startsWith('data:')) data += `${line.slice(5).replace(/^ /, '')}\n`;
  }
  expect(events.at(-1)).toBe('[DONE]');
  expect(
    events
      .slice(0, -1)
      .map(event => JSON.parse(event).choices[0].delta.content ?? '')
      .join(''),
  ).toBe('It is sunny in Roma.');
});
