/** Runs one measurement in a process of its own, so that no engine holds memory or threads while the other runs. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { MemoryLimit } from './memory-limit.ts';
import type { ChildResult, LlamaRequest, OurRequest } from './work.ts';

const OUR_CHILD = fileURLToPath(new URL('./our-child.ts', import.meta.url));
const LLAMA_CHILD = fileURLToPath(new URL('./llama-child.ts', import.meta.url));
/** The group is joined before Node starts, so that all its memory counts. */
const JOIN_AND_RUN = 'echo $$ > "$1" && shift && exec "$@"';
/** Reading a model through a small page cache takes long, but not this long. */
const MAX_MS = 10 * 60 * 1000;

/** Ends the child, whose end is an error: so what was set up for it is taken down. */
const STOPPING = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/** The child was killed at its memory limit: the engine cannot work in that much. */
export class OutOfMemory extends Error {}

export const runOurs = (request: OurRequest, limit?: MemoryLimit) => runChild(OUR_CHILD, request, limit, {});
/**
 * One thread in libuv's pool, so that every token is computed from the same one: with the usual four, llama.cpp on two
 * processors decodes at a third of the speed that its own program has.
 */
export const runLlama = (request: LlamaRequest, limit?: MemoryLimit) =>
  runChild(LLAMA_CHILD, request, limit, { UV_THREADPOOL_SIZE: '1' });

async function runChild(
  file: string,
  request: unknown,
  limit: MemoryLimit | undefined,
  environment: Record<string, string>,
): Promise<ChildResult> {
  const node = [process.execPath, file, JSON.stringify(request)];
  const [command, ...args] = limit ? ['sh', '-c', JOIN_AND_RUN, 'sh', limit.joinFile, ...node] : node;
  const killsBefore = limit?.kills() ?? 0;
  const child = spawn(command, args, {
    env: { ...process.env, ...environment },
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: MAX_MS,
    killSignal: 'SIGKILL',
  });
  const out: Buffer[] = [];
  const errors: Buffer[] = [];
  child.stdout.on('data', (chunk: Buffer) => out.push(chunk));
  child.stderr.on('data', (chunk: Buffer) => errors.push(chunk));
  const stop = () => child.kill('SIGKILL');
  for (const signal of STOPPING) process.on(signal, stop);
  const [code, signal] = await once(child, 'close');
  for (const signal of STOPPING) process.off(signal, stop);
  if (code === 0) return JSON.parse(Buffer.concat(out).toString().trim().split('\n').at(-1)!);
  if (limit && limit.kills() > killsBefore) throw new OutOfMemory('killed at the memory limit');
  const last = Buffer.concat(errors).toString().trim().split('\n').slice(-8).join('\n');
  throw new Error(`${file} ended with ${signal ?? `status ${code}`}: ${last}`);
}
