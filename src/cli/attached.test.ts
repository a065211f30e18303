import type { ServerResponse } from 'node:http';
import { describe, expect, test } from 'vitest';
import * as server from '../../test/support/scripted-server.ts';
import type { ChatMessage } from '../engine/api.ts';
import { AttachedTalker } from './attached.ts';
import { whenReady } from './attached-server.ts';
import type { Clock } from './clock.ts';
import { ServerClient } from './server-client.ts';
import type { AnswerOptions, TalkEnd, TalkEvent } from './talker.ts';

const HELLO: readonly ChatMessage[] = [{ role: 'user', content: 'hello' }];

/** 10 ms pass with every look at it; sleeping takes no time and is written down. */
function testClock() {
  const slept: number[] = [];
  let ms = 0;
  const clock: Clock = {
    now: () => (ms += 10),
    sleep: async sleepMs => {
      slept.push(sleepMs);
    },
  };
  return { clock, slept };
}

type AnswerScript = (response: ServerResponse, request: server.ScriptedRequest) => void;

/** A talker of a server whose answers follow these scripts, one request after the other; the last one repeats. */
async function attach(scripts: AnswerScript[], { key = null, clock }: { key?: string | null; clock?: Clock } = {}) {
  let next = 0;
  const { base, requests } = await server.startScriptedServer((request, response) => {
    if (server.describeItself(request, response)) return;
    scripts[Math.min(next++, scripts.length - 1)](response, request);
  });
  const client = new ServerClient({ base, key, others: [] });
  const ready = whenReady(client, new AbortController().signal, clock ?? testClock().clock);
  let step = await ready.next();
  while (!step.done) step = await ready.next();
  const asked = () => requests.filter(({ path }) => path === '/v1/chat/completions');
  return { talker: new AttachedTalker(client, step.value, clock ?? testClock().clock), asked, requests, base };
}

/** A stream of these events. */
const answer =
  (...events: string[]): AnswerScript =>
  response => {
    server.beginStream(response);
    response.end(events.join(''));
  };
const refuse =
  (status: number, code: string, message: string, headers = {}): AnswerScript =>
  response =>
    server.sendJson(response, status, server.errorBody(code, message), headers);

const good = answer(server.role, server.text('yes'), server.finish('stop'), server.usage(5, 3), server.DONE);

async function all(
  talker: AttachedTalker,
  options: AnswerOptions = {},
  signal = new AbortController().signal,
): Promise<TalkEvent[]> {
  const events: TalkEvent[] = [];
  for await (const event of talker.ask(HELLO, options, signal)) events.push(event);
  return events;
}

const texts = (events: readonly TalkEvent[]) => events.flatMap(event => (event.type === 'text' ? [event.text] : []));
const endOf = (events: readonly TalkEvent[]) => events.at(-1) as TalkEnd;
const notices = (events: readonly TalkEvent[]) =>
  events.flatMap(event => (event.type === 'notice' ? [event.text] : []));

describe('what is sent', () => {
  test('model, messages, key, and every setting under its name in the API', async () => {
    const { talker, asked } = await attach([good], { key: 'secret' });
    await all(talker, {
      maxTokens: 7,
      temperature: 0,
      topP: 0.5,
      topK: 40,
      minP: 0.1,
      seed: 9,
      repetitionPenalty: 1.1,
      presencePenalty: -1,
      frequencyPenalty: 0.3,
      stop: ['a', 'b'],
      ignoreEos: undefined,
    });
    expect(asked()[0].headers).toMatchObject({ authorization: 'Bearer secret', 'content-type': 'application/json' });
    expect(asked()[0].body).toEqual({
      model: 'nano',
      messages: HELLO,
      max_tokens: 7,
      temperature: 0,
      top_p: 0.5,
      top_k: 40,
      min_p: 0.1,
      seed: 9,
      repetition_penalty: 1.1,
      presence_penalty: -1,
      frequency_penalty: 0.3,
      stop: ['a', 'b'],
      stream: true,
      stream_options: { include_usage: true, include_progress: true },
    });
  });

  test('without a seed one is drawn, sent and told', async () => {
    const { talker, asked } = await attach([good]);
    const [first, second] = [endOf(await all(talker)), endOf(await all(talker))];
    const seeds = asked().map(({ body }) => body.seed);
    expect(seeds.every(Number.isSafeInteger)).toBe(true);
    expect(first.statistics).toContain(`temperature 0.2, top_p 0.9, seed ${seeds[0]}`);
    expect(second.statistics).toContain(`seed ${seeds[1]}`);
    expect(seeds[0]).not.toBe(seeds[1]);
    expect(asked()[0].headers.authorization).toBeUndefined();
  });
});

