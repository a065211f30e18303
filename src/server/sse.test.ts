import http from 'node:http';
import { describe, expect, test } from 'vitest';
import { RequestError, StorageError } from '../common/errors.ts';
import { ask, type Run, startTestServer } from './test-support.ts';
import type { TurnEvent } from './turn.ts';

const accepted: TurnEvent = { type: 'accepted', promptTokens: 1 };
const text = (value: string): TurnEvent => ({ type: 'text', text: value });
const usage = { promptTokens: 1, cachedTokens: 0, completionTokens: 1, reasoningTokens: 0 };
const end: TurnEvent = { type: 'end', finish: 'stop', stopSequence: null, usage };

const stream = { stream: true, text: 'x' };

/** Rejects when the signal aborts. */
function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    if (signal.aborted) reject(signal.reason);
    signal.addEventListener('abort', () => reject(signal.reason));
  });
}

/** Opens a stream and hands over its pieces as they come. */
function openStream(port: number) {
  const response = Promise.withResolvers<http.IncomingMessage>();
  const request = http.request({ port, path: '/echo', method: 'POST', agent: false }, response.resolve);
  request.setHeader('content-type', 'application/json');
  request.on('error', response.reject);
  request.end(JSON.stringify(stream));
  return { response: response.promise, destroy: () => request.destroy() };
}

