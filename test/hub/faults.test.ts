/** A hub that breaks off, lies, and answers something else: the file is right in the end, or it is not there at all. */

import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { repoFolder } from '../../src/hub/cache-layout.ts';
import type { PulledFile } from '../../src/hub/pull-files.ts';
import { type FakeHub, type Fault, sha256 } from '../support/fake-hub.ts';
import { hubWithModel, ID, NO_WAITING, pull, SHARD, SHARD_BYTES, temporary } from './support.ts';

const OTHER = 'model-00002-of-00002.safetensors';

/** Faults of the requests for SHARD, one after another; later ones are answered well. */
function faultsOf(hub: FakeHub, ...faults: (Fault | undefined)[]): void {
  hub.onFile = (file, count) => (file === SHARD ? faults[count] : undefined);
}

function always(hub: FakeHub, fault: Fault): void {
  hub.onFile = file => (file === SHARD ? fault : undefined);
}

async function expectRight(hub: FakeHub, cache: string): Promise<PulledFile> {
  const { plan, files } = await pull(hub, cache);
  for (const [name, content] of Object.entries(hub.repos.get(ID)!.files)) {
    if (name !== 'pytorch_model.bin')
      expect(readFileSync(path.join(plan.directory, name)).equals(content), name).toBe(true);
  }
  expect(readdirSync(repoFolder(cache, ID).blobs).filter(name => name.includes('incomplete'))).toEqual([]);
  return files.find(({ file }) => file.path === SHARD)!;
}

/** Nothing of the bad file may be there under a name that anybody would open; everything else is. */
function expectOnlyShardMissing(hub: FakeHub, cache: string): void {
  const folder = repoFolder(cache, ID);
  const snapshot = path.join(folder.snapshots, hub.repos.get(ID)!.refs['main']);
  expect(readdirSync(snapshot)).not.toContain(SHARD);
  expect(readdirSync(snapshot)).toContain(OTHER);
  expect(existsSync(folder.refs)).toBe(false);
  expect(readdirSync(folder.blobs)).not.toContain(sha256(hub.repos.get(ID)!.files[SHARD]));
}

