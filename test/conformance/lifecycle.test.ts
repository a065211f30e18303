/** Starting, stopping and dying: ports, signals, health, and what is left behind. */

import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { beforeAll, describe, expect, test, vi } from 'vitest';
import { writeFlat } from '../fixtures/chain.ts';
import { writeTiny } from '../fixtures/tiny.ts';
import { fileDirectory, type Served, type ServeOptions, startServe } from '../support/serve.ts';
import { readEvents } from '../support/sse-reader.ts';
import { readChatStream } from '../support/wire.ts';

const directory = fileDirectory();
const endless = path.join(directory, 'endless');
const slow = path.join(directory, 'slow');
const runtime = path.join(directory, 'run');
const CONTEXT = 3000;
const PROMPT = Array.from({ length: 900 }, (_, i) => 'abcdefghijklmnopqrstuvwxyz'[(i * i + 3 * i) % 26]).join('');

beforeAll(() => {
  writeFlat(endless, { choices: ['z'] });
  writeTiny(slow, { shape: { layers: 12, experts: 32 } });
  spawnSync('mkdir', ['-p', '-m', '700', runtime]);
});

const start = (...args: string[]) =>
  startServe({ model: endless, args: ['--ctx', String(CONTEXT), ...args], env: { XDG_RUNTIME_DIR: runtime } });
/** Weights that stay in memory are read first, then experts: these reads are slow, so that a prompt takes seconds. */
const FIRST_EXPERTS = 130;
const startSlow = (...args: string[]) =>
  startServe({
    model: slow,
    args: ['--ctx', '1000', '--expert-slots', '2', '--prefetch', 'off', ...args],
    env: { COLI_FAULT_READ: `${FIRST_EXPERTS}:slow` },
  });

/** Loading takes seconds. */
const SLOW_TO_LOAD = { model: slow, env: { COLI_FAULT_READ: '1:slow' } };

const coli = (...args: string[]) =>
  spawnSync(process.execPath, ['bin/coli.js', ...args], {
    encoding: 'utf8',
    env: { ...process.env, XDG_RUNTIME_DIR: runtime, NO_COLOR: '1' },
    timeout: 20_000,
  });
const runtimeFiles = () => readdirSync(path.join(runtime, 'colibri'));
const chat = (more: object = {}) => ({ messages: [{ role: 'user', content: 'x' }], ...more });
const isFree = (port: number) =>
  new Promise<boolean>(resolve => {
    const socket = net.connect(port, '127.0.0.1', () => {
      socket.destroy();
      resolve(false);
    });
    socket.on('error', () => resolve(true));
  });

/** A stream that has begun; `text` is all of it once it has ended. */
async function begin(server: Served, body: object): Promise<{ response: Response; text: Promise<string> }> {
  const headers = { 'content-type': 'application/json' };
  const init = { method: 'POST', headers, body: JSON.stringify(body) };
  const response = await fetch(`${server.url}/v1/chat/completions`, init);
  expect(response.status).toBe(200);
  return { response, text: response.text() };
}

describe('a port that is taken', () => {
  test('by another server: refused before loading, naming address, model and process', async () => {
    const server = await start();
    const { status, stderr } = coli('serve', '--model', endless, '--port', String(server.port));
    expect(status).toBe(1);
    expect(stderr).toContain(`127.0.0.1:${server.port} is already in use`);
    expect(stderr).toContain(`process ${server.pid}`);
    expect(stderr).not.toMatch(/Ready|EADDRINUSE|\n {4}at /);
    // the first one is not disturbed
    expect((await server.get('/health')).status).toBe(200);
    await server.stop();
  });

  test('by another program: refused as well', async () => {
    const other = net.createServer().listen(0, '127.0.0.1');
    await new Promise(resolve => other.once('listening', resolve));
    const { port } = other.address() as net.AddressInfo;
    const { status, stderr } = coli('serve', '--model', endless, '--port', String(port));
    other.close();
    expect(status).toBe(1);
    expect(stderr).toContain(`127.0.0.1:${port} is already in use`);
    expect(stderr).toContain('--port');
  });

  test('an address that this machine does not have', () => {
    const { status, stderr } = coli('serve', '--model', endless, '--host', '203.0.113.9', '--insecure', '--port', '0');
    expect(status).toBe(1);
    expect(stderr).toContain('203.0.113.9');
    expect(stderr).not.toMatch(/\n {4}at /);
  });
});

test('a model that cannot be loaded: the program ends with the reason, and leaves the port', () => {
  const { status, stderr } = coli('serve', '--model', directory, '--port', '0');
  expect(status).toBe(1);
  expect(stderr).toMatch(/config\.json/);
  expect(stderr).not.toMatch(/\n {4}at /);
  expect(runtimeFiles()).toEqual([]);
});

