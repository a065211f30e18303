/** coli doctor about the machine, the place of the model and what lies beside it; and the command itself. */

import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { doctorLines } from '../../src/cli/doctor-report.ts';
import { KernelError } from '../../src/common/errors.ts';
import { CHECKS } from '../../src/doctor/checks.ts';
import { DoctorReportJson } from '../../src/doctor/report.ts';
import { type DoctorReport, runDoctor } from '../../src/doctor/run.ts';
import type { Check, CheckResult, DoctorOptions, Host } from '../../src/doctor/types.ts';
import { modelIdentity } from '../../src/engine/identity.ts';
import { readModel } from '../../src/engine/model-files.ts';
import { Usage } from '../../src/experts/usage/heat.ts';
import { encodeUsage } from '../../src/experts/usage/usage-bytes.ts';
import { compileWasm } from '../../src/kernels/wasm/wasm.ts';
import { pull, startHub } from '../hub/support.ts';
import { NANO } from '../support/nano.ts';
import { packDirectory } from '../support/packs.ts';

const OLMOE = packDirectory('olmoe');

function temporary(): string {
  const directory = fs.mkdtempSync(path.join(os.tmpdir(), 'coli-doctor-'));
  onTestFinished(() => fs.rmSync(directory, { recursive: true, force: true }));
  return directory;
}

interface Asked {
  readonly model?: string;
  readonly options?: Partial<DoctorOptions>;
  readonly host?: Partial<Host>;
  readonly checks?: readonly Check[];
}

/** Only the checks with these ids, and what they need. */
function doctor(ids: readonly string[], { model = OLMOE, options, host }: Asked = {}): Promise<DoctorReport> {
  const wanted = new Set(ids);
  for (const check of CHECKS.toReversed()) if (wanted.has(check.id)) for (const need of check.needs) wanted.add(need);
  const checks = CHECKS.filter(({ id }) => wanted.has(id));
  return runDoctor({ locate: () => model, context: 64, ...options }, host, checks);
}

async function one(id: string, asked: Asked = {}): Promise<CheckResult> {
  const { checks } = await doctor([id], asked);
  return checks.find(check => check.id === id)!;
}

/** A root directory with these files, for facts of another machine. */
function machine(files: Record<string, string>): Partial<Host> {
  const root = temporary();
  for (const [name, text] of Object.entries(files)) {
    fs.mkdirSync(path.dirname(path.join(root, name)), { recursive: true });
    fs.writeFileSync(path.join(root, name), text);
  }
  return { root };
}