describe('an answer', () => {
  test('progress, reasoning, text, and the figures at the end', async () => {
    const { talker } = await attach([
      answer(
        server.role,
        ': keepalive\n\n',
        server.progress(2, 5, 1500),
        server.chunk({ reasoning_content: 'hm' }),
        server.text('né'),
        server.text('!'),
        server.finish('stop'),
        server.usage(5, 3, 2),
        server.DONE,
      ),
    ]);
    const events = await all(talker);
    const kinds = events.map(event => (event.type === 'progress' ? `${event.label} ${event.done}` : event.type));
    expect(kinds).toEqual(['waiting for 0', 'prefill 2', 'reasoning', 'text', 'text', 'end']);
    expect(events[1]).toMatchObject({ total: 5, etaMs: 1500 });
    expect(texts(events)).toEqual(['né', '!']);
    // three looks at the clock before the first letters, five after: 30 ms and 50 ms for two tokens
    expect(endOf(events)).toMatchObject({
      finish: 'stop',
      footer: '3 tokens, 40.0 tok/s, first after 30 ms, 2 of 5 prompt tokens cached',
    });
  });

  test('cut at the token limit, or by the context', async () => {
    const cut = (prompt: number) =>
      answer(server.text('a'), server.finish('length'), server.usage(prompt, 4), server.DONE);
    const { talker } = await attach([cut(5), cut(60)]);
    expect(endOf(await all(talker))).toMatchObject({
      finish: 'length',
      footer: expect.stringMatching(/, ended at the token limit$/),
    });
    expect(endOf(await all(talker)).footer).toMatch(/, the context of 64 tokens is full$/);
  });

  test('one of a server with other numbers than before is noticed once, and told from then on', async () => {
    const { base, requests } = await server.startScriptedServer((request, response) => {
      const changed = requests.some(({ path }) => path === '/v1/chat/completions');
      if (request.path === '/props' && changed) {
        return server.sendJson(response, 200, { ...server.PROPS, activations: 'exact', fingerprint: 'fp_two' });
      }
      if (server.describeItself(request, response)) return;
      server.beginStream(response);
      response.end(
        [server.text('a'), server.finish('stop'), server.usage(5, 1), server.DONE]
          .join('')
          .replaceAll('fp_one', 'fp_two'),
      );
    });
    const client = new ServerClient({ base, key: null, others: [] });
    const { value } = await whenReady(client, new AbortController().signal, testClock().clock).next();
    const talker = new AttachedTalker(client, value as never, testClock().clock);
    const events = await all(talker);
    expect(notices(events)).toEqual([expect.stringMatching(/^The server now has another model or other settings/)]);
    expect(endOf(events).footer).toContain('exact activations');
    expect(notices(await all(talker))).toEqual([]);
  });
});

