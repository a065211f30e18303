/** Who is answered, and what a hostile client can do: raw sockets against the real process. */

import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { writeScripts } from '../fixtures/scripts.ts';
import { raw, request, sendEndlessly } from '../support/raw-http.ts';
import { fileDirectory, type Served, startServe } from '../support/serve.ts';

const directory = fileDirectory();
const model = path.join(directory, 'model');
const KEY = 'secret-key-123';
const ORIGIN = 'http://app.example:5173';
let open: Served;
let locked: Served;

beforeAll(async () => {
  writeScripts(model, { scripts: { hi: 'Hello!' } });
  const args = ['--ctx', '2000'];
  [open, locked] = await Promise.all([
    startServe({ model, args }),
    startServe({
      model,
      args: [...args, '--cors-origin', ORIGIN, '--allowed-host', 'box.example'],
      env: { COLI_API_KEY: KEY },
    }),
  ]);
});

const ROUTES = [
  ...['GET /health', 'GET /v1/models', 'GET /props', 'GET /metrics', 'GET /openapi.json', 'GET /nowhere'],
  ...[
    'POST /v1/chat/completions',
    'POST /v1/messages',
    'POST /v1/responses',
    'POST /v1/completions',
    'OPTIONS /v1/models',
  ],
];

describe('names of the server', () => {
  test.each(ROUTES)('%s: a foreign host is refused, and told what would help', async line => {
    for (const Host of ['evil.example', 'evil.example:80', 'localhost.evil.example', '127.0.0.1.evil.example', '']) {
      const { status, body } = await raw(open, request(line, { Host }));
      expect(status, Host).toBe(403);
      const { error } = JSON.parse(body);
      expect(error.message).toContain('--allowed-host');
      expect(error.message).toContain(Host);
    }
  });

  test.each(['localhost', 'LOCALHOST', 'localhost:8080', '127.0.0.1', '127.0.0.1:1', '[::1]', '[::1]:8080'])(
    '%s passes',
    async Host => {
      expect((await raw(open, request('GET /v1/models', { Host }))).status).toBe(200);
    },
  );

  test('no host, two hosts, a host with a path', async () => {
    expect((await raw(open, 'GET /v1/models HTTP/1.1\r\nConnection: close\r\n\r\n')).status).toBe(403);
    const two = 'GET /v1/models HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n';
    expect((await raw(open, two)).status).toBeGreaterThanOrEqual(400);
    expect((await raw(open, request('GET /v1/models', { Host: 'localhost/evil.example' }))).status).toBe(403);
    expect((await raw(open, request('GET http://evil.example/v1/models', { Host: 'evil.example' }))).status).toBe(403);
  });

  test('an allowed name passes with any port, others still do not', async () => {
    const ask = (Host: string) => raw(locked, request('GET /v1/models', { Host, Authorization: `Bearer ${KEY}` }));
    expect((await ask('box.example')).status).toBe(200);
    expect((await ask('BOX.example:444')).status).toBe(200);
    expect((await ask('x.box.example')).status).toBe(403);
  });
});

describe('paths', () => {
  test.each([
    '/x/../v1/models',
    '//v1/models',
    '/v1//models',
    '/v1/models/../../health',
    '/v1%2fmodels',
    '/%76%31/models',
    '/./v1/models',
  ])(
    '%s: a foreign host is refused before the path is looked at; with a good one there is an answer in JSON',
    async route => {
      expect((await raw(open, request(`GET ${route}`, { Host: 'evil.example' }))).status).toBe(403);
      const unlocked = await raw(open, request(`GET ${route}`));
      expect([200, 400, 404]).toContain(unlocked.status);
      expect(() => JSON.parse(unlocked.body)).not.toThrow();
      const closed = await raw(locked, request(`GET ${route}`));
      // whatever the router makes of it, it needs the key
      expect([401, 404, 400]).toContain(closed.status);
      expect(closed.body).not.toContain('owned_by');
    },
  );

  test('what is no path', async () => {
    for (const route of ['/%', '/%ff%fe', `/${'a'.repeat(20_000)}`, '*', 'nopath']) {
      const { status, body } = await raw(open, request(`GET ${route}`));
      expect(status, route).toBeGreaterThanOrEqual(400);
      expect(status, route).toBeLessThan(500);
      expect(() => JSON.parse(body)).not.toThrow();
    }
  });
});

