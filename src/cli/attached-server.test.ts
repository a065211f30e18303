import { describe, expect, test } from 'vitest';
import {
  describeItself,
  errorBody,
  type Handler,
  MODEL,
  PROPS,
  sendJson,
  startScriptedServer,
} from '../../test/support/scripted-server.ts';
import { attachedBanner } from './attached-report.ts';
import { type AttachedServer, whenReady } from './attached-server.ts';
import { ServerClient } from './server-client.ts';

/** Attaches; a second passes with every sleep. */
async function attach(handler: Handler) {
  const { base, requests } = await startScriptedServer(handler);
  let ms = 0;
  const slept: number[] = [];
  const clock = {
    now: () => ms,
    sleep: async (sleepMs: number) => {
      slept.push(sleepMs);
      ms += 1000;
    },
  };
  const looks = whenReady(new ServerClient({ base, key: null, others: [] }), new AbortController().signal, clock);
  const progress: string[] = [];
  for (;;) {
    const { done, value } = await looks.next();
    if (done) return { server: value, progress, slept, base, paths: requests.map(({ path }) => path) };
    progress.push(`${value.label} ${value.amount(value.done, value.total)}, ${value.etaMs}`);
  }
}

const answering =
  (model: object, props: object = PROPS): Handler =>
  ({ path }, response) =>
    sendJson(response, 200, path === '/props' ? props : { object: 'list', data: [model] });

test('what the server says about itself', async () => {
  const { server, paths } = await attach(describeItself as Handler);
  expect(paths).toEqual(['/v1/models', '/props']);
  expect(server).toEqual({
    model: 'nano',
    family: 'olmoe',
    parameters: 32e6,
    context: 64,
    version: '1.2.3',
    kernels: 'reference',
    activations: 'int8',
    kv: 'f32',
    fingerprint: 'fp_one',
    temperature: 0.2,
    topP: 0.9,
  });
});

describe('while it loads', () => {
  /** Answers of /health, then the model is there. */
  function loading(...answers: object[]): Handler {
    return (request, response) => {
      if (request.path === '/health') sendJson(response, 503, answers.shift());
      else if (answers.length === 0) describeItself(request, response);
      else sendJson(response, 503, errorBody('model_loading', 'still loading'), { 'retry-after': '2' });
    };
  }
  const at = (phase: string, done_bytes: number, total_bytes: number) => ({
    status: 'loading',
    progress: { phase, done_bytes, total_bytes },
  });

  test('it tells how far it is, and what remains from the speed since the first look', async () => {
    const steps = [at('open', 0, 0), at('load', 400, 1000), at('load', 600, 1000), at('load', 900, 1000)];
    const { server, progress, slept } = await attach(loading(...steps));
    expect(progress).toEqual([
      'waiting for the server, null',
      'the server loads (load): 400 B of 1.00 kB, null',
      'the server loads (load): 600 B of 1.00 kB, 2000',
      'the server loads (load): 900 B of 1.00 kB, 400',
    ]);
    expect(slept).toEqual([2000, 2000, 2000, 2000]);
    expect(server.model).toBe('nano');
  });

  test('without numbers too: they are for those with the key', async () => {
    expect((await attach(loading({ status: 'loading' }))).progress).toEqual(['waiting for the server, null']);
  });
});

describe('what cannot be talked with', () => {
  test.each<[string, Handler]>([
    ['a file server', (_, response) => response.writeHead(404).end('nothing here')],
    ['an empty page', (_, response) => response.writeHead(200).end()],
    ['a model of another program', answering({ ...MODEL, owned_by: 'somebody' })],
    ['an empty list', (_, response) => sendJson(response, 200, { data: [] })],
    ['a model without a name', answering({ ...MODEL, id: 7 })],
    ['a context that is no number', answering({ ...MODEL, context_length: 'long' })],
    ['settings that are none', answering(MODEL, {})],
    ['an answer larger than any', (_, response) => response.end(`"${'x'.repeat(5 * 1024 ** 2)}"`)],
  ])('%s is no colibri server', async (_, handler) => {
    await expect(attach(handler)).rejects.toMatchObject({
      code: 'NOT_COLIBRI',
      message: expect.stringMatching(/^what answers at http:\/\/127\.0\.0\.1:\d+ is not a colibri server \(/),
    });
  });

  test('a model without a chat template', async () => {
    await expect(attach(answering({ ...MODEL, chat: false }))).rejects.toMatchObject({ code: 'NO_CHAT_TEMPLATE' });
  });

  test('a model that could not be loaded, in the words of the server', async () => {
    const failed: Handler = (_, response) => sendJson(response, 503, errorBody('model_failed', 'too large'));
    await expect(attach(failed)).rejects.toMatchObject({ code: 'MODEL_FAILED', message: 'the server says: too large' });
  });

  test('a server that asks for a key', async () => {
    const locked: Handler = (_, response) => sendJson(response, 401, errorBody('invalid_api_key', 'no'));
    await expect(attach(locked)).rejects.toMatchObject({ code: 'INVALID_API_KEY' });
  });
});

test('the first lines name the server, and what changes numbers', () => {
  const server: AttachedServer = {
    model: 'nano',
    family: 'olmoe',
    parameters: 32e6,
    context: 64,
    version: '1.2.3',
    kernels: 'reference',
    activations: 'int8',
    kv: 'f32',
    fingerprint: 'fp_one',
    temperature: 0.2,
    topP: 0.9,
  };
  expect(attachedBanner('1.2.3', 'http://x', server)).toEqual([
    'colibri 1.2.3, attached to http://x: nano (olmoe, 32.0 million parameters)',
    'context 64 tokens; :help lists the commands',
  ]);
  const other = attachedBanner('1.0.0', 'http://x', { ...server, activations: 'exact', kv: 'bf16' });
  expect(other[0]).toContain('attached to http://x (colibri 1.2.3): nano');
  expect(other[1]).toContain('64 tokens, exact activations;');
  expect(other[2]).toMatch(/bf16, which changes the numbers/);
});
