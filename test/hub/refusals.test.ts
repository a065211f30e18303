/** What the hub refuses, where the token goes, and listings that cannot be believed. */

import { readdirSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { MAX_FILES } from '../../src/hub/file-names.ts';
import type { FakeHub } from '../support/fake-hub.ts';
import { hubWithModel, ID, modelFiles, pull, SHARD, startHub, temporary } from './support.ts';

const TOKEN = 'hf_SECRET';

async function refusedPull(hub: FakeHub, more: Parameters<typeof pull>[2] = {}) {
  const cache = temporary();
  const error = await pull(hub, cache, more).catch(each => each);
  expect(error.hint).toBeTruthy();
  expect(`${error.message} ${error.hint} ${JSON.stringify(error.details)}`).not.toContain(TOKEN);
  expect(readdirSync(cache)).toEqual([]);
  return error;
}

describe('access', () => {
  test('a private model: without a token, with a wrong one, with the right one', async () => {
    const hub = await startHub();
    hub.add(ID, modelFiles(), { token: TOKEN });
    expect(await refusedPull(hub)).toMatchObject({
      code: 'HUB_UNAUTHORIZED',
      message: expect.stringMatching(/answered 401 for org\/model: it is private or does not exist$/),
      hint: expect.stringContaining('HF_TOKEN'),
    });
    expect(await refusedPull(hub, { token: 'hf_other' })).toMatchObject({
      code: 'HUB_UNAUTHORIZED',
      hint: expect.stringContaining(`${hub.endpoint}/settings/tokens`),
    });
    expect((await pull(hub, temporary(), { token: TOKEN })).fetchedBytes).toBeGreaterThan(0);
    expect(hub.requests.at(-1)!.authorization).toBe(`Bearer ${TOKEN}`);
  });

  test('a token of any form is sent, not only one that begins with hf_', async () => {
    const hub = await startHub();
    hub.add(ID, modelFiles(), { token: 'mirror-key' });
    expect((await pull(hub, temporary(), { token: 'mirror-key' })).fetchedBytes).toBeGreaterThan(0);
  });

  test('a gated model: the page where its conditions are', async () => {
    const hub = await startHub();
    hub.add(ID, modelFiles(), { token: TOKEN, gated: true });
    const hint = expect.stringContaining(`accept its conditions at ${hub.endpoint}/org/model in a browser`);
    expect(await refusedPull(hub)).toMatchObject({ code: 'HUB_GATED', hint, details: { status: 401 } });
    expect(await refusedPull(hub, { token: 'hf_x' })).toMatchObject({
      code: 'HUB_GATED',
      hint,
      details: { status: 403 },
    });
  });

  test('what is not there', async () => {
    const hub = await hubWithModel();
    expect(await refusedPull(hub, { model: 'org/other', token: TOKEN })).toMatchObject({ code: 'HUB_NOT_FOUND' });
    expect(await refusedPull(hub, { model: `${ID}@v9` })).toMatchObject({ code: 'HUB_NO_REVISION' });
  });

  test('too many requests and a broken hub are tried again, a bounded number of times', async () => {
    const hub = await hubWithModel();
    hub.onApi = (_, count) =>
      count < 2 ? { status: count === 0 ? 429 : 502, headers: { 'retry-after': '0' } } : undefined;
    expect((await pull(hub, temporary())).fetchedBytes).toBeGreaterThan(0);
    hub.requests.length = 0;
    hub.onApi = () => ({ status: 429 });
    expect(await refusedPull(hub)).toMatchObject({ code: 'HUB_BUSY', hint: expect.stringContaining('set HF_TOKEN') });
    expect(await refusedPull(hub, { token: TOKEN })).toMatchObject({ hint: expect.not.stringContaining('HF_TOKEN') });
    hub.onApi = () => ({ status: 500 });
    expect(await refusedPull(hub)).toMatchObject({
      code: 'HUB_FAILED',
      message: expect.stringContaining('answered 500'),
    });
    expect(hub.requests).toHaveLength(15);
  });

  test('nobody there', async () => {
    const hub = await startHub();
    const { endpoint } = hub;
    await hub.stop();
    const settings = { endpoint, token: null, cache: temporary() };
    expect(await refusedPull(hub, { settings })).toMatchObject({
      code: 'HUB_UNREACHABLE',
      message: expect.stringMatching(/failed: ECONNREFUSED$/),
    });
  });
});

describe('redirects', () => {
  test('the token stays with the hub: another host gets the request without it', async () => {
    const [hub, store] = [await startHub(), await startHub()];
    hub.add(ID, modelFiles(), { token: TOKEN });
    store.add('a/b', modelFiles());
    hub.onFile = file => ({ redirect: `${store.endpoint}/a/b/resolve/x/${file}?signature=1` });
    const { fetchedBytes, plan } = await pull(hub, temporary(), { token: TOKEN });
    expect(fetchedBytes).toBe(plan.totalBytes);
    expect(hub.requests.every(({ authorization }) => authorization === `Bearer ${TOKEN}`)).toBe(true);
    expect(store.requests).toHaveLength(plan.files.length);
    expect(store.requests.every(({ authorization }) => authorization === undefined)).toBe(true);
  });

  test('nor does it follow to the same machine under another name or port', async () => {
    const hub = await startHub();
    hub.add(ID, modelFiles());
    hub.onFile = (file, count) => {
      const other = `http://localhost:${hub.port}/org/model/resolve/x/${encodeURIComponent(file)}`;
      return count === 0 ? { redirect: other } : undefined;
    };
    await pull(hub, temporary(), { token: TOKEN });
    const away = hub.requests.filter(({ host }) => host === `localhost:${hub.port}`);
    expect(away.length).toBeGreaterThan(3);
    expect(away.every(({ authorization }) => authorization === undefined)).toBe(true);
  });

  test('a redirect within the hub keeps it, as after a change of name', async () => {
    const hub = await startHub();
    hub.add('org/new', modelFiles(), { token: TOKEN });
    hub.onApi = url =>
      url.includes('org/model')
        ? { status: 307, headers: { location: url.replace('org/model', 'org/new') } }
        : undefined;
    hub.repos.set(ID, hub.repos.get('org/new')!);
    expect((await pull(hub, temporary(), { token: TOKEN })).fetchedBytes).toBeGreaterThan(0);
  });

  test.each([
    ['round and round', '/loop'],
    ['to a file', 'file:///etc/passwd'],
    ['to nowhere', 'http://'],
    ['to an address with a password', 'http://user:secret@127.0.0.1:1/'],
  ])('%s: refused', async (_, location) => {
    const hub = await hubWithModel();
    hub.onApi = () => ({ status: 302, headers: { location } });
    expect(await refusedPull(hub)).toMatchObject({
      code: 'HUB_BAD_ANSWER',
      message: expect.stringContaining('redirects'),
    });
    expect(hub.requests.length).toBeLessThanOrEqual(6);
  });
});

describe('listings', () => {
  test.each<[string, string | undefined, RegExp]>([
    ['a web page', '<html>log in</html>', /which is no JSON/],
    ['nothing', '', /which is no JSON/],
    ['another form', '[]', /no usable commit/],
    ['null', 'null', /not the expected form/],
    ['a commit that is a path', '{"_id":"x","id":"org/model","sha":"../../etc"}', /no usable commit/],
  ])('%s with status 200', async (_, body, message) => {
    const hub = await hubWithModel();
    hub.onApi = () => ({ body });
    expect(await refusedPull(hub)).toMatchObject({ code: 'HUB_BAD_ANSWER', message: expect.stringMatching(message) });
  });

  test('an answer without end is cut off', async () => {
    const hub = await hubWithModel();
    hub.onApi = () => ({ body: ' '.repeat(17 * 2 ** 20) });
    expect(await refusedPull(hub)).toMatchObject({
      code: 'HUB_BAD_ANSWER',
      message: expect.stringContaining('is longer than'),
    });
  });

  test.each([
    '../../outside',
    '/etc/passwd',
    'a/../../b',
    'a//b',
    './a',
    'a/.',
    'a\\..\\b',
    'C:\\x',
    'C:x',
    'a\0b',
    'a\nb',
    '',
    'x'.repeat(256),
    'a/'.repeat(600),
    '\ud800',
    'x.coli.incomplete',
  ])('the file name %j is refused', async name => {
    const hub = await hubWithModel();
    hub.onEntry = entry => (entry['path'] === 'LICENSE' ? { ...entry, path: name } : entry);
    expect(await refusedPull(hub)).toMatchObject({ code: 'HUB_FILE_NAMES' });
  });

  test.each([
    ['config.json', 'CONFIG.json'],
    ['gr\u00f6\u00dfe.json', 'gro\u0308\u00dfe.json'],
    ['a.json', 'a.json'],
    ['readme', 'readme/x.json'],
  ])('%j and %j cannot both be written', async (one, other) => {
    const hub = await hubWithModel();
    const names: Record<string, string> = { 'README.md': one, LICENSE: other };
    hub.onEntry = entry => ({ ...entry, path: names[entry['path'] as string] ?? entry['path'] });
    expect(
      await refusedPull(hub, { include: ['readme*', '*.safetensors'].slice(one === 'readme' ? 0 : 1) }),
    ).toMatchObject({
      code: 'HUB_FILE_NAMES',
    });
  });

  test.each<[string, Record<string, unknown>]>([
    ['no digest', { lfs: undefined, oid: undefined }],
    ['a digest that is a path', { lfs: { oid: '../../../x', size: 300_000 } }],
    ['a digest in capitals', { lfs: { oid: 'A'.repeat(64), size: 300_000 } }],
    ['two sizes', { lfs: { oid: 'a'.repeat(64), size: 1 } }],
    ['a negative size', { size: -1, lfs: undefined }],
    ['a fraction', { size: 1.5, lfs: undefined }],
    ['a size as text', { size: '300000', lfs: undefined }],
    ['no size', { size: undefined, lfs: undefined }],
    ['no name', { path: 7 }],
  ])('%s', async (_, change) => {
    const hub = await hubWithModel();
    hub.onEntry = entry => (entry['path'] === SHARD ? { ...entry, ...change } : entry);
    expect(await refusedPull(hub)).toMatchObject({ code: 'HUB_BAD_ANSWER' });
  });

  test('a next page elsewhere, and pages without end', async () => {
    const hub = await hubWithModel();
    const other = await startHub();
    const page = (next: string) => (url: string) =>
      url.includes('/tree/') ? { body: '[]', headers: { link: `<${next}>; rel="next"` } } : undefined;
    hub.onApi = page(`${other.endpoint}/api/models/org/model/tree/x`);
    expect(await refusedPull(hub, { token: TOKEN })).toMatchObject({ code: 'HUB_BAD_ANSWER' });
    expect(other.requests).toEqual([]);
    hub.onApi = page(`${hub.endpoint}/api/models/org/model/tree/x`);
    expect(await refusedPull(hub)).toMatchObject({ code: 'HUB_BAD_ANSWER' });
    expect(hub.requests.length).toBeLessThan(210);
  });

  test('more files than any model has', async () => {
    const hub = await hubWithModel();
    const entry = { type: 'file', size: 0, oid: 'a'.repeat(40) };
    const body = JSON.stringify(Array.from({ length: MAX_FILES + 1 }, (_, i) => ({ ...entry, path: `f${i}` })));
    hub.onApi = url => (url.includes('/tree/') ? { body } : undefined);
    expect(await refusedPull(hub)).toMatchObject({
      code: 'HUB_BAD_ANSWER',
      message: expect.stringContaining('20000 files'),
    });
  });
});