describe('web pages', () => {
  const post = (server: Served, Origin: string | undefined, more: Record<string, string> = {}) => {
    const body = '{"prompt": "<|hi|>"}';
    const headers = {
      'Content-Type': 'application/json',
      'Content-Length': body.length,
      ...(Origin !== undefined && { Origin }),
      ...more,
    };
    return raw(server, request('POST /v1/completions', headers, body));
  };

  test.each([
    'http://evil.example',
    'null',
    'chrome-extension://abcdef',
    'http://localhost:5173',
    'http://127.0.0.1.evil.example',
  ])('of %s may not use it, are told why, and get no permission in the headers', async origin => {
    for (const server of [open, locked]) {
      const { status, headers, body } = await post(server, origin, { Authorization: `Bearer ${KEY}` });
      expect(status).toBe(403);
      expect(JSON.parse(body).error.message).toContain('--cors-origin');
      expect(headers).not.toMatch(/access-control-allow-origin/i);
    }
    const preflight = request('OPTIONS /v1/completions', { Origin: origin, 'Access-Control-Request-Method': 'POST' });
    expect((await raw(open, preflight)).headers).not.toMatch(/access-control-allow/i);
    expect((await raw(locked, preflight)).headers).not.toMatch(/access-control-allow-origin/i);
  });

  test('the same origin and no origin pass, without any permission for others', async () => {
    for (const origin of [undefined, 'http://localhost']) {
      const { status, headers } = await post(open, origin);
      expect(status).toBe(200);
      expect(headers).not.toMatch(/access-control-allow-origin/i);
    }
  });

  test('the one that was allowed: exactly, in preflight and answer, without credentials', async () => {
    const preflight = {
      Origin: ORIGIN,
      'Access-Control-Request-Method': 'POST',
      'Access-Control-Request-Headers': 'content-type',
    };
    const asked = await raw(locked, request('OPTIONS /v1/completions', preflight));
    expect(asked.status).toBeLessThan(300);
    expect(asked.headers).toContain(`access-control-allow-origin: ${ORIGIN}`);
    const { status, headers } = await post(locked, ORIGIN, { Authorization: `Bearer ${KEY}` });
    expect(status).toBe(200);
    expect(headers).toContain(`access-control-allow-origin: ${ORIGIN}`);
    expect(headers).not.toMatch(/allow-credentials|allow-origin: \*/i);
    expect((await post(locked, ORIGIN)).status).toBe(401);
  });

  test('forms and plain text, which pages can send without asking, are not read', async () => {
    const body = '{"prompt": "<|hi|>"}';
    for (const type of [
      'text/plain',
      'application/x-www-form-urlencoded',
      'multipart/form-data; boundary=x',
      'text/json',
    ]) {
      const headers = { 'Content-Type': type, 'Content-Length': body.length };
      expect((await raw(open, request('POST /v1/completions', headers, body))).status).toBe(415);
    }
  });
});

describe('keys', () => {
  test('any key is accepted when none is set', async () => {
    for (const headers of [
      {},
      { authorization: 'Bearer sk-whatever' },
      { 'x-api-key': 'x' },
      { authorization: 'Basic eDp5' },
    ] as Record<string, string>[]) {
      expect((await open.get('/v1/models', headers)).status).toBe(200);
      const init = { headers };
      expect(
        (await open.post('/v1/messages', { max_tokens: 5, messages: [{ role: 'user', content: 'x' }] }, init)).status,
      ).toBe(200);
    }
  });

  test.each(ROUTES.filter(line => !/health|OPTIONS/.test(line)))('%s needs it when one is set', async line => {
    const [method, route] = line.split(' ');
    const ask = (headers: Record<string, string>) =>
      method === 'GET' ? locked.get(route, headers) : locked.post(route, {}, { headers });
    for (const headers of [
      {},
      { authorization: 'Bearer wrong' },
      { authorization: KEY },
      { 'x-api-key': `${KEY}x` },
      { authorization: 'Bearer ' },
    ] as Record<string, string>[]) {
      const { status, body, headers: told } = await ask(headers);
      expect(status).toBe(401);
      expect(told.get('www-authenticate')).toBe('Bearer');
      expect(JSON.stringify(body)).not.toContain(KEY);
    }
    for (const headers of [
      { authorization: `Bearer ${KEY}` },
      { authorization: `bearer ${KEY}` },
      { 'x-api-key': KEY },
    ] as Record<string, string>[]) {
      expect((await ask(headers)).status).not.toBe(401);
    }
  });

  test('health tells without it whether the server lives, and nothing more', async () => {
    expect((await locked.get('/health')).body).toEqual({ status: 'ok' });
    expect((await locked.get('/health', { 'x-api-key': KEY })).body).toHaveProperty('queue');
  });

  test('it is in no log and no list of processes', () => {
    expect(locked.stderr()).not.toContain(KEY);
    expect(readFileSync(`/proc/${locked.pid}/cmdline`, 'utf8')).not.toContain(KEY);
  });
});

describe('addresses that other machines reach', () => {
  const serve = (...args: string[]) =>
    spawnSync(process.execPath, ['bin/coli.js', 'serve', '--model', model, '--port', '0', ...args], {
      encoding: 'utf8',
      env: { ...process.env, COLI_API_KEY: undefined, NO_COLOR: '1' },
      timeout: 20_000,
    });

  test.each(['0.0.0.0', '::', '192.168.1.1'])('%s without a key is refused before the model is loaded', host => {
    const { status, stderr } = serve('--host', host);
    expect(status).toBe(2);
    expect(stderr).toMatch(/--api-key/);
    expect(stderr).toMatch(/--insecure/);
    expect(stderr).not.toMatch(/Ready|\n {4}at /);
  });

  test('with an explicit override it starts, and says so loudly', async () => {
    const server = await startServe({ model, args: ['--host', '0.0.0.0', '--insecure'] });
    expect(server.stderr()).toContain('WARNING');
    // by a name it is still refused
    expect((await raw(server, request('GET /v1/models', { Host: 'evil.example' }))).status).toBe(403);
    expect((await server.get('/v1/models')).status).toBe(200);
    await server.stop();
  });
});

