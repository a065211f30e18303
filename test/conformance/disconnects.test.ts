/** Clients that wait, read slowly or go away, and disks that are slow or fail: over HTTP, against the real process. */

import { readFileSync } from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { beforeAll, describe, expect, test, vi } from 'vitest';
import { writeFlat } from '../fixtures/chain.ts';
import { writeTiny } from '../fixtures/tiny.ts';
import { fileDirectory, type Served, startServe } from '../support/serve.ts';
import { commentsOf, readEvents } from '../support/sse-reader.ts';
import { readChatStream, readMessageStream } from '../support/wire.ts';

const directory = fileDirectory();
const slowModel = path.join(directory, 'slow');
const fastModel = path.join(directory, 'fast');

/** Reads of experts take 50 ms more, and few experts fit: the prompt below takes more than ten seconds. */
const SLOW = {
  model: slowModel,
  args: ['--ctx', '2000', '--slots', '4', '--expert-slots', '2', '--prefetch', 'off'],
  env: { COLI_FAULT_READ: '130:slow' },
};
const PROMPT = Array.from({ length: 1950 }, (_, i) => 'abcdefghijklmnopqrstuvwxyz'[(i * i + 3 * i) % 26]).join('');
const CONTEXT = 6000;

let slow: Served;
let fast: Served;
let patience: ReturnType<typeof askPatiently>;

beforeAll(async () => {
  writeTiny(slowModel, { shape: { layers: 12, experts: 32 } });
  writeFlat(fastModel, { choices: ['é'], config: { max_position_embeddings: CONTEXT } });
  [slow, fast] = await Promise.all([
    startServe(SLOW),
    startServe({ model: fastModel, args: ['--ctx', String(CONTEXT), '--slots', '8', '--log-level', 'debug'] }),
  ]);
  patience = askPatiently();
  patience.catch(() => {});
});

const metric = async (server: Served, name: string) =>
  Number(new RegExp(`^${name} (\\S+)`, 'm').exec((await server.get('/metrics')).text)![1]);
const active = async (server: Served) => (await server.get('/health')).body.queue.active;
const idle = (server: Served) =>
  vi.waitFor(async () => expect(await active(server)).toBe(0), { timeout: 5000, interval: 50 });
const rssOf = ({ pid }: Served) =>
  Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))![1]) / 1024;
const chat = (more: object = {}) => ({ messages: [{ role: 'user' as const, content: 'x' }], ...more });

/** Four clients wait for the same long prompt while other tests run: it only sleeps. */
async function askPatiently() {
  const [server, silent] = await Promise.all([
    startServe(SLOW),
    startServe({ ...SLOW, args: [...SLOW.args, '--no-keepalive-comments'] }),
  ]);
  const messages = [{ role: 'user' as const, content: PROMPT }];
  const asked = { model: 'slow', messages, max_tokens: 1, temperature: 0 };
  const openai = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'x', maxRetries: 0 });
  const anthropic = new Anthropic({ baseURL: server.url, apiKey: 'x', maxRetries: 0 });
  const [told, quiet, pings, official, message, dawdler] = await Promise.all([
    server.post('/v1/chat/completions', { ...asked, stream: true }),
    silent.post('/v1/chat/completions', { ...asked, stream: true }),
    server.post('/v1/messages', { ...asked, stream: true }),
    openai.chat.completions.stream(asked).finalChatCompletion(),
    anthropic.messages.stream(asked).finalMessage(),
    sendHeadersSlowly(silent),
  ]);
  await Promise.all([server.stop(), silent.stop()]);
  return { told: told.text, quiet: quiet.text, pings: pings.text, official: official.choices[0], message, dawdler };
}

/** One byte each second; gives what the server says in the end. */
function sendHeadersSlowly({ port }: Served): Promise<string> {
  return new Promise(resolve => {
    let got = '';
    const socket = net.connect(port, '127.0.0.1');
    const timer = setInterval(() => socket.write('x'), 1000);
    socket.write('GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ');
    socket.setEncoding('utf8').on('data', data => {
      got += data;
    });
    socket.on('error', () => {});
    socket.on('close', () => {
      clearInterval(timer);
      resolve(got);
    });
  });
}

