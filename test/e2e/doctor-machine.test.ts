/** coli doctor about the machine, the place of the model and what lies beside it. */

import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { KernelError } from '../../src/common/errors.ts';
import type { Host } from '../../src/doctor/types.ts';
import { modelIdentity } from '../../src/engine/identity.ts';
import { readModel } from '../../src/engine/model-files.ts';
import { USAGE_FILE } from '../../src/engine/usage-place.ts';
import { Usage } from '../../src/experts/usage/heat.ts';
import { encodeUsage } from '../../src/experts/usage/usage-bytes.ts';
import { compileWasm } from '../../src/kernels/wasm/wasm.ts';
import { stageMirror } from '../../src/mirror/stage.ts';
import { PROFILE_VERSION, profileKey, saveProfile } from '../../src/tune/profile.ts';
import { copyOf, OLMOE, one, temporary } from './doctor-support.ts';

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
    const openFile = (file: string, flags: number) => {
      if (flags & fs.constants.O_DIRECT) throw Object.assign(new Error('EINVAL: invalid argument'), { code: 'EINVAL' });
      return fs.openSync(file, flags);
    };
    const host = { openFile };
    const found = await one('storage.direct-io', { host });
    expect(found).toMatchObject({ status: 'warn', details: { direct: false } });
    expect(found.summary).toContain('EINVAL');
    const demanded = await one('storage.direct-io', { host, options: { io: 'direct' } });
    expect(demanded).toMatchObject({ status: 'fail', details: { code: 'DIRECT_IO_REFUSED' } });
    expect(await one('storage.direct-io', { host, options: { io: 'buffered' } })).toMatchObject({ status: 'skip' });
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
    fs.writeFileSync(`${file}.lock`, 'left by a process that is gone');
    expect(await one('sidecars.usage', asked)).toMatchObject({
      status: 'pass',
      details: { files: [{ lock: 'left' }] },
    });
    fs.rmSync(`${file}.lock`);
    fs.mkdirSync(`${file}.lock`);
    expect(await one('sidecars.usage', asked)).toMatchObject({ status: 'warn', fix: `remove ${file}.lock` });
    fs.rmdirSync(`${file}.lock`);
    fs.writeFileSync(file, bytes.subarray(0, 100));
    expect(await one('sidecars.usage', asked)).toMatchObject({
      status: 'warn',
      details: { files: [{ state: 'damaged' }] },
    });
    fs.writeFileSync(file, encodeUsage(new Usage(owner().shape), 'ab'.repeat(32)));
    expect((await one('sidecars.usage', asked)).status).toBe('warn');
    expect((await one('sidecars.trace', asked)).status).toBe('skip');
    const model = copyOf(OLMOE);
    fs.writeFileSync(path.join(model, `${USAGE_FILE}.trace`), 'no trace');
    const damaged = await one('sidecars.trace', { model, options: { usage: 'on' } });
    expect(damaged).toMatchObject({ status: 'warn', details: { code: 'TRACE_INVALID' } });
    expect(await one('sidecars.usage', { options: { usage: 'off' } })).toMatchObject({ status: 'skip' });
  });

  test('what was tuned: nothing yet, settings, a damaged file', async () => {
    vi.stubEnv('XDG_CONFIG_HOME', temporary());
    onTestFinished(() => void vi.unstubAllEnvs());
    expect(await one('sidecars.tune')).toMatchObject({ status: 'pass', summary: 'none: coli tune makes one' });
    const file = saveProfile({
      version: PROFILE_VERSION,
      key: profileKey(OLMOE),
      created_at: new Date(0).toISOString(),
      program: '1',
      model: OLMOE,
      machine: 'm',
      budget_bytes: 4e9,
      complete: true,
      settings: { readers: 6 },
      together: [],
      trials: [],
    });
    expect(await one('sidecars.tune')).toMatchObject({ status: 'pass', details: { settings: { readers: 6 } } });
    fs.truncateSync(file, 20);
    expect(await one('sidecars.tune')).toMatchObject({ status: 'warn', fix: 'run coli tune again' });
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
    // temporary directories share a device, which is told and needs nothing
    expect(right).toMatchObject({ status: 'pass', fix: null, summary: expect.stringMatching(/on the same device/) });
    expect(right.details.mirrors).toMatchObject([{ directory: mirror, files: 1 }]);
    fs.truncateSync(path.join(mirror, shard), 1000);
    const wrong = await one('mirror.files', asked);
    expect(wrong).toMatchObject({ status: 'warn', details: { mirrors: [{ files: 0 }] } });
    expect(wrong.summary).toContain(shard);
    expect(wrong.fix).toMatch(/^copy again/);
    const nowhere = await one('mirror.files', { options: { mirrors: ['/nowhere'] } });
    expect(nowhere).toMatchObject({ status: 'warn', fix: 'check the path after --mirror' });
  });

  test('mirrors: the receipt, and every byte', async () => {
    const mirror = path.join(temporary(), 'mirror');
    const shard = path.join(mirror, 'model-00001-of-00003.safetensors');
    const files = readModel({ model: OLMOE });
    await stageMirror({ files, directory: mirror, reserveBytes: 0, usage: 'off', writer: 'test' });
    const asked = { options: { mirrors: [mirror], deep: true } };
    expect(await one('mirror.files', asked)).toMatchObject({ status: 'pass' });
    expect(await one('mirror.hashes', asked)).toMatchObject({ status: 'pass', details: { checked: 3, wrong: [] } });
    fs.utimesSync(shard, 1, 1);
    expect(await one('mirror.files', asked)).toMatchObject({
      status: 'warn',
      fix: expect.stringMatching(/coli mirror stage/),
    });
    expect(await one('mirror.hashes', asked)).toMatchObject({ status: 'pass' });
    const bytes = fs.readFileSync(shard);
    bytes[bytes.length - 1] ^= 1;
    fs.writeFileSync(shard, bytes);
    const found = await one('mirror.hashes', asked);
    expect(found).toMatchObject({ status: 'fail', details: { wrong: [{ file: shard }] } });
    expect(found.summary).toMatch(/SHA-256/);
    const stopped = { mirrors: [mirror], deep: true, signal: AbortSignal.abort() };
    expect(await one('mirror.hashes', { options: stopped })).toMatchObject({ status: 'skip' });
    // one that cannot be looked at does not hide the others
    const both = { mirrors: [path.join(OLMOE, 'config.json'), mirror], deep: true };
    expect((await one('mirror.hashes', { options: both })).details.wrong).toHaveLength(2);
  });
});
