/** A real server under many clients that ask, leave and mean harm: everything comes to a proper end, and nothing is left behind. */

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { memoryOf, type ServeProcess, startServe } from '../../bench/serve-child.ts';
import { ServeClient } from '../../bench/serve-client.ts';
import { type LoadOptions, runLoad } from '../../bench/serve-load.ts';
import { growth, parseMetrics } from '../../bench/serve-metrics.ts';
import { bodyOf, HOSTILE_ASKS } from '../../bench/serve-mix.ts';
import { MIB } from '../../src/common/units.ts';

const QUESTIONS = ['Raccontami una storia', 'What does grep do?', 'What is 12 + 34?'];
const LIMIT_MS = 120_000;
/** What a process may gain between two loads of the same kind; a leak of a few kB per request is several times that. */
const MAX_GROWTH_BYTES = 48 * MIB;

let server: ServeProcess;
let client: ServeClient;

beforeAll(async () => {
  server = await startServe(['--slots', '4', '--ctx', '512', '--max-queue', '16']);
  client = new ServeClient(server.port, 'test');
}, LIMIT_MS);

afterAll(async () => {
  client?.close();
  expect(await server?.stop()).toBe(0);
}, LIMIT_MS);

const metrics = async () => parseMetrics(await client.get('/metrics'));
const CALM = { clients: 12, pauseMs: 0, huge: false, hostile: false, slowReaders: 0 };
const load = (requests: number, more: Partial<LoadOptions> = {}) =>
  runLoad(server.port, { ...CALM, goesOn: asked => asked < requests, ...more });

async function answers(): Promise<string[]> {
  const texts: string[] = [];
  for (const question of QUESTIONS) {
    const body = bodyOf('chat', question, 32, { temperature: 0 });
    const { status, text } = await client.ask({ kind: 'greedy', api: 'chat', stream: false, body });
    expect(status).toBe(200);
    texts.push(text);
  }
  return texts;
}

/** Resolves when nothing runs and nothing waits. */
async function idle(): Promise<void> {
  for (;;) {
    const now = await metrics();
    if (now.get('coli_requests_active') === 0 && now.get('coli_requests_queued') === 0) return;
  }
}

describe('twelve clients, another with prompts of 1 MB, and two that hardly read', () => {
  test('every answer is whole, and greedy ones are the same afterwards', { timeout: LIMIT_MS }, async () => {
    const before = await answers();
    const { outcomes, problems } = await load(150, { huge: true, slowReaders: 2 });
    expect(problems).toEqual([]);
    expect(outcomes.length).toBeGreaterThanOrEqual(150);
    expect(outcomes.some(({ left }) => left)).toBe(true);
    expect(await answers()).toEqual(before);
    expect(server.complaints).toEqual([]);
  });

  test('schemas and grammars that mean harm end as answers or as 400', { timeout: LIMIT_MS }, async () => {
    const everyday = load(30);
    for (const ask of HOSTILE_ASKS) expect((await client.ask(ask)).problem).toBe(null);
    expect((await everyday).problems).toEqual([]);
    expect(server.complaints).toEqual([]);
  });

  test('every request that came to the queue is counted once', { timeout: LIMIT_MS }, async () => {
    await idle();
    const before = await metrics();
    const { outcomes, problems } = await load(60, { leave: false });
    expect(problems).toEqual([]);
    const after = await metrics();
    const counted = (name: string) => growth(before, after, `coli_queue_${name}_total`);
    const answered = outcomes.filter(({ status }) => status === 200).length;
    expect([counted('admitted'), counted('completed')]).toEqual([answered, answered]);
    expect([counted('cancelled'), counted('rejected'), counted('timed_out')]).toEqual([0, 0, 0]);
    expect(after.get('coli_requests_active')).toBe(0);
    expect(growth(before, after, 'coli_engine_decode_tokens_total')).toBe(
      outcomes.reduce((sum, { tokens }) => sum + tokens, 0),
    );
  });

  test('when all clients leave, the work ends', { timeout: LIMIT_MS }, async () => {
    const body = bodyOf('completions', 'word '.repeat(20), 400, { stream: true, logit_bias: { 0: -100, 4: -100 } });
    const clients = Array.from({ length: 8 }, (_, i) => new ServeClient(server.port, `leaver ${i}`));
    const before = await metrics();
    const ask = { kind: 'leaver', api: 'completions', stream: true, body, leave: { afterPieces: 2 } } as const;
    const outcomes = await Promise.all(clients.map(one => one.ask(ask)));
    for (const one of clients) one.close();
    expect(outcomes.map(({ status, left }) => [status, left])).toEqual(Array(8).fill([200, true]));
    await idle();
    const after = await metrics();
    expect(growth(before, after, 'coli_queue_cancelled_total')).toBe(8);
    expect(growth(before, after, 'coli_engine_decode_tokens_total')).toBeLessThan(8 * 400);
  });

  test('memory stays, within the plan', { timeout: LIMIT_MS }, async () => {
    await load(100, { huge: true });
    const before = memoryOf(server.pid).rssBytes;
    await load(100, { huge: true });
    const after = memoryOf(server.pid);
    expect(after.rssBytes).toBeLessThan(before + MAX_GROWTH_BYTES);
    const { planned_bytes } = JSON.parse(await client.get('/props'));
    expect(after.peakBytes).toBeLessThan(planned_bytes);
  });
});