describe('the machine', () => {
  test('an old Node', async () => {
    expect(await one('node.version', { host: { nodeVersion: '20.11.0' } })).toMatchObject({
      status: 'fail',
      fix: expect.stringContaining('install Node 24'),
    });
  });

  test('native kernels that are not built, and the reason', async () => {
    const host = {
      kernelSources: {
        compile: compileWasm,
        loadNative: () => {
          throw new KernelError('KERNELS_NOT_BUILT', 'native kernels are not built: no C compiler');
        },
      },
    };
    const found = await one('kernels.selected', { host });
    expect(found.status).toBe('warn');
    expect(found.summary).toContain('no C compiler');
    expect(found.details.kernels).toMatch(/^wasm-/);
    expect(await one('kernels.selected', { host, options: { kernels: 'wasm' } })).toMatchObject({ status: 'pass' });
    const error = await one('kernels.selected', { host, options: { kernels: 'native' } });
    expect(error).toMatchObject({ status: 'fail', details: { code: 'KERNEL_UNAVAILABLE' } });
  });

  test('kernels that compute something else', async () => {
    const compile = (variant: Parameters<typeof compileWasm>[0]) => {
      const bytes = fs.readFileSync(`src/kernels/wasm/build/${variant}.wasm`);
      // every f32x4.div becomes f32x4.mul
      const [div, mul] = [Buffer.from([0xfd, 0xe7, 0x01]), Buffer.from([0xfd, 0xe6, 0x01])];
      for (let at = bytes.indexOf(div); at >= 0; at = bytes.indexOf(div, at)) mul.copy(bytes, at);
      return new WebAssembly.Module(bytes);
    };
    const loadNative = () => {
      throw new KernelError('KERNELS_NOT_BUILT', 'none');
    };
    const found = await one('kernels.selftest', { host: { kernelSources: { compile, loadNative } } });
    expect(found.status).toBe('fail');
    expect(found.summary).toContain('wasm-baseline: self-test failed');
    expect(await one('kernels.selftest')).toMatchObject({ status: 'pass' });
  });

  test('huge pages and little memory', async () => {
    const host = machine({
      'sys/kernel/mm/transparent_hugepage/enabled': 'always [madvise] never\n',
      'proc/meminfo': 'MemAvailable:  900000 kB\n',
    });
    expect(await one('memory.huge-pages', { host })).toMatchObject({ status: 'pass', details: { setting: 'madvise' } });
    expect(await one('memory.huge-pages', { host: machine({}) })).toMatchObject({ status: 'skip' });
    expect(await one('memory.available', { host })).toMatchObject({
      status: 'warn',
      details: { available_bytes: 921_600_000, cgroup_left_bytes: null },
    });
    const grouped = machine({
      'proc/meminfo': 'MemAvailable:  90000000 kB\n',
      'proc/self/cgroup': '0::/\n',
      'sys/fs/cgroup/memory.max': '500000000\n',
      'sys/fs/cgroup/memory.current': '100000000\n',
    });
    expect(await one('memory.available', { host: grouped })).toMatchObject({
      status: 'warn',
      details: { cgroup_left_bytes: 400_000_000 },
    });
  });

  test('a budget that cannot hold the model: the numbers of the refusal', async () => {
    const found = await one('memory.plan', { options: { ram: 20_000_000 } });
    expect(found).toMatchObject({ status: 'fail', details: { code: 'RAM_TOO_SMALL' } });
    expect(found.summary).toMatch(/resident weights .* MB/);
    expect(found.fix).toContain('--ram');
  });

  test('too few open files', async () => {
    const limits = (n: string) =>
      machine({ 'proc/self/limits': `Limit  Soft Limit\nMax open files            ${n}   ${n}  files\n` });
    const statusAt = async (n: string) => (await one('limits.open-files', { host: limits(n) })).status;
    expect(await statusAt('100')).toBe('fail');
    expect(await statusAt('200')).toBe('warn');
    expect(await statusAt('4096')).toBe('pass');
    expect(await statusAt('unlimited')).toBe('pass');
    expect((await one('limits.open-files', { host: limits('100') })).fix).toContain('ulimit -n');
  });
});

describe('where the model lies', () => {
  const mounts = (type: string, more: Record<string, string> = {}) =>
    machine({
      'proc/self/mountinfo': [
        '20 1 8:1 / / rw - ext4 /dev/sda1 rw',
        `21 20 0:44 / ${path.dirname(OLMOE).replaceAll(' ', '\\040')} ro,noatime shared:1 - ${type} server:/models rw`,
        '22 20 0:45 / /elsewhere rw - nfs4 other:/ rw',
      ].join('\n'),
      ...more,
    });

  test.each([
    ['xfs', 'pass'],
    ['nfs4', 'warn'],
    ['fuse.sshfs', 'warn'],
    ['tmpfs', 'warn'],
    ['overlay', 'pass'],
  ])('%s: %s', async (type, status) => {
    const found = await one('storage.filesystem', { host: mounts(type) });
    expect(found.status).toBe(status);
    expect(found.details.mounts).toMatchObject([{ point: path.dirname(OLMOE), type, read_only: true }]);
  });

  test('a disk with moving parts, by the queue of the device', async () => {
    const queue = { 'sys/dev/block/0:44/queue/rotational': '1\n' };
    expect(await one('storage.filesystem', { host: mounts('ext4', queue) })).toMatchObject({ status: 'warn' });
    const solid = { 'sys/dev/block/0:44/queue/rotational': '0\n' };
    expect((await one('storage.filesystem', { host: mounts('ext4', solid) })).summary).toContain('solid-state');
  });

  test('a path with blanks is found in the table of mounts', async () => {
    const directory = path.join(temporary(), 'a b ü');
    fs.cpSync(OLMOE, directory, { recursive: true });
    const host = machine({ 'proc/self/mountinfo': `9 1 0:9 / ${directory.replaceAll(' ', '\\040')} rw - cifs x rw\n` });
    expect(await one('storage.filesystem', { model: directory, host })).toMatchObject({ status: 'warn' });
  });

  test('direct reads are refused', async () => {
    const found = await one('storage.direct-io');
    expect(found.details.direct).toBe(found.status === 'pass');
  });

  test('the disk is not measured with --quick, or where there is no memory for it', async () => {
    expect(await one('storage.speed', { options: { quick: true } })).toMatchObject({ status: 'skip' });
    const host = machine({ 'proc/meminfo': 'MemAvailable:  900000 kB\n' });
    const found = await one('storage.speed', { host });
    expect(found.status).toBe('skip');
    expect(found.summary).toContain('more than is available');
  });
});

