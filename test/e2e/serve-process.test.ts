/** `coli serve` and `coli stop` as processes: ports, signals, exit codes, runtime files. */

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';

let runtime: string;

beforeAll(() => {
  runtime = fs.mkdtempSync(path.join(os.tmpdir(), 'coli-test-'));
  return () => fs.rmSync(runtime, { recursive: true });
});

interface Coli {
  readonly child: ChildProcess;
  /** What has come on stderr so far. */
  readonly said: () => string;
  /** Exit code, or null when a signal ended it. */
  readonly code: Promise<number | null>;
  /** Waits until stderr matches. */
  until(pattern: RegExp): Promise<RegExpExecArray>;
}

function coli(...args: string[]): Coli {
  const env: NodeJS.ProcessEnv = { ...process.env, XDG_RUNTIME_DIR: runtime, NO_COLOR: '1', COLI_LAUNCHED: '1' };
  for (const name of ['COLI_MODEL', 'COLI_API_KEY', 'COLI_DEBUG']) delete env[name];
  const child = spawn(process.execPath, ['bin/coli.js', ...args], { env, stdio: ['ignore', 'ignore', 'pipe', 'ipc'] });
  onTestFinished(() => void child.kill('SIGKILL'));
  let text = '';
  const code = once(child, 'exit').then(([exitCode]) => exitCode as number | null);
  const closed = once(child.stderr!, 'close');
  const waiting = new Set<() => void>();
  child.stderr!.setEncoding('utf8').on('data', piece => {
    text += piece;
    for (const look of waiting) look();
  });
  return {
    child,
    said: () => text,
    code,
    until: pattern =>
      new Promise((resolve, reject) => {
        const look = () => {
          const match = pattern.exec(text);
          if (match) resolve(match);
        };
        waiting.add(look);
        look();
        closed.then(() => reject(new Error(`it ended before it said ${pattern}: ${text}`)));
      }),
  };
}

