/** Waiting that ends. */

import type { Worker } from 'node:worker_threads';

/** A thread inside one long built-in (a regular expression, a replacement) cannot be ended before that returns; nobody waits longer. */
const TERMINATE_GRACE_MS = 2000;

/** Waits for a promise, but not longer than `ms`. Rejects as the promise does. */
export async function within(ms: number, promise: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>(resolve => {
    timer = setTimeout(resolve, ms);
  });
  await Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Ends a worker that nobody listens to any more. */
export async function endWorker(worker: Worker): Promise<void> {
  worker.removeAllListeners();
  // A worker may still fail while it is being ended.
  worker.on('error', () => {});
  // A thread that cannot be ended must not keep the process alive.
  worker.unref();
  await within(TERMINATE_GRACE_MS, worker.terminate());
}
