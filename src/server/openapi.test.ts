/** The OpenAPI document as a generator of clients reads it. */

import { beforeAll, expect, test } from 'vitest';
import { AdmissionQueue } from './admission.ts';
import { createApp } from './app.ts';
import { DIALECTS } from './dialects.ts';
import { HTTP_LIMITS } from './http-server.ts';
import { DEFAULT_SETTINGS, type ServerSettings } from './settings.ts';
import { ModelState } from './state.ts';

// biome-ignore lint/suspicious/noExplicitAny: a document is looked into as a generator does
type Json = any;

async function documentOf(change: Partial<ServerSettings>): Promise<Json> {
  const settings = { ...DEFAULT_SETTINGS, modelId: 'test-model', version: '1.2.3', ...change };
  const queue = new AdmissionQueue({ ...settings, capacity: 1 });
  const parts = { settings, queue, state: new ModelState(), token: null, dialects: DIALECTS, limits: HTTP_LIMITS };
  const { app } = await createApp({ ...parts, stop: new AbortController().signal, logger: false });
  const headers = { host: 'localhost', 'x-api-key': change.apiKey ?? '' };
  const reply = await app.inject({ url: '/openapi.json', headers });
  await app.close();
  return reply.json();
}

let document: Json;
let operations: [string, Json][];

beforeAll(async () => {
  document = await documentOf({});
  operations = Object.entries<Json>(document.paths).flatMap(([path, methods]) =>
    Object.entries<Json>(methods).map(([method, operation]): [string, Json] => [`${method} ${path}`, operation]),
  );
});

const content = (reply: Json) => Object.keys(reply.content);
const statuses = (route: string) => Object.keys(operations.find(([name]) => name === route)![1].responses).map(Number);

test('every operation has a name of its own', () => {
  const names = operations.map(([, { operationId }]) => operationId);
  expect(names.every(name => /^[a-z][A-Za-z]+$/.test(name))).toBe(true);
  expect(new Set(names).size).toBe(names.length);
});

test('every reply is described', () => {
  expect(JSON.stringify(document)).not.toContain('Default Response');
  for (const reply of Object.values<Json>(document.components.responses)) expect(reply.description).toMatch(/\.$/);
});

test('every reference leads somewhere, and every shape is referred to', () => {
  const text = JSON.stringify(document);
  const references = new Set([...text.matchAll(/"\$ref":"#\/([^"]+)"/g)].map(([, path]) => path));
  expect(references.size).toBeGreaterThan(15);
  const reach = (path: string) => path.split('/').reduce((at, step) => at?.[step], document);
  expect([...references].filter(path => reach(path) === undefined)).toEqual([]);
  const schemas = Object.keys(document.components.schemas);
  expect(schemas.filter(name => !references.has(`components/schemas/${name}`))).toEqual([]);
  expect(schemas).toEqual(
    expect.arrayContaining(['ChatCompletionRequest', 'ChatCompletion', 'MessageRequest', 'Error']),
  );
});

test('streams are replies too', () => {
  const streams = operations.filter(([, { responses }]) => content(responses[200]).includes('text/event-stream'));
  expect(streams.map(([route]) => route).sort()).toEqual([
    'post /v1/chat/completions',
    'post /v1/completions',
    'post /v1/messages',
    'post /v1/responses',
  ]);
});

test('the statuses are those that occur', () => {
  expect(statuses('get /health')).toEqual([200, 400, 403, 431, 500, 503]);
  expect(statuses('get /props')).toEqual([200, 400, 401, 403, 431, 500, 503]);
  expect(statuses('get /v1/models/{model}')).toEqual([200, 400, 401, 403, 404, 431, 500, 503]);
  expect(statuses('post /tokenize')).toEqual([200, 400, 401, 403, 408, 413, 415, 429, 431, 500, 503]);
  expect(statuses('post /v1/responses')).toContain(404);
  const { responses } = document.paths['/v1/messages'].post;
  expect(responses[429]).toEqual({ $ref: '#/components/responses/AnthropicError429' });
  expect(responses[431]).toEqual({ $ref: '#/components/responses/Error431' });
});

test('whole numbers have no bounds but those of their field, and defaults are told as they are', () => {
  expect(JSON.stringify(document)).not.toContain('9007199254740991');
  const { presence_penalty, top_logprobs, temperature } = document.components.schemas.ChatCompletionRequest.properties;
  expect(presence_penalty.description).toContain('Default: 0.');
  expect(top_logprobs.description).toContain('Default: none.');
  expect(temperature.description).toContain('Default: as the model suggests.');
});

test('where it is, and what key it takes', async () => {
  expect(document.servers[0].url).toBe('/');
  expect(Object.keys(document.components.securitySchemes)).toEqual(['bearer', 'apiKey']);
  expect(document.security).toEqual([{}, { bearer: [] }, { apiKey: [] }]);
  const locked = await documentOf({ apiKey: 'secret' });
  expect(locked.security).toEqual([{ bearer: [] }, { apiKey: [] }]);
  expect(locked.paths['/health'].get.security).toEqual([]);
});
