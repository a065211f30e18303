/** Threads that encode pieces. Results come in the order in which they were asked for, so files never depend on the number. */

import { Worker } from 'node:worker_threads';
import { errorFromWire, InternalError } from '../common/errors.ts';
import { endWorker } from '../common/waiting.ts';
import { workerUrl } from '../common/worker-url.ts';
import { type EncodeJob, encodeJob } from './encode.ts';
import type { EncodeReply } from './encode-worker.ts';

/** Pieces asked for ahead of the one that is written, per thread: enough that no thread waits for the disk. */
const AHEAD = 2;

interface Waiting {
  readonly job: EncodeJob;
  readonly resolve: (bytes: Uint8Array) => void;
  readonly reject: (error: Error) => void;
}

export class EncodePool {
  readonly #workers: Worker[];
  readonly #idle: Worker[] = [];
  readonly #queue: Waiting[] = [];
  readonly #running = new Map<Worker, Waiting>();

  /** One thread: the caller's own. */
  constructor(threads: number) {
    this.#workers = Array.from({ length: threads > 1 ? threads : 0 }, () => this.#start());
    this.#idle.push(...this.#workers);
  }

  /** Each item with its bytes, in order. An error ends it at the item that it belongs to. */
  async *inOrder<T extends { readonly job: EncodeJob }>(
    items: Iterable<T>,
  ): AsyncGenerator<[T, () => Promise<Uint8Array>]> {
    const ahead: [T, Promise<Uint8Array>][] = [];
    const most = this.#workers.length * AHEAD;
    for (const item of items) {
      if (most === 0) {
        yield [item, async () => encodeJob(item.job)];
        continue;
      }
      const result = this.#run(item.job);
      // whoever takes it hears of the error
      result.catch(() => {});
      ahead.push([item, result]);
      if (ahead.length > most) yield take(ahead.shift()!);
    }
    for (const each of ahead) yield take(each);
  }

  async close(): Promise<void> {
    await Promise.all(this.#workers.map(worker => endWorker(worker)));
  }

  #run(job: EncodeJob): Promise<Uint8Array> {
    return new Promise((resolve, reject) => {
      this.#queue.push({ job, resolve, reject });
      this.#assign();
    });
  }

  #assign(): void {
    while (this.#idle.length > 0 && this.#queue.length > 0) {
      const worker = this.#idle.pop()!;
      const next = this.#queue.shift()!;
      this.#running.set(worker, next);
      worker.postMessage(next.job);
    }
  }

  #start(): Worker {
    const worker = new Worker(workerUrl('encode-worker', import.meta.url), { execArgv: [] });
    worker.on('message', (reply: EncodeReply) => {
      const done = this.#running.get(worker)!;
      this.#running.delete(worker);
      this.#idle.push(worker);
      if ('bytes' in reply) done.resolve(reply.bytes);
      else done.reject(errorFromWire(reply.error));
      this.#assign();
    });
    worker.on('error', error => {
      const failed = new InternalError('ENCODER_DIED', `a thread of the conversion died: ${error.message}`);
      for (const each of [...this.#running.values(), ...this.#queue.splice(0)]) each.reject(failed);
      this.#running.clear();
    });
    return worker;
  }
}

function take<T>([item, result]: [T, Promise<Uint8Array>]): [T, () => Promise<Uint8Array>] {
  return [item, () => result];
}
