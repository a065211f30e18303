/** The real program: a model of the hub becomes a container without ever being here whole. */

import fs from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { startColi, startHub, temporary } from '../hub/support.ts';
import type { FakeHub } from '../support/fake-hub.ts';
import { packDirectory } from '../support/packs.ts';

const ID = 'org/tiny';

async function hubWithTiny(): Promise<FakeHub> {
  const hub = await startHub();
  const directory = packDirectory('glm-moe-dsa-fp8');
  const names = fs.readdirSync(directory).filter(name => !name.startsWith('reference.'));
  hub.add(ID, Object.fromEntries(names.map(name => [name, fs.readFileSync(path.join(directory, name))])));
  return hub;
}

const bytesIn = (directory: string): Record<string, string> =>
  Object.fromEntries(
    fs.readdirSync(directory).map(name => [name, fs.readFileSync(path.join(directory, name), 'latin1')]),
  );

test('the plan alone, then the container, which runs; by either command the same', async () => {
  const hub = await hubWithTiny();
  const [first, second] = ['a', 'b'].map(name => path.join(temporary(), name));
  const dry = await startColi(hub, ['convert', ID, first, '--dry-run']).ended;
  expect(dry).toMatchObject({ status: 0, stderr: '' });
  expect(dry.stdout).toMatch(/^source +org\/tiny, main at [0-9a-f]{7} \(glm_moe_dsa, 1\.61 MB\)$/m);
  expect(dry.stdout).toMatch(/^prediction experts +fp8 -> q8g64 /m);
  expect(dry.stdout).toMatch(/^space .* at most [\d.]+ MB at a time,\s+source files included$/m);
  expect(dry.stdout).toMatch(/^download +1\.61 MB: [\d.]+ s at 10\.0 MB\/s/m);
  for (const line of dry.stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(80);
  expect(fs.existsSync(first)).toBe(false);

  const done = await startColi(hub, ['convert', ID, first]).ended;
  expect(done).toMatchObject({ status: 0, stderr: '' });
  expect(done.stdout).toMatch(/^wrote .*, 3 files, 1\.61 MB fetched, in /m);
  const pulled = await startColi(hub, ['pull', '--convert', ID, second, '--json']).ended;
  expect(pulled).toMatchObject({ status: 0, stderr: '' });
  const { plan, fetched_bytes: fetched } = JSON.parse(pulled.stdout);
  expect(plan.repo).toEqual({ id: ID, revision: 'main', commit: hub.repos.get(ID)!.refs['main'] });
  expect(fetched).toBe(plan.fetch_bytes);
  expect(bytesIn(second)).toEqual(bytesIn(first));
  const ran = await startColi(hub, ['run', '--model', first, '--raw', '--max-tokens', '3', '--quiet', 'a']).ended;
  expect(ran).toMatchObject({ status: 0 });
});

test('Ctrl-C keeps what is finished, and the same command goes on', async () => {
  const hub = await hubWithTiny();
  const target = path.join(temporary(), 'out');
  let stalled = (): void => {};
  const waiting = new Promise<void>(resolve => (stalled = resolve));
  hub.onFile = (name, count) =>
    name.startsWith('model-00002') && count === 1 ? { stallAfter: 100_000, stalled } : undefined;
  const { child, ended } = startColi(hub, ['convert', ID, target]);
  await waiting;
  child.kill('SIGINT');
  const stopped = await ended;
  expect(stopped.status).toBe(130);
  expect(stopped.stderr).toMatch(/^coli: the conversion was stopped; .* is incomplete; give the same command again/);
  expect(fs.readdirSync(target)).toContain('model-00001-of-00003.safetensors');
  hub.onFile = () => undefined;
  hub.requests.length = 0;
  const { stdout } = await startColi(hub, ['convert', ID, target]).ended;
  expect(stdout).toMatch(/^continues +1 file of an earlier run/m);
  expect(stdout).toMatch(/^wrote .*, 2 files, 1 kept from an earlier run, /m);
  const ranges = hub.requestsFor('model-00002-of-00003.safetensors').map(({ range }) => range);
  expect(ranges.filter(range => /^bytes=\d+-$/.test(range ?? ''))).toHaveLength(1);
  expect(ranges).not.toContain(undefined);
});

test('what exists as a path is no name; flags that would do nothing are errors', async () => {
  const hub = await hubWithTiny();
  const target = path.join(temporary(), 'out');
  const here = await startColi(hub, ['convert', 'test/oracles', target]).ended;
  expect(here.stderr).toMatch(/^coli: .*test\/oracles has no config\.json/);
  expect(hub.requests).toEqual([]);
  const refusals: [string[], RegExp][] = [
    [['convert', 'test/oracles', target, '--include', '*'], /--include chooses among the files of the hub/],
    [['pull', ID, target], /a destination without --convert/],
    [['pull', ID, '--experts', 'q8', '--dry-run'], /--experts without --convert/],
    [['pull', ID, '--convert'], /--convert needs one destination, not none/],
    [['pull', ID, target, '--convert', '--dest', 'x'], /--convert needs one destination, not two/],
  ];
  for (const [args, message] of refusals) {
    const { status, stderr } = await startColi(hub, args).ended;
    expect([args, status, stderr]).toEqual([args, 2, expect.stringMatching(message)]);
  }
  const offline = await startColi(hub, ['convert', ID, target], { HF_HUB_OFFLINE: '1' }).ended;
  expect(offline.stderr).toMatch(/^coli: org\/tiny is neither a path here nor in the cache/);
  expect(hub.requests).toEqual([]);
});
