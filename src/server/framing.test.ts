import net from 'node:net';
import { describe, expect, test } from 'vitest';
import { HTTP_LIMITS } from './http-server.ts';
import { ask, rawExchange, startTestServer } from './test-support.ts';

const statuses = (text: string) => [...text.matchAll(/HTTP\/1\.1 (\d+) /g)].map(([, status]) => Number(status));
const post = (body: string, length: number | string = Buffer.byteLength(body), more = '') =>
  `POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: ${length}\r\n${more}\r\n${body}`;
const get = (path: string) => `GET ${path} HTTP/1.1\r\nhost: localhost\r\n\r\n`;
const close = 'connection: close\r\n';

describe('framing', () => {
  test('one byte at a time is a request like any other', async () => {
    const { port } = await startTestServer();
    const text = await rawExchange(port, [...post('{"content":"ab"}', undefined, close)], false);
    expect(statuses(text)).toEqual([200]);
    expect(text).toContain('{"tokens":[97,98]}');
  });

  test('pipelined requests are answered in order, and a kept-alive body is not the next request', async () => {
    const { port } = await startTestServer();
    const hidden = get('/props');
    const text = await rawExchange(
      port,
      [get('/nope') + post('{"content":"a"}') + post(hidden) + post('{"content":"b"}', undefined, close)],
      false,
    );
    // a body that is no JSON ends the connection: nobody knows what comes behind it
    expect(statuses(text).slice(0, 3)).toEqual([404, 200, 400]);
    expect(text).not.toContain('n_ctx');
  });

  test('a body shorter than announced waits for its time, not for ever', async () => {
    const limits = { ...HTTP_LIMITS, headersTimeoutMs: 50, requestTimeoutMs: 50, checkMs: 10 };
    const { port } = await startTestServer({ limits });
    const text = await rawExchange(port, [post('{"content":"ab"}', 500)], false);
    expect(statuses(text)).toEqual([408]);
    expect(text).toContain('"code":"request_timeout"');
  });

  test('headers that never end, and connections that say nothing, are cut', async () => {
    const limits = { ...HTTP_LIMITS, headersTimeoutMs: 50, requestTimeoutMs: 100, checkMs: 10 };
    const { port } = await startTestServer({ limits });
    const slow = await rawExchange(port, ['GET / HTTP/1.1\r\nhost: localhost\r\nx-a: '], false);
    expect(statuses(slow)).toEqual([408]);
    expect(statuses(await rawExchange(port, [], false))).toEqual([408]);
  });

  test('a body longer than announced is not read as a request', async () => {
    const { port } = await startTestServer();
    const text = await rawExchange(port, [post('{"content":"ab"}GARBAGE', 16)], false);
    // the rest may be seen before the answer is ready, which is then lost with the connection
    expect([[400], [200, 400]]).toContainEqual(statuses(text));
  });

  test('half a body and then the end', async () => {
    const { port } = await startTestServer();
    const text = await rawExchange(port, [post('{"content":', 100)], true);
    expect(statuses(text).every(status => status === 400)).toBe(true);
    expect((await ask(port, '/health')).status).toBe(200);
  });

  test('a client that closes its half still gets its answer', async () => {
    const { port } = await startTestServer();
    const text = await rawExchange(port, [post('{"content":"ab"}', undefined, close)], true);
    expect(statuses(text)).toEqual([200]);
  });

  test.each([
    ['no HTTP', 'hello\r\n\r\n', 400],
    ['TLS', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03', 400],
    ['no host', 'GET /health HTTP/1.1\r\n\r\n', 403],
    ['HTTP/1.0 without a host', 'GET /v1/models HTTP/1.0\r\n\r\n', 403],
    ['two lengths', post('{}', '2\r\ncontent-length: 3'), 400],
    ['a negative length', post('{}', -1), 400],
    ['a length that is no number', post('{}', 'x'), 400],
    ['length and chunks', post('{}', 2, 'transfer-encoding: chunked\r\n'), 400],
    ['bad chunks', post('zz\r\n', 0).replace('content-length: 0', 'transfer-encoding: chunked'), 400],
    ['a space in a header name', 'GET / HTTP/1.1\r\nhost : localhost\r\n\r\n', 400],
    ['huge headers', `GET / HTTP/1.1\r\nhost: localhost\r\nx: ${'a'.repeat(20_000)}\r\n\r\n`, 431],
    ['a huge URL', `GET /${'a'.repeat(20_000)} HTTP/1.1\r\nhost: localhost\r\n\r\n`, 431],
    ['a gigabyte announced', post('{}', 2 ** 30), 413],
  ])('%s', async (_, request, status) => {
    const { port } = await startTestServer();
    const text = await rawExchange(port, [request], false);
    expect(statuses(text)[0]).toBe(status);
    expect(text).toMatch(/\r\nx-request-id: req_/i);
    expect(text).toContain('"error":{');
    expect((await ask(port, '/health')).status).toBe(200);
  });

  test('chunks without an end are cut at the size of a body', async () => {
    const { port } = await startTestServer();
    const head = post('', 0).replace('content-length: 0', 'transfer-encoding: chunked');
    const chunk = `${(65536).toString(16)}\r\n${'a'.repeat(65536)}\r\n`;
    const text = await rawExchange(port, [head, ...Array<string>(100).fill(chunk)], false);
    expect(statuses(text)).toEqual([413]);
  });

  test('one address has so many connections and no more; a closed one makes room', async () => {
    const { port } = await startTestServer({ limits: { ...HTTP_LIMITS, connectionsPerAddress: 2 } });
    const held = [net.connect(port, '127.0.0.1'), net.connect(port, '127.0.0.1')];
    await Promise.all(held.map(socket => new Promise(resolve => socket.once('connect', resolve))));
    const refused = await rawExchange(port, [get('/health')], false);
    expect(statuses(refused)).toEqual([429]);
    expect(refused).toContain('too_many_connections');
    const closed = new Promise(resolve => held[0].once('close', resolve));
    held[0].end();
    await closed;
    expect((await ask(port, '/health')).status).toBe(200);
    held[1].destroy();
  });

  test('fifty broken connections are at most one debug line each', async () => {
    const { port, log } = await startTestServer();
    for (let i = 0; i < 50; i++) {
      const socket = net.connect(port, '127.0.0.1');
      socket.on('error', () => {});
      await new Promise<void>(resolve => socket.write(post('{"content":', 100), () => resolve()));
      const closed = new Promise(resolve => socket.once('close', resolve));
      socket.resetAndDestroy();
      await closed;
    }
    expect((await ask(port, '/health')).status).toBe(200);
    const lines = log.filter(line => !line.includes('/health')).map(line => JSON.parse(line));
    expect(lines.length).toBeLessThanOrEqual(50);
    expect(lines.every(({ level, err }) => level === 20 && err === undefined)).toBe(true);
  });
});
