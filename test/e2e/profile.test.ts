/** What `run --profile` adds to an answer, and that it takes nothing away. */

import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { expect, test } from 'vitest';

const MODEL = path.resolve('test/oracles/olmoe');
const RUN = [
  'run',
  '--model',
  MODEL,
  '--ram',
  '1G',
  '--ctx',
  '64',
  '--threads',
  '2',
  '--expert-slots',
  '12',
  '--usage',
  'off',
];
const WORDS = ['--ignore-eos', '--max-tokens', '8', '--seed', '5', 'hello', 'there'];

function coli(...args: readonly string[]) {
  const env: NodeJS.ProcessEnv = { ...process.env, NO_COLOR: '1' };
  for (const name of ['COLI_MODEL', 'COLI_DEBUG', 'FORCE_COLOR']) delete env[name];
  return spawnSync(process.execPath, ['bin/coli.js', ...RUN, ...args, ...WORDS], { encoding: 'utf8', input: '', env });
}

test('the answer is the same to the byte; the table has 80 columns and names a limit', () => {
  const plain = coli();
  const profiled = coli('--profile');
  expect(profiled.status).toBe(0);
  expect(profiled.stdout).toBe(plain.stdout);
  const lines = profiled.stderr.split('\n');
  expect(Math.max(...lines.slice(lines.indexOf('')).map(line => line.length))).toBeLessThanOrEqual(80);
  expect(profiled.stderr).toMatch(/^phi \d+\.\d\d = .+; limit: (the disk|memory|arithmetic|latency)/m);
  // what the model does not have
  expect(profiled.stderr).not.toMatch(/dense MLPs|shared experts/);
  for (const title of ['where the time went', 'experts', 'disk', 'percentiles', 'slowest layers']) {
    expect(profiled.stderr).toMatch(new RegExp(`^${title}`, 'm'));
  }
});

test('--json has the profile as an object whose sums are those of the statistics', () => {
  const { stdout, stderr } = coli('--profile', '--json');
  expect(stderr).toBe('');
  const { profile, stats } = JSON.parse(stdout);
  expect(profile.version).toBe(1);
  const { prompt, decode } = profile;
  expect(prompt.prompt_rows).toBe(stats.prefill_tokens);
  expect(decode.decode_rows).toBe(stats.decode_tokens - 1);
  expect(prompt.experts.requests + decode.experts.requests).toBe(stats.expert_requests);
  expect(prompt.disk.bytes + decode.disk.bytes).toBe(stats.bytes_read);
  expect((prompt.wait_us + decode.wait_us) / 1e6).toBeCloseTo(stats.read_wait_s, 9);
  for (const period of [prompt, decode]) {
    const { pinned, cached, ahead, disk, requests } = period.experts;
    expect(pinned.hits + cached.hits + ahead.hits + disk.hits).toBe(requests);
    expect(period.disk.bytes_by_drive.reduce((a: number, b: number) => a + b)).toBe(period.disk.bytes);
  }
  expect(profile.percentiles.token_us.count).toBe(stats.decode_tokens - 1);
  expect(profile.layers.decode.wait_us).toHaveLength(profile.layers.decode.requests.length);
  expect(profile.speed.phi).toBeCloseTo(profile.speed.ceiling_us / profile.speed.measured_us, 9);
  expect(profile.limits.disk_bytes_per_second).toBeGreaterThan(0);
});
