import { expect, it, vi } from 'vitest';
import { packDirectory, withRuntime } from '../../test/support/packs.ts';
import type { TelemetryEvent } from '../telemetry/events.ts';
import { PHASES, WORK_NAMES } from '../telemetry/fields.ts';
import { TelemetryReader } from '../telemetry/reader.ts';
import { Tokenizer } from '../tokenizer/tokenizer.ts';
import type { EngineOptions, GenerateEvent } from './api.ts';
import { Generation } from './generation.ts';
import type { Runtime } from './runtime.ts';
import { resolveSampling } from './sampling-options.ts';
import { Scheduler } from './scheduler.ts';
import { Session } from './session.ts';
import { SessionPool } from './session-pool.ts';
import { createStatus, StatusWriter } from './status.ts';
import { IdleTelemetry } from './telemetry.ts';
import type { UsageHistory } from './usage.ts';

const model = packDirectory('olmoe');
const { tokenBytes, vocabSize } = Tokenizer.load(model);
const PROMPT = [5, 9, 2, 7, 11, 3, 8, 6, 4, 10];

/** Answers one request after the other with its own scheduler. */
function talker(runtime: Runtime) {
  const sessions = Array.from({ length: runtime.info.slots }, (_, slot) => new Session(runtime, slot));
  const pool = new SessionPool(sessions, runtime.batch.cache, null);
  const scheduler = new Scheduler(runtime, pool, new StatusWriter(createStatus()));
  runtime.telemetry.everyStep = true;
  const answer = (promptIds: readonly number[], maxTokens = 6) => {
    let end: Extract<GenerateEvent, { type: 'end' }>;
    const sink = {
      event: (event: GenerateEvent) => {
        if (event.type === 'end') end = event;
      },
      done: () => {},
      fail: (error: unknown) => {
        throw error;
      },
      cancelled: () => false,
    };
    const sampling = resolveSampling({ maxTokens, temperature: 0 }, null, 100);
    const order = { promptIds, sampling, request: { ignoreEos: true } };
    scheduler.add(new Generation(runtime, { tokenBytes, vocabSize, endOfTurnIds: [] }, order, sink));
    while (scheduler.step());
    return end!;
  };
  return { answer, sessions };
}

const sumOf = (events: readonly TelemetryEvent[], field: string) =>
  events.reduce((sum, { fields }) => sum + fields[field], 0);

/** How much longer a read takes with the fault `slow`. */
const SLOW_READ_US = 50_000;

const SMALL: EngineOptions = { model, expertSlots: 12, chunk: 4 };

it('counts in events what the statistics of the answer count', () =>
  withRuntime(SMALL, runtime => {
    const { answer } = talker(runtime);
    const reader = new TelemetryReader(runtime.telemetry.shared);
    const events = reader.events();
    answer([1, 2, 3]);
    events.take();
    const begun = performance.now();
    const { stats } = answer(PROMPT);
    const totalUs = (performance.now() - begun) * 1000;
    const all = events.take();
    expect(events.lost).toBe(0);
    const steps = all.filter(({ type }) => type === 'step');
    const layers = all.filter(({ type }) => type === 'layer');
    expect(steps).toHaveLength(8);
    expect(layers).toHaveLength(8 * runtime.info.layers);
    for (const some of [steps, layers]) {
      expect(sumOf(some, 'requests')).toBe(stats.expert_requests);
      const hits = sumOf(some, 'pinnedHits') + sumOf(some, 'cachedHits') + sumOf(some, 'aheadHits');
      expect(hits).toBe(stats.expert_hits);
      expect(sumOf(some, 'diskHits')).toBe(stats.expert_requests - stats.expert_hits);
      expect(sumOf(some, 'readBytes')).toBe(stats.bytes_read);
      expect(sumOf(some, 'drive0Bytes')).toBe(stats.bytes_read);
      expect(sumOf(some, 'serviceUs') / 1e6).toBeCloseTo(stats.read_service_s, 9);
      expect(sumOf(some, 'waitUs') / 1e6).toBeCloseTo(stats.read_wait_s, 9);
    }
    expect(stats.bytes_read).toBeGreaterThan(0);
    expect(sumOf(steps, 'promptRows')).toBe(stats.prefill_tokens);
    expect(sumOf(steps, 'decodeRows')).toBe(stats.decode_tokens - 1);
    expect(sumOf(steps, 'totalUs')).toBeGreaterThan(0);
    expect(sumOf(steps, 'totalUs')).toBeLessThanOrEqual(totalUs);
    // what was asked for is as large as what came, as far as it was used
    expect(sumOf(steps, 'diskBytes') + sumOf(steps, 'aheadBytes') + sumOf(steps, 'wastedBytes')).toBe(stats.bytes_read);
  }));