describe('interruptions', () => {
  test('a connection that drops every 20,000 bytes: each byte comes once', async () => {
    const hub = await hubWithModel();
    always(hub, { dropAfter: 20_000 });
    const { download } = await expectRight(hub, temporary());
    expect(download).toEqual({ fetchedBytes: SHARD_BYTES, resumedBytes: 0, reconnects: 14, mismatches: 0 });
    const requests = hub.requestsFor(SHARD);
    expect(requests.map(({ range }) => range)).toEqual([
      undefined,
      ...Array.from({ length: 14 }, (_, i) => `bytes=${(i + 1) * 20_000}-`),
    ]);
    const tags = new Set(requests.slice(1).map(({ ifRange }) => ifRange));
    expect([...tags]).toEqual([`"${sha256(hub.repos.get(ID)!.files[SHARD]).slice(0, 32)}"`]);
  });

  test('the next run continues where the last one ended', async () => {
    const hub = await hubWithModel();
    const cache = temporary();
    faultsOf(hub, { dropAfter: 100_000 }, ...Array.from({ length: 20 }, () => ({ status: 500 })));
    await expect(pull(hub, cache)).rejects.toMatchObject({
      code: 'HUB_FAILED',
      message: expect.stringContaining(SHARD),
    });
    expectOnlyShardMissing(hub, cache);
    hub.onFile = () => undefined;
    hub.requests.length = 0;
    const { download } = await expectRight(hub, cache);
    expect(download).toMatchObject({ fetchedBytes: SHARD_BYTES - 100_000, resumedBytes: 100_000 });
    expect(hub.requestsFor(SHARD)).toMatchObject([{ range: 'bytes=100000-' }]);
    expect(hub.requestsFor(OTHER)).toEqual([]);
  });

  test('what an earlier run left and is damaged is thrown away, not continued for ever', async () => {
    const hub = await hubWithModel();
    const cache = temporary();
    always(hub, { status: 404 });
    await expect(pull(hub, cache)).rejects.toMatchObject({ code: 'HUB_NOT_FOUND' });
    const digest = sha256(hub.repos.get(ID)!.files[SHARD]);
    const partial = path.join(repoFolder(cache, ID).blobs, `${digest}.coli.incomplete`);
    hub.onFile = () => undefined;
    writeFileSync(partial, Buffer.alloc(50_000, 1));
    expect((await expectRight(hub, cache)).download).toMatchObject({ resumedBytes: 50_000, mismatches: 1 });
  });

  test('a partial file that is longer than the file begins anew; one that is whole needs no request', async () => {
    const hub = await hubWithModel();
    const [longer, whole] = [temporary(), temporary()];
    const { files } = hub.repos.get(ID)!;
    const leave = async (cache: string, content: Buffer) => {
      always(hub, { status: 404 });
      await pull(hub, cache).catch(() => {});
      writeFileSync(path.join(repoFolder(cache, ID).blobs, `${sha256(files[SHARD])}.coli.incomplete`), content);
      hub.onFile = () => undefined;
      hub.requests.length = 0;
    };
    await leave(longer, Buffer.alloc(SHARD_BYTES + 1));
    expect((await expectRight(hub, longer)).download).toMatchObject({ resumedBytes: 0, mismatches: 0 });
    await leave(whole, files[SHARD]);
    expect((await expectRight(hub, whole)).download).toMatchObject({ resumedBytes: SHARD_BYTES, fetchedBytes: 0 });
    expect(hub.requestsFor(SHARD)).toEqual([]);
  });

  test('a connection that brings nothing more is given up and made again', async () => {
    const hub = await hubWithModel();
    faultsOf(hub, { stallAfter: 30_000 });
    const { plan, files } = await pull(hub, temporary(), { timing: { ...NO_WAITING, idleMs: 300 } });
    expect(files.find(({ file }) => file.path === SHARD)!.download).toMatchObject({
      reconnects: 1,
      fetchedBytes: SHARD_BYTES,
    });
    expect(readFileSync(path.join(plan.directory, SHARD)).equals(hub.repos.get(ID)!.files[SHARD])).toBe(true);
  });

  test('slow is not broken', async () => {
    const hub = await hubWithModel();
    always(hub, { throttle: { pieceBytes: 30_000, pauseMs: 5 } });
    expect((await expectRight(hub, temporary())).download).toMatchObject({ reconnects: 0, fetchedBytes: SHARD_BYTES });
  });

  test('a hub that trickles and breaks off is given up in the end', async () => {
    const hub = await hubWithModel();
    always(hub, { dropAfter: 10 });
    const error = await pull(hub, temporary()).catch(each => each);
    expect(error).toMatchObject({
      code: 'HUB_UNREACHABLE',
      message: expect.stringMatching(/^the connection to 127\.0\.0\.1:\d+ failed: /),
    });
    expect(hub.requestsFor(SHARD)).toHaveLength(10);
  });

  test('stopped: what came is kept, the revision is not there yet', async () => {
    const hub = await hubWithModel();
    const cache = temporary();
    always(hub, { stallAfter: 60_000 });
    const stop = new AbortController();
    const stopped = pull(hub, cache, {
      signal: stop.signal,
      onProgress: ({ totalBytes, doneBytes }) => {
        if (totalBytes - doneBytes === SHARD_BYTES - 60_000) stop.abort();
      },
    });
    await expect(stopped).rejects.toMatchObject({ code: 'HUB_STOPPED', message: `the download of ${ID} was stopped` });
    expectOnlyShardMissing(hub, cache);
    hub.onFile = () => undefined;
    expect((await expectRight(hub, cache)).download).toMatchObject({ resumedBytes: 60_000 });
  });
});

