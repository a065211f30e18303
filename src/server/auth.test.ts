import { expect, test } from 'vitest';
import type { Dialect } from './dialect.ts';
import { ask, echoDialect, startTestServer } from './test-support.ts';

const KEY = 'sk-right';

test('with a key, everything but liveness asks for it', async () => {
  const { port } = await startTestServer({ change: { apiKey: KEY }, token: 'local-token' });
  for (const path of [
    '/v1/models',
    '/props',
    '/profile',
    '/experts',
    '/metrics',
    '/openapi.json',
    '/nope',
    '/tokenize',
  ]) {
    const { status, json, headers } = await ask(port, path);
    expect([path, status]).toEqual([path, 401]);
    expect(json.error).toMatchObject({ type: 'authentication_error', code: 'invalid_api_key' });
    expect(headers['www-authenticate']).toBe('Bearer');
  }
  const health = await ask(port, '/health');
  expect(health).toMatchObject({ status: 200, json: { status: 'ok' } });
  expect(Object.keys(health.json)).toEqual(['status']);
  const trusted = await ask(port, '/health', { headers: { 'x-api-key': KEY } });
  expect(trusted.json).toMatchObject({ status: 'ok', slots: 1, queue: { active: 0 } });
});

test('both headers and the token of the runtime file are accepted, near misses are not', async () => {
  const { port } = await startTestServer({ change: { apiKey: KEY }, token: 'local-token' });
  const status = async (headers: Record<string, string>) => (await ask(port, '/v1/models', { headers })).status;
  expect(await status({ authorization: `Bearer ${KEY}` })).toBe(200);
  expect(await status({ authorization: `bearer  ${KEY}` })).toBe(200);
  expect(await status({ 'x-api-key': KEY })).toBe(200);
  expect(await status({ 'x-api-key': 'local-token' })).toBe(200);
  for (const authorization of [
    'Bearer sk-righ',
    'Bearer sk-rightt',
    'Bearer ',
    'Bearer',
    KEY,
    `Basic ${KEY}`,
    'Bearer é',
  ]) {
    expect([authorization, await status({ authorization: Buffer.from(authorization).toString('latin1') })]).toEqual([
      authorization,
      401,
    ]);
  }
  expect(await status({ authorization: 'Bearer wrong', 'x-api-key': KEY })).toBe(401);
});

test('without a key any is accepted', async () => {
  const { port } = await startTestServer({ token: 'local-token' });
  for (const headers of [{}, { authorization: 'Bearer anything' }, { 'x-api-key': 'x' }]) {
    expect((await ask(port, '/v1/models', { headers })).status).toBe(200);
  }
});

test('a dialect answers in its own words, also before its handler runs', async () => {
  const dialect: Dialect = { ...echoDialect, errorBody: ({ message }, id) => ({ type: 'error', message, id }) };
  const { port } = await startTestServer({ change: { apiKey: KEY }, dialects: [dialect] });
  const denied = await ask(port, '/echo', { body: { text: 'a' } });
  expect(denied).toMatchObject({ status: 401, json: { type: 'error', id: denied.headers['x-request-id'] } });
  const headers = { 'x-api-key': KEY };
  expect((await ask(port, '/echo', { body: { text: 1 }, headers })).json).toMatchObject({ type: 'error' });
  expect((await ask(port, '/echo', { body: '{', headers })).json).toMatchObject({ type: 'error' });
});