it('splits the time of each step and layer into phases and the wait', () =>
  withRuntime(SMALL, runtime => {
    const { answer } = talker(runtime);
    const events = new TelemetryReader(runtime.telemetry.shared).events();
    answer(PROMPT);
    const counted = events.take().filter(({ type }) => type === 'step' || type === 'layer');
    for (const { fields } of counted) {
      const phases = PHASES.reduce((sum, phase) => sum + fields[`${phase}Us`], 0);
      // the wait is rounded to microseconds, each of the up to some hundred times
      expect(Math.abs(phases + fields['waitUs'] - fields['totalUs'])).toBeLessThan(100);
      for (const name of WORK_NAMES) expect(fields[name]).toBeGreaterThanOrEqual(0);
    }
    const steps = counted.filter(({ type }) => type === 'step');
    for (const phase of ['mixer', 'router', 'experts', 'head', 'sampler']) {
      expect(sumOf(steps, `${phase}Us`), phase).toBeGreaterThan(0);
    }
  }));

it('keeps sums since the start, the last request apart, and what every expert did in it', () =>
  withRuntime(SMALL, runtime => {
    const { answer } = talker(runtime);
    const reader = new TelemetryReader(runtime.telemetry.shared);
    answer(PROMPT);
    const before = reader.sums();
    const { stats } = answer(PROMPT.toReversed());
    const last = reader.lastRequest();
    expect([...last.values]).toEqual([...reader.sums().since(before).values]);
    const [prompt, decode] = [last.steps('prompt'), last.steps('decode')];
    expect(prompt['requests'] + decode['requests']).toBe(stats.expert_requests);
    expect(decode['decodeRows']).toBe(stats.decode_tokens - 1);
    expect(last.distribution('tokenUs').count).toBe(stats.decode_tokens - 1);
    expect(last.distribution('firstTokenUs').count).toBe(1);
    const { layers, experts } = runtime.info;
    const perLayer = Array.from({ length: layers }, (_, layer) => last.layer('decode', layer)['requests']);
    expect(perLayer.reduce((a, b) => a + b)).toBe(decode['requests']);
    const uses = reader.turnUses;
    const rows = stats.prefill_tokens + stats.decode_tokens - 1;
    for (let layer = 0; layer < layers; layer++) {
      const ofLayer = uses.subarray(layer * experts, (layer + 1) * experts).reduce((a, b) => a + b);
      expect(ofLayer).toBe(rows * runtime.info.topK);
    }
    expect(reader.tiers.filter(tier => tier === 2)).toHaveLength(12);
  }));

it('counts what a slow disk takes as service and wait, and measures it as slow', () =>
  withRuntime(
    { ...SMALL, prefetch: 'off' },
    runtime => {
      const { answer, sessions } = talker(runtime);
      answer(PROMPT.slice(0, 2), 3);
      const decode = new TelemetryReader(runtime.telemetry.shared).lastRequest().steps('decode');
      const { waitUs, totalUs, detailedUs, serviceUs, reads, readBytes, diskHits } = decode;
      expect(reads).toBeGreaterThan(0);
      expect(reads).toBe(diskHits);
      expect(serviceUs).toBeGreaterThanOrEqual(reads * SLOW_READ_US);
      expect(waitUs).toBeGreaterThan(0);
      expect(detailedUs).toBeCloseTo(totalUs - waitUs, 3);
      const limits = runtime.measureLimits(sessions[0]);
      const most = (limits.readers * (readBytes / reads)) / (SLOW_READ_US / 1e6);
      expect(limits.diskBytesPerSecond).toBeGreaterThan(0);
      expect(limits.diskBytesPerSecond).toBeLessThanOrEqual(most);
    },
    { faults: { nth: 1, kind: 'slow' } },
  ));

