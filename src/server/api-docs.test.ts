/** docs/api.md is for people what /openapi.json is for programs: it must know every route, every field of a body, and every error. */

import { readdirSync, readFileSync } from 'node:fs';
import { beforeAll, describe, expect, test } from 'vitest';
import { AdmissionQueue } from './admission.ts';
import { createApp } from './app.ts';
import { UNSUPPORTED } from './dialects/openai-unsupported.ts';
import { DIALECTS } from './dialects.ts';
import { HTTP_LIMITS } from './http-server.ts';
import { DEFAULT_SETTINGS } from './settings.ts';
import { ModelState } from './state.ts';

interface Schema {
  readonly $ref?: string;
  readonly properties?: Record<string, Schema>;
  readonly items?: Schema;
  readonly anyOf?: Schema[];
  readonly oneOf?: Schema[];
  readonly allOf?: Schema[];
}
interface Operation {
  readonly requestBody?: { content: { 'application/json': { schema: Schema } } };
}
interface Document {
  readonly paths: Record<string, Record<string, Operation>>;
  readonly components?: { schemas?: Record<string, Schema> };
}

const text = readFileSync(new URL('../../docs/api.md', import.meta.url), 'utf8');
let document: Document;

beforeAll(async () => {
  const settings = { ...DEFAULT_SETTINGS, modelId: 'test-model', version: '1.2.3' };
  const queue = new AdmissionQueue({ ...settings, capacity: 1 });
  const parts = { settings, queue, state: new ModelState(), token: null, dialects: DIALECTS, limits: HTTP_LIMITS };
  const { app } = await createApp({ ...parts, stop: new AbortController().signal, logger: false });
  const reply = await app.inject({ url: '/openapi.json', headers: { host: 'localhost' } });
  document = reply.json();
  await app.close();
});

function resolved(schema: Schema): Schema {
  return schema.$ref ? document.components!.schemas![schema.$ref.split('/').at(-1)!] : schema;
}

/** Names of a schema's own fields; of those inside of them too when `deep`. */
function fieldsOf(schema: Schema): string[] {
  const parts = [...(schema.anyOf ?? []), ...(schema.oneOf ?? []), ...(schema.allOf ?? [])];
  return [...Object.keys(schema.properties ?? {}), ...parts.flatMap(fieldsOf)];
}

test('every route is named', () => {
  const routes = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.keys(methods).map(method => `${method.toUpperCase()} ${path.replace('{model}', '{id}')}`),
  );
  expect(routes.length).toBeGreaterThan(12);
  expect(routes.filter(route => !text.includes(`\`${route}\``))).toEqual([]);
});

test('every route has an example', () => {
  const paths = Object.keys(document.paths).map(path => path.replace('{model}', ''));
  expect(paths.filter(path => !new RegExp(`curl[^\\n]*${path.replaceAll('/', '\\/')}`).test(text))).toEqual([]);
});

test('every field of every body is named', () => {
  const missing = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.values(methods).flatMap(({ requestBody }) => {
      const schema = requestBody?.content['application/json'].schema;
      const fields = schema ? fieldsOf(resolved(schema)) : [];
      if (schema) expect(fields.length, path).toBeGreaterThan(0);
      return fields.filter(field => !text.includes(field)).map(field => `${path}: ${field}`);
    }),
  );
  expect(missing).toEqual([]);
});

describe('what is refused', () => {
  test('every field that is refused by name is named', () => {
    expect(Object.keys(UNSUPPORTED).filter(field => !text.includes(`\`${field}\``))).toEqual([]);
  });

  test('every error code of the server is named', () => {
    const source = readFileSync(new URL('errors.ts', import.meta.url), 'utf8');
    const rows = [...source.matchAll(/^ {2}([A-Z_]{5,}): \{(.*)\},?$/gm)];
    expect(rows.length).toBeGreaterThan(20);
    const codes = rows.map(([, name, row]) => /code: '(\w+)'/.exec(row)?.[1] ?? name.toLowerCase());
    expect(codes.filter(code => code !== 'cancelled' && !text.includes(`\`${code}\``))).toEqual([]);
  });

  test('every error code of the form of an answer is named', () => {
    const folder = new URL('../grammar/', import.meta.url);
    const sources = readdirSync(folder).filter(name => name.endsWith('.ts') && !name.endsWith('.test.ts'));
    const codes = sources.flatMap(name => {
      const source = readFileSync(new URL(name, folder), 'utf8');
      return [...source.matchAll(/(?:new RequestError\(|\bcode:)\s*'([A-Z_]+)'/g)].map(([, code]) => code);
    });
    expect(new Set(codes).size).toBeGreaterThan(9);
    // INTERNAL is a bug of ours; a body is always plain data; nobody reads what a cancelled request gets
    const unseen = ['INTERNAL', 'REQUEST_NOT_PLAIN', 'CANCELLED'];
    const seen = codes.filter(code => !unseen.includes(code));
    expect(seen.filter(code => !text.includes(`\`${code.toLowerCase()}\``))).toEqual([]);
  });
});
