/** What the tests of downloads share: a model of a few hundred kB, waits of no time, a directory per test. */

import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { onTestFinished } from 'vitest';
import { parseRepoName } from '../../src/hub/names.ts';
import { type PullOptions, type PullReport, pullModel } from '../../src/hub/pull.ts';
import type { Timing } from '../../src/hub/retry.ts';
import { FakeHub, noise } from '../support/fake-hub.ts';

export const NO_WAITING: Timing = { firstWaitMs: 0, longestWaitMs: 0, idleMs: 30_000 };
export const ID = 'org/model';
export const SHARD = 'model-00001-of-00002.safetensors';
export const SHARD_BYTES = 300_000;

export function modelFiles(): Record<string, Buffer | string> {
  return {
    'config.json': '{"model_type":"olmoe"}',
    'tokenizer.json': noise(5000, 1),
    'model.safetensors.index.json': JSON.stringify({
      weight_map: { a: SHARD, b: 'model-00002-of-00002.safetensors' },
    }),
    [SHARD]: noise(SHARD_BYTES, 2),
    'model-00002-of-00002.safetensors': noise(40_000, 3),
    'README.md': 'read me',
    LICENSE: 'do as you like',
    'pytorch_model.bin': noise(3000, 4),
  };
}

export async function startHub(): Promise<FakeHub> {
  const hub = await FakeHub.start();
  onTestFinished(() => hub.stop());
  return hub;
}

export async function hubWithModel(): Promise<FakeHub> {
  const hub = await startHub();
  hub.add(ID, modelFiles());
  return hub;
}

export function temporary(): string {
  const directory = mkdtempSync(path.join(tmpdir(), 'coli-hub-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

export function pull(
  hub: FakeHub,
  cache: string,
  more: Partial<PullOptions> & { model?: string; token?: string } = {},
): Promise<PullReport> {
  const { model = ID, token = null, ...options } = more;
  return pullModel({
    name: parseRepoName(model),
    settings: { endpoint: hub.endpoint, token, cache },
    timing: NO_WAITING,
    ...options,
  });
}

interface Ended {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** The real program, whose hub this one is; it ends with the test. `extra`: more of its environment, such as HF_HUB_CACHE. */
export function startColi(hub: FakeHub, args: readonly string[], extra: Record<string, string> = {}) {
  const env: NodeJS.ProcessEnv = { ...process.env, NO_COLOR: '1', HF_ENDPOINT: hub.endpoint };
  // neither the token nor the home of whoever runs the tests
  for (const name of ['COLI_MODEL', 'HF_TOKEN', 'HUGGING_FACE_HUB_TOKEN', 'HF_HUB_OFFLINE']) delete env[name];
  const child = spawn(process.execPath, ['bin/coli.js', ...args], {
    env: { ...env, HF_TOKEN_PATH: '/nowhere', HF_HUB_CACHE: '/nowhere', ...extra },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  const ended = new Promise<Ended>(resolve => {
    let [stdout, stderr] = ['', ''];
    child.stdout.on('data', data => (stdout += data));
    child.stderr.on('data', data => (stderr += data));
    child.on('close', status => resolve({ status, stdout, stderr }));
  });
  return { child, ended };
}
