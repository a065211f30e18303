import { describe, expect, test } from 'vitest';
import { judge, type Sample, type SearchOptions, search } from './search.ts';
import type { Knob, Metric, TunedSettings, TuneFacts } from './settings.ts';

const FACTS: TuneFacts = {
  io: 'direct',
  readers: 4,
  threads: 2,
  hardwareThreads: 4,
  chunk: 128,
  context: 1024,
  slotShare: 0.25,
};

const sample = (tokensPerSecond: number, p99Ms = 10): Sample => ({ tokensPerSecond, p99Ms, hitRate: 0.5, digest: 'd' });

/** A machine whose speed is the product of what each setting is worth, and which gets slower by the hour. */
function machine(worth: Partial<Record<Knob, Record<string, number>>>, drift = 0.01) {
  const runs: { settings: TunedSettings; metric: Metric }[] = [];
  const measure = async (settings: TunedSettings, metric: Metric): Promise<Sample> => {
    runs.push({ settings, metric });
    let speed = 100 * (1 - drift) ** runs.length;
    for (const [knob, value] of Object.entries(settings)) speed *= worth[knob as Knob]?.[String(value)] ?? 1;
    return sample(speed, 1000 / speed);
  };
  return { runs, measure };
}

const run = (options: Partial<SearchOptions> & Pick<SearchOptions, 'measure'>) =>
  search({
    facts: FACTS,
    fixed: new Set(),
    pairs: 3,
    hasTimeFor: () => true,
    onTrial: () => {},
    onProgress: () => {},
    ...options,
  });

describe('the search', () => {
  test('keeps what is faster, together, and nothing else', async () => {
    const { measure } = machine({
      readers: { 8: 1.2, 16: 1.1 },
      prefetch: { off: 1.02, on: 0.97 },
      io: { buffered: 0.7 },
    });
    const { settings, trials, validation, complete } = await run({ measure });
    expect(settings).toEqual({ readers: 8 });
    expect(complete).toBe(true);
    expect(validation).toBeCloseTo(0.2, 1);
    const reasons = Object.fromEntries(trials.map(({ knob, value, reason }) => [`${knob} ${value}`, reason]));
    expect(reasons).toMatchObject({
      'io buffered': 'slower',
      'readers 8': 'faster',
      'readers 16': 'slower',
      'prefetch off': 'less than 3 % of difference',
    });
  });

  test('is not fooled by a machine that gets slower all the time', async () => {
    const { measure } = machine({}, 0.05);
    expect((await run({ measure })).settings).toEqual({});
  });

  test('measures what is hopeless only once', async () => {
    const { runs, measure } = machine({ io: { buffered: 0.5 } });
    await run({ measure });
    expect(runs.filter(({ settings }) => settings.io === 'buffered')).toHaveLength(1);
  });

  test('leaves alone what the user has decided, and what has nothing to decide', async () => {
    const { runs, measure } = machine({});
    const facts = { ...FACTS, slotShare: 1 };
    const { trials } = await run({ measure, facts, fixed: new Set<Knob>(['readers', 'io']) });
    expect(new Set(trials.map(trial => trial.knob))).toEqual(new Set(['threads', 'chunk']));
    expect(runs.every(({ settings }) => settings.readers === undefined)).toBe(true);
  });

  test('measures chunks by prompts and everything else by answers', async () => {
    const { runs, measure } = machine({});
    await run({ measure });
    for (const { settings, metric } of runs) if (settings.chunk !== undefined) expect(metric).toBe('prefill');
    expect(runs.filter(({ metric }) => metric === 'prefill')).toHaveLength(2 * 2 * 3);
  });

  test('does not keep together what only helps alone', async () => {
    // both are measured as faster, but not with each other: what is kept then does not pass the last comparison
    let runs = 0;
    const measure = async (settings: TunedSettings) => {
      runs++;
      const lucky = Object.keys(settings).length > 0 && runs <= 6;
      return sample(lucky ? 120 : 100);
    };
    const { settings, trials, validation } = await run({ measure });
    expect(trials.some(trial => trial.kept)).toBe(true);
    expect(validation).toBeCloseTo(0);
    expect(settings).toEqual({});
  });

  test('stopped early keeps what is known, and says what was not tried', async () => {
    const { runs, measure } = machine({ io: { buffered: 1.5 } });
    const interrupted = async (settings: TunedSettings, metric: Metric) =>
      runs.length >= 8 ? null : measure(settings, metric);
    const { settings, trials, complete } = await run({ measure: interrupted, hasTimeFor: () => runs.length < 8 });
    expect(settings).toEqual({ io: 'buffered' });
    expect(complete).toBe(false);
    for (const { gain, reason } of trials.slice(1)) {
      expect(gain).toBeNull();
      expect(reason).toBe('not tried: no time left');
    }
  });

  test('keeps time for the last comparison', async () => {
    const { runs, measure } = machine({ io: { buffered: 1.5 } });
    const { settings, validation, complete } = await run({ measure, hasTimeFor: more => runs.length + more <= 20 });
    expect(settings).toEqual({ io: 'buffered' });
    expect(validation).toBeGreaterThan(0.4);
    expect(runs.length).toBeLessThanOrEqual(20);
    expect(complete).toBe(false);
  });

  test('a setting that changes the answer is a defect, whatever it gains', async () => {
    const measure = async (settings: TunedSettings) => ({ ...sample(100), digest: settings.prefetch ?? 'd' });
    await expect(run({ measure })).rejects.toMatchObject({ code: 'OUTPUT_CHANGED' });
  });

  test('counts the runs down to the end', async () => {
    const { measure } = machine({ io: { buffered: 0.5 } });
    const progress: [number, number][] = [];
    await run({ measure, onProgress: (done, total) => progress.push([done, total]) });
    for (const [done, total] of progress) expect(done).toBeLessThanOrEqual(total);
  });
});

test('a gain that makes the slow tokens slower than any run without it is not kept', () => {
  const before = [sample(100, 10), sample(100, 14), sample(100, 11)];
  expect(judge(before, [sample(110, 13), sample(110, 14), sample(110, 30)])).toMatchObject({ kept: true });
  expect(judge(before, [sample(110, 15), sample(110, 15), sample(110, 10)])).toMatchObject({
    kept: false,
    reason: 'slow tokens got slower',
  });
  expect(judge(before, [sample(102), sample(102), sample(102)]).kept).toBe(false);
  expect(judge(before, [sample(150), sample(150), sample(99)])).toMatchObject({
    kept: false,
    reason: 'not faster in every pair',
  });
});
