/** Watches a server from a thread of its own, so that what the clients of a load cost does not show in its figures. */

import { Worker } from 'node:worker_threads';
import { workerUrl } from '../src/common/worker-url.ts';
import type { WatchReport } from './serve-watcher.ts';

export interface Watch {
  stop(): Promise<WatchReport>;
}

export async function startWatch(port: number, pid: number): Promise<Watch> {
  const worker = new Worker(workerUrl('serve-watcher', import.meta.url), { workerData: { port, pid } });
  await new Promise((resolve, reject) => worker.once('online', () => resolve(undefined)).once('error', reject));
  return {
    stop: () =>
      new Promise((resolve, reject) => {
        worker.once('message', resolve);
        worker.once('error', reject);
        worker.postMessage('stop');
      }),
  };
}
