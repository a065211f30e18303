/**
 * The ceiling holds: one model for each kind of memory that sessions keep goes through a hard day within the smallest budget that is not
 * refused. `npm run bench -- ceiling` does the same with every pack, with more threads and longer contexts.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { hardDay } from '../../bench/ceiling.ts';
import type { DayResult } from '../../bench/ceiling-day.ts';
import { GIB, MIB } from '../../src/common/units.ts';
import type { EngineOptions } from '../../src/engine/api.ts';
import { packDirectory } from '../support/packs.ts';

const folder = mkdtempSync(join(tmpdir(), 'coli-ceiling-test-'));
// so that compiling is not what is measured, and what was compiled before does not matter
const env = { NODE_COMPILE_CACHE: join(folder, 'cache') };
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const day = (options: EngineOptions, shortRequests = 60) => hardDay({ options, shortRequests }, env, folder);

beforeAll(() => {
  for (const threads of [1, 2]) day({ model: packDirectory('olmoe'), context: 64, threads }, 1);
});

function expectWithin({ plan, highest, tokens }: DayResult, leastTokens: number): void {
  expect(tokens).toBeGreaterThan(leastTokens);
  for (const [part, bytes] of Object.entries(highest)) expect(bytes, part).toBeLessThanOrEqual(plan.total);
  // the plan is what is needed, not any large number
  expect(highest['short requests']).toBeGreaterThan(plan.total * 0.7);
}

const SESSIONS = 8;
const CONTEXT = 128;
/** A full context alone, one in each session, and conversations that go on. */
const LEAST_TOKENS = SESSIONS * CONTEXT * 2;

describe('eight sessions within the smallest budget', () => {
  test.each(['olmoe-colibri', 'gpt-oss-mxfp4', 'glm-moe-dsa', 'qwen36'])('%s', pack => {
    const result = day({ model: packDirectory(pack), slots: SESSIONS, context: CONTEXT, threads: 1 });
    expectWithin(result, LEAST_TOKENS);
  });

  test('nano on two threads, which keep each other waiting', () => {
    const result = day({ model: resolve('models/nano'), slots: SESSIONS, context: 80, threads: 2 }, 20);
    expectWithin(result, SESSIONS * 80 * 2);
  });
});

test('a roomy budget, one session, long passes, keys and values as bf16', () => {
  const options = { model: resolve('models/nano'), context: 1024, threads: 1, kv: 'bf16' as const };
  const result = hardDay({ options, shortRequests: 300 }, env, folder, GIB);
  expect(result.plan.chunkTokens).toBe(512);
  expectWithin(result, 2048);
  expect(result.plan.total).toBeLessThan(400 * MIB);
});
