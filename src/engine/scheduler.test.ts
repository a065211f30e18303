import { expect, it, vi } from 'vitest';
import { packDirectory, withRuntime } from '../../test/support/packs.ts';
import { channelWords, READY, STATUS, TIMED_OUT } from '../grammar/api.ts';
import { Tokenizer } from '../tokenizer/tokenizer.ts';
import { Generation } from './generation.ts';
import { resolveSampling } from './sampling-options.ts';
import { Scheduler } from './scheduler.ts';
import { Session } from './session.ts';
import { SessionPool } from './session-pool.ts';
import { createStatus, readStatus, StatusWriter } from './status.ts';

const model = packDirectory('olmoe');
const { tokenBytes, vocabSize } = Tokenizer.load(model);
const facts = { tokenBytes, vocabSize, endOfTurnIds: [] };

/** With a constraint whose first mask has not come. */
function constrained(promptIds: readonly number[]) {
  const maxTokens = 4;
  const words = new Int32Array(new SharedArrayBuffer(channelWords(maxTokens, vocabSize) * 4));
  words[READY] = -1;
  const channel = { words, doorbell: new Int32Array(new SharedArrayBuffer(4)), maxTokens, vocabSize };
  const sampling = resolveSampling({ maxTokens }, null, 100);
  return { promptIds, sampling, request: {}, constraint: { channel, afterId: null } };
}

it('feeds nothing of a request whose constraint failed before its prompt was read, and gives its session back once', () =>
  withRuntime({ model, slots: 2, chunk: 16 }, runtime => {
    const sessions = [new Session(runtime, 0), new Session(runtime, 1)];
    const pool = new SessionPool(sessions, runtime.batch.cache, null);
    const scheduler = new Scheduler(runtime, pool, new StatusWriter(createStatus()));
    const told: unknown[] = [];
    const sink = {
      event: ({ type }: { type: string }) => told.push(type),
      done: () => told.push('done'),
      fail: (error: unknown) => told.push((error as { code: string }).code),
      cancelled: () => false,
    };
    const order = constrained([5, 6, 7, 8, 9]);
    order.constraint.channel.words[STATUS] = TIMED_OUT;
    // a step that fails, too, must not end the request again
    const { forward } = runtime.model;
    runtime.model.forward = () => {
      throw new Error('nothing is to be computed');
    };
    scheduler.add(new Generation(runtime, facts, order, sink));
    scheduler.step();
    runtime.model.forward = forward;
    expect(told).toEqual(['start', 'CONSTRAINT_TOO_SLOW']);
    expect(new Set([pool.take([1]), pool.take([1])])).toEqual(new Set(sessions));
    expect(pool.take([1])).toBeNull();
  }));

it('counts a cancelled request no longer, though nothing else is to be done', () =>
  withRuntime({ model }, (runtime, session) => {
    const pool = new SessionPool([session], runtime.batch.cache, null);
    const buffer = createStatus();
    const scheduler = new Scheduler(runtime, pool, new StatusWriter(buffer));
    let cancelled = false;
    const sink = { event: () => {}, done: () => {}, fail: () => {}, cancelled: () => cancelled };
    const order = { promptIds: [5, 6], sampling: resolveSampling({ maxTokens: 9 }, null, 100), request: {} };
    scheduler.add(new Generation(runtime, facts, order, sink));
    scheduler.step();
    expect(readStatus(buffer)).toMatchObject({ active: 1, waiting: 0 });
    cancelled = true;
    expect(scheduler.step()).toBe(false);
    expect(readStatus(buffer)).toMatchObject({ active: 0, waiting: 0 });
  }));

it('waits for all masks of a step together as long as for one', () =>
  withRuntime({ model, slots: 12 }, runtime => {
    const sessions = Array.from({ length: 12 }, (_, slot) => new Session(runtime, slot));
    const pool = new SessionPool(sessions, runtime.batch.cache, null);
    const scheduler = new Scheduler(runtime, pool, new StatusWriter(createStatus()));
    const sink = { event: () => {}, done: () => {}, fail: () => {}, cancelled: () => false };
    for (let i = 0; i < 12; i++) scheduler.add(new Generation(runtime, facts, constrained([5]), sink));
    const wait = vi.spyOn(Atomics, 'wait');
    expect(scheduler.step()).toBe(true);
    const waits = wait.mock.calls.map(call => call[3] ?? Number.POSITIVE_INFINITY);
    wait.mockRestore();
    expect(waits).toHaveLength(12);
    expect(Math.max(...waits)).toBeGreaterThan(0);
    // each alone would be 12 times as much as one
    expect(waits.reduce((sum, ms) => sum + ms)).toBeLessThan(3 * Math.max(...waits));
  }));

it('reads a prompt while others answer, also with fewer rows than answers', () =>
  withRuntime({ model, slots: 3, chunk: 1 }, runtime => {
    const sessions = [0, 1, 2].map(slot => new Session(runtime, slot));
    const pool = new SessionPool(sessions, runtime.batch.cache, null);
    const scheduler = new Scheduler(runtime, pool, new StatusWriter(createStatus()));
    const ended: string[] = [];
    const ask = (name: string, promptIds: number[], maxTokens: number) => {
      const sink = { event: () => {}, done: () => ended.push(name), fail: () => {}, cancelled: () => false };
      const sampling = resolveSampling({ maxTokens, temperature: 0 }, null, 200);
      const order = { promptIds, sampling, request: { ignoreEos: true } };
      scheduler.add(new Generation(runtime, facts, order, sink));
    };
    ask('long', [5], 100);
    ask('longer', [6], 120);
    for (let i = 0; i < 4; i++) scheduler.step();
    ask('short', [7, 8, 9], 1);
    while (scheduler.step());
    expect(ended).toEqual(['short', 'long', 'longer']);
  }));
