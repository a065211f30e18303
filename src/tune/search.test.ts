import { describe, expect, test } from 'vitest';
import { judge, medianPair, type Sample, type SearchOptions, search } from './search.ts';
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
    interrupted: () => false,
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
    const { settings, trials, together, complete } = await run({ measure });
    expect(settings).toEqual({ readers: 8 });
    expect(complete).toBe(true);
    // it was measured against nothing of it already
    expect(together).toEqual([]);
    const reasons = Object.fromEntries(trials.map(({ knob, value, reason }) => [`${knob} ${value}`, reason]));
    expect(reasons).toMatchObject({
      'io buffered': 'slower',
      'readers 8': 'faster',
      'readers 16': 'slower',
      'prefetch off': 'under 3 %',
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

  test('several are measured together against none of them', async () => {
    const { measure } = machine({ io: { buffered: 1.5 }, readers: { 8: 1.2 } });
    const { settings, together } = await run({ measure });
    expect(settings).toEqual({ io: 'buffered', readers: 8 });
    expect(together).toHaveLength(1);
    expect(together[0]).toMatchObject({ settings, kept: true });
    expect(together[0].gain).toBeCloseTo(0.8, 1);
    expect(together[0].before).toHaveLength(3);
  });

  test('what helps alone but not with the others goes, the latest first', async () => {
    const { measure } = machine({ io: { buffered: 1.5 } });
    // readers 8 and prefetch off look faster while they are tried; against nothing at all the three are not
    const moody = async (settings: TunedSettings, metric: Metric) => {
      const found = (await measure(settings, metric))!;
      const { readers, prefetch } = settings;
      const factor =
        prefetch === 'on' ? 0.1 : prefetch === 'off' ? (tried.has('off') ? 0.5 : 1.5) : readers === 8 ? 1.2 : 1;
      return { ...found, tokensPerSecond: found.tokensPerSecond * factor, p99Ms: 1 };
    };
    const tried = new Set<string>();
    const { settings, trials, together } = await run({
      measure: moody,
      onTrial: ({ value }) => tried.add(String(value)),
    });
    expect(trials.filter(trial => trial.kept).map(trial => trial.value)).toEqual(['buffered', 8, 'off']);
    expect(together.map(({ kept }) => kept)).toEqual([false, true]);
    expect(settings).toEqual({ io: 'buffered', readers: 8 });
  });

  test('stopped early keeps what is known, and says why the others were not tried', async () => {
    for (const byUser of [true, false]) {
      const { runs, measure } = machine({ io: { buffered: 1.5 } });
      const { settings, trials, complete } = await run({
        measure: async (settings, metric) => (runs.length >= 8 ? null : measure(settings, metric)),
        hasTimeFor: () => runs.length < 8,
        interrupted: () => byUser && runs.length >= 8,
      });
      expect(settings).toEqual({ io: 'buffered' });
      expect(complete).toBe(false);
      for (const { gain, reason } of trials.slice(1)) {
        expect(gain).toBeNull();
        expect(reason).toBe(byUser ? 'interrupted' : 'no time left');
      }
    }
  });

  test('keeps time for the last comparison', async () => {
    const { runs, measure } = machine({ io: { buffered: 1.5 }, readers: { 2: 1.5 } });
    const { settings, together, complete } = await run({ measure, hasTimeFor: more => runs.length + more <= 20 });
    expect(settings).toEqual({ io: 'buffered', readers: 2 });
    expect(together).toHaveLength(1);
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

test('the gain is that of one pair of runs, the middle one', () => {
  const before = [sample(100), sample(10), sample(50), sample(40)];
  const after = [sample(110), sample(30), sample(54), sample(44)];
  expect(medianPair(before, after).map(each => each.tokensPerSecond)).toEqual([100, 110]);
  expect(judge(before, after).gain).toBeCloseTo(0.1);
});

test('a gain that makes the slow tokens slower than any run without it is not kept', () => {
  const before = [sample(100, 10), sample(100, 14), sample(100, 11)];
  expect(judge(before, [sample(110, 13), sample(110, 14), sample(110, 30)])).toMatchObject({ kept: true });
  expect(judge(before, [sample(110, 15), sample(110, 15), sample(110, 10)])).toMatchObject({
    kept: false,
    reason: 'slow tokens slower',
  });
  expect(judge(before, [sample(102), sample(102), sample(102)]).kept).toBe(false);
  expect(judge(before, [sample(150), sample(150), sample(99)])).toMatchObject({
    kept: false,
    reason: 'not in every pair',
  });
});
