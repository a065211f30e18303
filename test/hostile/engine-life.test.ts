/** The engine for its users: taking turns, stopping early, closing, and what is left behind. */

import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { afterEach, beforeAll, expect, test } from 'vitest';
import type { Engine, GenerateEvent, GenerateRequest, PreparedRequest } from '../../src/engine/api.ts';
import { openEngine } from '../../src/engine/engine.ts';
import type { FaultPlan } from '../../src/storage/faults.ts';
import { writeTiny } from '../fixtures/tiny.ts';
import { TEST_RAM_BYTES } from '../support/packs.ts';
import { fileDirectory, rejection } from './engine-support.ts';

const model = fileDirectory();
const LONG: GenerateRequest = { prompt: { text: 'Hello' }, temperature: 0, maxTokens: 1000, ignoreEos: true };
const SHORT: GenerateRequest = { prompt: { text: 'Hello' }, temperature: 0, maxTokens: 5, ignoreEos: true };
/** Every read from the first expert on takes 50 ms, and two slots make every token read: LONG would take minutes. */
const SLOW: FaultPlan = { nth: 22, kind: 'slow' };

let engine: Engine;
let expected: string;

async function open(faults?: FaultPlan): Promise<Engine> {
  const options = { model, ram: TEST_RAM_BYTES, threads: 2, context: 2048, expertSlots: faults ? 2 : undefined };
  engine = await openEngine(options, () => {}, { faults });
  return engine;
}

async function collect(request: GenerateRequest, signal?: AbortSignal, onEvent?: (event: GenerateEvent) => void) {
  const events: GenerateEvent[] = [];
  for await (const event of engine.generate(request, signal)) {
    events.push(event);
    onEvent?.(event);
  }
  const end = events.at(-1);
  if (end?.type !== 'end') throw new Error('no end');
  return { events, end, text: events.map(event => (event.type === 'token' ? event.text : '')).join('') };
}

beforeAll(async () => {
  writeTiny(model);
  await open();
  expected = (await collect(SHORT)).end.text;
  await engine.close();
});

afterEach(() => engine.close());

test.each(['start', 'prefill', 'token'] as const)('a signal at the first %s event ends slow work', async type => {
  await open(SLOW);
  const controller = new AbortController();
  const { end, text } = await collect(LONG, controller.signal, event => {
    if (event.type === type) controller.abort();
  });
  expect(end.finishReason).toBe('cancelled');
  expect(end.text).toBe(text);
  expect(end.tokenIds.length).toBeLessThan(1000);
  expect((await collect(SHORT)).end).toMatchObject({ text: expected, finishReason: 'length' });
});

test('a text that no context holds is refused before it is tokenised, unless it is to be encoded whatever its length', async () => {
  await open();
  const text = 'x'.repeat(200_000);
  const messages = [{ role: 'user', content: text }];
  const refused = { code: 'CONTEXT_EXCEEDED', details: { characters: text.length, context: 2048 } };
  expect(await rejection(engine.encode({ text }))).toMatchObject(refused);
  const withRole = { ...refused.details, characters: text.length + 'user'.length };
  expect(await rejection(engine.encode({ messages }))).toMatchObject({ ...refused, details: withRole });
  expect((await engine.encode({ text }, { anyLength: true })).length).toBeGreaterThan(2048);
});

test('a signal that came before the request gives no token', async () => {
  await open();
  const { end } = await collect(SHORT, AbortSignal.abort());
  expect(end).toMatchObject({ finishReason: 'cancelled', tokenIds: [], text: '' });
  expect((await collect(SHORT)).end.text).toBe(expected);
});

test('a signal while the prompt is tokenised ends the request without a prompt', async () => {
  await open();
  const controller = new AbortController();
  const cancelled = collect(SHORT, controller.signal);
  controller.abort();
  const { events, end } = await cancelled;
  expect(events[0]).toMatchObject({ type: 'start', promptIds: [] });
  expect(end).toMatchObject({ finishReason: 'cancelled', tokenIds: [], text: '' });
  expect((await collect(SHORT)).end.text).toBe(expected);
});