async function serve(...args: string[]) {
  const server = coli('serve', '--port', '0', '--log-level', 'warn', ...args);
  const [, port] = await server.until(/http:\/\/127\.0\.0\.1:(\d+)/);
  await server.until(/"msg":"Ready: nano/);
  return { ...server, port: Number(port), url: `http://127.0.0.1:${port}` };
}

const health = async (url: string) => (await fetch(`${url}/health`)).status;

async function post(url: string, body: object): Promise<Response> {
  const headers = { 'content-type': 'application/json' };
  return fetch(url, { method: 'POST', headers, body: JSON.stringify(body) });
}

/** A stream that goes on until its context is full, after its first piece. */
async function longStream(url: string) {
  const { tokens } = (await (await post(`${url}/tokenize`, { content: '<|end|>' })).json()) as { tokens: number[] };
  const logit_bias = Object.fromEntries(tokens.map(id => [id, -100]));
  const body = { prompt: 'Once', stream: true, max_tokens: 100_000, temperature: 0, logit_bias };
  const reader = (await post(`${url}/v1/completions`, body)).body!.getReader();
  const decoder = new TextDecoder();
  const first = decoder.decode((await reader.read()).value);
  const rest = async () => {
    let text = first;
    for (let next = await reader.read(); !next.done; next = await reader.read()) text += decoder.decode(next.value);
    return text;
  };
  return { rest };
}

describe('ports', () => {
  test('two servers: a port in use names its owner, and a stop ends one of them', async () => {
    const [a, b] = await Promise.all([serve(), serve()]);
    const third = coli('serve', '--port', String(a.port));
    expect(await third.code).toBe(1);
    expect(third.said()).toContain(
      `127.0.0.1:${a.port} is already in use, by the server with nano (process ${a.child.pid}); stop it with coli stop`,
    );
    expect(third.said()).not.toContain('loading');

    const files = fs.readdirSync(path.join(runtime, 'colibri'));
    expect(files.sort()).toEqual([`${a.child.pid}.json`, `${b.child.pid}.json`].sort());
    for (const file of files) expect(fs.statSync(path.join(runtime, 'colibri', file)).mode & 0o777).toBe(0o600);

    const unclear = coli('stop');
    expect(await unclear.code).toBe(2);
    expect(unclear.said()).toContain('--port');
    const stop = coli('stop', '--port', String(b.port));
    expect(await stop.code).toBe(0);
    expect(await b.code).toBe(0);
    expect(await health(a.url)).toBe(200);
    expect(await coli('stop').code).toBe(0);
    expect(await a.code).toBe(0);
    expect(fs.readdirSync(path.join(runtime, 'colibri'))).toEqual([]);
  });

  test('an address that others reach is refused without a key, before anything is opened', async () => {
    const refused = coli('serve', '--host', '0.0.0.0', '--port', '0');
    expect(await refused.code).toBe(2);
    expect(refused.said()).toMatch(/--api-key.*--insecure/);
    expect(refused.said()).not.toContain('Listening');
    const open = coli('serve', '--host', '0.0.0.0', '--port', '0', '--insecure');
    await open.until(/WARNING: anybody who can reach 0\.0\.0\.0/);
    const [, port] = await open.until(/http:\/\/0\.0\.0\.0:(\d+)/);
    expect(await health(`http://127.0.0.1:${port}`)).toBeGreaterThan(0);
    open.child.kill('SIGTERM');
    expect(await open.code).toBe(0);
  });
});

describe('what it says', () => {
  test('in a file or pipe: one JSON object a line, from the first to the last, and nothing twice', async () => {
    const server = coli('serve', '--port', '0', '--host', 'localhost');
    await server.until(/"msg":"Ready: nano/);
    const [, port] = /http:\/\/127\.0\.0\.1:(\d+)/.exec(server.said())!;
    expect((await fetch(`http://127.0.0.1:${port}/nope`)).status).toBe(404);
    server.child.kill('SIGTERM');
    expect(await server.code).toBe(0);
    const lines = server.said().trimEnd().split('\n');
    const said = lines.map(line => JSON.parse(line)).map(({ level, msg, code }) => [level, msg.split(/[ :]/)[0], code]);
    expect(said).toEqual([
      [30, 'No', undefined],
      [30, 'Listening', undefined],
      [30, 'Ready', undefined],
      [30, 'request', 'not_found'],
      [30, 'Stopping', undefined],
    ]);
  });

  test.each([
    ['slots', ['--slots', '100000'], 'BAD_SLOTS'],
    ['a context', ['--ctx', '100000'], 'BAD_CONTEXT'],
    ['memory', ['--ram', '10M'], 'RAM_TOO_SMALL'],
    ['a model', ['--model', '/no-such-model'], 'MODEL_NOT_FOUND'],
  ])('%s that cannot be: the reason, and never that it listens', async (_, args, code) => {
    const refused = coli('serve', '--port', '0', ...args);
    expect(await refused.code).toBe(1);
    expect(refused.said()).not.toContain('Listening');
    const last = JSON.parse(refused.said().trimEnd().split('\n').at(-1)!);
    expect(last).toMatchObject({ level: 60, code, msg: expect.stringMatching(/^coli: .+; .+/) });
  });

  test.each([
    [['--kv-dir-size', '1G'], '--kv-dir'],
    [['--log-prompts', '--log-level', 'error'], '--log-level'],
  ])('flags that would do nothing are refused: %j', async (args, reason) => {
    const refused = coli('serve', '--port', '0', ...args);
    expect(await refused.code).toBe(2);
    expect(refused.said()).toMatch(/^coli: [^\n]+\n$/);
    expect(refused.said()).toContain(reason);
  });
});

describe('signals', () => {
  test.each(['SIGTERM', 'SIGINT'] as const)('%s ends an idle server with code 0', async signal => {
    const server = await serve();
    server.child.kill(signal);
    expect(await server.code).toBe(0);
  });

  test('while the model loads it ends at once', async () => {
    const server = coli('serve', '--port', '0');
    await server.until(/loading nano/);
    server.child.kill('SIGTERM');
    expect(await server.code).toBe(0);
  });

  test('a running stream ends with an error event when the grace has passed', async () => {
    const server = await serve('--grace', '0');
    const stream = await longStream(server.url);
    server.child.kill('SIGTERM');
    const text = await stream.rest();
    expect(text).toContain('"code":"server_stopping"');
    expect(text.split('"error":')).toHaveLength(2);
    expect(await server.code).toBe(0);
  });

  test('the second SIGINT does not wait for anybody', async () => {
    const server = await serve('--grace', '600', '--slots', '1');
    await longStream(server.url);
    server.child.kill('SIGINT');
    await server.until(/"msg":"Stopping/);
    // presses within a tenth of a second are one: press until it is gone
    const pressing = setInterval(() => server.child.kill('SIGINT'), 60);
    expect(await server.code.finally(() => clearInterval(pressing))).toBe(130);
    expect(fs.readdirSync(path.join(runtime, 'colibri'))).toEqual([]);
  });

  test('a server that was killed leaves nothing that a stop would mistake for one', async () => {
    const server = await serve();
    server.child.kill('SIGKILL');
    expect(await server.code).toBeNull();
    expect(fs.readdirSync(path.join(runtime, 'colibri'))).toHaveLength(1);
    const stop = coli('stop');
    expect(await stop.code).toBe(1);
    expect(stop.said()).toContain('no server of this user runs here');
    expect(fs.readdirSync(path.join(runtime, 'colibri'))).toEqual([]);
  });
});
