/** Where answers end: stop strings, token limits, the context. */

import path from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { writeFlat } from '../fixtures/chain.ts';
import { MESSAGES, writeScripts } from '../fixtures/scripts.ts';
import { fileDirectory, type Served, startServe } from '../support/serve.ts';
import { readChatReply, readChatStream, readMessageStream, readResponseStream } from '../support/wire.ts';

const directory = fileDirectory();
const CONTEXT = 300;

/** Says scripts and ends; the same with a template that knows reasoning; never ends. */
const servers: Record<string, Served> = {};

const scripts = {
  greek: ['al', 'pha be', 'ta gam', 'ma delta'],
  almost: ['one beta', ' ga', 'p'],
  smile: ['smile ', [0xf0, 0x9f], [0x98, 0x84], '!'],
  lines: ['first\n', '\nsecond'],
} as const;

beforeAll(async () => {
  const at = (name: string) => path.join(directory, name);
  writeScripts(at('plain'), { scripts });
  writeScripts(at('thinking'), { scripts, messages: `{#- </think> -#}${MESSAGES}` });
  writeFlat(at('endless'), { choices: ['z'] });
  for (const name of ['plain', 'thinking', 'endless']) {
    servers[name] = await startServe({ model: at(name), args: ['--ctx', String(CONTEXT)] });
  }
});

const messages = (name: string) => [{ role: 'user', content: `say ${name}.` }];

interface Ended {
  text: string;
  finish: string;
  sequence?: string | null;
}

/** The same request through every API, whole and streamed. */
const ROUTES: Record<string, (server: Served, name: string, stop: string[]) => Promise<Ended>> = {
  chat: async (server, name, stop) => {
    const { body } = await server.post('/v1/chat/completions', { messages: messages(name), stop });
    const { content, finish } = readChatReply(body);
    return { text: content, finish: finish! };
  },
  'chat, streamed': async (server, name, stop) => {
    const body = { messages: messages(name), stop, stream: true };
    const { content, finish } = readChatStream(await server.stream('/v1/chat/completions', body));
    return { text: content, finish: finish! };
  },
  completions: async (server, name, stop) => {
    const { body } = await server.post('/v1/completions', { prompt: `<|${name}|>`, stop });
    return { text: body.choices[0].text, finish: body.choices[0].finish_reason };
  },
  'completions, streamed': async (server, name, stop) => {
    const events = await server.stream('/v1/completions', { prompt: `<|${name}|>`, stop, stream: true });
    const choices = events.slice(0, -1).flatMap(event => event.json.choices);
    return { text: choices.map(choice => choice.text).join(''), finish: choices.at(-1).finish_reason };
  },
  messages: async (server, name, stop) => {
    const request = { messages: messages(name), stop_sequences: stop, max_tokens: 50 };
    const { body } = await server.post('/v1/messages', request);
    return { text: body.content[0]?.text ?? '', finish: body.stop_reason, sequence: body.stop_sequence };
  },
  'messages, streamed': async (server, name, stop) => {
    const request = { messages: messages(name), stop_sequences: stop, max_tokens: 50, stream: true };
    const { blocks, stop: end } = readMessageStream(await server.stream('/v1/messages', request));
    return { text: blocks[0]?.text ?? '', finish: end.stop_reason, sequence: end.stop_sequence };
  },
  responses: async (server, name, stop) => {
    const { body } = await server.post('/v1/responses', { input: `say ${name}.`, stop });
    return { text: body.output[0]?.content[0].text ?? '', finish: body.status };
  },
  'responses, streamed': async (server, name, stop) => {
    const request = { input: `say ${name}.`, stop, stream: true };
    const { text, response } = readResponseStream(await server.stream('/v1/responses', request));
    return { text, finish: response.status };
  },
};

const FINISHED: Record<string, { stopped: string; ended: string }> = {
  chat: { stopped: 'stop', ended: 'stop' },
  completions: { stopped: 'stop', ended: 'stop' },
  messages: { stopped: 'stop_sequence', ended: 'end_turn' },
  responses: { stopped: 'completed', ended: 'completed' },
};

describe.each(['plain', 'thinking'])('stop strings, %s model', model => {
  describe.each(Object.keys(ROUTES))('%s', route => {
    const { stopped, ended } = FINISHED[route.split(',')[0]];
    const ask = (name: string, ...stop: string[]) => ROUTES[route](servers[model], name, stop);
    const isMessages = route.startsWith('messages');

    test.each([
      ['over three tokens: nothing of it is sent', 'greek', ['beta gamma'], 'alpha ', 'beta gamma'],
      ['the first of several', 'greek', ['gamma', 'pha', 'delta'], 'al', 'pha'],
      ['an end of a token', 'greek', ['delta'], 'alpha beta gamma ', 'delta'],
      ['the whole beginning', 'greek', ['alpha'], '', 'alpha'],
      ['a character in two tokens', 'smile', ['😄'], 'smile ', '😄'],
      ['a line break twice', 'lines', ['\n\n'], 'first', '\n\n'],
    ])('%s', async (_, name, stop, text, sequence) => {
      expect(await ask(name, ...stop)).toEqual({ text, finish: stopped, ...(isMessages && { sequence }) });
    });

    test('what only begins like a stop string is sent in the end', async () => {
      expect(await ask('almost', 'beta gamma', 'gap!')).toEqual({
        text: 'one beta gap',
        finish: ended,
        ...(isMessages && { sequence: null }),
      });
    });
  });
});