describe('a client that goes away', () => {
  /** Sends a request and gives the connection; `until`: what must have come before it resolves. */
  async function begin(server: Served, route: string, body: object, until: RegExp | null): Promise<net.Socket> {
    const text = JSON.stringify(body);
    const socket = net.connect(server.port, '127.0.0.1');
    socket.write(
      `POST ${route} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`,
    );
    let got = '';
    socket.setEncoding('utf8').on('error', () => {});
    if (until === null) return socket;
    await new Promise<void>(resolve => {
      socket.on('data', data => {
        got += data;
        if (until.test(got)) resolve();
      });
    });
    return socket;
  }

  test.each([
    ['chat, streamed', '/v1/chat/completions', { messages: [{ role: 'user', content: PROMPT }], stream: true }],
    [
      'messages, streamed',
      '/v1/messages',
      { messages: [{ role: 'user', content: PROMPT }], stream: true, max_tokens: 9 },
    ],
    ['completions, whole', '/v1/completions', { prompt: PROMPT, max_tokens: 9 }],
    ['responses, whole', '/v1/responses', { input: PROMPT }],
  ])('before the first token (%s): the work stops, and the next request starts', async (_, route, body) => {
    const before = await metric(slow, 'coli_engine_prompt_tokens_total');
    const socket = await begin(slow, route, body, 'stream' in body ? /200 OK/ : null);
    await vi.waitFor(async () => expect(await active(slow)).toBe(1), { timeout: 5000, interval: 20 });
    socket.destroy();
    await idle(slow);
    expect((await metric(slow, 'coli_engine_prompt_tokens_total')) - before).toBeLessThan(PROMPT.length);
    const next = await slow.post('/v1/completions', { prompt: `${route}!`, max_tokens: 1, temperature: 0 });
    expect(next.status).toBe(200);
  });

  test('while it waits in the queue: it leaves the queue', async () => {
    const sockets = await Promise.all(
      Array.from({ length: 6 }, () => begin(slow, '/v1/completions', { prompt: PROMPT, max_tokens: 9 }, null)),
    );
    const queued = async () => (await slow.get('/health')).body.queue.queued;
    await vi.waitFor(async () => expect(await queued()).toBe(2), { timeout: 5000, interval: 20 });
    for (const socket of sockets) socket.destroy();
    await idle(slow);
    expect(await queued()).toBe(0);
  });

  test('in the middle of its answer: the answer ends', async () => {
    const before = await metric(fast, 'coli_engine_decode_tokens_total');
    const socket = await begin(fast, '/v1/chat/completions', chat({ stream: true }), /é.*é.*é/s);
    socket.destroy();
    await idle(fast);
    expect((await metric(fast, 'coli_engine_decode_tokens_total')) - before).toBeLessThan(CONTEXT - 100);
  });

  test('two hundred of them at any time: no crash, no stack trace, one line each at most, memory comes back', async () => {
    const round = async (n: number) => {
      const bodies = Object.entries({
        '/v1/chat/completions': chat({ max_tokens: 50 }),
        '/v1/messages': chat({ max_tokens: 50 }),
        '/v1/completions': { prompt: 'x', max_tokens: 50 },
        '/v1/responses': { input: 'x', max_output_tokens: 50 },
      });
      for (let i = 0; i < n; i += 20) {
        await Promise.all(
          Array.from({ length: 20 }, async (_, j) => {
            const k = i + j;
            const [route, body] = bodies[k % 4];
            const socket = await begin(fast, route, { ...body, stream: k % 3 > 0 }, null);
            await new Promise(resolve => setTimeout(resolve, (k * 7) % 23));
            socket.destroy();
          }),
        );
      }
      await idle(fast);
    };
    await round(100);
    const rss = rssOf(fast);
    await round(200);
    expect(rssOf(fast) - rss).toBeLessThan(40);
    const requests = [...fast.stderr().matchAll(/"request":"(req_\w+)"/g)].map(match => match[1]);
    expect(requests.length).toBeGreaterThan(30);
    expect(new Set(requests).size).toBe(requests.length);
    expect(fast.stderr()).not.toMatch(/"level":50|\n {4}at |"stack"/);
    expect((await fast.post('/v1/chat/completions', chat({ max_tokens: 3 }))).body.choices[0].message.content).toBe(
      'ééé',
    );
  });
});

