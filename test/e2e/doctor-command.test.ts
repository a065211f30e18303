/** coli doctor as a command: what it prints and returns, that it writes nothing; and models in the cache of the hub. */

import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { doctorLines } from '../../src/cli/doctor-report.ts';
import { DoctorReportJson } from '../../src/doctor/report.ts';
import { runDoctor } from '../../src/doctor/run.ts';
import type { Check } from '../../src/doctor/types.ts';
import { pull, startHub } from '../hub/support.ts';
import { NANO } from '../support/nano.ts';
import { doctor, OLMOE, one, temporary } from './doctor-support.ts';

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
