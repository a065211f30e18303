/** What telemetry knows, as metrics: read from shared memory when they are asked for. */

import { Counter, type Metric, type MetricObjectWithValues, type MetricValue, type Registry } from 'prom-client';
import { MAX_DRIVES, PHASES, TIERS } from '../telemetry/fields.ts';
import { BUCKETS, bucketStart } from '../telemetry/histogram.ts';
import { HISTOGRAMS, type HistogramName, MODES, type Sums } from '../telemetry/memory.ts';

const US_PER_SECOND = 1e6;

/** Names in seconds, as is the custom. */
const HISTOGRAM_METRICS: Readonly<Record<HistogramName, string>> = {
  tokenUs: 'coli_engine_token_seconds',
  firstTokenUs: 'coli_engine_first_token_seconds',
  layerWaitUs: 'coli_engine_layer_wait_seconds',
  readUs: 'coli_engine_expert_read_seconds',
  promptTokenUs: 'coli_engine_prompt_token_seconds',
};
/** Bounds are powers of two microseconds, which are bounds of the engine's own, finer buckets: about 0.1 ms to 18 minutes. */
const FIRST_BOUND = 7;
const LAST_BOUND = 30;

type Row = readonly [labels: Readonly<Record<string, string>>, value: number];

interface CounterRow {
  readonly name: string;
  readonly help: string;
  readonly labelNames: readonly string[];
  readonly rows: (sums: Sums) => readonly Row[];
}

const both = (sums: Sums, field: string) => MODES.reduce((sum, mode) => sum + sums.steps(mode)[field], 0);
const seconds = (us: number) => us / US_PER_SECOND;

const COUNTERS: readonly CounterRow[] = [
  {
    name: 'coli_engine_expert_lookups_total',
    help: 'Distinct experts asked for, by where they were: kept for good, still in memory, read ahead, on disk',
    labelNames: ['tier'],
    rows: sums => TIERS.map(tier => [{ tier }, both(sums, `${tier}Hits`)]),
  },
  {
    name: 'coli_engine_expert_lookup_bytes_total',
    help: 'Size of the experts asked for, by where they were',
    labelNames: ['tier'],
    rows: sums => TIERS.map(tier => [{ tier }, both(sums, `${tier}Bytes`)]),
  },
  {
    name: 'coli_engine_drive_read_bytes_total',
    help: "Bytes of experts read during steps, by drive: 0 is the model's own, the others are mirrors",
    labelNames: ['drive'],
    rows: sums =>
      Array.from({ length: MAX_DRIVES }, (_, drive) => [{ drive: String(drive) }, both(sums, `drive${drive}Bytes`)]),
  },
  {
    name: 'coli_engine_wasted_read_bytes_total',
    help: 'Bytes of experts read ahead that nobody used',
    labelNames: [],
    rows: sums => [[{}, both(sums, 'wastedBytes')]],
  },
  {
    name: 'coli_engine_guessable_experts_total',
    help: 'Experts asked for by layers that had been guessed about',
    labelNames: [],
    rows: sums => [[{}, both(sums, 'guessable')]],
  },
  {
    name: 'coli_engine_guessed_experts_total',
    help: 'Those of them that were among the guesses: over the others, the recall',
    labelNames: [],
    rows: sums => [[{}, both(sums, 'guessed')]],
  },
  {
    name: 'coli_engine_read_service_seconds_total',
    help: 'Time of reads in the readers, summed over readers',
    labelNames: [],
    rows: sums => [[{}, seconds(both(sums, 'serviceUs'))]],
  },
  {
    name: 'coli_engine_step_seconds_total',
    help: 'Time of forward passes, of those with rows of prompts and of those that only decode',
    labelNames: ['mode'],
    rows: sums => MODES.map(mode => [{ mode }, seconds(sums.steps(mode)['totalUs'])]),
  },
  {
    name: 'coli_engine_timed_steps_total',
    help: 'The forward passes whose time that is',
    labelNames: ['mode'],
    rows: sums => MODES.map(mode => [{ mode }, sums.steps(mode)['steps']]),
  },
  {
    name: 'coli_engine_phase_seconds_total',
    help: 'Time by phase without the wait for storage, of the forward passes that were looked at in detail: all but short ones',
    labelNames: ['mode', 'phase'],
    rows: sums =>
      MODES.flatMap(mode => PHASES.map((phase): Row => [{ mode, phase }, seconds(sums.steps(mode)[`${phase}Us`])])),
  },
];

/** Adds the metrics of an engine that may not be there yet; `read` gives null until it is. */
export function addTelemetryMetrics(registry: Registry, read: () => Sums | null): void {
  for (const { name, help, labelNames, rows } of COUNTERS) {
    new Counter({
      name,
      help,
      labelNames,
      registers: [registry],
      collect() {
        const sums = read();
        this.reset();
        if (sums) for (const [labels, value] of rows(sums)) this.inc(labels, value);
      },
    });
  }
  for (const [name, metric] of Object.entries(HISTOGRAM_METRICS) as [HistogramName, string][]) {
    registry.registerMetric(
      new CopiedHistogram(metric, HISTOGRAMS[name], () => read()?.histogram(name) ?? null) as never,
    );
  }
}

/** A histogram whose buckets somebody else counts. */
class CopiedHistogram implements Pick<Metric, 'get' | 'reset'> {
  readonly name: string;
  readonly #help: string;
  readonly #read: () => Float64Array | null;

  constructor(name: string, help: string, read: () => Float64Array | null) {
    this.name = name;
    this.#help = help[0].toUpperCase() + help.slice(1);
    this.#read = read;
  }

  async get(): Promise<MetricObjectWithValues<MetricValue<string>>> {
    const values = bucketRows(this.name, this.#read());
    return { name: this.name, help: this.#help, type: 'histogram', aggregator: 'sum', values } as never;
  }

  /** What is counted elsewhere is not reset here. */
  reset(): void {}
}

function bucketRows(name: string, counts: Float64Array | null) {
  const rows: { metricName: string; labels: Record<string, string | number>; value: number }[] = [];
  if (!counts) return rows;
  let bound = FIRST_BOUND;
  let sum = 0;
  for (let bucket = 0; bucket < BUCKETS; bucket++) {
    if (bound <= LAST_BOUND && bucketStart(bucket) === 2 ** bound) {
      rows.push({ metricName: `${name}_bucket`, labels: { le: seconds(2 ** bound++) }, value: sum });
    }
    sum += counts[bucket];
  }
  rows.push({ metricName: `${name}_bucket`, labels: { le: '+Inf' }, value: sum });
  rows.push({ metricName: `${name}_sum`, labels: {}, value: seconds(counts[BUCKETS]) });
  rows.push({ metricName: `${name}_count`, labels: {}, value: sum });
  return rows;
}