test('a client that does not read: its stream waits in bounded memory, others go on, and no byte is lost', async () => {
  const body = JSON.stringify(
    chat({ stream: true, logprobs: true, top_logprobs: 20, stream_options: { include_usage: true } }),
  );
  const before = rssOf(fast);
  const socket = net.connect(fast.port, '127.0.0.1');
  socket.write(
    `POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
  );
  socket.pause();
  let most = 0;
  const counts: number[] = [];
  for (let i = 0; i < 12; i++) {
    const other = await fast.post('/v1/chat/completions', chat({ max_tokens: 200 }));
    expect(other.body.choices[0].message.content).toHaveLength(200);
    counts.push(await metric(fast, 'coli_engine_decode_tokens_total'));
    most = Math.max(most, rssOf(fast));
  }
  expect(most - before).toBeLessThan(60);
  const parts: Buffer[] = [];
  await new Promise<void>(resolve => {
    socket.on('data', data => parts.push(data)).on('end', () => resolve());
    socket.resume();
  });
  const [head, ...rest] = Buffer.concat(parts).toString().split('\r\n\r\n');
  expect(head).toMatch(/transfer-encoding: chunked/i);
  const text = unchunked(rest.join('\r\n\r\n'));
  expect(text.length).toBeGreaterThan(5_000_000);
  const { content, usage, finish } = readChatStream(readEvents(text));
  expect(finish).toBe('length');
  expect(content).toBe('é'.repeat(usage!.completion_tokens));
  expect(usage?.total_tokens).toBe(CONTEXT);
});

/** The body of a chunked answer. */
function unchunked(text: string): string {
  const bytes = Buffer.from(text);
  const parts: Buffer[] = [];
  for (let at = 0; ; ) {
    const end = bytes.indexOf('\r\n', at);
    const size = Number.parseInt(bytes.toString('latin1', at, end), 16);
    if (size === 0) return Buffer.concat(parts).toString();
    parts.push(bytes.subarray(end + 2, end + 2 + size));
    at = end + 2 + size + 2;
  }
}

describe('a read that fails in the middle of an answer', () => {
  /** The prompt is read, some tokens are decoded, then a read of an expert fails. */
  const failing = async () => {
    const model = path.join(directory, 'failing');
    writeTiny(model, { shape: { layers: 2, experts: 8 } });
    return startServe({
      model,
      args: ['--ctx', '500', '--expert-slots', '2', '--prefetch', 'off'],
      env: { COLI_FAULT_READ: '60:eio' },
    });
  };
  const endless = { logit_bias: { 256: -100 }, temperature: 0 };
  const healthy = async (server: Served) => {
    const { status } = await server.post('/v1/completions', { prompt: 'x', max_tokens: 3, ...endless });
    expect(status).toBe(200);
    expect((await server.get('/health')).status).toBe(200);
    await server.stop();
  };

  test('chat: an error event behind the text, no [DONE], and the official client raises', async () => {
    const server = await failing();
    const { status, text } = await server.post('/v1/chat/completions', chat({ stream: true, ...endless }));
    expect(status).toBe(200);
    const events = readEvents(text);
    expect(events.length).toBeGreaterThan(3);
    expect(text).not.toContain('[DONE]');
    expect(events.at(-1)!.json.error).toMatchObject({ type: 'server_error', message: expect.any(String) });
    expect(Object.keys(events.at(-1)!.json)).toEqual(['error']);
    await healthy(server);

    const other = await failing();
    const openai = new OpenAI({ baseURL: `${other.url}/v1`, apiKey: 'x', maxRetries: 0 });
    const stream = await openai.chat.completions.create({ ...chat(), model: 'failing', stream: true, ...endless });
    const read = (async () => {
      for await (const _ of stream);
    })();
    await expect(read).rejects.toThrow(/read/i);
    await healthy(other);
  });

  test('messages: an error event, and the official client raises', async () => {
    const server = await failing();
    const anthropic = new Anthropic({ baseURL: server.url, apiKey: 'x', maxRetries: 0 });
    const stream = anthropic.messages.stream({ ...chat(), model: 'failing', max_tokens: 400, ...endless } as never);
    await expect(stream.finalMessage()).rejects.toThrow(/read/i);
    await healthy(server);
  });

  test('responses: response.failed with what there is, then the error', async () => {
    const server = await failing();
    const { text } = await server.post('/v1/responses', { input: 'x', stream: true, ...endless });
    const [failed, error] = readEvents(text).slice(-2);
    expect(failed.json.response).toMatchObject({
      status: 'failed',
      output: [{ type: 'message', status: 'incomplete' }],
    });
    expect(error.event).toBe('error');
    expect(text).not.toContain('[DONE]');
    await healthy(server);
  });

  test('an answer in one piece: a 5xx that says what failed', async () => {
    const server = await failing();
    const { status, body } = await server.post('/v1/chat/completions', chat(endless));
    expect(status).toBe(500);
    expect(body.error).toMatchObject({ type: 'server_error', message: expect.stringMatching(/read/i) });
    await healthy(server);
  });
});

test('a prompt that takes long: comments keep the stream alive, and official clients are not disturbed', async () => {
  const { told, quiet, pings, official, message } = await patience;
  expect(commentsOf(told).length).toBeGreaterThan(0);
  expect(commentsOf(quiet)).toEqual([]);
  const { content, finish } = readChatStream(readEvents(told));
  expect(finish).toBe('length');
  expect(readChatStream(readEvents(quiet)).content).toBe(content);
  expect(official).toMatchObject({ finish_reason: 'length', message: { content } });
  expect(message.stop_reason).toBe('max_tokens');
  const events = readEvents(pings);
  readMessageStream(events);
  expect(events.filter(({ event }) => event === 'ping').length).toBeGreaterThan(1);
});

test('a client that sends its headers a byte at a time is told to go', async () => {
  const { dawdler } = await patience;
  expect(dawdler).toMatch(/^HTTP\/1\.1 408 /);
  expect(JSON.parse(dawdler.split('\r\n\r\n')[1]).error.code).toBe('request_timeout');
});
