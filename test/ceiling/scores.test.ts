/** What scores return is planned where it is asked for, and handed over without a copy. */

import { resolve } from 'node:path';
import { expect, test } from 'vitest';
import { MIB } from '../../src/common/units.ts';
import { inspectModel } from '../../src/engine/describe.ts';
import { openEngine } from '../../src/engine/engine.ts';

const NANO = resolve('models/nano');
const options = { model: NANO, ram: 600 * MIB, threads: 1, context: 256 };

test('two results of logits for the most tokens', () => {
  const plain = inspectModel(options).plan;
  const scored = inspectModel({ ...options, scoredTokens: 128 }).plan;
  expect(scored.overhead - plain.overhead).toBe(2 * 128 * 4096 * 4);
  expect(scored.smallestBudget - plain.smallestBudget).toBe(2 * 128 * 4096 * 4);
});

test('what is asked for comes whole, again and again', async () => {
  const engine = await openEngine({ ...options, scoredTokens: 16 });
  const ids = Array.from({ length: 16 }, (_, i) => 100 + i);
  const request = { ids, nll: true, logits: true, hidden: true, router: true };
  const first = await engine.score(request);
  expect(first.logits).toHaveLength(16 * 4096);
  expect(first.hidden!.map(layer => layer.length)).toEqual(new Array(6).fill(16 * 256));
  expect(await engine.score(request)).toEqual(first);
  await engine.close();
});