describe('a refusal is told in the words of the server, and nothing is sent again', () => {
  test.each([
    ['the context', 400, 'context_length_exceeded', 'the prompt has 70 tokens; the context of 64 ...', ':undo'],
    ['a field', 400, 'invalid_value', 'top_k must be a whole number', undefined],
    ['another model', 404, 'model_not_found', 'this server has no model "nano"', 'start a new chat'],
    ['the end', 503, 'server_stopping', 'the server is stopping', undefined],
    ['a dead engine', 503, 'engine_died', 'the engine has died', undefined],
    ['a bug', 500, 'internal_error', 'the server failed on this request', undefined],
  ])('%s', async (_, status, code, message, hint) => {
    const { talker, asked } = await attach([refuse(status, code, message)]);
    const error = { code: code.toUpperCase(), message: `the server says: ${message}` };
    await expect(all(talker)).rejects.toMatchObject(hint ? { ...error, hint: expect.stringContaining(hint) } : error);
    expect(asked()).toHaveLength(1);
  });

  test('a key that is missing or wrong', async () => {
    const locked = refuse(401, 'invalid_api_key', 'no');
    const hint = expect.stringContaining('COLI_API_KEY');
    await expect(all((await attach([locked])).talker)).rejects.toMatchObject({
      code: 'INVALID_API_KEY',
      message: expect.stringMatching(/asks for an API key$/),
      hint,
    });
    await expect(all((await attach([locked], { key: 'x' })).talker)).rejects.toMatchObject({
      message: expect.stringMatching(/does not accept this API key$/),
      hint,
    });
  });

  test.each<[string, AnswerScript, string]>([
    ['a page', response => response.writeHead(404, { 'content-type': 'text/html' }).end('<p>'), '(status 404)'],
    ['no stream', response => server.sendJson(response, 200, {}), '(it answers with application/json; charset=utf-8)'],
    [
      'a redirection',
      response => response.writeHead(301, { location: 'https://x.example/' }).end(),
      'https://x.example/',
    ],
  ])('%s instead of an answer', async (_, script, message) => {
    const { talker, asked } = await attach([script], { key: 'secret' });
    await expect(all(talker)).rejects.toMatchObject({ code: 'NOT_COLIBRI', message: expect.stringContaining(message) });
    expect(asked()).toHaveLength(1);
  });
});

test('what helps a program does not help in a chat: it is told what does', async () => {
  const says = async (status: number, code: string, message: string) => {
    const { talker } = await attach([refuse(status, code, message)]);
    return all(talker).catch(({ message, hint }) => `${message} | ${hint}`);
  };
  const room = 'the prompt has 70 tokens; the context of 64 leaves no room for an answer';
  for (const help of ['or use a larger --ctx', '; this model takes no larger context']) {
    expect(await says(400, 'context_length_exceeded', `${room}; shorten the prompt ${help}`)).toMatch(
      /^the server says: the prompt has 70 tokens; the context of 64 leaves no room for an answer \| .*:undo.*:reset$/,
    );
  }
  expect(await says(404, 'model_not_found', 'this server has no model "a"; ask for "b", or leave the model out')).toBe(
    'the server says: this server has no model "a" | to talk with another model, start a new chat',
  );
});

describe('a server that can answer later', () => {
  test('busy: said once, asked again after Retry-After, then answered', async () => {
    const { clock, slept } = testClock();
    const busy = refuse(429, 'queue_full', 'the queue is full', { 'retry-after': '7' });
    const { talker, asked } = await attach([busy, busy, good], { clock });
    const events = await all(talker);
    expect(notices(events)).toEqual(['the server says: the queue is full; asking again every 7 s, Ctrl-C gives up']);
    expect(texts(events)).toEqual(['yes']);
    expect(slept).toEqual([7000, 7000]);
    expect(new Set(asked().map(({ body }) => JSON.stringify(body))).size).toBe(1);
  });

  test('busy until the user gives up', async () => {
    const { clock } = testClock();
    const abort = new AbortController();
    const sleep: Clock['sleep'] = async (_, signal) => {
      abort.abort();
      signal.throwIfAborted();
    };
    const { talker, asked } = await attach([refuse(429, 'queue_full', 'full')], { clock: { ...clock, sleep } });
    expect(endOf(await all(talker, {}, abort.signal))).toMatchObject({ finish: 'cancelled', footer: 'stopped' });
    expect(asked()).toHaveLength(1);
  });

  test('loading again in the middle of a conversation', async () => {
    const { clock, slept } = testClock();
    const { talker, asked } = await attach([refuse(503, 'model_loading', 'still loading'), good], { clock });
    const events = await all(talker);
    expect(texts(events)).toEqual(['yes']);
    expect(notices(events)).toEqual([]);
    expect(asked()).toHaveLength(2);
    expect(slept).toEqual([]);
  });
});

