/** `coli tune` on the bundled model: it measures, keeps a profile, and the other commands go by it without another answer. */

import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { profileSchema } from '../../src/tune/profile.ts';

/** All but what is tried: reading ahead, and the direct or buffered reads. */
const FIXED = ['--readers', '2', '--policy', 'lru', '--threads', '1', '--chunk', '64', '--expert-slots', '48'];
const SMALL = ['--pairs', '1', '--tokens', '4'];
const QUESTION = ['--temperature', '0', '--max-tokens', '12', 'What does grep do?'];

let folder: string;
let env: NodeJS.ProcessEnv;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'coli-tune-'));
  env = { ...process.env, NO_COLOR: '1', XDG_CONFIG_HOME: folder, COLI_MODEL: '' };
  delete env['COLI_MODEL'];
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function coli(...args: string[]) {
  return spawnSync(process.execPath, ['bin/coli.js', ...args], { encoding: 'utf8', env, input: '' });
}

const profiles = () => (existsSync(join(folder, 'colibri/tuning')) ? readdirSync(join(folder, 'colibri/tuning')) : []);
const profileFile = () => join(folder, 'colibri/tuning', profiles()[0]);

test('what was measured is told and kept, for this model alone', () => {
  const { status, stdout, stderr } = coli('tune', ...FIXED, ...SMALL, '--json');
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  const { path, ...profile } = JSON.parse(stdout);
  expect(path).toBe(profileFile());
  expect(profileSchema.parse(JSON.parse(readFileSync(path, 'utf8')))).toEqual(profile);
  expect(profile.trials.map(({ knob, value }: { knob: string; value: string }) => `${knob} ${value}`)).toEqual([
    'io buffered',
    'prefetch off',
    'prefetch on',
  ]);
  for (const { before, after } of profile.trials) {
    expect(before).toHaveLength(1);
    expect(after[0].digest).toBe(before[0].digest);
    expect(after[0].tokensPerSecond).toBeGreaterThan(0);
  }
  expect(profile.complete).toBe(true);
});

test('runs go by the profile, say so, and give the same answer as without it', () => {
  const profile = JSON.parse(readFileSync(profileFile(), 'utf8'));
  writeFileSync(profileFile(), JSON.stringify({ ...profile, settings: { io: 'buffered', readers: 3, threads: 1 } }));
  const tuned = coli('run', ...QUESTION);
  expect(tuned.stderr).toMatch(
    /tuned on \d{4}-\d\d-\d\d with [\d.]+ [MG]B: buffered reads, 3 readers, 1 thread \(--no-tuned leaves this out\)/,
  );
  const plain = coli('run', '--no-tuned', ...QUESTION);
  expect(plain.stderr).not.toContain('tuned on');
  expect(plain.stdout).toBe(tuned.stdout);
  const info = JSON.parse(coli('info', '--json').stdout);
  expect(info.compute).toMatchObject({ direct_io: false, readers: 3, threads: 1 });
  // what is on the command line counts more
  expect(coli('run', '--io', 'direct', '--readers', '1', '--threads', '2', ...QUESTION).stderr).not.toContain(
    'tuned on',
  );
  expect(coli('run', '--model', 'test/oracles/olmoe', '--max-tokens', '1', 'a').stderr).not.toContain('tuned on');
});

test('what a budget is too small for is left out of a profile, and told', () => {
  const profile = JSON.parse(readFileSync(profileFile(), 'utf8'));
  writeFileSync(profileFile(), JSON.stringify({ ...profile, settings: { io: 'buffered', readers: 250 } }));
  const { status, stderr } = coli('run', '--ram', '1G', ...QUESTION);
  expect(status, stderr).toBe(0);
  expect(stderr).toContain(': buffered reads (--no-tuned leaves this out)');
  expect(stderr).toContain('250 readers left out, because the budget has no memory for it');
  const info = coli('info', '--ram', '1G');
  expect(info.status, info.stderr).toBe(0);
  expect(info.stdout).toContain('250 readers left out');
  // where it is too small anyway, the profile is not to blame
  expect(coli('info', '--ram', '20M').stderr).not.toContain('readers');
});

test('a damaged profile is a note, and the next tuning replaces it', () => {
  writeFileSync(profileFile(), '{');
  const { status, stderr } = coli('run', ...QUESTION);
  expect(status).toBe(0);
  expect(stderr).toContain('is not used');
});

/** Resolves when stderr has the text. */
function saying(child: ChildProcess, text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    let said = '';
    child.stderr!.on('data', data => {
      said += data;
      if (said.includes(text)) resolve();
    });
    child.on('close', () => reject(new Error(said)));
  });
}

test('Ctrl-C keeps what is known so far', async () => {
  rmSync(profileFile());
  const child = spawn(process.execPath, ['bin/coli.js', 'tune', ...FIXED, ...SMALL], { env });
  const ended = new Promise<number | null>(resolve => child.on('close', resolve));
  await saying(child, 'buffered reads');
  child.kill('SIGINT');
  expect(await ended).toBe(130);
  const profile = profileSchema.parse(JSON.parse(readFileSync(profileFile(), 'utf8')));
  expect(profile.complete).toBe(false);
  expect(profile.trials[0].after).toHaveLength(1);
  expect(profile.trials.at(-1)!.reason).toBe('interrupted');
});

test('Ctrl-C before anything is known leaves an earlier profile alone', async () => {
  const before = readFileSync(profileFile(), 'utf8');
  const child = spawn(process.execPath, ['bin/coli.js', 'tune', ...FIXED, '--pairs', '9', '--tokens', '200'], { env });
  const ended = new Promise<number | null>(resolve => child.on('close', resolve));
  await saying(child, 'models/nano');
  child.kill('SIGINT');
  await ended;
  expect(readFileSync(profileFile(), 'utf8')).toBe(before);
});

test('a directory that cannot be written is told before anything is measured', () => {
  const file = join(folder, 'file');
  writeFileSync(file, '');
  const { status, stderr } = spawnSync(process.execPath, ['bin/coli.js', 'tune', ...FIXED, ...SMALL], {
    encoding: 'utf8',
    env: { ...env, XDG_CONFIG_HOME: file },
  });
  expect(status).toBe(1);
  expect(stderr).toContain('colibri/tuning cannot be written');
  expect(stderr).toContain('XDG_CONFIG_HOME');
});

test('prompts that are none are refused before anything is measured', () => {
  const file = join(folder, 'one.txt');
  writeFileSync(file, 'only one\n\n');
  const { status, stderr } = coli('tune', '--prompts', file);
  expect(status).toBe(2);
  expect(stderr).toContain('has fewer than two lines that are not empty');
});