describe('beside the model', () => {
  const owner = () => {
    const files = readModel({ model: OLMOE });
    const { layers, experts, topK } = files.shape;
    return { identity: modelIdentity(files), shape: { layers, experts, topK } };
  };

  test('a history of use: none, ours, damaged, of another model', async () => {
    const file = path.join(temporary(), 'usage');
    const asked = { options: { usage: file } };
    expect(await one('sidecars.usage', asked)).toMatchObject({
      status: 'pass',
      details: { files: [{ state: 'absent' }] },
    });
    const bytes = encodeUsage(new Usage(owner().shape), owner().identity);
    fs.writeFileSync(file, bytes);
    expect(await one('sidecars.usage', asked)).toMatchObject({ status: 'pass', details: { tokens: 0 } });
    fs.writeFileSync(file, bytes.subarray(0, 100));
    expect(await one('sidecars.usage', asked)).toMatchObject({
      status: 'warn',
      details: { files: [{ state: 'damaged' }] },
    });
    fs.writeFileSync(file, encodeUsage(new Usage(owner().shape), 'ab'.repeat(32)));
    expect((await one('sidecars.usage', asked)).status).toBe('warn');
    fs.writeFileSync(`${file}.trace`, 'no trace');
    expect(await one('sidecars.trace', asked)).toMatchObject({ status: 'warn', details: { code: 'TRACE_INVALID' } });
    expect(await one('sidecars.usage', { options: { usage: 'off' } })).toMatchObject({ status: 'skip' });
  });

  test('a plan that is none', async () => {
    const file = path.join(temporary(), 'plan.json');
    fs.writeFileSync(file, '{"version": 99}');
    const found = await one('sidecars.plan', { options: { plan: file } });
    expect(found).toMatchObject({ status: 'fail', details: { code: 'PLAN_VERSION' } });
  });

  test('saved keys and values', async () => {
    const kvDir = path.join(temporary(), 'kv');
    const asked = { options: { kvDir } };
    expect(await one('sidecars.kv-dir', asked)).toMatchObject({ status: 'pass' });
    fs.mkdirSync(kvDir, { mode: 0o700 });
    const block = path.join(kvDir, `00000000-${'a'.repeat(64)}.kv`);
    fs.writeFileSync(block, Buffer.alloc(200));
    expect(await one('sidecars.kv-dir', asked)).toMatchObject({
      status: 'warn',
      details: { of_this_model: 0, blocks: 1 },
    });
    fs.truncateSync(block, 20);
    expect(await one('sidecars.kv-dir', asked)).toMatchObject({ status: 'warn', details: { unreadable: 1 } });
    fs.chmodSync(kvDir, 0o777);
    expect(await one('sidecars.kv-dir', asked)).toMatchObject({
      status: 'fail',
      fix: expect.stringContaining('chmod'),
    });
    expect(await one('sidecars.kv-dir', { options: { kvDir: path.join(OLMOE, 'config.json') } })).toMatchObject({
      status: 'fail',
    });
  });

  test('mirrors: what agrees, and what does not', async () => {
    const mirror = temporary();
    const shard = 'model-00001-of-00003.safetensors';
    fs.copyFileSync(path.join(OLMOE, shard), path.join(mirror, shard));
    const asked = { options: { mirrors: [mirror] } };
    const right = await one('mirror.files', asked);
    expect(right.details.mirrors).toMatchObject([{ directory: mirror, files: 1 }]);
    fs.truncateSync(path.join(mirror, shard), 1000);
    const wrong = await one('mirror.files', asked);
    expect(wrong).toMatchObject({ status: 'warn', details: { mirrors: [{ files: 0 }] } });
    expect(wrong.summary).toContain(shard);
    expect(await one('mirror.files', { options: { mirrors: ['/nowhere'] } })).toMatchObject({ status: 'warn' });
  });
});

