import { describe, expect, test } from 'vitest';
import { checkAllowedHost, checkBind, checkOrigin, checkSource, isLoopback } from './hosts.ts';
import { ask, startTestServer } from './test-support.ts';

const rules = { bind: '192.168.1.5', allowedHosts: ['Box.example', '::2'], corsOrigins: ['http://app.example'] };
const from = (host: string | undefined, origin?: string, localAddress = '10.0.0.1') => {
  try {
    checkSource({ host, origin, localAddress }, rules);
    return 'ok';
  } catch (error) {
    return (error as { code: string }).code;
  }
};

describe('hosts', () => {
  test.each([
    'localhost',
    'localhost:8080',
    'LOCALHOST:1',
    '127.0.0.1:8080',
    '127.1.2.3',
    '[::1]:8080',
    '[::1]',
    '192.168.1.5:8080',
    'box.EXAMPLE:80',
    '[::2]:8080',
    '10.0.0.1:8080',
  ])('%s is a name of this server', host => expect(from(host)).toBe('ok'));

  test.each([
    undefined,
    '',
    'evil.example',
    'evil.example:8080',
    'localhost.evil.example',
    '127.0.0.1.evil.example',
    'box.example.evil',
    '10.0.0.2:8080',
    'localhost:8080:8080',
    'localhost@evil.example',
    'evil.example/localhost',
    ' localhost',
    '[::1',
    '0.0.0.0:8080',
    '2130706433',
    '0x7f.1',
  ])('%s is not', host => expect(from(host)).toBe('HOST_FORBIDDEN'));

  test('an address on which a request arrived is one of its own', () => {
    expect(from('10.9.9.9:1', undefined, '::ffff:10.9.9.9')).toBe('ok');
    expect(from('evil.example', undefined, 'evil.example')).toBe('HOST_FORBIDDEN');
  });

  test('origins are compared exactly', () => {
    expect(from('localhost:8080', 'http://app.example')).toBe('ok');
    expect(from('localhost:8080', 'http://localhost:8080')).toBe('ok');
    expect(from('box.example', 'https://box.example')).toBe('ok');
    for (const origin of [
      'null',
      '',
      'http://localhost:5173',
      'http://localhost',
      'https://app.example',
      'http://app.example.evil',
      'http://app.example:80',
      'chrome-extension://abc',
      'http://localhost:8080/',
    ]) {
      expect([origin, from('localhost:8080', origin)]).toEqual([origin, 'ORIGIN_FORBIDDEN']);
    }
  });

  test('flags take exact names only', () => {
    for (const origin of ['http://localhost:5173', 'tauri://localhost', 'chrome-extension://abcdef']) {
      expect(checkOrigin(origin)).toBe(origin);
    }
    for (const origin of ['*', 'null', 'localhost:5173', 'http://a.example/', 'http://*.example', 'HTTP://a', '']) {
      expect(() => checkOrigin(origin)).toThrow('--cors-origin');
    }
    for (const host of ['box.example', '10.0.0.7', '[::2]']) expect(checkAllowedHost(host)).toBe(host);
    for (const host of ['*', 'http://box', 'box:80', '[::2]:80', '', 'a b', '*.example']) {
      expect(() => checkAllowedHost(host)).toThrow('--allowed-host');
    }
  });

  test('an address others can reach needs a key, or an explicit choice that is told', () => {
    for (const host of ['127.0.0.1', 'localhost', '::1', '127.8.8.8']) {
      expect(isLoopback(host)).toBe(true);
      expect(checkBind({ host, apiKey: null, insecure: false })).toEqual([]);
    }
    for (const host of ['0.0.0.0', '::', '192.168.1.5', 'box.example', '127.evil.example']) {
      const open = { host, apiKey: null, insecure: false };
      expect(() => checkBind(open)).toThrow(expect.objectContaining({ code: 'UNSAFE_BIND' }));
      expect(checkBind({ ...open, apiKey: 'k' })).toEqual([]);
      expect(checkBind({ ...open, insecure: true })).toEqual([expect.stringMatching(/^WARNING: .*--insecure/)]);
    }
  });
});