it('measures what the machine allows without a trace in conversation, history or answers', () =>
  withRuntime(SMALL, runtime => {
    const { answer, sessions } = talker(runtime);
    const [session] = sessions;
    const reader = new TelemetryReader(runtime.telemetry.shared);
    const first = answer(PROMPT);
    const ids = [...session.ids];
    const uses = [...reader.turnUses];
    const last = [...reader.lastRequest().values];
    const limits = runtime.measureLimits(session);
    expect(limits.diskBytesPerSecond).toBeGreaterThan(0);
    expect(limits.computeUs).toBeGreaterThan(0);
    expect(limits.denseBytes).toBeGreaterThan(0);
    expect([...session.ids]).toEqual(ids);
    expect([...reader.turnUses]).toEqual(uses);
    expect([...reader.lastRequest().values]).toEqual(last);
    session.truncate(0);
    expect(answer(PROMPT).tokenIds).toEqual(first.tokenIds);
  }));

it('is told how hot experts are, where they are, and which pins were exchanged, while nothing runs', () =>
  withRuntime(SMALL, runtime => {
    const { answer } = talker(runtime);
    answer(PROMPT);
    const reader = new TelemetryReader(runtime.telemetry.shared);
    const events = reader.events();
    const recent = { tokens: 5 };
    let heat = 7;
    const history = { recent, total: () => ({ heat: (i: number) => (i === 2 ? heat : 0) }) } as unknown as UsageHistory;
    const idle = new IdleTelemetry(runtime, history);
    runtime.store.counters.pinSwaps += 3;
    idle.tell(true);
    expect([...reader.heat.subarray(0, 4)]).toEqual([0, 0, 7, 0]);
    expect(events.take()).toMatchObject([{ type: 'repin', layer: -1, fields: { swaps: 3 } }]);
    heat = 8;
    idle.tell(true);
    expect(reader.heat[2]).toBe(7);
    recent.tokens = 6;
    idle.tell(true);
    expect(reader.heat[2]).toBe(8);
    expect(events.take()).toEqual([]);
    runtime.store.pin(0, reader.tiers.indexOf(2), true);
    idle.tell(true);
    expect(reader.tiers.indexOf(3)).toBeGreaterThanOrEqual(0);
    runtime.telemetry.lookAheadChanges(false);
    expect(events.take()).toMatchObject([{ type: 'prefetch', fields: { on: 0 } }]);
  }));

it('looks at few steps where they are short, and counts all the same', () =>
  withRuntime(SMALL, runtime => {
    const { answer } = talker(runtime);
    runtime.telemetry.everyStep = false;
    const events = new TelemetryReader(runtime.telemetry.shared).events();
    let { stats } = answer(PROMPT, 20);
    const steps = events.take().filter(({ type }) => type === 'step');
    expect(sumOf(steps, 'requests')).toBe(stats.expert_requests);
    expect(sumOf(steps, 'readBytes')).toBe(stats.bytes_read);
    // as if each had taken no time: the next look is far away
    const clock = vi.spyOn(performance, 'now').mockReturnValue(0);
    answer(PROMPT, 3);
    clock.mockRestore();
    events.take();
    ({ stats } = answer(PROMPT.toReversed(), 20));
    const plain = events.take();
    expect(plain.filter(({ type }) => type === 'layer')).toEqual([]);
    expect(sumOf(plain, 'detailed')).toBe(0);
    expect(sumOf(plain, 'requests')).toBe(stats.expert_requests);
    expect(sumOf(plain, 'totalUs')).toBeGreaterThan(0);
  }));

it('does not know the disk when a read fails while it is measured, and goes on', () =>
  withRuntime(
    SMALL,
    runtime => {
      const { answer, sessions } = talker(runtime);
      const [session] = sessions;
      const first = answer(PROMPT);
      // the answer reads some hundreds of times, the measurement many thousands
      expect(first.stats.bytes_read).toBeGreaterThan(0);
      expect(runtime.measureLimits(session).diskBytesPerSecond).toBeNull();
      session.truncate(0);
      expect(answer(PROMPT).tokenIds).toEqual(first.tokenIds);
      expect(runtime.measureLimits(session).diskBytesPerSecond).toBeGreaterThan(0);
    },
    { faults: { nth: 2000, kind: 'eio' } },
  ));
