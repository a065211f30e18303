/**
 * Finds settings that make this model faster on this machine: one knob after the other, each candidate measured against what was kept
 * so far in alternating runs, so that a disk or a neighbour that changes meanwhile touches both alike.
 */

import { InternalError } from '../common/errors.ts';
import { median } from '../common/median.ts';
import { KNOBS, type Knob, type Metric, type TunedSettings, type TuneFacts } from './settings.ts';

/** A smaller gain is not worth a setting that somebody must know of. */
export const MIN_GAIN = 0.03;
/** After one pair, a candidate this much slower is not measured again. */
const HOPELESS_LOSS = 0.1;

/** One measured run. */
export interface Sample {
  readonly tokensPerSecond: number;
  /** Of a token of the answer, or of the prompt's time per token. */
  readonly p99Ms: number;
  readonly hitRate: number;
  /** Of the answers: the same in every run, or something is very wrong. */
  readonly digest: string;
}

/** Null: it was interrupted. */
export type Measure = (settings: TunedSettings, metric: Metric) => Promise<Sample | null>;

export interface Trial {
  readonly knob: Knob;
  readonly value: string | number;
  readonly metric: Metric;
  readonly kept: boolean;
  readonly reason: string;
  /** Median over pairs of candidate / what was kept before, less 1; null when nothing was measured. */
  readonly gain: number | null;
  readonly before: readonly Sample[];
  readonly after: readonly Sample[];
}

export interface Search {
  readonly settings: TunedSettings;
  readonly trials: readonly Trial[];
  /** All that was kept against nothing of it; null when nothing was kept. */
  readonly validation: Trial['gain'];
  /** False: interrupted, or out of time. */
  readonly complete: boolean;
}

export interface SearchOptions {
  readonly facts: TuneFacts;
  /** Not to be touched: the user has decided. */
  readonly fixed: ReadonlySet<Knob>;
  readonly measure: Measure;
  /** Alternating pairs of runs per candidate. */
  readonly pairs: number;
  /** False: so many runs more would take too long, or Ctrl-C was pressed. */
  readonly hasTimeFor: (runs: number) => boolean;
  readonly onTrial: (trial: Trial) => void;
  /** Runs that are over, and how many there may be. */
  readonly onProgress: (done: number, total: number) => void;
}

/** Thrown through a trial when a run was interrupted. */
class Stopped extends Error {}

export async function search(options: SearchOptions): Promise<Search> {
  const { facts, fixed, pairs, hasTimeFor, onTrial, onProgress } = options;
  const perTrial = pairs * 2;
  const rows = KNOBS.filter(({ knob }) => !fixed.has(knob)).flatMap(row =>
    row.candidates(facts).map(value => ({ ...row, value })),
  );
  let runs = 0;
  let total = (rows.length + 1) * perTrial;
  const digests = new Map<Metric, string>();
  const measure = async (settings: TunedSettings, metric: Metric): Promise<Sample> => {
    const sample = await options.measure(settings, metric);
    if (sample === null) throw new Stopped();
    const digest = digests.get(metric) ?? sample.digest;
    digests.set(metric, digest);
    if (digest !== sample.digest) {
      throw new InternalError('OUTPUT_CHANGED', `the answer is another one with ${JSON.stringify(settings)}`, {
        hint: 'a setting of speed must never change it: please report this with the model and the machine',
      });
    }
    onProgress(++runs, total);
    return sample;
  };

  let settings: TunedSettings = {};
  const trials: Trial[] = [];
  for (const { knob, value, metric } of rows) {
    const before = settings;
    const after = { ...settings, [knob]: value };
    // the last comparison needs time, too
    const compared = hasTimeFor(2 * perTrial) ? await compare(measure, metric, before, after, pairs) : null;
    const trial: Trial = { knob, value, metric, ...(compared ?? NOT_TRIED) };
    // a candidate that was given up early leaves its other runs out
    total -= perTrial - trial.before.length - trial.after.length;
    trials.push(trial);
    onTrial(trial);
    if (trial.kept) settings = after;
  }
  const found = trials.some(trial => trial.kept);
  const metric = trials.find(trial => trial.kept)?.metric ?? 'decode';
  const check = found && hasTimeFor(perTrial) ? await compare(measure, metric, {}, settings, pairs) : null;
  const complete = trials.every(({ reason }) => reason !== NOT_TRIED.reason) && (!found || check !== null);
  // together they may do less than each alone
  if (check !== null && !check.kept) return { settings: {}, trials, validation: check.gain, complete };
  return { settings, trials, validation: check?.gain ?? null, complete };
}

type Comparison = Pick<Trial, 'kept' | 'reason' | 'gain' | 'before' | 'after'>;

const NOT_TRIED: Comparison = { kept: false, reason: 'not tried: no time left', gain: null, before: [], after: [] };

/** A B, B A, A B ...; null when it was interrupted before the last. */
async function compare(
  measure: (settings: TunedSettings, metric: Metric) => Promise<Sample>,
  metric: Metric,
  a: TunedSettings,
  b: TunedSettings,
  pairs: number,
): Promise<Comparison | null> {
  const before: Sample[] = [];
  const after: Sample[] = [];
  try {
    for (let pair = 0; pair < pairs; pair++) {
      const order = [
        async () => before.push(await measure(a, metric)),
        async () => after.push(await measure(b, metric)),
      ];
      for (const run of pair % 2 === 0 ? order : order.reverse()) await run();
      if (pair === 0 && gainOf(before, after) < -HOPELESS_LOSS) break;
    }
  } catch (error) {
    if (error instanceof Stopped) return null;
    throw error;
  }
  return judge(before, after);
}

/** Kept: faster in every pair, by MIN_GAIN at least, and the slow tokens no slower than in the slowest of the runs without it. */
export function judge(before: readonly Sample[], after: readonly Sample[]): Comparison {
  const gain = gainOf(before, after);
  const p99 = median(after.map(sample => sample.p99Ms));
  const allowed = Math.max(...before.map(sample => sample.p99Ms));
  const always = after.every((sample, i) => sample.tokensPerSecond > before[i].tokensPerSecond);
  const reason = reasonOf(gain, always, p99 <= allowed);
  return { kept: reason === FASTER, reason, gain, before, after };
}

const FASTER = 'faster';

function reasonOf(gain: number, always: boolean, isSteady: boolean): string {
  if (gain <= -MIN_GAIN) return 'slower';
  if (gain < MIN_GAIN) return `less than ${MIN_GAIN * 100} % of difference`;
  if (!always) return 'not faster in every pair';
  return isSteady ? FASTER : 'slow tokens got slower';
}

function gainOf(before: readonly Sample[], after: readonly Sample[]): number {
  return median(after.map((sample, i) => sample.tokensPerSecond / before[i].tokensPerSecond)) - 1;
}
