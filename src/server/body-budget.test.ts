import { expect, test } from 'vitest';
import { BodyBudget } from './body-budget.ts';
import { ask, type Run, startTestServer } from './test-support.ts';

const of = (length: number) => ({ 'content-length': String(length) });
const full = expect.objectContaining({ code: 'BODIES_TOO_LARGE' });

test('bodies share what there is, and give it back', () => {
  const budget = new BodyBudget(40, 100);
  const first = budget.take(of(40));
  const second = budget.take({ 'transfer-encoding': 'chunked' });
  budget.take(of(20));
  expect(() => budget.take(of(1))).toThrow(full);
  expect(() => budget.take({ 'transfer-encoding': 'chunked' })).toThrow(full);
  // no body, and one that is refused for its own size
  budget.take({});
  budget.take(of(41));
  first();
  expect(() => budget.take({ 'transfer-encoding': 'chunked' })).not.toThrow();
  expect(() => budget.take(of(1))).toThrow(full);
  second();
  expect(() => budget.take(of(40))).not.toThrow();
});

test('large bodies of requests that run are refused at the limit, small ones follow when they end', async () => {
  const go = Promise.withResolvers<void>();
  let running = 0;
  const begun = Promise.withResolvers<void>();
  // biome-ignore lint/correctness/useYield: nothing is answered
  const run: Run = async function* () {
    if (++running === 4) begun.resolve();
    await go.promise;
  };
  const { port } = await startTestServer({ run });
  const body = `{"text":"${'x'.repeat(4 * 1024 * 1024 - 64)}"}`;
  const held = Array.from({ length: 4 }, () => ask(port, '/echo', { body }));
  await begun.promise;
  const refused = await ask(port, '/echo', { body });
  expect(refused).toMatchObject({ status: 429, json: { error: { code: 'bodies_too_large' } } });
  expect((await ask(port, '/health')).status).toBe(200);
  go.resolve();
  expect((await Promise.all(held)).map(({ status }) => status)).toEqual(Array(4).fill(200));
  expect((await ask(port, '/echo', { body })).status).toBe(200);
});