describe('max_tokens', () => {
  const endless = () => servers['endless'];
  const chat = async (more: object) => {
    const { status, text, body } = await endless().post('/v1/chat/completions', { messages: messages('x'), ...more });
    expect(status, text).toBe(200);
    return readChatReply(body);
  };

  test.each([{}, { logprobs: true }, { stream_options: null }])(
    '0 on chat with %o: no token, finish length',
    async more => {
      const { content, finish, usage } = await chat({ max_tokens: 0, ...more });
      expect({ content, finish, tokens: usage?.completion_tokens }).toEqual({
        content: '',
        finish: 'length',
        tokens: 0,
      });
    },
  );

  test.each([{}, { logprobs: 1 }, { echo: true }])('0 on completions with %o: no token, finish length', async more => {
    const { status, body } = await endless().post('/v1/completions', { prompt: 'abc', max_tokens: 0, ...more });
    expect(status).toBe(200);
    expect(body.choices[0]).toMatchObject({ text: 'echo' in more ? 'abc' : '', finish_reason: 'length' });
    expect(body.usage.completion_tokens).toBe(0);
  });

  test('0 in a stream', async () => {
    const body = { messages: messages('x'), max_tokens: 0, stream: true };
    expect(readChatStream(await endless().stream('/v1/chat/completions', body))).toMatchObject({
      content: '',
      finish: 'length',
    });
  });

  test('0 is refused where the API has at least 1', async () => {
    const { status, body } = await endless().post('/v1/messages', { messages: messages('x'), max_tokens: 0 });
    expect(status).toBe(400);
    expect(body.error.message).toContain('max_tokens');
  });

  test.each([[10 ** 12], [undefined], [null]])('%s: the rest of the context, and finish length', async max_tokens => {
    const { content, finish, usage } = await chat({ max_tokens });
    expect(finish).toBe('length');
    expect(usage?.total_tokens).toBe(CONTEXT);
    expect(content).toBe('z'.repeat(usage!.completion_tokens));
  });

  test('the same through the other APIs', async () => {
    const { body } = await endless().post('/v1/messages', { messages: messages('x'), max_tokens: 10 ** 12 });
    expect(body.stop_reason).toBe('max_tokens');
    expect(body.usage.input_tokens + body.usage.cache_read_input_tokens + body.usage.output_tokens).toBe(CONTEXT);
    const response = (await endless().post('/v1/responses', { input: 'x' })).body;
    expect(response).toMatchObject({ status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' } });
    expect(response.usage.total_tokens).toBe(CONTEXT);
    const text = (await endless().post('/v1/completions', { prompt: 'x', max_tokens: 10 ** 12 })).body;
    expect(text.choices[0].finish_reason).toBe('length');
    expect(text.usage.total_tokens).toBe(CONTEXT);
  });

  test.each([
    [{ max_tokens: 5 }, 5],
    [{ max_completion_tokens: 6 }, 6],
    [{ max_tokens: 7, max_completion_tokens: 4 }, 4],
    [{ max_tokens: 4, max_completion_tokens: 7 }, 4],
    [{ max_tokens: null, max_completion_tokens: 3 }, 3],
  ])('%o: %i tokens', async (more, tokens) => {
    expect((await chat(more)).content).toHaveLength(tokens);
  });

  test('completions without it give 16 tokens', async () => {
    const { body } = await endless().post('/v1/completions', { prompt: 'x' });
    expect(body.choices[0].text).toHaveLength(16);
  });
});

describe('the context', () => {
  test('the size that was asked for is told everywhere', async () => {
    const server = servers['endless'];
    expect((await server.get('/v1/models')).body.data[0].context_length).toBe(CONTEXT);
    expect((await server.get('/v1/models/endless')).body.context_length).toBe(CONTEXT);
    expect((await server.get('/props')).body).toMatchObject({
      context: CONTEXT,
      default_generation_settings: { n_ctx: CONTEXT },
    });
    expect(server.stderr()).toContain(`context ${CONTEXT} tokens`);
  });

  test.each(['plain', 'thinking', 'endless'])(
    '%s: a prompt of 290 runs, one of 310 is refused with the numbers',
    async model => {
      const server = servers[model];
      const fits = await server.post('/v1/completions', { prompt: 'q'.repeat(290), max_tokens: 100 });
      expect(fits.status).toBe(200);
      expect(fits.body.usage.prompt_tokens).toBe(290);
      const { status, body } = await server.post('/v1/completions', { prompt: 'q'.repeat(310), max_tokens: 1 });
      expect(status).toBe(400);
      expect(body.error.code).toBe('context_length_exceeded');
      expect(body.error.message).toMatch(/310.*300|300.*310/);
    },
  );

  test.each([
    ['/v1/chat/completions', (n: number) => ({ messages: [{ role: 'user', content: 'q'.repeat(n - 3) }] })],
    ['/v1/messages', (n: number) => ({ messages: [{ role: 'user', content: 'q'.repeat(n - 3) }], max_tokens: 2 })],
    ['/v1/responses', (n: number) => ({ input: 'q'.repeat(n - 3) })],
    ['/v1/completions', (n: number) => ({ prompt: 'q'.repeat(n) })],
  ])('%s: the same border for all', async (route, body) => {
    const server = servers['endless'];
    const { status, body: last } = await server.post(route, body(CONTEXT - 1));
    expect(status).toBe(200);
    expect(JSON.stringify(last)).toContain('z');
    expect((await server.post(route, body(CONTEXT + 1))).status).toBe(400);
  });

  test('count_tokens tells the number before it is tried', async () => {
    const body = { messages: [{ role: 'user', content: 'q'.repeat(400) }] };
    const { status, body: count } = await servers['endless'].post('/v1/messages/count_tokens', body);
    expect([status, count]).toEqual([200, { input_tokens: 403 }]);
  });
});