describe('stopping one of two', () => {
  test('only that one ends', async () => {
    const [one, two] = await Promise.all([start(), start()]);
    expect(runtimeFiles().sort()).toEqual([`${one.pid}.json`, `${two.pid}.json`].sort());
    const unclear = coli('stop');
    expect(unclear.status).toBe(2);
    for (const { port } of [one, two]) expect(unclear.stderr).toContain(String(port));
    expect(coli('stop', '--port', String(one.port)).status).toBe(0);
    expect(await one.exited).toEqual({ code: 0, signal: null });
    expect((await two.post('/v1/chat/completions', chat({ max_tokens: 2 }))).body.choices[0].message.content).toBe(
      'zz',
    );
    expect(runtimeFiles()).toEqual([`${two.pid}.json`]);
    expect(coli('stop').status).toBe(0);
    expect(await two.exited).toEqual({ code: 0, signal: null });
    expect(runtimeFiles()).toEqual([]);
    expect(coli('stop').status).toBe(1);
  });

  test('a server that was killed leaves a file that fools nobody', async () => {
    const server = await start();
    server.kill('SIGKILL');
    expect(await server.exited).toEqual({ code: null, signal: 'SIGKILL' });
    const { status, stderr } = coli('stop', '--port', String(server.port));
    expect(status).toBe(1);
    expect(stderr).toMatch(/no server/);
    expect(await isFree(server.port)).toBe(true);
  });
});

describe('signals', () => {
  test.each(['SIGTERM', 'SIGINT'] as const)('%s when idle: it ends with code 0, and the port is free', async signal => {
    const server = await start();
    // an open connection without a request does not hold it up
    const idle = net.connect(server.port, '127.0.0.1');
    await new Promise<void>(resolve => idle.once('connect', () => resolve()));
    server.kill(signal);
    expect(await server.exited).toEqual({ code: 0, signal: null });
    idle.destroy();
    expect(await isFree(server.port)).toBe(true);
    expect(existsSync(path.join(runtime, 'colibri', `${server.pid}.json`))).toBe(false);
  });

  test('SIGTERM during an answer: it is finished, new requests are refused, then the program ends', async () => {
    const server = await start();
    const { text } = await begin(server, chat({ stream: true }));
    // a connection from before, because no new one is taken
    const agent = net.connect(server.port, '127.0.0.1');
    const heard: string[] = [];
    agent.setEncoding('utf8').on('data', data => heard.push(String(data)));
    await new Promise<void>(resolve => agent.once('connect', () => resolve()));
    server.kill('SIGTERM');
    await vi.waitFor(() => expect(server.stderr()).toContain('Stopping'), { timeout: 5000, interval: 5 });
    agent.write('GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n');
    const { content, finish, usage } = { ...readChatStream(readEvents(await text)) };
    expect([finish, content.length, usage]).toEqual(['length', CONTEXT - 4, null]);
    expect(await server.exited).toEqual({ code: 0, signal: null });
    expect(heard.join('')).toMatch(/^(HTTP\/1\.1 503[\s\S]*"stopping"[\s\S]*)?$/);
  });

  test('SIGTERM while a prompt is read, longer than the grace: an error event, and code 0', async () => {
    const server = await startSlow('--grace', '0.5', '--slots', '1');
    const body = { messages: [{ role: 'user', content: PROMPT }], stream: true };
    const { text } = await begin(server, body);
    const waiting = server.post('/v1/chat/completions', { ...body, stream: false });
    await vi.waitFor(async () => expect((await server.get('/health')).body.queue.queued).toBe(1), { interval: 20 });
    server.kill('SIGTERM');
    const refused = await waiting;
    expect([refused.status, refused.body.error.code]).toEqual([503, 'server_stopping']);
    const events = readEvents(await text);
    expect(events.at(-1)!.json.error).toMatchObject({ code: 'server_stopping' });
    expect(events.map(({ data }) => data)).not.toContain('[DONE]');
    expect(await server.exited).toEqual({ code: 0, signal: null });
  });

  test('SIGTERM during an answer, longer than the grace: an error event in the words of each API', async () => {
    const server = await startSlow('--grace', '0.3', '--slots', '2');
    const bodies = {
      '/v1/messages': { max_tokens: 100, stream: true, ...chat() },
      '/v1/responses': { input: 'x', stream: true },
    };
    const [message, response] = Object.entries(bodies).map(([route, body]) => server.post(route, body));
    await vi.waitFor(
      async () => {
        const { text } = await server.get('/metrics');
        expect(Number(/^coli_engine_decode_tokens_total (\d+)/m.exec(text)![1])).toBeGreaterThan(0);
      },
      { timeout: 10_000, interval: 50 },
    );
    server.kill('SIGTERM');
    expect(readEvents((await message).text).at(-1)).toMatchObject({ event: 'error' });
    const [failed, error] = readEvents((await response).text).slice(-2);
    expect([failed.event, error.event]).toEqual(['response.failed', 'error']);
    expect(await server.exited).toEqual({ code: 0, signal: null });
  });

  test.each([
    ['SIGINT', 130],
    ['SIGTERM', 143],
  ] as const)('%s twice ends it at once, with code %i', async (signal, code) => {
    const server = await startSlow();
    const { text } = await begin(server, { messages: [{ role: 'user', content: PROMPT }], stream: true });
    const broken = text.catch(() => 'broken');
    server.kill(signal);
    await vi.waitFor(() => expect(server.stderr()).toContain('Stopping'), { timeout: 5000, interval: 5 });
    // two signals in a moment are one press that reached both launcher and program
    await sleep(600);
    server.kill(signal);
    expect(await server.exited).toEqual({ code, signal: null });
    await broken;
    expect(await isFree(server.port)).toBe(true);
  });

  test('SIGTERM while the model is loaded', async () => {
    const server = await startServe({ ...SLOW_TO_LOAD, early: true });
    expect((await server.get('/health')).body.status).toBe('loading');
    server.kill('SIGTERM');
    expect(await server.exited).toEqual({ code: 0, signal: null });
  });
});