describe('a model in the cache of the hub', () => {
  async function pulled() {
    const hub = await startHub();
    hub.add(
      'org/nano',
      Object.fromEntries(fs.readdirSync(NANO).map(name => [name, fs.readFileSync(path.join(NANO, name))])),
    );
    const cache = temporary();
    await pull(hub, cache, { model: 'org/nano' });
    const snapshots = path.join(cache, 'models--org--nano', 'snapshots');
    return { cache, directory: path.join(snapshots, fs.readdirSync(snapshots)[0]) };
  }

  test('every file against the name of its blob; a flipped bit, a blob that is gone, a download that broke off', async () => {
    const { cache, directory } = await pulled();
    const ids = ['model.links', 'model.hashes', 'model.leftovers', 'model.shards'];
    const asked = { model: directory, options: { deep: true } };
    const sound = await doctor(ids, asked);
    expect(sound.status).toBe('ok');
    const names = fs.readdirSync(directory);
    expect(sound.checks.at(-1)!.details).toMatchObject({
      hashes: names.length,
      from: 'names of the blobs in the cache',
    });

    const blob = fs.realpathSync(path.join(directory, 'model-00002-of-00002.safetensors'));
    const fd = fs.openSync(blob, 'r+');
    const at = fs.statSync(blob).size - 1;
    const last = Buffer.alloc(1);
    fs.readSync(fd, last, 0, 1, at);
    fs.writeSync(fd, Buffer.from([last[0] ^ 1]), 0, 1, at);
    fs.closeSync(fd);
    const flipped = await one('model.hashes', asked);
    expect(flipped.summary).toMatch(/^1 of \d+ differ .*"model-00002-of-00002.safetensors"$/);
    expect(flipped.fix).toBe(`delete ${blob}, then coli pull fetches it again`);

    fs.writeFileSync(path.join(path.dirname(blob), 'abc.coli.incomplete'), 'half');
    fs.rmSync(blob);
    const report = await doctor(ids, asked);
    const status = (id: string) => report.checks.find(check => check.id === id)!.status;
    expect([status('model.links'), status('model.shards'), status('model.leftovers')]).toEqual([
      'fail',
      'fail',
      'warn',
    ]);
    expect(status('model.hashes')).toBe('skip');

    const { status: code, json } = coli(['--model', 'org/nano', '--quick'], { HF_HUB_CACHE: cache });
    expect(code).toBe(1);
    expect(json.checks.find(({ id }) => id === 'model.path')).toMatchObject({
      status: 'fail',
      details: { code: 'MODEL_INCOMPLETE' },
      fix: 'coli pull org/nano continues',
    });
  });
});

function coli(args: readonly string[], extra: Record<string, string> = {}, before: readonly string[] = []) {
  const env: NodeJS.ProcessEnv = { ...process.env, NO_COLOR: '1', ...extra };
  for (const name of ['COLI_MODEL', 'COLI_DEBUG', 'FORCE_COLOR', 'COLI_USAGE']) if (!(name in extra)) delete env[name];
  const [program, ...rest] = [...before, process.execPath, 'bin/coli.js', 'doctor', '--json', ...args];
  const { status, stdout, stderr } = spawnSync(program, rest, { encoding: 'utf8', input: '', env });
  return { status, stderr, json: DoctorReportJson.parse(JSON.parse(stdout)) };
}

/** Everything below a directory: kinds, modes, sizes, times of change and contents. */
function tree(directory: string): string[] {
  return ['.', ...fs.readdirSync(directory, { recursive: true, encoding: 'utf8' })].sort().map(name => {
    const file = path.join(directory, name);
    const { mode, size, mtimeNs, ctimeNs, ino } = fs.lstatSync(file, { bigint: true });
    const isFile = fs.lstatSync(file).isFile();
    const content = isFile ? createHash('sha256').update(fs.readFileSync(file)).digest('hex') : '';
    return [name, mode, size, mtimeNs, ctimeNs, ino, content].join(' ');
  });
}