describe('answers that are not the file', () => {
  test.each<[string, Fault]>([
    ['a flipped bit', { flip: 150_000 }],
    ['a flipped bit after a break', { flip: 10, dropAfter: 100_000 }],
  ])('%s: only that file is fetched again', async (_, fault) => {
    const hub = await hubWithModel();
    faultsOf(hub, fault);
    expect((await expectRight(hub, temporary())).download).toMatchObject({ mismatches: 1 });
    expect(hub.requestsFor(OTHER)).toHaveLength(1);
  });

  test.each<[string, Fault]>([
    ['a web page with status 200', { html: true }],
    ['an empty body', { empty: true }],
    ['a file that ends early', { truncateTo: 200_000 }],
    ['a file with bytes behind its end', { extra: 5 }],
    ['a 500', { status: 500 }],
    ['a 503', { status: 503 }],
    ['a 429', { status: 429, headers: { 'retry-after': '0' } }],
  ])('%s once: tried again', async (_, fault) => {
    const hub = await hubWithModel();
    faultsOf(hub, fault);
    expect((await expectRight(hub, temporary())).download).toMatchObject({ mismatches: 0, reconnects: 1 });
  });

  test.each<[string, Fault, string, RegExp]>([
    ['a flipped bit', { flip: 5 }, 'FILE_DIGEST', /was fetched 3 times .* must be [0-9a-f]{64}, is [0-9a-f]{64}$/],
    ['a web page', { html: true }, 'HUB_BAD_ANSWER', /a web page came in its place$/],
    ['an empty body', { empty: true }, 'HUB_BAD_ANSWER', /0 bytes were to come|it ended at byte 0 of 300000/],
    [
      'a file that ends early',
      { truncateTo: 200_000 },
      'HUB_BAD_ANSWER',
      /shorter than the hub lists|ended at byte 200000/,
    ],
    ['a file with bytes behind its end', { extra: 5 }, 'HUB_BAD_ANSWER', /more than the 300000 bytes/],
    ['a tag that changes each time', { dropAfter: 20_000 }, 'HUB_BAD_ANSWER', /it changed while it was fetched/],
  ])('%s always: a bounded number of tries, then the name of the file', async (what, fault, code, message) => {
    const hub = await hubWithModel();
    const cache = temporary();
    hub.onFile = (file, count) => {
      if (file !== SHARD) return undefined;
      return what.startsWith('a tag') ? { ...fault, etag: `"tag-${count}"`, headers: {} } : fault;
    };
    if (what.startsWith('a tag')) hub.honoursIfRange = false;
    const error = await pull(hub, cache).catch(each => each);
    expect(error).toMatchObject({ code, message: expect.stringMatching(message) });
    expect(error.message).toContain(SHARD);
    expect(error.hint).toBeTruthy();
    expect(hub.requestsFor(SHARD).length).toBeLessThan(15);
    expectOnlyShardMissing(hub, cache);
    hub.onFile = () => undefined;
    await expectRight(hub, cache);
  });

  test('a hub that does not know ranges: the file begins anew, and is right', async () => {
    const hub = await hubWithModel();
    faultsOf(hub, { dropAfter: 100_000 }, { ignoreRange: true });
    expect((await expectRight(hub, temporary())).download).toMatchObject({
      fetchedBytes: SHARD_BYTES + 100_000,
      mismatches: 0,
    });
  });

  test('a hub that never knows ranges and always breaks off is given up', async () => {
    const hub = await hubWithModel();
    always(hub, { ignoreRange: true, dropAfter: 100_000 });
    await expect(pull(hub, temporary())).rejects.toMatchObject({ code: 'HUB_UNREACHABLE' });
    expect(hub.requestsFor(SHARD).length).toBeLessThanOrEqual(12);
  });

  test('a web page in the middle loses nothing of what came before', async () => {
    const hub = await hubWithModel();
    faultsOf(hub, { dropAfter: 100_000 }, { html: true });
    expect((await expectRight(hub, temporary())).download).toMatchObject({ fetchedBytes: SHARD_BYTES });
  });

  test('a tag that changes between two ranges: the file begins anew', async () => {
    const hub = await hubWithModel();
    hub.honoursIfRange = false;
    faultsOf(hub, { dropAfter: 100_000, etag: '"one"' }, { etag: '"two"' });
    expect((await expectRight(hub, temporary())).download).toMatchObject({ fetchedBytes: SHARD_BYTES + 100_000 });
    expect(hub.requestsFor(SHARD).map(({ range }) => range)).toEqual([undefined, 'bytes=100000-', undefined]);
  });

  test('a tag that changes, from a hub that honours it: everything comes with the second answer', async () => {
    const hub = await hubWithModel();
    faultsOf(hub, { dropAfter: 100_000, etag: '"one"' }, { etag: '"two"' });
    await expectRight(hub, temporary());
    expect(hub.requestsFor(SHARD).map(({ ifRange }) => ifRange)).toEqual([undefined, '"one"']);
  });

  test('weak tags are not sent back', async () => {
    const hub = await hubWithModel();
    faultsOf(hub, { dropAfter: 100_000, etag: 'W/"one"' });
    await expectRight(hub, temporary());
    expect(hub.requestsFor(SHARD).map(({ ifRange }) => ifRange)).toEqual([undefined, undefined]);
  });

  test('a range other than the one that was asked for is not written', async () => {
    const hub = await hubWithModel();
    faultsOf(
      hub,
      { dropAfter: 100_000 },
      { headers: { 'content-range': `bytes 0-${SHARD_BYTES - 1}/${SHARD_BYTES}` } },
    );
    expect((await expectRight(hub, temporary())).download).toMatchObject({ fetchedBytes: SHARD_BYTES, mismatches: 0 });
  });

  test('two bad files: both are named as bad, everything else is there', async () => {
    const hub = await hubWithModel();
    hub.onFile = file => (file.endsWith('.safetensors') ? { flip: 1 } : undefined);
    const cache = temporary();
    const error = await pull(hub, cache).catch(each => each);
    expect(error).toMatchObject({
      code: 'FILE_DIGEST',
      message: expect.stringMatching(/ \(one more file is wrong too\)$/),
    });
    const snapshot = path.join(repoFolder(cache, ID).snapshots, hub.repos.get(ID)!.refs['main']);
    expect(readdirSync(snapshot)).toContain('tokenizer.json');
    expect(readdirSync(snapshot).filter(name => name.endsWith('.safetensors'))).toEqual([]);
  });
});
