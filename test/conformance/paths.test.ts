/** Model directories as they lie on real disks: links, strange names; and what a server leaves behind there: nothing. */

import { createHash } from 'node:crypto';
import { chmodSync, mkdirSync, readdirSync, readFileSync, renameSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { writeScripts } from '../fixtures/scripts.ts';
import { fileDirectory, type Served, startServe } from '../support/serve.ts';

const directory = fileDirectory();
const scripts = { hi: 'Hello!' };

async function answers(server: Served): Promise<void> {
  const { body } = await server.post('/v1/chat/completions', { messages: [{ role: 'user', content: 'say hi.' }] });
  expect(body.choices[0].message.content).toBe('Hello!');
}

test('a hub cache, where every file is a link to a blob', async () => {
  const root = path.join(directory, 'models--a--b');
  const snapshot = path.join(root, 'snapshots', '0123abcd');
  const blobs = path.join(root, 'blobs');
  for (const folder of [snapshot, blobs]) mkdirSync(folder, { recursive: true });
  const files = path.join(directory, 'files');
  mkdirSync(files);
  writeScripts(files, { scripts, shards: 2 });
  for (const [i, name] of readdirSync(files).entries()) {
    renameSync(path.join(files, name), path.join(blobs, `blob${i}`));
    symlinkSync(`../../blobs/blob${i}`, path.join(snapshot, name));
  }
  const server = await startServe({ model: snapshot });
  await answers(server);
  expect((await server.get('/v1/models')).body.data[0].id).toBe('0123abcd');
  await server.stop();
});

test('names with spaces, other alphabets and signs: in the messages, in the model list, in URLs', async () => {
  const name = '模型 #1%20 ö?';
  const model = path.join(directory, 'm ö d', name);
  writeScripts(model, { scripts });
  const server = await startServe({ model });
  await answers(server);
  expect(server.stderr()).toContain(`Ready: ${name},`);
  expect((await server.get('/v1/models')).body.data[0].id).toBe(name);
  const one = await server.get(`/v1/models/${encodeURIComponent(name)}`);
  expect([one.status, one.body.id]).toEqual([200, name]);
  const asked = { model: name, messages: [{ role: 'user', content: 'say hi.' }] };
  expect((await server.post('/v1/chat/completions', asked)).body.model).toBe(name);
  await server.stop();
});

test('a name of its own for clients', async () => {
  const model = path.join(directory, 'own');
  writeScripts(model, { scripts });
  const server = await startServe({ model, args: ['--model-id', 'org/name:tag'] });
  const asked = (id: string) => server.post('/v1/completions', { model: id, prompt: '<|hi|>' });
  expect((await asked('org/name:tag')).body).toMatchObject({ model: 'org/name:tag', choices: [{ text: 'Hello!' }] });
  expect((await asked('own')).status).toBe(404);
  expect((await server.get('/v1/models/org%2Fname%3Atag')).body.id).toBe('org/name:tag');
  await server.stop();
});

test('a model directory is the same after serving, also when it cannot be written to', async () => {
  const model = path.join(directory, 'kept');
  writeScripts(model, { scripts });
  const contents = () =>
    readdirSync(model)
      .sort()
      .map(name => [
        name,
        createHash('sha256')
          .update(readFileSync(path.join(model, name)))
          .digest('hex'),
      ]);
  const before = contents();
  chmodSync(model, 0o555);
  const server = await startServe({ model });
  for (let i = 0; i < 3; i++) await answers(server);
  await server.stop();
  chmodSync(model, 0o755);
  expect(contents()).toEqual(before);
});
