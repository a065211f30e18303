/** Flags that contradict each other, or the files that they name, are wrong usage, whoever finds it out. */

import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';

const TRACE = 'test/replay/traces/qwen3-shape.trace';
const ENGINE = ['--model', 'test/oracles/olmoe', '--ram', '1G', '--ctx', '64', '--threads', '1'];

const root = fs.mkdtempSync(path.join(os.tmpdir(), 'coli-flags-'));
afterAll(() => fs.rmSync(root, { recursive: true, force: true }));

function refusal(...args: string[]) {
  const { status, stdout } = spawnSync(process.execPath, ['bin/coli.js', ...args, '--json'], {
    encoding: 'utf8',
    env: { ...process.env, XDG_CACHE_HOME: path.join(root, 'cache') },
  });
  return { status, ...JSON.parse(stdout).error };
}

test('a replay with fewer slots than a token needs', () => {
  expect(refusal('trace', 'replay', TRACE, '--slots', '1')).toMatchObject({ status: 2, code: 'BAD_SLOTS' });
});

test('a trace that is not there is not to be downloaded', () => {
  const missing = path.join(root, 'missing');
  const { status, message, hint } = refusal('trace', 'replay', missing);
  expect({ status, message }).toEqual({ status: 1, message: `${missing}: there is no such file` });
  expect(hint).toMatch(/--trace/);
});

test('speeds for another number of drives', () => {
  expect(refusal('run', ...ENGINE, '--drive-speeds', '1,2', 'hi')).toMatchObject({
    status: 2,
    code: 'BAD_DRIVE_SPEEDS',
  });
});

test('a history that is none', () => {
  const junk = path.join(root, 'plan.json');
  fs.writeFileSync(junk, '{}');
  for (const usage of [junk, 'raed', path.join(root, 'no', 'x')]) {
    expect(refusal('run', ...ENGINE, '--usage', usage, 'hi')).toMatchObject({ status: 2, code: 'BAD_USAGE' });
  }
  expect(fs.readdirSync(root)).toEqual(['plan.json']);
  expect(fs.existsSync('raed')).toBe(false);
});
