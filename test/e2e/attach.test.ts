/** `coli chat --attach` with the real server: a conversation is the same, whoever computes it. */

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { NANO } from '../support/nano.ts';

const KEY = 'a-key-for-tests';
const QUESTIONS = 'Hello!\nWhat does grep do?\n';
const GREEDY = ['--temperature', '0', '--max-tokens', '24'];

let folder: string;
let server: ChildProcess;
let port: string;

function environment(extra: Record<string, string> = {}): NodeJS.ProcessEnv {
  const env: NodeJS.ProcessEnv = { ...process.env, NO_COLOR: '1', XDG_RUNTIME_DIR: folder };
  for (const name of ['COLI_MODEL', 'COLI_API_KEY', 'COLI_DEBUG', 'FORCE_COLOR']) delete env[name];
  return { ...env, ...extra };
}

/** Runs a chat from a pipe to its end. */
async function chat(args: readonly string[], { input = QUESTIONS, env = {} as Record<string, string> } = {}) {
  const child = spawn(process.execPath, ['bin/coli.js', 'chat', ...args], { env: environment(env) });
  let [stdout, stderr] = ['', ''];
  child.stdout.on('data', data => (stdout += data));
  child.stderr.on('data', data => (stderr += data));
  child.stdin.end(input);
  const [status] = await once(child, 'close');
  return { status, stdout, stderr };
}

beforeAll(async () => {
  folder = mkdtempSync(path.join(os.tmpdir(), 'coli-attach-'));
  const args = ['serve', '--model', NANO, '--port', '0', '--ctx', '128', '--threads', '1', '--log-level', 'silent'];
  const env = environment({ COLI_API_KEY: KEY, COLI_LAUNCHED: '1' });
  server = spawn(process.execPath, ['bin/coli.js', ...args], { env, stdio: ['ignore', 'ignore', 'pipe', 'ipc'] });
  port = await new Promise((resolve, reject) => {
    let told = '';
    server.stderr!.on('data', data => {
      told += data;
      const listening = /Listening on http:\/\/127\.0\.0\.1:(\d+)/.exec(told);
      if (listening) resolve(listening[1]);
    });
    server.once('exit', () => reject(new Error(`the server ended: ${told}`)));
  });
});

afterAll(async () => {
  const closed = once(server, 'exit');
  server.kill();
  await closed;
  rmSync(folder, { recursive: true, force: true });
});

test('the same text as with the engine in the process, from the moment the server listens', async () => {
  // the model may still be loading: the chat waits for it
  const attached = await chat(['--attach', `http://127.0.0.1:${port}/v1`, '--api-key', KEY, ...GREEDY]);
  const local = await chat(['--model', NANO, '--ram', '1G', '--ctx', '128', '--threads', '1', ...GREEDY]);
  expect(local).toMatchObject({ status: 0, stdout: expect.stringMatching(/^.+\n.+\n$/) });
  expect(attached).toMatchObject({ status: 0, stdout: local.stdout });
  expect(attached.stderr).toMatch(/^colibri \d\S+, attached to http:\/\/127\.0\.0\.1:\d+: nano \(olmoe, /m);
  expect(attached.stderr.match(/^\[\d+ tokens, .*first after .*, \d+ of \d+ prompt tokens cached\]$/gm)).toHaveLength(
    2,
  );
});

test('a port is enough for the user who started the server; the same seed gives the same text', async () => {
  const sampled = ['--attach', port, '--temperature', '1', '--seed', '5', '--max-tokens', '12', '--quiet'];
  const [first, second] = [await chat(sampled), await chat(sampled)];
  expect(first).toMatchObject({ status: 0, stderr: '' });
  expect(first.stdout).not.toBe('');
  expect(second).toEqual(first);
});

test('the key may be wrong, or missing', async () => {
  const url = ['--attach', `http://localhost:${port}`];
  const without = await chat(url);
  expect(without).toMatchObject({
    status: 1,
    stdout: '',
    stderr: expect.stringMatching(/asks for an API key; .*COLI_API_KEY\n$/),
  });
  const wrong = await chat(url, { env: { COLI_API_KEY: 'another' } });
  expect(wrong).toMatchObject({
    status: 1,
    stdout: '',
    stderr: expect.stringMatching(/does not accept this API key; /),
  });
});

test('what does not fit is told with the numbers, and the conversation goes on', async () => {
  const input = `${'long '.repeat(200)}\nHello!\n`;
  const { status, stdout, stderr } = await chat(['--attach', port, ...GREEDY], { input });
  expect(status).toBe(1);
  expect(stderr).toMatch(/^coli: the server says: the prompt has \d+ tokens; the context of 128 .*:undo.*:reset/m);
  expect(stderr).not.toContain('reach');
  expect(stdout).toMatch(/^.+\n$/);
});