describe('the command', () => {
  test('writes nothing: not to the model, nor to the directories of the program, and a read-only model will do', () => {
    const root = temporary();
    const model = path.join(root, 'model');
    fs.cpSync(NANO, model, { recursive: true });
    const places = ['cache', 'config', 'home', 'tmp', 'kv'].map(name => path.join(root, name));
    for (const place of places) fs.mkdirSync(place, { mode: 0o700 });
    for (const name of fs.readdirSync(model)) fs.chmodSync(path.join(model, name), 0o444);
    fs.chmodSync(model, 0o555);
    const before = tree(root);
    const [cache, config, home, tmp, kv] = places;
    const env = { XDG_CACHE_HOME: cache, XDG_CONFIG_HOME: config, HOME: home, TMPDIR: tmp };
    const { status, json } = coli(['--deep', '--model', model, '--kv-dir', kv], env);
    expect(tree(root)).toEqual(before);
    expect(json.checks.filter(check => check.status === 'fail')).toEqual([]);
    expect(status).toBe(0);
    fs.chmodSync(model, 0o755);
  });

  test('a low ulimit of the process is seen', () => {
    const { status, json } = coli(['--quick', '--model', OLMOE], {}, [
      'bash',
      '-c',
      'ulimit -n 100; exec "$@"',
      'bash',
    ]);
    expect(json.checks.find(({ id }) => id === 'limits.open-files')).toMatchObject({
      status: 'fail',
      details: { limit: 100 },
    });
    expect(status).toBe(1);
  });

  test('a wrong flag is exit code 2', () => {
    const { status, stderr } = spawnSync(process.execPath, ['bin/coli.js', 'doctor', '--deeep'], { encoding: 'utf8' });
    expect({ status, stderr }).toMatchObject({ status: 2, stderr: expect.stringContaining('did you mean --deep?') });
  });

  test('the text: one line per check within 80 columns, problems last, errors first', async () => {
    const model = path.join(temporary(), 'model');
    fs.cpSync(OLMOE, model, { recursive: true });
    fs.writeFileSync(path.join(model, 'left.partial'), '');
    fs.truncateSync(path.join(model, 'tokenizer.json'), 100);
    const report = await doctor(['model.leftovers', 'model.template', 'memory.plan'], { model });
    const lines = doctorLines(report, Object.assign(Object.create(process.stdout), { isTTY: false }));
    expect(lines.slice(0, 2)).toEqual(['Machine', expect.stringMatching(/^ {2}ok {4}memory\.plan {6}\S/)]);
    expect(lines.filter(line => line.length > 80 && !line.includes(model))).toEqual([]);
    expect(lines.filter(line => /^(?:Error|Warning):/.test(line))).toEqual(
      ['Error: model.tokenizer (JSON_INVALID)', 'Warning: model.unused', 'Warning: model.leftovers'].filter(line =>
        lines.includes(line),
      ),
    );
    expect(lines.indexOf('Error: model.tokenizer (JSON_INVALID)')).toBeLessThan(
      lines.indexOf('Warning: model.leftovers'),
    );
    expect(lines).toContainEqual(expect.stringMatching(/^ {2}- {5}model\.template +needs model\.tokenizer$/));
    expect(lines.at(-1)).toMatch(/^1 error, \d warnings?, \d ok, 1 skipped\.$/);
  });

  test('what one check throws is its own failure', async () => {
    const group = 'machine';
    const boom = () => {
      throw new TypeError('x is not a function');
    };
    const checks: Check[] = [
      { id: 'a', group, needs: [], run: boom },
      { id: 'b', group, needs: ['a'], run: boom },
      { id: 'c', group, needs: [], run: () => ({ status: 'pass', summary: '', details: {}, fix: null }) },
    ];
    const report = await runDoctor({ locate: () => OLMOE }, {}, checks);
    expect(report.checks).toMatchObject([
      { id: 'a', status: 'fail', summary: 'x is not a function', details: { code: 'INTERNAL' } },
      { id: 'b', status: 'skip', summary: 'needs a' },
      { id: 'c', status: 'pass' },
    ]);
    expect(report.status).toBe('error');
  });
});
