/** Thread of `serve-watch`: asks /health every 20 ms whether or not the last answer is there, and /metrics every second. */

import http from 'node:http';
import { parentPort, workerData } from 'node:worker_threads';
import { memoryOf } from './serve-child.ts';
import { ServeClient } from './serve-client.ts';
import { parseMetrics } from './serve-metrics.ts';

const HEALTH_MS = 20;
const METRICS_MS = 1000;
const MEMORY_MS = 100;

export interface WatchReport {
  /** Milliseconds from asking /health to the whole answer. */
  readonly healthMs: readonly number[];
  /** 99th percentiles of the main thread's delay, one for each second. */
  readonly loopDelayMs: readonly number[];
  readonly peakRssBytes: number;
  readonly problems: readonly string[];
}

const { port, pid } = workerData as { port: number; pid: number };
const agent = new http.Agent({ keepAlive: true });
const client = new ServeClient(port, 'watch');
const healthMs: number[] = [];
const loopDelayMs: number[] = [];
const problems: string[] = [];
let peakRssBytes = 0;

function health(): void {
  const begun = performance.now();
  http
    .get({ port, host: '127.0.0.1', path: '/health', agent }, response => {
      response.resume().on('end', () => healthMs.push(performance.now() - begun));
      if (response.statusCode !== 200) problems.push(`/health: status ${response.statusCode}`);
    })
    .on('error', error => problems.push(`/health: ${error.message}`));
}

function metrics(): void {
  client.get('/metrics').then(
    text => loopDelayMs.push((parseMetrics(text).get('coli_event_loop_delay_p99_seconds') ?? Number.NaN) * 1000),
    error => problems.push(`/metrics: ${error.message}`),
  );
}

const timers = [
  setInterval(health, HEALTH_MS),
  setInterval(metrics, METRICS_MS),
  setInterval(() => {
    peakRssBytes = Math.max(peakRssBytes, memoryOf(pid).rssBytes);
  }, MEMORY_MS),
];

parentPort!.once('message', () => {
  for (const timer of timers) clearInterval(timer);
  parentPort!.postMessage({ healthMs, loopDelayMs, peakRssBytes, problems } satisfies WatchReport);
  agent.destroy();
  client.close();
  parentPort!.close();
});