describe('an answer that breaks off', () => {
  const half = server.role + server.text('half') + server.text(' a');
  const error = `data: ${JSON.stringify(server.errorBody('server_stopping', 'the server is stopping'))}\n\n`;
  const lose: AnswerScript = response => {
    server.beginStream(response);
    response.write(half, () => response.destroy());
  };

  test.each<[string, AnswerScript, RegExp]>([
    ['an error event', answer(half, error), /^the answer broke off: the server says: the server is stopping$/],
    ['a lost connection', lose, /^the answer broke off: the connection to http.* was lost/],
    ['an end without [DONE]', answer(half), /before the answer was complete$/],
    ['[DONE] without a reason', answer(half, server.DONE), /before the answer was complete$/],
    ['what is no JSON', answer(half, 'data: {"choices"\n\n'), /no JSON object$/],
  ])('%s: what came stays, and is said to', async (_, script, message) => {
    const { talker } = await attach([script]);
    const events = await all(talker);
    expect(texts(events)).toEqual(['half', ' a']);
    expect(endOf(events)).toMatchObject({
      finish: 'broken',
      footer: expect.stringMatching(/^broken off, first after/),
      error: { message: expect.stringMatching(message), hint: expect.stringContaining(':undo takes it back') },
    });
  });

  test('before its first letter it is an error like any other', async () => {
    const { talker } = await attach([
      answer(server.role, error),
      response => {
        server.beginStream(response);
        response.write(server.role, () => response.destroy());
      },
    ]);
    await expect(all(talker)).rejects.toMatchObject({ code: 'SERVER_STOPPING' });
    await expect(all(talker)).rejects.toMatchObject({ code: 'CONNECTION_LOST' });
  });
});

describe('the server stops working', () => {
  /** Sends a first piece and waits until the client has gone. */
  function endless() {
    const { promise: gone, resolve } = Promise.withResolvers<void>();
    const script: AnswerScript = response => {
      server.beginStream(response);
      response.write(server.role + server.text('first'));
      response.on('close', () => resolve());
    };
    return { gone, script };
  }

  test('when the user stops the answer: it stays as far as it came', async () => {
    const { gone, script } = endless();
    const { talker } = await attach([script]);
    const abort = new AbortController();
    const events: TalkEvent[] = [];
    for await (const event of talker.ask(HELLO, {}, abort.signal)) {
      events.push(event);
      if (event.type === 'text') abort.abort();
    }
    await gone;
    expect(texts(events)).toEqual(['first']);
    expect(endOf(events)).toMatchObject({
      finish: 'cancelled',
      footer: expect.stringMatching(/^stopped, first after/),
    });
  });

  test('when nobody reads the answer any more', async () => {
    const { gone, script } = endless();
    const { talker } = await attach([script]);
    for await (const event of talker.ask(HELLO, {}, new AbortController().signal)) if (event.type === 'text') break;
    await gone;
  });

  test('when the user stops before it has begun to answer', async () => {
    const abort = new AbortController();
    const { promise: gone, resolve } = Promise.withResolvers<void>();
    const { talker } = await attach([
      response => {
        response.on('close', () => resolve());
        abort.abort();
      },
    ]);
    expect(endOf(await all(talker, {}, abort.signal))).toMatchObject({ finish: 'cancelled', footer: 'stopped' });
    await gone;
  });
});