test('a reader of the events who leaves stops the work', async () => {
  await open(SLOW);
  for await (const event of engine.generate(LONG)) if (event.type === 'token') break;
  expect((await collect(SHORT)).end.text).toBe(expected);
});

test('generations take turns, and a scoring waits for its own', async () => {
  await open();
  const order: string[] = [];
  const note = (name: string) => (event: GenerateEvent) => order.push(`${name} ${event.type}`);
  const [first, second, scored] = await Promise.all([
    collect({ ...SHORT, maxTokens: 40 }, undefined, note('a')),
    collect(SHORT, undefined, note('b')),
    engine.score({ ids: [72, 101], nll: true }).then(result => {
      order.push('score');
      return result;
    }),
  ]);
  expect(first.end.tokenIds).toHaveLength(40);
  expect(second.end.text).toBe(expected);
  expect(scored.nll).toHaveLength(1);
  const [from, to] = [order.indexOf('b start'), order.lastIndexOf('b end')];
  expect(order.slice(from, to + 1).every(entry => entry.startsWith('b'))).toBe(true);
  const scoredAt = order.indexOf('score');
  const between = (name: string) =>
    order.indexOf(`${name} start`) < scoredAt && scoredAt < order.indexOf(`${name} end`);
  expect(between('a') || between('b')).toBe(false);
});

test('a prepared request is run once: what would wait for a form for ever is refused, and the first goes on', async () => {
  engine = await openEngine({ model, ram: TEST_RAM_BYTES, threads: 1, context: 128, slots: 2, constraints: true });
  const constraint = { grammar: { kind: 'literal', text: 'a form' } } as const;
  const run = async (prepared: PreparedRequest) => {
    let text = '';
    for await (const event of engine.generate(prepared)) if (event.type === 'end') text = event.text;
    return text;
  };
  const prepared = await engine.prepare({ ...SHORT, maxTokens: 20, ignoreEos: false, constraint });
  const [first, second] = await Promise.allSettled([run(prepared), run(prepared)]);
  expect(first).toMatchObject({ value: 'a form' });
  expect(second).toMatchObject({ reason: { code: 'REQUEST_SPENT' } });
  expect(await rejection(run(prepared))).toMatchObject({ code: 'REQUEST_SPENT' });
  const discarded = await engine.prepare({ ...SHORT, constraint });
  discarded.discard();
  discarded.discard();
  expect(await rejection(run(discarded))).toMatchObject({ code: 'REQUEST_SPENT' });
});

test('closing ends a generation and those that wait; afterwards requests are refused', async () => {
  await open(SLOW);
  const started = Promise.withResolvers<void>();
  const running = collect(LONG, undefined, event => event.type === 'token' && started.resolve());
  await started.promise;
  const waiting = collect({ ...LONG, prompt: { ids: [72, 105] } });
  const encoding = rejection(collect(LONG));
  await Promise.all([engine.close(), engine.close()]);
  expect((await running).end.finishReason).toBe('cancelled');
  expect((await waiting).end.finishReason).toBe('cancelled');
  expect((await encoding).code).toBe('ENGINE_CLOSED');
  expect((await rejection(collect(SHORT))).code).toBe('ENGINE_CLOSED');
  expect((await rejection(engine.score({ ids: [1] }))).code).toBe('ENGINE_CLOSED');
});

test.each([
  { how: 'close', output: 'cancelled cancelled' },
  { how: 'break', output: '' },
  { how: 'bad-open', output: 'RAM_TOO_SMALL' },
])('a process ends by itself after: $how', ({ how, output }) => {
  const script = join(import.meta.dirname, '../support/close-early.ts');
  const child = spawnSync(process.execPath, [script, model, how], { encoding: 'utf8', timeout: 30_000 });
  expect({ status: child.status, signal: child.signal, stderr: child.stderr }).toEqual({
    status: 0,
    signal: null,
    stderr: '',
  });
  expect(child.stdout.trim()).toBe(output);
});
