/** `coli plan` and `--plan` from the command line. */

import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const PACK = resolve('test/oracles/olmoe');
const folder = mkdtempSync(join(tmpdir(), 'coli-plan-e2e-'));
const file = join(folder, 'a plan.json');
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function coli(...args: string[]) {
  const env = { ...process.env, COLI_MODEL: '', NO_COLOR: '1', XDG_CACHE_HOME: join(folder, 'cache') };
  const { status, stdout, stderr } = spawnSync(process.execPath, ['bin/coli.js', ...args], { encoding: 'utf8', env });
  return { status, stdout, stderr };
}

const SETTINGS = ['--ram', '700M', '--ctx', '128', '--threads', '1', '--expert-slots', '20', '--chunk', '16'];

describe('a plan that is written and used', () => {
  beforeAll(() => {
    const { status, stdout, stderr } = coli('plan', '--model', PACK, ...SETTINGS, '--out', file);
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    expect(stdout).toContain(`load with --plan ${file}`);
    expect(stdout).toMatch(/^speed {6}about [\d.]+ tok\/s/m);
  });

  test('by run, which tells what was planned and what was taken', () => {
    const run = coli('run', '--model', PACK, '--plan', file, '--max-tokens', '3', '--ignore-eos', '--json', 'hello');
    expect(run.status, run.stdout).toBe(0);
    const { memory, stats } = JSON.parse(run.stdout);
    const plan = JSON.parse(readFileSync(file, 'utf8'));
    const { total_bytes, resident_bytes, kv_bytes, slots_bytes } = plan.memory;
    expect(memory.planned).toMatchObject({ resident_bytes, kv_bytes, slots_bytes });
    expect(memory.max_rss_bytes).toBeGreaterThanOrEqual(stats.max_rss_bytes);
    expect(memory.max_rss_bytes).toBeLessThanOrEqual(memory.planned.total_bytes);
    expect(memory.warning).toBeNull();
    // a first start of the engine from source may need more than a plan that was made when nothing had to be compiled
    expect(memory.planned.total_bytes).toBeGreaterThanOrEqual(total_bytes - plan.memory.overhead.first_start);
    expect(stats.threads).toBe(1);
  });

  test('by info', () => {
    const { stdout } = coli('info', '--model', PACK, '--plan', file, '--json');
    expect(JSON.parse(stdout)).toMatchObject({ context: 128, plan: { expert_slots: 20, chunk_tokens: 16 } });
  });

  test('not with a flag that contradicts it', () => {
    const { status, stdout } = coli('run', '--model', PACK, '--plan', file, '--ctx', '64', '--json', 'hello');
    expect(status).toBe(2);
    const { error } = JSON.parse(stdout);
    expect(error.code).toBe('PLAN_CONFLICT');
    expect(error.message).toContain('--ctx 64 contradicts the plan, whose settings.context is 128');
  });

  test('not for another model, and not when it is damaged', () => {
    expect(coli('run', '--model', 'models/nano', '--plan', file, 'hello').stderr).toContain(
      'the plan is for another model (model.identity): olmoe',
    );
    const damaged = join(folder, 'damaged.json');
    writeFileSync(damaged, readFileSync(file, 'utf8').slice(0, 500));
    const { status, stderr } = coli('run', '--model', PACK, '--plan', damaged, 'hello');
    expect(status).toBe(1);
    expect(stderr).toMatch(
      /^coli: the plan cannot be read: .*damaged\.json.*; make it again with coli plan --out FILE$/m,
    );
  });
});

test('the second plan uses what the first has measured', () => {
  const plan = () => JSON.parse(coli('plan', '--model', PACK, ...SETTINGS, '--json').stdout);
  plan();
  const { ceilings, version } = plan();
  expect(version).toBe(1);
  expect([ceilings.disk.fresh, ceilings.memory.fresh]).toEqual([false, false]);
});

test('--no-measure looks at nothing new', () => {
  const { stdout } = coli(
    'plan',
    '--model',
    PACK,
    ...SETTINGS,
    '--threads',
    '1',
    '--readers',
    '3',
    '--no-measure',
    '--json',
  );
  expect(JSON.parse(stdout)).toMatchObject({ ceilings: { disk: null }, prediction: null });
});

test('a server needs more', () => {
  const plan = (...more: string[]) =>
    JSON.parse(coli('plan', '--model', PACK, ...SETTINGS, '--no-measure', '--json', ...more).stdout);
  const [alone, served] = [plan(), plan('--serve', '--slots', '2')];
  expect(served.settings).toMatchObject({ server: true, sessions: 2 });
  expect(served.memory.overhead.server).toBeGreaterThan(1e8);
  expect(served.memory.total_bytes).toBeGreaterThan(alone.memory.total_bytes + 1e8);
});

test('a server by a plan made without --serve is told to make it again, not to contradict it', () => {
  const path = join(folder, 'no server.json');
  expect(coli('plan', '--model', PACK, ...SETTINGS, '--no-measure', '--ram', '350M', '--out', path).status).toBe(0);
  const { status, stderr } = coli('serve', '--model', PACK, '--plan', path, '--port', '0');
  expect(status).toBe(1);
  expect(stderr).toContain('"code":"PLAN_OUTGROWN"');
  expect(stderr).toMatch(
    /it was made without --serve; make it again with coli plan --out FILE, with --serve and --ram \d+M/,
  );
});

test('a directory of saved conversations is in the plan of a server', () => {
  const plan = (...more: string[]) =>
    JSON.parse(coli('plan', '--model', PACK, ...SETTINGS, '--no-measure', '--json', '--serve', ...more).stdout);
  expect(plan().memory.overhead.saved_kv).toBe(0);
  expect(plan('--kv-dir', join(folder, 'kv')).memory.overhead.saved_kv).toBeGreaterThan(0);
  expect(coli('plan', '--kv-dir-size', '1G').status).toBe(2);
});

test('a budget that is too small is refused as info refuses it', () => {
  const [plan, info] = ['plan', 'info'].map(command => coli(command, '--model', PACK, '--ram', '50M', '--ctx', '128'));
  expect(plan.status).toBe(1);
  expect(plan.stderr).toContain('the smallest possible is --ram ');
  expect(plan).toEqual(info);
});

test('an older plan may be replaced, any other file not', () => {
  const out = join(folder, 'again.json');
  const made = () => coli('plan', '--model', PACK, ...SETTINGS, '--no-measure', '--out', out);
  expect(made().status).toBe(0);
  const first = readFileSync(out, 'utf8');
  expect(made().status).toBe(0);
  expect(JSON.parse(readFileSync(out, 'utf8')).model).toEqual(JSON.parse(first).model);
  expect(coli('plan', '--model', PACK, ...SETTINGS, '--no-measure', '--out', '/dev/null').status).toBe(2);
  for (const content of ['precious', '{"model_type": "olmoe"}']) {
    writeFileSync(out, content);
    const { status, stderr } = made();
    expect(status).toBe(2);
    expect(stderr).toContain('exists and is no plan');
    expect(readFileSync(out, 'utf8')).toBe(content);
  }
});

test('a place where nothing can be written is an error', () => {
  const { status, stderr } = coli(
    'plan',
    '--model',
    PACK,
    ...SETTINGS,
    '--no-measure',
    '--out',
    join(folder, 'no', 'x'),
  );
  expect(status).toBe(1);
  expect(stderr).toContain('the plan cannot be written');
});
