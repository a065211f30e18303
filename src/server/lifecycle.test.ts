import http from 'node:http';
import net, { type AddressInfo } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { AdmissionQueue } from './admission.ts';
import { startServer } from './lifecycle.ts';
import { DEFAULT_SETTINGS } from './settings.ts';
import { ModelState } from './state.ts';
import { ask, echoDialect, type Run, testEngine, testRunner } from './test-support.ts';

const GRACE_MS = 60_000;

async function start(run: Run, change: object = {}) {
  const settings = { ...DEFAULT_SETTINGS, modelId: 'm', version: '0', port: 0, ...change };
  const queue = new AdmissionQueue({ ...settings, capacity: 1 });
  const state = new ModelState();
  state.ready(testEngine, testRunner(run));
  const others = () => [
    { pid: 4711, start: null, host: '', port: settings.port, token: '', model: 'other', graceMs: 0 },
  ];
  const server = await startServer({ settings, queue, state, token: null, dialects: [echoDialect], others });
  onTestFinished(() => server.stop(0));
  return { server, queue };
}

const nothing: Run = async function* () {};

/** Turns that begin, and end when the test says so. */
function heldTurns(turns: number) {
  const begun = Promise.withResolvers<void>();
  const go = Promise.withResolvers<void>();
  let missing = turns;
  const run: Run = async function* () {
    yield { type: 'accepted', promptTokens: 1 };
    if (--missing === 0) begun.resolve();
    await go.promise;
    yield { type: 'text', text: 'done' };
  };
  return { run, begun: begun.promise, finish: go.resolve };
}

test('a port in use is named, with its owner', async () => {
  const blocker = net.createServer().listen(0, '127.0.0.1');
  onTestFinished(() => void blocker.close());
  await new Promise(resolve => blocker.once('listening', resolve));
  const { port } = blocker.address() as AddressInfo;
  await expect(start(nothing, { port })).rejects.toMatchObject({
    code: 'PORT_IN_USE',
    message: `127.0.0.1:${port} is already in use, by the server with other (process 4711)`,
    hint: expect.stringContaining(`coli stop --port ${port}`),
  });
});

test.each(['192.0.2.1', 'no-such-host.invalid'])('an address that is not ours is named: %s', async host => {
  await expect(start(nothing, { host })).rejects.toMatchObject({
    code: 'CANNOT_LISTEN',
    message: expect.stringContaining(host),
  });
});

test('localhost is every loopback address that this machine has', async () => {
  const { server } = await start(nothing, { host: 'localhost' });
  expect(server.urls[0]).toBe(`http://127.0.0.1:${server.port}`);
  for (const url of server.urls) {
    const { hostname } = new URL(url);
    const status = await new Promise(resolve =>
      http.get({ host: hostname.replace(/[[\]]/g, ''), port: server.port, path: '/health', agent: false }, response => {
        response.resume();
        resolve(response.statusCode);
      }),
    );
    expect([url, status]).toEqual([url, 200]);
  }
});

test('a stop lets a running stream finish, and takes nothing new', async () => {
  const { run, begun, finish } = heldTurns(1);
  const { server } = await start(run);
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  onTestFinished(() => agent.destroy());
  const kept = net.connect(server.port, '127.0.0.1');
  await new Promise(resolve => kept.once('connect', resolve));
  // a connection that has begun a request, so that it is not idle
  kept.write('GET /v1/models HTTP/1.1\r\n');
  const streamed = ask(server.port, '/echo', { body: { stream: true, text: 'a' } });
  await begun;
  const stopped = server.stop(GRACE_MS);
  const refused = new Promise<string>(resolve => kept.once('data', piece => resolve(String(piece))));
  kept.write('host: localhost\r\n\r\n');
  expect(await refused).toMatch(/^HTTP\/1\.1 503 [\s\S]*connection: close[\s\S]*server_stopping/i);
  await expect(ask(server.port, '/health')).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  finish();
  expect((await streamed).text).toMatch(/"done"[\s\S]*\[DONE\]\n\n$/);
  await stopped;
});

test('when the grace has passed, streams end with an error event and whole answers with 503', async () => {
  const { run, begun } = heldTurns(2);
  const { server } = await start(run);
  const streamed = ask(server.port, '/echo', { body: { stream: true, text: 'a' } });
  const whole = ask(server.port, '/echo', { body: { text: 'a' } });
  await begun;
  await server.stop(0);
  expect((await streamed).text).toContain('"code":"server_stopping"');
  expect(await whole).toMatchObject({ status: 503, json: { error: { code: 'server_stopping' } } });
});

test('an idle server stops at once, with idle connections open', async () => {
  const { server } = await start(nothing);
  const agent = new http.Agent({ keepAlive: true });
  onTestFinished(() => agent.destroy());
  await new Promise(resolve =>
    http.get({ port: server.port, path: '/health', agent }, response => response.resume().once('end', resolve)),
  );
  await server.stop(GRACE_MS);
  await expect(ask(server.port, '/health')).rejects.toThrow();
});