const PATHS = [
  '/health',
  '/v1/models',
  '/v1/models/test-model',
  '/props',
  '/profile',
  '/experts',
  '/metrics',
  '/openapi.json',
  '/tokenize',
  '/echo',
  '/nope',
  '//v1/models',
  '/x/../v1/models',
  '/v1%2fmodels',
  '/%zz',
  '/%00',
  '/',
  '*',
];

describe('every route', () => {
  test('refuses a foreign host before anything else', async () => {
    const { port } = await startTestServer({ change: { apiKey: 'k' } });
    for (const path of PATHS) {
      for (const method of ['GET', 'POST', 'OPTIONS', 'HEAD', 'PUT']) {
        const { status, json } = await ask(port, path, { method, headers: { host: 'evil.example' } });
        expect([method, path, status]).toEqual([method, path, 403]);
        if (method === 'HEAD') continue;
        expect(json.error).toMatchObject({ code: 'host_forbidden', type: 'forbidden' });
        expect(json.error.message).toMatch(/evil\.example.*--allowed-host/);
      }
    }
  });

  test('refuses a foreign origin, and says how to allow it', async () => {
    const { port } = await startTestServer();
    for (const path of PATHS) {
      for (const method of ['GET', 'POST', 'OPTIONS']) {
        const { status, json, headers } = await ask(port, path, { method, headers: { origin: 'http://evil.example' } });
        expect([method, path, status, json.error.code]).toEqual([method, path, 403, 'origin_forbidden']);
        expect(json.error.message).toContain('--cors-origin');
        expect(headers['access-control-allow-origin']).toBeUndefined();
      }
    }
  });

  test('a page without an origin is told that there is no way to allow it', async () => {
    const { port } = await startTestServer();
    const { status, json } = await ask(port, '/v1/models', { headers: { origin: 'null' } });
    expect(status).toBe(403);
    expect(json.error.message).toMatch(/without an origin.*none is allowed.*over HTTP.*--cors-origin/);
    expect(() => checkOrigin('null')).toThrow('--cors-origin cannot be null');
  });

  test('a path that is spelled otherwise is no route', async () => {
    const { port } = await startTestServer();
    for (const path of ['//v1/models', '/x/../v1/models', '/v1//models', '/v1/models/', '/V1/models']) {
      expect([path, (await ask(port, path)).status]).toEqual([path, 404]);
    }
  });

  test('allowed origins get CORS headers, preflight included; the others none', async () => {
    const origin = 'http://app.example';
    const { port } = await startTestServer({ change: { corsOrigins: [origin], apiKey: 'k' } });
    const preflight = await ask(port, '/echo', {
      method: 'OPTIONS',
      headers: {
        origin,
        'access-control-request-method': 'POST',
        'access-control-request-headers': 'authorization,content-type,x-stainless-os',
      },
    });
    expect(preflight.status).toBe(204);
    expect(preflight.headers).toMatchObject({
      'access-control-allow-origin': origin,
      'access-control-allow-methods': 'GET, POST',
      'access-control-max-age': '600',
      // clients have headers of their own, and say which
      'access-control-allow-headers': 'authorization,content-type,x-stainless-os',
    });
    expect(preflight.headers['access-control-allow-credentials']).toBeUndefined();
    // a page must be able to read why it was refused
    const denied = await ask(port, '/v1/models', { headers: { origin } });
    expect(denied.status).toBe(401);
    expect(denied.headers['access-control-allow-origin']).toBe(origin);
    const none = await ask(port, '/v1/models', { headers: { authorization: 'Bearer k' } });
    expect(none.status).toBe(200);
    expect(none.headers['access-control-allow-origin']).toBeUndefined();
    for (const method of ['GET', 'OPTIONS']) {
      const headers = { origin: 'http://app.example:81', 'access-control-request-method': 'POST' };
      const { status, json } = await ask(port, '/v1/models', { method, headers });
      expect([method, status, json.error.code]).toEqual([method, 403, 'origin_forbidden']);
    }
  });
});
