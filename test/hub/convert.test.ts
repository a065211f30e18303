/** Conversions whose source comes from the hub one file at a time. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { convertCheckpoint, planConversion } from '../../src/convert/convert.ts';
import { DOWNLOADS } from '../../src/convert/files.ts';
import { type HubSourceOptions, openHubSource } from '../../src/convert/hub-source.ts';
import { STATE_FILE } from '../../src/convert/state.ts';
import type { ConversionReport, ConvertOptions } from '../../src/convert/types.ts';
import { repoFolder } from '../../src/hub/cache-layout.ts';
import { parseRepoName } from '../../src/hub/names.ts';
import { type FakeHub, sha256 } from '../support/fake-hub.ts';
import { packAsGguf } from '../support/gguf-packs.ts';
import { writeSplitGguf } from '../support/gguf-writer.ts';
import { packDirectory } from '../support/packs.ts';
import { ID, NO_WAITING, startHub, temporary } from './support.ts';

const SHARDS = [1, 2, 3].map(n => `model-0000${n}-of-00003.safetensors`);

function filesOf(directory: string): Record<string, Buffer> {
  const names = fs.readdirSync(directory).filter(name => !name.startsWith('reference.'));
  return Object.fromEntries(names.map(name => [name, fs.readFileSync(path.join(directory, name))]));
}

async function hubWith(pack = 'olmoe'): Promise<FakeHub> {
  const hub = await startHub();
  hub.add(ID, { ...filesOf(packDirectory(pack)), 'README.md': 'read me' });
  return hub;
}

function hashes(directory: string): Record<string, string> {
  const names = fs.readdirSync(directory).sort();
  return Object.fromEntries(names.map(name => [name, sha256(fs.readFileSync(path.join(directory, name)))]));
}

interface Places {
  hub: FakeHub;
  destination: string;
  cache: string;
}

const sourceOptions = ({ hub, destination, cache }: Places, model = ID): HubSourceOptions => ({
  name: parseRepoName(model),
  settings: { endpoint: hub.endpoint, token: null, cache },
  timing: NO_WAITING,
  destination,
});

const ENCODINGS = { experts: 'q4g64', dense: 'q8', writer: 'test' } as const;

async function convertFrom(
  places: Places,
  more: Partial<ConvertOptions> = {},
  sourceMore: Partial<HubSourceOptions> & { model?: string } = {},
): Promise<ConversionReport> {
  const { model, ...rest } = sourceMore;
  const source = await openHubSource({ ...sourceOptions(places, model), ...rest });
  return convertCheckpoint({ ...ENCODINGS, source, destination: places.destination, ...more });
}

async function convertLocal(directory: string, more: Partial<ConvertOptions> = {}): Promise<Record<string, string>> {
  const destination = path.join(temporary(), 'local');
  await convertCheckpoint({ ...ENCODINGS, source: directory, destination, ...more });
  return hashes(destination);
}

/** Without the pack's reference files, which a local conversion would mention. */
function copyOf(pack: string): string {
  const directory = temporary();
  for (const [name, content] of Object.entries(filesOf(packDirectory(pack)))) {
    fs.writeFileSync(path.join(directory, name), content);
  }
  return directory;
}

async function places(pack?: string): Promise<Places> {
  return { hub: await hubWith(pack), destination: path.join(temporary(), 'out'), cache: temporary() };
}

