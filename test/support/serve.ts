/**
 * The real program as a server: `coli serve` in a process of its own, on a free port, ended with the test file at the latest: it
 * is started as by the launcher, whose end it sees, so it also ends when the tests are killed.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll } from 'vitest';
import { readEvents, type SseEvent } from './sse-reader.ts';

export interface ServeOptions {
  readonly model?: string;
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Node that runs it; default: this one. */
  readonly node?: string;
  /** Does not wait until the model is there, only for the port. */
  readonly early?: boolean;
}

export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

export interface Reply {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** The body as JSON; throws when it is none. */
  // biome-ignore lint/suspicious/noExplicitAny: bodies are looked at field by field
  readonly body: any;
}

export interface Served {
  readonly url: string;
  readonly port: number;
  /** Of the process that was started: a launcher, if `node` is old. */
  readonly pid: number;
  readonly exited: Promise<Exit>;
  stderr(): string;
  get(route: string, headers?: Record<string, string>): Promise<Reply>;
  /** `body`: a value, or JSON text as it is. */
  post(route: string, body: unknown, init?: RequestInit): Promise<Reply>;
  /** A streamed answer, whole. Throws when the answer is no stream. */
  stream(route: string, body: unknown, init?: RequestInit): Promise<SseEvent[]>;
  kill(signal: NodeJS.Signals): void;
  /** Ends it with SIGTERM, by force after some seconds. */
  stop(): Promise<Exit>;
}

const FORCE_MS = 8000;
const LISTENING = /Listening on http:\/\/\S+?:(\d+)[ ,]/m;
const running = new Map<ChildProcess, Promise<Exit>>();

afterAll(async () => {
  for (const child of running.keys()) child.kill('SIGKILL');
  await Promise.all(running.values());
});

/** A directory that is removed at the end of the test file. */
export function fileDirectory(): string {
  const directory = mkdtempSync(path.join(tmpdir(), 'coli-serve-'));
  afterAll(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

/** Starts a server; whatever the test does with it, it is gone when the test file is. */
export async function startServe(options: ServeOptions = {}): Promise<Served> {
  const runtime = mkdtempSync(path.join(tmpdir(), 'coli-run-'));
  const { model, args = [], node = process.execPath } = options;
  const flags = [...(model === undefined ? [] : ['--model', model]), '--port', '0', '--ram', '1G', '--threads', '1'];
  const env: NodeJS.ProcessEnv = { ...process.env, NO_COLOR: '1', XDG_RUNTIME_DIR: runtime, ...options.env };
  env['COLI_LAUNCHED'] = '1';
  for (const name of ['COLI_MODEL', 'COLI_DEBUG', 'COLI_API_KEY']) if (!options.env?.[name]) delete env[name];
  const child = spawn(node, ['bin/coli.js', 'serve', ...flags, '--log-level', 'warn', ...args], {
    env,
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
  });
  let stderr = '';
  child.stderr!.setEncoding('utf8');
  const exited = new Promise<Exit>(resolve => {
    child.once('exit', (code, signal) => {
      running.delete(child);
      rmSync(runtime, { recursive: true, force: true });
      resolve({ code, signal });
    });
  });
  running.set(child, exited);
  const awaited = options.early ? LISTENING : /"msg":"Ready: /;
  await new Promise<void>((resolve, reject) => {
    child.once('error', reject);
    child.stderr!.on('data', data => {
      stderr += data;
      if (awaited.test(stderr)) resolve();
    });
    void exited.then(exit => reject(new Error(`the server ended with ${JSON.stringify(exit)}:\n${stderr}`)));
  });
  const port = Number(LISTENING.exec(stderr)![1]);
  const url = `http://127.0.0.1:${port}`;
  const stop = async () => {
    child.kill('SIGTERM');
    const force = setTimeout(() => child.kill('SIGKILL'), FORCE_MS);
    return exited.finally(() => clearTimeout(force));
  };
  return {
    url,
    port,
    pid: child.pid!,
    exited,
    stderr: () => stderr,
    get: async (route, headers) => replyOf(await fetch(url + route, { headers })),
    post: async (route, body, init) => replyOf(await send(url + route, body, init)),
    stream: async (route, body, init) => {
      const response = await send(url + route, body, init);
      const type = response.headers.get('content-type') ?? '';
      if (!type.startsWith('text/event-stream'))
        throw new Error(`no stream: ${response.status} ${await response.text()}`);
      return readEvents(await response.text());
    },
    kill: signal => void child.kill(signal),
    stop,
  };
}

function send(url: string, body: unknown, init: RequestInit = {}): Promise<Response> {
  const headers = { 'content-type': 'application/json', ...(init.headers as Record<string, string>) };
  const text = typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body);
  return fetch(url, { method: 'POST', body: text as string, ...init, headers });
}

async function replyOf(response: Response): Promise<Reply> {
  const text = await response.text();
  return {
    status: response.status,
    headers: response.headers,
    text,
    get body() {
      return JSON.parse(text);
    },
  };
}
