/** What is in the cache, what a name stands for, and what goes when a model is removed. */

import {
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { scanCacheDir } from '@huggingface/hub';
import { describe, expect, test } from 'vitest';
import { takeLock } from '../../src/common/process-lock.ts';
import { openCheckpoint } from '../../src/formats/checkpoint.ts';
import { repoFolder } from '../../src/hub/cache-layout.ts';
import { scanCache } from '../../src/hub/cache-scan.ts';
import { findModel, nameOfSnapshot } from '../../src/hub/find-model.ts';
import { parseRepoName } from '../../src/hub/names.ts';
import { planRemoval, removeModel } from '../../src/hub/remove.ts';
import type { FakeHub } from '../support/fake-hub.ts';
import { hubWithModel, ID, modelFiles, pull, SHARD, startHub, temporary } from './support.ts';

const name = parseRepoName;
const ORACLE = 'test/oracles/olmoe';

function oracleFiles(): Record<string, Buffer> {
  return Object.fromEntries(readdirSync(ORACLE).map(file => [file, readFileSync(path.join(ORACLE, file))]));
}

/** Two revisions that share everything but config.json. */
async function twoRevisions(): Promise<{ hub: FakeHub; cache: string; first: string; second: string }> {
  const hub = await hubWithModel();
  const cache = temporary();
  const first = (await pull(hub, cache)).plan;
  const { refs } = hub.add(ID, { ...modelFiles(), 'config.json': '{"model_type":"olmoe","x":1}' });
  refs['v2'] = refs['main'];
  const second = (await pull(hub, cache, { model: `${ID}@v2` })).plan;
  return { hub, cache, first: first.commit, second: second.commit };
}

describe('a model by its name', () => {
  test('opens through the links of the cache like any directory', async () => {
    const hub = await startHub();
    hub.add('org/tiny', oracleFiles());
    const cache = temporary();
    const { plan } = await pull(hub, cache, { model: 'org/tiny' });
    const found = findModel(cache, name('org/tiny'));
    expect(found).toBe(plan.directory);
    const [linked, plain] = [openCheckpoint(found), openCheckpoint(ORACLE)];
    expect([...linked.tensors]).toEqual([...plain.tensors]);
    expect(linked.files.map(file => path.dirname(file.path))).toEqual(linked.files.map(() => plan.directory));
    expect(linked.bytesOnDisk).toBe(plain.bytesOnDisk);
    expect(nameOfSnapshot(found)).toBe('tiny');
    expect(nameOfSnapshot(ORACLE)).toBeNull();
  });

  test('branch, tag, whole commit and the beginning of one', async () => {
    const { cache, first, second } = await twoRevisions();
    const commitFound = (text: string) => path.basename(findModel(cache, name(text)));
    expect(commitFound(ID)).toBe(first);
    expect(commitFound(`${ID}@main`)).toBe(first);
    expect(commitFound(`${ID}@v2`)).toBe(second);
    expect(commitFound(`${ID}@${second}`)).toBe(second);
    expect(commitFound(`${ID}@${first.slice(0, 7)}`)).toBe(first);
    expect(() => findModel(cache, name(`${ID}@${first.slice(0, 6)}`))).toThrow('nor in the cache');
  });

  test('what is not there: the command that fetches it, and what else is there', async () => {
    const { cache, second } = await twoRevisions();
    expect(() => findModel(cache, name('org/none'))).toThrow(
      expect.objectContaining({ code: 'MODEL_NOT_PULLED', hint: 'coli pull org/none' }),
    );
    expect(() => findModel(cache, name(`${ID}@v3`))).toThrow(
      expect.objectContaining({
        code: 'MODEL_NOT_PULLED',
        hint: `coli pull ${ID}@v3`,
        message: expect.stringContaining(`${ID}@v2`),
      }),
    );
    rmSync(path.join(repoFolder(cache, ID).snapshots, second, SHARD));
    expect(() => findModel(cache, name(`${ID}@v2`))).toThrow(
      expect.objectContaining({
        code: 'MODEL_INCOMPLETE',
        hint: `coli pull ${ID}@v2 continues`,
        message: expect.stringContaining(SHARD),
      }),
    );
  });

  test('a first download that was stopped is there, but incomplete', async () => {
    const hub = await hubWithModel();
    const cache = temporary();
    const stop = new AbortController();
    hub.onFile = file => (file === SHARD ? { stallAfter: 1000, stalled: () => stop.abort() } : undefined);
    await expect(pull(hub, cache, { signal: stop.signal })).rejects.toMatchObject({ code: 'HUB_STOPPED' });
    expect(() => findModel(cache, name(ID))).toThrow(
      expect.objectContaining({ code: 'MODEL_INCOMPLETE', hint: `coli pull ${ID} continues` }),
    );
    hub.onFile = () => undefined;
    await pull(hub, cache);
    expect(() => findModel(cache, name(`${ID}@v3`))).toThrow(expect.objectContaining({ code: 'MODEL_NOT_PULLED' }));
  });

  test('a link whose blob is gone is missing too', async () => {
    const hub = await hubWithModel();
    const cache = temporary();
    const { plan } = await pull(hub, cache);
    const { blobs } = repoFolder(cache, ID);
    rmSync(path.join(blobs, plan.files.find(file => file.path === SHARD)!.sha256!));
    expect(() => findModel(cache, name(ID))).toThrow(expect.objectContaining({ code: 'MODEL_INCOMPLETE' }));
    await pull(hub, cache);
    expect(findModel(cache, name(ID))).toBe(plan.directory);
  });

  test('GGUF alone: the file, the first of a set, or a question', async () => {
    const hub = await startHub();
    const files = {
      'config.json': '{}',
      'm-Q4.gguf': 'a',
      'm-Q8-00001-of-00002.gguf': 'b',
      'm-Q8-00002-of-00002.gguf': 'c',
    };
    hub.add(ID, files);
    const found = async (...include: string[]) => {
      const cache = temporary();
      await pull(hub, cache, { include });
      return path.basename(findModel(cache, name(ID)));
    };
    expect(await found('*Q4*')).toBe('m-Q4.gguf');
    expect(await found('*Q8*')).toBe('m-Q8-00001-of-00002.gguf');
    await expect(found('*Q8-00001*')).rejects.toMatchObject({ code: 'MODEL_INCOMPLETE' });
    await expect(found('*.gguf')).rejects.toMatchObject({
      code: 'MODEL_AMBIGUOUS',
      hint: expect.stringContaining('m-Q4.gguf'),
    });
  });
});

describe('the list', () => {
  test('revisions with their names, sizes, family and state', async () => {
    const { hub, cache, first, second } = await twoRevisions();
    hub.add('org/broken', modelFiles());
    hub.onFile = file => (file === SHARD ? { status: 403 } : undefined);
    await pull(hub, cache, { model: 'org/broken' }).catch(() => {});
    const size = Object.entries(modelFiles()).reduce(
      (sum, [file, content]) => sum + (file.endsWith('.bin') ? 0 : content.length),
      0,
    );
    const [broken, model] = scanCache(cache);
    const family = 'olmoe';
    expect(broken.revisions[0]).toMatchObject({ family, problem: null, missing: expect.arrayContaining([SHARD]) });
    const right = [
      { commit: first, refs: ['main'], bytes: size, family, missing: [], problem: null },
      { commit: second, refs: ['v2'], bytes: size + 6, family, missing: [], problem: null },
    ].sort((a, b) => (a.commit < b.commit ? -1 : 1));
    expect(model.revisions).toMatchObject(right);
    expect(model.bytes).toBe(size + 28 + 2 * 40);
  });

  test('an unfinished download and what is damaged do not hide the others', async () => {
    const hub = await hubWithModel();
    const cache = temporary();
    const { plan } = await pull(hub, cache);
    const unfinished = repoFolder(cache, 'a/unfinished');
    mkdirSync(unfinished.blobs, { recursive: true });
    writeFileSync(path.join(unfinished.blobs, 'x.incomplete'), 'abc');
    const damaged = path.join(repoFolder(cache, 'b/damaged').snapshots, 'c'.repeat(40));
    mkdirSync(damaged, { recursive: true });
    writeFileSync(path.join(damaged, 'config.json'), '{');
    for (const other of ['datasets--x--y', 'models--x', 'version.txt', 'models--x--y--z'])
      mkdirSync(path.join(cache, other));
    symlinkSync(plan.directory, path.join(cache, 'models--link--away'));
    const repos = scanCache(cache);
    expect(repos.map(({ folder }) => folder.id)).toEqual(['a/unfinished', 'b/damaged', ID]);
    expect(repos[0]).toMatchObject({ revisions: [], unfinishedFiles: 1, unfinishedBytes: 3 });
    expect(repos[1].revisions).toMatchObject([{ problem: expect.stringContaining('is not valid JSON') }]);
    expect(repos[2].revisions).toMatchObject([{ problem: null, missing: [] }]);
  });

  test('what other tools have written is read: real files in a snapshot, a ref with a line feed', () => {
    const cache = temporary();
    const folder = repoFolder(cache, ID);
    const commit = 'd'.repeat(40);
    mkdirSync(path.join(folder.snapshots, commit), { recursive: true });
    mkdirSync(folder.refs);
    writeFileSync(path.join(folder.refs, 'main'), `${commit}\n`);
    writeFileSync(path.join(folder.snapshots, commit, 'model.safetensors'), 'x');
    expect(scanCache(cache)[0].revisions).toMatchObject([{ refs: ['main'], bytes: 1, missing: [] }]);
    expect(findModel(cache, name(ID))).toBe(path.join(folder.snapshots, commit));
  });

  test('a cache that is not there is empty', () => {
    expect(scanCache('/nowhere/at/all')).toEqual([]);
  });
});

describe('removing', () => {
  test('a revision: only blobs that the other one does not use', async () => {
    const { hub, cache, first, second } = await twoRevisions();
    const before = readdirSync(repoFolder(cache, ID).blobs);
    const removal = await removeModel(cache, name(`${ID}@v2`));
    expect(removal).toMatchObject({ commits: [second], bytes: 28 });
    expect(removal.sharedBytes).toBeGreaterThan(300_000);
    const folder = repoFolder(cache, ID);
    expect(readdirSync(folder.blobs)).toHaveLength(before.length - 1);
    expect(readdirSync(folder.refs)).toEqual(['main']);
    expect(readdirSync(folder.snapshots)).toEqual([first]);
    expect((await scanCacheDir(cache)).warnings).toEqual([]);
    hub.add(ID, modelFiles());
    expect((await pull(hub, cache)).fetchedBytes).toBe(0);
  });

  test('all of a model, or its last revision: the whole folder and nothing beside it', async () => {
    const { hub, cache, first } = await twoRevisions();
    hub.add('org/model2', modelFiles());
    await pull(hub, cache, { model: 'org/model2' });
    const bytes = scanCache(cache)[0].bytes;
    expect(await removeModel(cache, name(ID))).toMatchObject({ bytes });
    expect(readdirSync(cache).sort()).toEqual(['.locks', 'models--org--model2']);
    expect((await removeModel(cache, name(`org/model2@${first.slice(0, 8)}`))).bytes).toBeGreaterThan(300_000);
    expect(readdirSync(cache)).toEqual(['.locks']);
    await expect(removeModel(cache, name(ID))).rejects.toMatchObject({
      code: 'MODEL_NOT_PULLED',
      hint: expect.stringContaining('coli list'),
    });
  });

  test('links that lead out of the cache: the link goes, what it names stays', async () => {
    const { cache, second } = await twoRevisions();
    const outside = temporary();
    writeFileSync(path.join(outside, 'precious'), 'x');
    const folder = repoFolder(cache, ID);
    const snapshot = path.join(folder.snapshots, second);
    symlinkSync(path.join(outside, 'precious'), path.join(snapshot, 'evil.json'));
    symlinkSync(outside, path.join(snapshot, 'directory'));
    symlinkSync('../../../../../../../../etc/hostname', path.join(snapshot, 'up.json'));
    await removeModel(cache, name(`${ID}@v2`));
    expect(existsSync(snapshot)).toBe(false);
    symlinkSync(outside, path.join(folder.path, 'directory'));
    await removeModel(cache, name(ID));
    expect(existsSync(folder.path)).toBe(false);
    expect(readFileSync(path.join(outside, 'precious'), 'utf8')).toBe('x');
    expect(existsSync('/etc/hostname')).toBe(true);
  });

  test.each(['path', 'blobs', 'snapshots'] as const)('a link in the place of %s is refused', async part => {
    const { cache } = await twoRevisions();
    const elsewhere = path.join(temporary(), 'moved');
    const folder = repoFolder(cache, ID);
    renameSync(folder[part], elsewhere);
    symlinkSync(elsewhere, folder[part]);
    await expect(removeModel(cache, name(ID))).rejects.toMatchObject({ code: 'CACHE_LINK' });
    expect(readdirSync(elsewhere).length).toBeGreaterThan(0);
    expect(lstatSync(folder[part]).isSymbolicLink()).toBe(true);
  });

  test('not while it is being fetched', async () => {
    const { cache } = await twoRevisions();
    const { release } = takeLock(repoFolder(cache, ID).lock);
    await expect(removeModel(cache, name(ID))).rejects.toMatchObject({ code: 'PULL_RUNNING' });
    release!();
    const planned = planRemoval(cache, name(ID));
    expect(planned.commits).toHaveLength(2);
    expect(existsSync(repoFolder(cache, ID).path)).toBe(true);
  });
});
