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
  /** Speed of the candidate over that of what was kept before, less 1, in the pair that medianPair gives; null: not measured. */
  readonly gain: number | null;
  readonly before: readonly Sample[];
  readonly after: readonly Sample[];
}

export interface Together {
  readonly settings: TunedSettings;
  readonly kept: boolean;
  readonly gain: number;
  readonly before: readonly Sample[];
  readonly after: readonly Sample[];
}

export interface Search {
  readonly settings: TunedSettings;
  readonly trials: readonly Trial[];
  /** Several that were kept, against none of them: the last one, or the one before without the latest setting, and so on. */
  readonly together: readonly Together[];
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
  /** Ctrl-C was pressed. */
  readonly interrupted: () => boolean;
  readonly onTrial: (trial: Trial) => void;
  /** Runs that are over, and how many there may be. */
  readonly onProgress: (done: number, total: number) => void;
}

/** Thrown through a trial when a run was interrupted. */
class Stopped extends Error {}

export async function search(options: SearchOptions): Promise<Search> {
  const { facts, fixed, pairs, hasTimeFor, interrupted, onTrial, onProgress } = options;
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

  let kept: readonly Kept[] = [];
  const trials: Trial[] = [];
  for (const { knob, value, metric } of rows) {
    const before = settingsOf(kept);
    // the last comparison needs time, too
    const compared = hasTimeFor(2 * perTrial)
      ? await compare(measure, metric, before, { ...before, [knob]: value }, pairs)
      : null;
    const trial: Trial = { knob, value, metric, ...(compared ?? notTried(interrupted())) };
    // a candidate that was given up early leaves its other runs out
    total -= perTrial - trial.before.length - trial.after.length;
    trials.push(trial);
    onTrial(trial);
    if (trial.kept) kept = [...kept, { knob, value, metric }];
  }
  const together: Together[] = [];
  // the first was measured against nothing already; together they may do less than each alone
  while (kept.length > 1 && hasTimeFor(perTrial)) {
    const settings = settingsOf(kept);
    const compared = await compare(measure, kept[0].metric, {}, settings, pairs);
    if (compared === null) break;
    const helps = compared.gain >= MIN_GAIN;
    together.push({ settings, kept: helps, gain: compared.gain, before: compared.before, after: compared.after });
    if (helps) break;
    kept = kept.slice(0, -1);
  }
  const isCompared = kept.length < 2 || together.at(-1)?.kept === true;
  return {
    settings: settingsOf(kept),
    trials,
    together,
    complete: isCompared && trials.every(trial => trial.gain !== null),
  };
}

type Kept = Pick<Trial, 'knob' | 'value' | 'metric'>;

function settingsOf(kept: readonly Kept[]): TunedSettings {
  return Object.fromEntries(kept.map(({ knob, value }) => [knob, value]));
}

type Comparison = Pick<Trial, 'kept' | 'reason' | 'before' | 'after'> & { readonly gain: number };

function notTried(interrupted: boolean): Omit<Trial, 'knob' | 'value' | 'metric'> {
  return { kept: false, reason: interrupted ? 'interrupted' : 'no time left', gain: null, before: [], after: [] };
}

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
  if (gain < MIN_GAIN) return `under ${MIN_GAIN * 100} %`;
  if (!always) return 'not in every pair';
  return isSteady ? FASTER : 'slow tokens slower';
}

function gainOf(before: readonly Sample[], after: readonly Sample[]): number {
  const [a, b] = medianPair(before, after);
  return b.tokensPerSecond / a.tokensPerSecond - 1;
}

/** The pair of runs whose gain is in the middle of all; of two in the middle, the smaller. */
export function medianPair(before: readonly Sample[], after: readonly Sample[]): readonly [Sample, Sample] {
  const pairs = before.map((sample, i) => [sample, after[i]] as const);
  pairs.sort(([a, b], [c, d]) => b.tokensPerSecond / a.tokensPerSecond - d.tokensPerSecond / c.tokensPerSecond);
  return pairs[(pairs.length - 1) >> 1];
}