describe('one file after the other', () => {
  test.each(['olmoe', 'glm-moe-dsa-fp8', 'gpt-oss-mxfp4'])('%s gives the bytes of a local conversion', async pack => {
    const at = await places(pack);
    await convertFrom(at);
    expect(hashes(at.destination)).toEqual(await convertLocal(copyOf(pack)));
  });

  test('never more on the disk than the plan says, and every file of the source once', async () => {
    const at = await places();
    let most = 0;
    const held = new Set<string>();
    const onProgress = (): void => {
      const files = fs.readdirSync(at.destination, { recursive: true, encoding: 'utf8' });
      const sizes = files.map(
        name => fs.statSync(path.join(at.destination, name), { throwIfNoEntry: false })?.size ?? 0,
      );
      most = Math.max(
        most,
        sizes.reduce((sum, size) => sum + size, 0),
      );
      for (const name of files.filter(each => each.startsWith(`${DOWNLOADS}/`))) held.add(name);
    };
    const { plan, fetchedBytes } = await convertFrom(at, { onProgress });
    const sizes = SHARDS.map(name => at.hub.repos.get(ID)!.files[name].length);
    expect(fetchedBytes).toBe(sizes[0] + sizes[1] + sizes[2]);
    expect(plan.fetchBytes).toBe(fetchedBytes);
    expect(plan.peakBytes).toBeLessThan(plan.totalBytes + plan.sourceBytes);
    // the state file is small beside the rest
    expect(most).toBeLessThan(plan.peakBytes + 20_000);
    expect(most).toBeGreaterThan(plan.peakBytes * 0.9);
    for (const shard of SHARDS) {
      // its header, then the whole
      expect(at.hub.requestsFor(shard).map(({ range }) => range)).toEqual([
        expect.stringMatching(/^bytes=0-\d+$/),
        undefined,
      ]);
    }
    expect(fs.existsSync(path.join(at.destination, DOWNLOADS))).toBe(false);
  });

  test('a plan reads headers alone and writes nothing', async () => {
    const at = await places();
    const source = await openHubSource(sourceOptions(at));
    const plan = planConversion({ ...ENCODINGS, source, destination: at.destination });
    expect(plan.repo).toEqual({ id: ID, revision: 'main', commit: at.hub.repos.get(ID)!.refs['main'] });
    expect(plan.source).toBe(ID);
    expect(plan.sourceBytes).toBe(SHARDS.reduce((sum, name) => sum + at.hub.repos.get(ID)!.files[name].length, 0));
    expect(fs.existsSync(at.destination)).toBe(false);
    expect(at.hub.requestsFor(SHARDS[0]).map(({ range }) => range)).toEqual([expect.stringMatching(/^bytes=0-/)]);
  });

  test('nothing stays among temporary files', async () => {
    const at = await places();
    const scratch = temporary();
    const before = process.env['TMPDIR'];
    process.env['TMPDIR'] = scratch;
    try {
      await openHubSource(sourceOptions(at));
      at.hub.onFile = () => ({ status: 403 });
      await expect(openHubSource(sourceOptions(at))).rejects.toMatchObject({ code: 'HUB_GATED' });
    } finally {
      if (before === undefined) delete process.env['TMPDIR'];
      else process.env['TMPDIR'] = before;
    }
    expect(fs.readdirSync(scratch)).toEqual([]);
  });

  test('what lies in the cache is read there and stays', async () => {
    const at = await places();
    const files = at.hub.repos.get(ID)!.files;
    const { blobs } = repoFolder(at.cache, ID);
    fs.mkdirSync(blobs, { recursive: true });
    for (const name of [SHARDS[0], SHARDS[2]]) fs.writeFileSync(path.join(blobs, sha256(files[name])), files[name]);
    const { plan, fetchedBytes } = await convertFrom(at);
    expect(fetchedBytes).toBe(files[SHARDS[1]].length);
    expect(plan.fetchBytes).toBe(fetchedBytes);
    expect(fs.readdirSync(blobs)).toHaveLength(2);
    expect(hashes(at.destination)).toEqual(await convertLocal(copyOf('olmoe')));
  });

  test('a server that knows no ranges', async () => {
    const at = await places();
    at.hub.onFile = () => ({ ignoreRange: true });
    await convertFrom(at);
    expect(hashes(at.destination)).toEqual(await convertLocal(copyOf('olmoe')));
  });

  test('GGUF files: chosen by name, in parts', async () => {
    const directory = temporary();
    const parts = writeSplitGguf(path.join(directory, 'tiny'), packAsGguf(packDirectory('olmoe'), 'olmoe', {}), 3);
    const hub = await startHub();
    const content = Object.fromEntries(parts.map(part => [path.basename(part), fs.readFileSync(part)]));
    const other = Object.fromEntries(Object.entries(content).map(([name, bytes]) => [`other-${name}`, bytes]));
    hub.add(ID, { ...content, ...other, LICENSE: 'do as you like' });
    const at = { hub, destination: path.join(temporary(), 'out'), cache: temporary() };
    await expect(convertFrom(at)).rejects.toMatchObject({ code: 'NO_WEIGHTS' });
    await expect(convertFrom(at, {}, { include: ['*.gguf'] })).rejects.toMatchObject({ code: 'SOURCE_AMBIGUOUS' });
    await convertFrom(at, {}, { include: ['tiny*.gguf'] });
    const { LICENSE: licence, ...rest } = hashes(at.destination);
    expect(licence).toBe(sha256(Buffer.from('do as you like')));
    expect(rest).toEqual(await convertLocal(parts[0]));
  });
});

