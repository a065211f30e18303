/** What /metrics tells. Counters of the engine and the queue are copied when they are asked for; nothing is counted twice. */

import { monitorEventLoopDelay } from 'node:perf_hooks';
import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { EngineStatus } from '../engine/api.ts';
import type { AdmissionQueue, QueueCounts } from './admission.ts';
import type { ServerSettings } from './settings.ts';
import type { ModelState } from './state.ts';
import { addTelemetryMetrics } from './telemetry-metrics.ts';
import type { TurnEvent, TurnRequest, TurnRunner } from './turn.ts';

/** From a small model in memory to a prompt that is read from a slow disk for an hour. */
const FIRST_TOKEN_SECONDS = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600];
const TOKENS_PER_SECOND = [0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500];
const LOOP_RESOLUTION_MS = 10;
const NS_PER_SECOND = 1e9;

type Copied<T> = Partial<Record<keyof T, readonly [name: string, help: string]>>;

const QUEUE_GAUGES: Copied<QueueCounts> = {
  active: ['coli_requests_active', 'Requests that have a place'],
  queued: ['coli_requests_queued', 'Requests that wait for a place'],
  capacity: ['coli_requests_capacity', 'Requests that may run together'],
};
const QUEUE_COUNTERS: Copied<QueueCounts> = {
  admitted: ['coli_queue_admitted_total', 'Requests that got a place'],
  completed: ['coli_queue_completed_total', 'Requests that ran to their end, well or with an error'],
  rejected: ['coli_queue_rejected_total', 'Requests refused because the queue was full or the server was stopping'],
  timedOut: ['coli_queue_timed_out_total', 'Requests that waited too long'],
  cancelled: ['coli_queue_cancelled_total', 'Requests whose client went away, or that the server ended'],
};
const ENGINE_COUNTERS: Copied<EngineStatus> = {
  steps: ['coli_engine_steps_total', 'Forward passes'],
  decodeSteps: ['coli_engine_decode_steps_total', 'Forward passes that decoded tokens'],
  decodeTokens: ['coli_engine_decode_tokens_total', 'Tokens decoded'],
  promptTokens: ['coli_engine_prompt_tokens_total', 'Tokens of prompts that were computed'],
  cachedTokens: ['coli_engine_cached_tokens_total', 'Tokens of prompts found in memory or in --kv-dir'],
  restoredTokens: ['coli_engine_restored_tokens_total', 'Those of them found in --kv-dir'],
  expertRequests: ['coli_engine_expert_requests_total', 'Experts asked for'],
  expertHits: ['coli_engine_expert_hits_total', 'Experts that were in memory'],
  expertsWarmed: ['coli_engine_experts_warmed_total', 'Hot experts read into empty slots while no request ran'],
  expertWarmHits: ['coli_engine_expert_warm_hits_total', 'Those of them that were asked for later'],
  pinSwaps: ['coli_engine_pin_swaps_total', 'Experts that took the place of others that were kept for good'],
  bytesRead: ['coli_engine_read_bytes_total', 'Bytes of experts read from storage'],
  readWaitSeconds: ['coli_engine_read_wait_seconds_total', 'Time in which computing waited for storage'],
};

export class Metrics {
  readonly #registry = new Registry();
  readonly #loop = monitorEventLoopDelay({ resolution: LOOP_RESOLUTION_MS });
  readonly #requests: Counter<'route' | 'status'>;
  readonly #firstToken: Histogram;
  readonly #speed: Histogram;

