/** The real program against a hub on this machine: fetch, be killed, continue, use by name, list, remove. */

import type { ChildProcess } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { repoFolder } from '../../src/hub/cache-layout.ts';
import { hubWithModel, ID, modelFiles, SHARD, startColi, startHub, temporary } from '../hub/support.ts';
import { type FakeHub, noise, sha256 } from '../support/fake-hub.ts';

const ORACLE = 'test/oracles/olmoe';
const BIG_BYTES = 2_000_000;

const start = (hub: FakeHub, cache: string, args: readonly string[], extra: Record<string, string> = {}) =>
  startColi(hub, args, { HF_HUB_CACHE: cache, ...extra });
const coli = (hub: FakeHub, cache: string, args: readonly string[], extra?: Record<string, string>) =>
  start(hub, cache, args, extra).ended;

/** Every path below a directory with the digest of its content; links are followed. */
function contents(directory: string): Record<string, string> {
  const names = readdirSync(directory, { recursive: true, encoding: 'utf8' }).sort();
  const files = names.filter(name => statSync(path.join(directory, name)).isFile());
  return Object.fromEntries(files.map(name => [name, sha256(readFileSync(path.join(directory, name)))]));
}

test('fetched, listed, used by its name, removed', async () => {
  const hub = await startHub();
  const cache = temporary();
  const oracle = readdirSync(ORACLE).map(file => [file, readFileSync(path.join(ORACLE, file))]);
  hub.add('org/tiny', { ...Object.fromEntries(oracle), 'pytorch_model.bin': 'x' });

  const unknown = await coli(hub, cache, ['run', '--model', 'org/tiny', 'hi']);
  expect(unknown).toMatchObject({ status: 1, stdout: '' });
  expect(unknown.stderr).toMatch(/^coli: org\/tiny is neither a path here nor in the cache .*; coli pull org\/tiny\n$/);

  const pulled = await coli(hub, cache, ['pull', 'org/tiny']);
  expect(pulled).toMatchObject({ status: 0, stderr: '' });
  expect(pulled.stdout).toMatch(/^model +org\/tiny, main \(commit [0-9a-f]{7}\)$/m);
  expect(pulled.stdout).toMatch(/^skipped +1 file, 1 B: .*\("pytorch_model\.bin"\)$/m);
  expect(pulled.stdout).toMatch(/^fetched [\d.]+ MB in [\d.]+ s: .*snapshots\/[0-9a-f]{40}$/m);

  const answer = (model: string) =>
    coli(hub, cache, [
      'run',
      '--model',
      model,
      '--ram',
      '1G',
      '--json',
      '--max-tokens',
      '3',
      '--temperature',
      '0',
      'hi',
    ]);
  const [byName, byPath] = [await answer('org/tiny@main'), await answer(ORACLE)];
  expect(byName).toMatchObject({ status: 0, stderr: '' });
  expect(JSON.parse(byName.stdout).token_ids).toEqual(JSON.parse(byPath.stdout).token_ids);

  const list = await coli(hub, cache, ['list']);
  expect(list.stdout).toMatch(
    /^NAME +REVISION +SIZE +FAMILY +STATE\norg\/tiny +main \([0-9a-f]{7}\) +[\d.]+ MB +olmoe +complete\n/,
  );
  const listed = JSON.parse((await coli(hub, cache, ['list', '--json'])).stdout);
  expect(listed.models).toMatchObject([
    { name: 'org/tiny', revisions: [{ refs: ['main'], complete: true, family: 'olmoe' }] },
  ]);

  const asked = await coli(hub, cache, ['rm', 'org/tiny']);
  expect(asked).toMatchObject({ status: 2, stdout: '' });
  expect(asked.stderr).toContain('--yes');
  const removed = await coli(hub, cache, ['rm', 'org/tiny', '--yes']);
  expect(removed.stdout).toMatch(/^Removed org\/tiny \(1 revision, ([\d.]+ MB)\): \1 freed\.\n$/);
  expect((await coli(hub, cache, ['list'])).stdout).toBe(`no models in ${cache}; coli pull ORG/NAME fetches one\n`);
});