describe('interrupted', () => {
  /** As it is in another process, which has to be gone. */
  async function runChild(at: Places, more: object, dieAt: number, scratch: string): Promise<string | null> {
    const child = path.join(import.meta.dirname, '../support/convert-hub-and-die.ts');
    const options = { ...ENCODINGS, destination: at.destination, ...more };
    const args = [child, JSON.stringify(sourceOptions(at)), JSON.stringify(options), String(dieAt)];
    const env = { ...process.env, TMPDIR: scratch };
    const running = spawn(process.execPath, args, { env, stdio: ['ignore', 'ignore', 'pipe'] });
    let errors = '';
    running.stderr.on('data', data => (errors += data));
    const [, signal] = await once(running, 'close');
    expect(errors).toBe('');
    return signal;
  }

  test('twenty kills at random, and the bytes are those of a local conversion', { timeout: 120_000 }, async () => {
    const at = await places();
    const more = { shardBytes: 150_000 };
    const expected = await convertLocal(copyOf('olmoe'), more);
    // pieces of files come slowly enough that kills meet unfinished ones
    at.hub.onFile = () => ({ throttle: { pieceBytes: 20_000, pauseMs: 1 } });
    let state = 7;
    const random = (): number => {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      return state / 2 ** 32;
    };
    const left = new Set<string>();
    const scratch = temporary();
    for (let kills = 0; kills < 20; ) {
      const signal = await runChild(at, more, 1 + Math.floor(random() ** 2 * 120), scratch);
      if (signal === null) {
        // it was faster than its end: once more
        expect(hashes(at.destination)).toEqual(expected);
        at.destination = path.join(temporary(), 'out');
        continue;
      }
      expect(signal).toBe('SIGKILL');
      kills++;
      if (!fs.existsSync(at.destination)) continue;
      for (const name of fs.readdirSync(at.destination, { recursive: true, encoding: 'utf8' })) left.add(name);
    }
    await convertFrom(at, more);
    expect(hashes(at.destination)).toEqual(expected);
    // they came at all stages
    for (const kind of [/coli\.source\/.*incomplete/, /coli\.source\/[0-9a-f]{64}$/, /safetensors\.partial/, /rs$/]) {
      expect([kind, [...left].some(name => kind.test(name))]).toEqual([kind, true]);
    }
  });

  test('by a signal while a file comes: it says how to go on, and goes on where it was', async () => {
    const at = await places();
    const stop = new AbortController();
    at.hub.onFile = (_, count) => (count === 1 ? { stallAfter: 60_000 } : undefined);
    const onProgress = ({ phase, doneBytes }: { phase: string; doneBytes: number }): void => {
      if (phase === 'fetch' && doneBytes >= 60_000) stop.abort();
    };
    const stopped = convertFrom(at, { signal: stop.signal, onProgress });
    await expect(stopped).rejects.toMatchObject({ code: 'CONVERT_STOPPED', hint: expect.stringContaining('again') });
    expect(fs.readdirSync(path.join(at.destination, DOWNLOADS))).toHaveLength(1);
    at.hub.onFile = () => undefined;
    const { fetchedBytes } = await convertFrom(at);
    expect(at.hub.requestsFor(SHARDS[0]).at(-1)?.range).toBe('bytes=60000-');
    expect(fetchedBytes).toBeGreaterThan(0);
    expect(fs.existsSync(path.join(at.destination, STATE_FILE))).toBe(false);
  });

  async function halfDone(at: Places): Promise<void> {
    const stop = new AbortController();
    const onProgress = ({ phase, shard }: { phase: string; shard: string }): void => {
      if (phase === 'write' && shard.startsWith('model-00002')) stop.abort();
    };
    await expect(convertFrom(at, { signal: stop.signal, onProgress })).rejects.toMatchObject({
      code: 'CONVERT_STOPPED',
    });
  }

  test('a branch that moves meanwhile is not mixed in: the commit of the beginning is converted', async () => {
    const at = await places();
    const expected = await convertLocal(copyOf('olmoe'));
    const repo = at.hub.repos.get(ID)!;
    const commit = repo.refs['main'];
    await halfDone(at);
    // the old commit can still be asked for by its hash
    repo.refs = { main: 'f'.repeat(40), old: commit };
    const { plan, kept } = await convertFrom(at);
    expect(plan.repo?.commit).toBe(commit);
    expect(kept).toHaveLength(1);
    expect(hashes(at.destination)).toEqual(expected);
  });

  test('another revision, or files here, are refused', async () => {
    const at = await places();
    const repo = at.hub.repos.get(ID)!;
    await halfDone(at);
    repo.refs['other'] = repo.refs['main'];
    await expect(convertFrom(at, {}, { model: `${ID}@other` })).rejects.toMatchObject({
      code: 'CONVERT_MIXED',
      message: expect.stringMatching(/the source was org\/model@main \(.*\), is now org\/model@other/),
    });
    const here = { ...ENCODINGS, source: copyOf('olmoe'), destination: at.destination };
    expect(() => planConversion(here)).toThrow(expect.objectContaining({ code: 'CONVERT_MIXED' }));
  });
});