describe('bodies and framing', () => {
  const JSON_TYPE = { 'Content-Type': 'application/json' };
  const lives = async () => expect((await open.get('/health')).status).toBe(200);

  test('what is too large is refused without being read', async () => {
    const rss = () => Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${open.pid}/status`, 'utf8'))![1]) / 1024;
    const before = rss();
    const declared = await raw(open, request('POST /v1/completions', { ...JSON_TYPE, 'Content-Length': 10 ** 9 }, '{'));
    expect(declared.status).toBe(413);
    const { status } = await sendEndlessly(open);
    expect(status).toBe(413);
    expect(rss() - before).toBeLessThan(64);
    const big = await open.post('/v1/completions', `{"prompt": "${'x'.repeat(4.1 * 1024 * 1024)}"}`);
    expect([big.status, big.body.error.code]).toEqual([413, 'body_too_large']);
    await lives();
  });

  test('a length that lies', async () => {
    const body = '{"prompt": "<|hi|>"}';
    const short = { ...JSON_TYPE, 'Content-Length': body.length - 5 };
    expect((await raw(open, request('POST /v1/completions', short, body))).status).toBe(400);
    for (const length of ['-1', 'abc', '1e3', '5, 6']) {
      const { status } = await raw(
        open,
        request('POST /v1/completions', { ...JSON_TYPE, 'Content-Length': length }, body),
      );
      expect(status, length).toBe(400);
    }
    const both = { ...JSON_TYPE, 'Content-Length': 5, 'Transfer-Encoding': 'chunked' };
    expect((await raw(open, request('POST /v1/completions', both, '0\r\n\r\n'))).status).toBe(400);
    await lives();
  });

  test('a client that promises more and leaves', async () => {
    for (let i = 0; i < 50; i++) {
      await new Promise<void>(resolve => {
        const socket = net.connect(open.port, '127.0.0.1', () => {
          socket.write(request('POST /v1/completions', { ...JSON_TYPE, 'Content-Length': 1000 }, '{"prompt"'));
          setImmediate(() => socket.destroy());
        });
        socket.on('close', () => resolve());
        socket.on('error', () => {});
      });
    }
    await lives();
  });

  test('a compressed body is not read', async () => {
    const headers = { 'content-encoding': 'gzip' };
    expect((await open.post('/v1/completions', new Uint8Array([31, 139]), { headers })).status).toBe(415);
  });

  test('too many headers, too long ones, wrong ones', async () => {
    expect((await raw(open, request('GET /health', { 'X-Long': 'a'.repeat(20_000) }))).status).toBe(431);
    expect((await raw(open, 'hello\r\n\r\n')).status).toBe(400);
    expect((await raw(open, 'GET /health HTTP/9.9\r\nHost: localhost\r\n\r\n')).status).toBeGreaterThanOrEqual(400);
    expect((await raw(open, Buffer.from([22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]))).status).toBe(400);
    await lives();
  });

  test.each([
    ['GET /nope', 404],
    ['POST /v1/nope', 404],
    ['GET /v1/chat/completions', 405],
    ['PUT /v1/models', 405],
    ['DELETE /v1/models/x', 405],
    ['PATCH /health', 405],
    ['POST /health', 405],
  ])('%s: %i as a JSON error', async (line, expected) => {
    const { status, headers, body } = await raw(
      open,
      request(line, line.startsWith('GET') ? {} : { 'Content-Length': 0 }),
    );
    expect(status).toBe(expected);
    expect(Object.keys(JSON.parse(body).error).sort()).toEqual(['code', 'message', 'param', 'type']);
    if (expected === 405) expect(headers).toMatch(/\r\nallow: (GET|POST)/i);
  });

  test('a model by a path', async () => {
    for (const name of ['../../etc/passwd', '..%2f..%2fetc%2fpasswd', 'model%00', '%2e%2e']) {
      const { status, text } = await open.get(`/v1/models/${name}`);
      expect(status).toBe(404);
      expect(text).not.toContain('root:');
    }
    const { status, body } = await open.post('/v1/completions', { prompt: 'x', model: '../../etc/passwd' });
    expect([status, body.error.code, body.error.param]).toEqual([404, 'model_not_found', 'model']);
  });
});

test('after all this there is no stack trace and no error in the log', () => {
  for (const server of [open, locked]) expect(server.stderr()).not.toMatch(/"level":50|\n {4}at /);
});
