/** Downloads as they should go: layout of the cache, choice of files, plain directories, libraries of others. */

import {
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { scanCacheDir } from '@huggingface/hub';
import { expect, test } from 'vitest';
import { takeLock } from '../../src/common/process-lock.ts';
import { repoFolder } from '../../src/hub/cache-layout.ts';
import { openRepo } from '../../src/hub/repo.ts';
import { gitSha1, sha256 } from '../support/fake-hub.ts';
import { hubWithModel, ID, NO_WAITING, pull, SHARD, startHub, temporary } from './support.ts';

const FOLDER = 'models--org--model';

test('the cache has the standard layout, with every byte as the hub has it', async () => {
  const hub = await hubWithModel();
  const cache = temporary();
  const { plan, files, fetchedBytes } = await pull(hub, cache);
  const { files: sources, refs } = hub.repos.get(ID)!;
  const snapshot = path.join(cache, FOLDER, 'snapshots', refs['main']);
  expect(plan.directory).toBe(snapshot);
  expect(readFileSync(path.join(cache, FOLDER, 'refs', 'main'), 'utf8')).toBe(refs['main']);
  const chosen = Object.keys(sources).filter(name => name !== 'pytorch_model.bin');
  expect(readdirSync(snapshot)).toEqual(chosen.sort());
  for (const name of chosen) {
    const digest = sources[name].length > 2000 ? sha256(sources[name]) : gitSha1(sources[name]);
    expect(readlinkSync(path.join(snapshot, name))).toBe(`../../blobs/${digest}`);
    expect(readFileSync(path.join(snapshot, name)).equals(sources[name]), name).toBe(true);
  }
  expect(readdirSync(path.join(cache, FOLDER, 'blobs'))).toHaveLength(chosen.length);
  expect(fetchedBytes).toBe(plan.totalBytes);
  expect(files.map(({ file }) => file.path)).toEqual(chosen.sort());
  expect(plan.skipped.map(({ files: left }) => left.map(each => each.path))).toEqual([['pytorch_model.bin']]);
});

test("the hub's own package reads the cache", async () => {
  const hub = await hubWithModel();
  const cache = temporary();
  const { plan } = await pull(hub, cache);
  const info = await scanCacheDir(cache);
  expect(info.warnings).toEqual([]);
  expect(info.repos).toMatchObject([
    { id: { name: ID, type: 'model' }, size: plan.totalBytes, revisions: [{ commitOid: plan.commit, refs: ['main'] }] },
  ]);
});

test('again: no byte is asked for; a new commit fetches only what is new and keeps the old revision', async () => {
  const hub = await hubWithModel();
  const cache = temporary();
  const first = await pull(hub, cache);
  hub.requests.length = 0;
  expect((await pull(hub, cache)).fetchedBytes).toBe(0);
  expect(hub.requests.every(({ path: asked }) => asked.startsWith('/api/'))).toBe(true);

  const { files } = hub.repos.get(ID)!;
  hub.add(ID, { ...files, 'config.json': '{"model_type":"olmoe","x":1}' });
  const second = await pull(hub, cache);
  expect(second.fetchedBytes).toBe(28);
  expect(readFileSync(path.join(first.plan.directory, 'config.json'), 'utf8')).toBe('{"model_type":"olmoe"}');
  expect(readFileSync(path.join(second.plan.directory, 'config.json'), 'utf8')).toContain('"x":1');
});

test('branches and tags get a ref, a commit gets none', async () => {
  const hub = await hubWithModel();
  const { refs } = hub.repos.get(ID)!;
  refs['v1.0'] = refs['main'];
  refs['refs/pr/3'] = refs['main'];
  const cache = temporary();
  await pull(hub, cache, { model: `${ID}@${refs['main']}` });
  expect(readdirSync(path.join(cache, FOLDER))).not.toContain('refs');
  await pull(hub, cache, { model: `${ID}@v1.0` });
  await pull(hub, cache, { model: `${ID}@refs/pr/3` });
  expect(readFileSync(path.join(cache, FOLDER, 'refs', 'v1.0'), 'utf8')).toBe(refs['main']);
  expect(readFileSync(path.join(cache, FOLDER, 'refs', 'refs', 'pr', '3'), 'utf8')).toBe(refs['main']);
});

test('two names with the same content are one download', async () => {
  const hub = await startHub();
  const content = Buffer.alloc(10_000, 7);
  hub.add(ID, { 'config.json': '{}', 'a.safetensors': content, 'b.safetensors': content });
  const { plan, fetchedBytes } = await pull(hub, temporary());
  expect(fetchedBytes).toBe(10_002);
  expect(hub.requestsFor('a.safetensors').length + hub.requestsFor('b.safetensors').length).toBe(1);
  for (const name of ['a', 'b'])
    expect(lstatSync(path.join(plan.directory, `${name}.safetensors`)).isSymbolicLink()).toBe(true);
});

test('empty files, names with spaces and letters of any script', async () => {
  const hub = await startHub();
  hub.add(ID, { 'model.safetensors': 'x', 'vocab.txt': '', 'größe %20 #1?.json': '{}', 'sub/deep/x.gguf': 'g' });
  const { plan } = await pull(hub, temporary(), { include: ['*.safetensors', 'sub/*'] });
  expect(plan.files.map(file => file.path)).toEqual([
    'model.safetensors',
    'vocab.txt',
    'größe %20 #1?.json',
    'sub/deep/x.gguf',
  ]);
  expect(readFileSync(path.join(plan.directory, 'vocab.txt'), 'utf8')).toBe('');
  expect(readlinkSync(path.join(plan.directory, 'sub/deep/x.gguf'))).toMatch(/^\.\.\/\.\.\/\.\.\/\.\.\/blobs\//);
  expect(readFileSync(path.join(plan.directory, 'sub/deep/x.gguf'), 'utf8')).toBe('g');
});

test('--dest writes plain files, keeps right ones and refuses to replace others', async () => {
  const hub = await hubWithModel();
  const cache = temporary();
  const destination = path.join(temporary(), 'new', 'model');
  const { plan } = await pull(hub, cache, { destination });
  expect(plan.directory).toBe(destination);
  expect(readdirSync(destination)).toEqual(plan.files.map(file => file.path).sort());
  for (const file of plan.files) expect(lstatSync(path.join(destination, file.path)).isFile()).toBe(true);
  expect(readdirSync(cache)).toEqual([]);
  expect((await pull(hub, cache, { destination })).fetchedBytes).toBe(0);
  writeFileSync(path.join(destination, 'README.md'), 'READ ME');
  await expect(pull(hub, cache, { destination })).rejects.toMatchObject({ code: 'DESTINATION_DIFFERS' });
  expect(readFileSync(path.join(destination, 'README.md'), 'utf8')).toBe('READ ME');
});

test('a link in the place of an unfinished file is not written through', async () => {
  const hub = await hubWithModel();
  const [cache, other] = [temporary(), temporary()];
  const victim = path.join(other, 'victim');
  writeFileSync(victim, 'precious');
  const blobs = path.join(cache, FOLDER, 'blobs');
  mkdirSync(blobs, { recursive: true });
  const digest = sha256(hub.repos.get(ID)!.files[SHARD]);
  symlinkSync(victim, path.join(blobs, `${digest}.coli.incomplete`));
  await expect(pull(hub, cache)).rejects.toMatchObject({ code: 'WRITE_FAILED' });
  expect(readFileSync(victim, 'utf8')).toBe('precious');
});

test('while another process is at work on the model nothing is begun', async () => {
  const hub = await hubWithModel();
  const cache = temporary();
  const { lock } = repoFolder(cache, ID);
  mkdirSync(path.dirname(lock), { recursive: true });
  const { release } = takeLock(lock);
  const error = await pull(hub, cache).catch(each => each);
  expect(error).toMatchObject({ code: 'PULL_RUNNING', details: { pid: process.pid } });
  expect(readdirSync(cache)).toEqual(['.locks']);
  release!();
  expect((await pull(hub, cache)).fetchedBytes).toBeGreaterThan(0);
  expect(existsSync(lock)).toBe(false);
});

test('more than the disk has is refused before a byte is asked for', async () => {
  const hub = await hubWithModel();
  hub.onEntry = entry => {
    if (entry['path'] !== SHARD) return entry;
    return { ...entry, size: 2 ** 52, lfs: { ...(entry['lfs'] as object), size: 2 ** 52 } };
  };
  await expect(pull(hub, temporary())).rejects.toMatchObject({
    code: 'NO_SPACE',
    message: expect.stringMatching(/4504 TB/),
  });
  expect(hub.requests.every(({ path: asked }) => asked.startsWith('/api/'))).toBe(true);
});

test('openRepo lists a commit and downloads single files', async () => {
  const hub = await hubWithModel();
  const settings = { endpoint: hub.endpoint, token: null };
  const repo = await openRepo(ID, 'main', { settings, timing: NO_WAITING });
  const { files, refs } = hub.repos.get(ID)!;
  expect(repo.commit).toBe(refs['main']);
  expect(repo.files.map(file => file.path)).toEqual(Object.keys(files));
  const shard = repo.files.find(file => file.path === SHARD)!;
  expect(shard).toEqual({ path: SHARD, bytes: files[SHARD].length, sha256: sha256(files[SHARD]), gitSha1: null });
  const destination = path.join(temporary(), 'deep', 'shard');
  let told = 0;
  await repo.download(shard, destination, { onProgress: bytes => (told = bytes) });
  expect(readFileSync(destination).equals(files[SHARD])).toBe(true);
  expect(told).toBe(shard.bytes);
});