describe('refused', () => {
  test('a model whose tensors are unknown, before any file comes', async () => {
    const at = await places();
    const config = JSON.parse(String(at.hub.repos.get(ID)!.files['config.json']));
    at.hub.add(ID, {
      ...at.hub.repos.get(ID)!.files,
      'config.json': JSON.stringify({ ...config, num_hidden_layers: 2 }),
    });
    await expect(convertFrom(at)).rejects.toMatchObject({
      code: 'UNKNOWN_TENSORS',
      message: expect.stringMatching(/^org\/model holds/),
    });
    expect(at.hub.requestsFor(SHARDS[0])).toHaveLength(1);
    expect(fs.existsSync(at.destination)).toBe(false);
  });

  test('a file that came otherwise than its header', async () => {
    const at = await places();
    // "format":"pt" of the metadata, which decides nothing
    const flip = at.hub.repos.get(ID)!.files[SHARDS[1]].indexOf('"pt"') + 1;
    expect(flip).toBeGreaterThan(0);
    at.hub.onFile = (name, count) => (name === SHARDS[1] && count === 0 ? { flip } : undefined);
    await expect(convertFrom(at)).rejects.toMatchObject({
      code: 'HUB_BAD_ANSWER',
      message: expect.stringMatching(/model-00002-of-00003.safetensors: its header came differently before/),
    });
  });

  test('a shard that stays wrong, by its name', async () => {
    const at = await places();
    at.hub.onFile = (name, count) => (name === SHARDS[1] && count > 0 ? { flip: 70_000 } : undefined);
    await expect(convertFrom(at)).rejects.toMatchObject({
      code: 'FILE_DIGEST',
      message: expect.stringContaining(SHARDS[1]),
    });
    at.hub.onFile = () => undefined;
    await convertFrom(at);
    expect(hashes(at.destination)).toEqual(await convertLocal(copyOf('olmoe')));
  });

  test('weights in two directories', async () => {
    const hub = await startHub();
    const files = filesOf(packDirectory('olmoe'));
    hub.add(ID, { ...files, 'deep/model.safetensors': files[SHARDS[0]] });
    const at = { hub, destination: path.join(temporary(), 'out'), cache: temporary() };
    await expect(convertFrom(at, {}, { include: ['**/*.safetensors', '*.safetensors'] })).rejects.toMatchObject({
      code: 'SOURCE_AMBIGUOUS',
    });
  });
});