  constructor(queue: AdmissionQueue, state: ModelState, settings: Pick<ServerSettings, 'modelId' | 'version'>) {
    const registers = [this.#registry];
    this.#requests = new Counter({
      name: 'coli_http_requests_total',
      help: 'Requests by route and status',
      labelNames: ['route', 'status'],
      registers,
    });
    this.#firstToken = new Histogram({
      name: 'coli_time_to_first_token_seconds',
      help: 'From the arrival of a request to its first piece of answer, waiting included',
      buckets: FIRST_TOKEN_SECONDS,
      registers,
    });
    this.#speed = new Histogram({
      name: 'coli_tokens_per_second',
      help: 'Tokens of an answer after the first one, per second',
      buckets: TOKENS_PER_SECOND,
      registers,
    });
    const engine = () => {
      const { phase } = state;
      return phase.name === 'ready' ? phase.engine.status : null;
    };
    this.#copy(QUEUE_GAUGES, Gauge, () => queue.counts);
    this.#copy(QUEUE_COUNTERS, Counter, () => queue.counts);
    this.#copy(ENGINE_COUNTERS, Counter, engine);
    addTelemetryMetrics(this.#registry, () => {
      const { phase } = state;
      return phase.name === 'ready' ? phase.engine.telemetry.sums() : null;
    });
    this.#info(state, settings);
    this.#gauge('coli_model_ready', '1 when the model is loaded', () => (state.phase.name === 'ready' ? 1 : 0));
    this.#gauge('coli_resident_memory_bytes', 'Memory of the process', () => process.memoryUsage.rss());
    this.#gauge('coli_event_loop_delay_p99_seconds', 'Delay of the main thread since the last scrape', () => {
      const seconds = Math.max(0, this.#loop.percentile(99) / NS_PER_SECOND - LOOP_RESOLUTION_MS / 1000);
      this.#loop.reset();
      return seconds;
    });
    this.#loop.enable();
  }

  get contentType(): string {
    return this.#registry.contentType;
  }

  text(): Promise<string> {
    return this.#registry.metrics();
  }

  request(route: string, status: number): void {
    this.#requests.inc({ route, status });
  }

  close(): void {
    this.#loop.disable();
  }

  /** The same turns, with their times measured. */
  observed(runner: TurnRunner, now: () => number = () => performance.now()): TurnRunner {
    return {
      fingerprint: runner.fingerprint,
      check: (request, signal) => runner.check(request, signal),
      countTokens: turn => runner.countTokens(turn),
      promptText: turn => runner.promptText(turn),
      run: (request, signal) => this.#observe(runner, request, signal, now),
    };
  }

  async *#observe(
    runner: TurnRunner,
    request: TurnRequest,
    signal: AbortSignal,
    now: () => number,
  ): AsyncGenerator<TurnEvent> {
    const start = now();
    let first: number | null = null;
    for await (const event of runner.run(request, signal)) {
      const isAnswer = event.type !== 'accepted' && event.type !== 'progress' && event.type !== 'end';
      if (isAnswer && first === null) {
        first = now();
        this.#firstToken.observe((first - start) / 1000);
      }
      if (event.type === 'end' && first !== null) {
        const rest = event.usage.completionTokens - 1;
        const seconds = (now() - first) / 1000;
        if (rest > 0 && seconds > 0) this.#speed.observe(rest / seconds);
      }
      yield event;
    }
  }

  #gauge(name: string, help: string, read: () => number): void {
    new Gauge({
      name,
      help,
      registers: [this.#registry],
      collect() {
        this.set(read());
      },
    });
  }

  /** What does not change: always 1, its labels are what it tells. */
  #info(state: ModelState, { modelId: model, version }: Pick<ServerSettings, 'modelId' | 'version'>): void {
    new Gauge({
      name: 'coli_info',
      help: 'What answers; there when the model is loaded',
      labelNames: ['version', 'model', 'kv', 'kernels', 'activations', 'fingerprint'],
      registers: [this.#registry],
      collect() {
        this.reset();
        const { phase } = state;
        if (phase.name !== 'ready') return;
        const { kv, kernels, activations } = phase.engine.info;
        this.set({ version, model, kv, kernels, activations, fingerprint: phase.runner.fingerprint }, 1);
      },
    });
  }

  /** Metrics whose numbers somebody else keeps. */
  #copy<T>(rows: Copied<T>, Kind: typeof Gauge | typeof Counter, read: () => T | null): void {
    for (const [key, [name, help]] of Object.entries(rows) as [keyof T, readonly [string, string]][]) {
      new Kind({
        name,
        help,
        registers: [this.#registry],
        collect() {
          this.reset();
          this.inc(Number(read()?.[key] ?? 0));
        },
      });
    }
  }
}