test('killed by force again and again: the next run continues, and the result is the same', async () => {
  const hub = await startHub();
  const { refs } = hub.add(ID, { ...modelFiles(), [SHARD]: noise(BIG_BYTES, 9) });
  const whole = temporary();
  expect(await coli(hub, whole, ['pull', ID])).toMatchObject({ status: 0 });
  const cache = temporary();
  hub.requests.length = 0;
  // each run gets a quarter of the shard, then its connection is held until the process is dead
  for (let run = 1; run <= 3; run++) {
    let dying: ChildProcess | undefined;
    hub.onFile = file =>
      file === SHARD ? { stallAfter: BIG_BYTES / 4, stalled: () => killWhenWritten(run) } : undefined;
    const killWhenWritten = (runs: number) => {
      const { blobs, snapshots } = repoFolder(cache, ID);
      const snapshot = path.join(snapshots, refs['main']);
      const written = () => readdirSync(blobs).filter(name => name.endsWith('.coli.incomplete'));
      const linked = () => readdirSync(snapshot).length === Object.keys(modelFiles()).length - 2;
      const timer = setInterval(() => {
        if (linked() && written().some(name => statSync(path.join(blobs, name)).size >= (runs * BIG_BYTES) / 4)) {
          clearInterval(timer);
          dying!.kill('SIGKILL');
        }
      }, 5);
      onTestFinished(() => clearInterval(timer));
    };
    const { child, ended } = start(hub, cache, ['pull', ID]);
    dying = child;
    expect((await ended).status).toBeNull();
    const list = await coli(hub, cache, ['list', '--json']);
    expect(JSON.parse(list.stdout).models).toMatchObject([
      { unfinished_files: 1, unfinished_bytes: (run * BIG_BYTES) / 4 },
    ]);
    expect((await coli(hub, cache, ['list'])).stdout).toMatch(
      /\norg\/model .* incomplete: 1 of 2 weight files missing\n[^\n]*\n$/,
    );
    expect((await coli(hub, cache, ['run', '--model', ID, 'hi'])).stderr).toContain(`coli pull ${ID}`);
  }
  hub.onFile = () => undefined;
  const last = await coli(hub, cache, ['pull', ID, '--json']);
  expect(last).toMatchObject({ status: 0, stderr: '' });
  const shard = JSON.parse(last.stdout).files.find((file: { path: string }) => file.path === SHARD);
  expect(shard).toMatchObject({ resumed_bytes: (3 * BIG_BYTES) / 4, fetched_bytes: BIG_BYTES / 4, mismatches: 0 });
  expect(hub.requestsFor(SHARD).map(({ range }) => range)).toEqual([
    undefined,
    'bytes=500000-',
    'bytes=1000000-',
    'bytes=1500000-',
  ]);
  expect(contents(cache)).toEqual(contents(whole));
});

test('a family that is not known: nothing is fetched, unless --include asks for it', async () => {
  const hub = await startHub();
  const cache = temporary();
  hub.add(ID, { ...modelFiles(), 'config.json': '{"model_type":"strange"}' });
  const refused = await coli(hub, cache, ['pull', ID]);
  expect(refused).toMatchObject({ status: 1, stdout: '' });
  expect(refused.stderr).toMatch(/^coli: org\/model cannot be run: .*model_type "strange"; known: olmoe, .*--include/);
  expect(hub.requestsFor(SHARD)).toEqual([]);
  expect(readdirSync(cache)).toEqual([]);
  const asked = await coli(hub, cache, ['pull', ID, '--include', '*.safetensors']);
  expect(asked.status).toBe(0);
  expect(asked.stdout).toContain('\nnote: org/model cannot be run');
  expect(asked.stdout).not.toContain('use it with');
  expect((await coli(hub, cache, ['list'])).stdout).toMatch(/ strange +complete, cannot run\n/);
});

test('--dry-run: the plan and nothing else', async () => {
  const hub = await hubWithModel();
  const cache = path.join(temporary(), 'not', 'there');
  const { status, stdout } = await coli(hub, cache, ['pull', ID, '--dry-run']);
  expect(status).toBe(0);
  expect(stdout).toMatch(/^files +7, .*\n[\s\S]*Nothing was fetched: this was a dry run\.\n$/m);
  const json = JSON.parse((await coli(hub, cache, ['pull', ID, '--dry-run', '--json'])).stdout);
  expect(json.plan).toMatchObject({ name: ID, files: { length: 7 } });
  expect(hub.requestsFor(SHARD)).toEqual([]);
  expect(existsSync(cache)).toBe(false);
});

test('errors: one line with cause and next step, or one JSON object; the token is in none', async () => {
  const hub = await startHub();
  const cache = temporary();
  hub.add(ID, modelFiles(), { token: 'hf_right', gated: true });
  const env = { HF_TOKEN: 'hf_SECRET' };
  const refused = await coli(hub, cache, ['pull', ID], env);
  expect(refused).toMatchObject({ status: 1, stdout: '' });
  expect(refused.stderr).toMatch(
    /^coli: 127\.0\.0\.1:\d+ answered 403 for org\/model: [^\n]+; accept its conditions at [^\n]+\n$/,
  );
  const json = await coli(hub, cache, ['pull', ID, '--json'], env);
  expect(JSON.parse(json.stdout)).toMatchObject({ error: { code: 'HUB_GATED' } });
  expect(refused.stderr + json.stdout + json.stderr).not.toContain('SECRET');
  expect((await coli(hub, cache, ['pull', ID], { HF_TOKEN: 'hf_right' })).status).toBe(0);
  for (const args of [
    ['pull', 'nonsense'],
    ['pull', ID, '--include', ''],
    ['pull', ID, '--dest', ''],
    ['rm', 'x'],
    ['pull'],
  ]) {
    expect((await coli(hub, cache, args)).status, args.join(' ')).toBe(2);
  }
  expect(await coli(hub, cache, ['pull', ID], { HF_HUB_OFFLINE: '1' })).toMatchObject({ status: 2 });
});

test('Ctrl-C ends a download with 130, and says that it can go on', async () => {
  const hub = await hubWithModel();
  const cache = temporary();
  let stopping: ChildProcess | undefined;
  hub.onFile = file => (file === SHARD ? { stallAfter: 1000, stalled: () => stopping!.kill('SIGINT') } : undefined);
  const { child, ended } = start(hub, cache, ['pull', ID]);
  stopping = child;
  const { status, stderr } = await ended;
  expect({ status, stderr }).toEqual({
    status: 130,
    stderr: `coli: the download of ${ID} was stopped; the same command continues where this one ended\n`,
  });
});