describe('streams', () => {
  test('frames in order, one end, headers that no proxy collects', async () => {
    const { port } = await startTestServer({
      run: async function* () {
        yield accepted;
        yield text('a\nb\r\u2028');
        yield end;
      },
    });
    const answer = await ask(port, '/echo', { body: stream });
    expect(answer.status).toBe(200);
    expect(answer.headers).toMatchObject({
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-cache, no-transform',
      'x-accel-buffering': 'no',
      'x-content-type-options': 'nosniff',
      'x-request-id': expect.stringMatching(/^req_/),
    });
    const lines = [accepted, text('a\nb\r\u2028'), end].map(event => `data: ${JSON.stringify(event)}\n\n`);
    expect(answer.text).toBe(`${lines.join('')}data: [DONE]\n\n`);
  });

  test('an error before the first frame is a status', async () => {
    const { port } = await startTestServer({
      run: () => {
        throw new RequestError('CONTEXT_EXCEEDED', 'too long', { hint: 'shorten it' });
      },
    });
    const { status, json } = await ask(port, '/echo', { body: stream });
    expect([status, json.error.code, json.error.message]).toEqual([
      400,
      'context_length_exceeded',
      'too long; shorten it',
    ]);
  });

  test.each(['QUEUE_FULL', 'QUEUE_TIMEOUT'])('%s is 429 with Retry-After', async code => {
    const { port } = await startTestServer({
      // biome-ignore lint/correctness/useYield: it never comes to that
      run: async function* () {
        await Promise.resolve();
        throw new RequestError(code, 'later');
      },
    });
    const { status, headers, json } = await ask(port, '/echo', { body: stream });
    expect([status, headers['retry-after'], json.error.type]).toEqual([429, '1', 'rate_limit_error']);
  });

  test('an error after it is an event, and nothing comes behind', async () => {
    const { port, log } = await startTestServer({
      run: async function* () {
        yield accepted;
        throw new StorageError('READ_FAILED', 'expert 7 cannot be read', { hint: 'check the disk' });
      },
    });
    const answer = await ask(port, '/echo', { body: stream });
    expect(answer.status).toBe(200);
    const frames = answer.text.trimEnd().split('\n\n');
    expect(frames).toHaveLength(2);
    expect(JSON.parse(frames[1].slice('data: '.length))).toMatchObject({
      error: { message: 'expert 7 cannot be read; check the disk', type: 'server_error', code: 'read_failed' },
    });
    expect(log.join('')).toContain('expert 7');
  });

  test('silence is filled with comments, unless they are turned off', async () => {
    const go = Promise.withResolvers<void>();
    const run: Run = async function* () {
      yield accepted;
      await go.promise;
      yield end;
    };
    const read = async (keepaliveComments: boolean) => {
      const { port } = await startTestServer({ change: { keepaliveMs: 5, keepaliveComments }, run });
      const body = await openStream(port).response;
      return { body, text: '' };
    };
    const [silent, talking] = await Promise.all([read(false), read(true)]);
    // the one with comments tells that as much time has passed for the other
    for await (const piece of talking.body) {
      talking.text += piece;
      if (talking.text.split(': keepalive\n\n').length > 3) go.resolve();
    }
    for await (const piece of silent.body) silent.text += piece;
    expect(talking.text).toContain(': keepalive\n\n');
    expect(silent.text).not.toContain(': keepalive');
    for (const { text } of [silent, talking]) expect(text).toMatch(/data: \[DONE\]\n\n$/);
  });

  test('headers come with the first frame, long before the second', async () => {
    const go = Promise.withResolvers<void>();
    const { port } = await startTestServer({
      run: async function* () {
        yield accepted;
        await go.promise;
        yield end;
      },
    });
    const { response } = openStream(port);
    expect((await response).statusCode).toBe(200);
    go.resolve();
    for await (const _ of await response);
  });

  test('a client that goes away aborts the turn, before the first frame and after it', async () => {
    for (const first of [false, true]) {
      const reason = Promise.withResolvers<unknown>();
      const running = Promise.withResolvers<void>();
      const run: Run = async function* (_, signal) {
        if (first) yield accepted;
        running.resolve();
        await aborted(signal).catch(reason.resolve);
        throw signal.reason;
      };
      const { port, log } = await startTestServer({ run });
      const client = openStream(port);
      client.response.catch(() => {});
      if (first) await client.response;
      await running.promise;
      client.destroy();
      expect(await reason.promise).toMatchObject({ code: 'CANCELLED' });
      expect((await ask(port, '/health')).status).toBe(200);
      const gone = log.filter(line => !line.includes('/health'));
      expect(gone.map(line => JSON.parse(line).level)).toEqual([20]);
    }
  });

  test('the same for an answer in one piece', async () => {
    const reason = Promise.withResolvers<unknown>();
    const running = Promise.withResolvers<void>();
    const { port } = await startTestServer({
      // biome-ignore lint/correctness/useYield: it never comes to that
      run: async function* (_, signal) {
        running.resolve();
        await aborted(signal).catch(reason.resolve);
        throw signal.reason;
      },
    });
    const request = http.request({ port, path: '/echo', method: 'POST', agent: false });
    request.on('error', () => {});
    request.setHeader('content-type', 'application/json');
    request.end('{"text":"x"}');
    await running.promise;
    request.destroy();
    expect(await reason.promise).toMatchObject({ code: 'CANCELLED' });
  });

  test('when the server ends its requests, streams get an error event at once, even from a turn that hears nothing', async () => {
    const { port, stop } = await startTestServer({
      run: async function* () {
        yield accepted;
        await new Promise(() => {});
      },
    });
    const { response } = openStream(port);
    const body = await response;
    stop.abort(new RequestError('SERVER_STOPPING', 'the server is stopping'));
    let text = '';
    for await (const piece of body) text += piece;
    expect(text).toContain('"code":"server_stopping"');
    expect(text).not.toContain('[DONE]');
  });

  test('a reader that stands still holds back its own stream only, and no byte is lost', async () => {
    const count = 400;
    const piece = 'y'.repeat(64 * 1024);
    let made = 0;
    const { port } = await startTestServer({
      run: async function* () {
        yield accepted;
        for (; made < count; made++) yield text(piece);
        yield end;
      },
    });
    const { response } = openStream(port);
    const body = await response;
    // the other client gets answers while this one reads nothing
    for (let i = 0; i < 20; i++) expect((await ask(port, '/health')).status).toBe(200);
    const ahead = made;
    expect(ahead).toBeLessThan(count);
    let bytes = 0;
    for await (const chunk of body) bytes += (chunk as Buffer).length;
    expect(made).toBe(count);
    expect(bytes).toBeGreaterThan(count * piece.length);
  });

  test('a reader that stands still for too long loses its stream, and the turn ends', async () => {
    const reason = Promise.withResolvers<unknown>();
    const { port } = await startTestServer({
      change: { stallMs: 20 },
      run: async function* (_, signal) {
        signal.addEventListener('abort', () => reason.resolve(signal.reason));
        for (;;) yield text('z'.repeat(64 * 1024));
      },
    });
    const { response } = openStream(port);
    const body = await response;
    body.on('error', () => {});
    expect(await reason.promise).toMatchObject({ code: 'READER_STALLED' });
  });
});