/** A Node older than the program needs, which therefore starts a second process. */
const oldNode = ['/usr/bin/node', '/usr/local/bin/node'].find(file => {
  if (!existsSync(file)) return false;
  const major = Number(/^v(\d+)/.exec(spawnSync(file, ['--version'], { encoding: 'utf8' }).stdout)?.[1]);
  return major >= 20 && major < 24;
});

describe(`started through an old Node${oldNode ? '' : ' (none on this machine: skipped)'}`, () => {
  const options: ServeOptions = { model: endless, args: ['--ctx', '500'], node: oldNode };

  test.runIf(oldNode)('SIGTERM reaches the server, and its code comes back', async () => {
    const server = await startServe(options);
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    expect(await isFree(server.port)).toBe(true);
  });

  test.runIf(oldNode)('the launcher killed by force leaves nothing behind: no process, no port', async () => {
    const server = await startServe(options);
    server.kill('SIGKILL');
    await server.exited;
    await vi.waitFor(async () => expect(await isFree(server.port)).toBe(true), { timeout: 5000, interval: 50 });
  });
});

describe('health', () => {
  test('a reader that dies: the request that needed it fails with the reason, and the server works on', async () => {
    const server = await startServe({
      model: slow,
      args: ['--ctx', '1000', '--expert-slots', '2', '--prefetch', 'off'],
      env: { COLI_FAULT_READ: `${FIRST_EXPERTS + 20}:exit` },
    });
    const { status, body } = await server.post('/v1/chat/completions', chat({ max_tokens: 20 }));
    expect([status, body.error.code]).toEqual([500, 'reader_died']);
    expect(body.error.message).toMatch(/layer \d+ expert \d+/);
    expect((await server.get('/health')).status).toBe(200);
    expect((await server.post('/v1/chat/completions', chat({ max_tokens: 2 }))).status).toBe(200);
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  });

  test('while the model is loaded requests are told to wait, and how far it is', async () => {
    const server = await startServe({ ...SLOW_TO_LOAD, early: true });
    const health = await server.get('/health');
    expect([health.status, health.body.status]).toEqual([503, 'loading']);
    expect(health.body.progress).toMatchObject({ done_bytes: expect.any(Number), total_bytes: expect.any(Number) });
    const bodies = {
      '/v1/chat/completions': chat(),
      '/v1/messages': { ...chat(), max_tokens: 1 },
      '/v1/responses': { input: 'x' },
      '/v1/completions': { prompt: 'x' },
      '/tokenize': { content: 'x' },
    };
    for (const [route, body] of Object.entries(bodies)) {
      const { status, headers, text } = await server.post(route, body);
      expect([status, headers.get('retry-after')], text).toEqual([503, '1']);
    }
    expect((await server.get('/v1/models')).status).toBe(503);
    await vi.waitFor(async () => expect((await server.get('/health')).status).toBe(200), {
      timeout: 20_000,
      interval: 50,
    });
    await server.stop();
  });
});
