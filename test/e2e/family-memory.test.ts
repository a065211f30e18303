/** Every family within its smallest budget: a long prompt, an answer and another prompt stay below what the plan promised. */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { ColiError } from '../../src/common/errors.ts';
import { MIB } from '../../src/common/units.ts';
import { inspectModel } from '../../src/engine/describe.ts';
import { runWatched } from '../support/memory.ts';
import { packDirectory } from '../support/packs.ts';

/** Each family, and each way to keep weights that needs memory of its own on the way. */
const PACKS = [
  'olmoe-colibri',
  'qwen3-moe-fp8',
  'mixtral',
  'glm4-moe',
  'minimax-m2-fp8',
  'gpt-oss-mxfp4',
  'deepseek-v2-lite',
  'deepseek-v3-fp8',
  'glm-moe-dsa-fp8',
  'qwen36',
] as const;

/** About a token for each character or two. */
const TEXT = 'The cat sat on 12 mats; it looked at the rain (and thought about mice). '.repeat(8);
const REQUESTS = [
  { text: TEXT, maxTokens: 24 },
  { text: `${TEXT.slice(0, 300)} Then it slept.`, maxTokens: 8 },
];

/** Lanes that wait for each other would take most of the time; memory.test.ts has more. */
const THREADS = 1;

const folder = mkdtempSync(join(tmpdir(), 'coli-family-memory-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const run = (model: string, ram: number, mtp: boolean) => {
  const file = join(folder, 'requests.json');
  const options = { model, ram, threads: THREADS, context: 768, mtp };
  writeFileSync(file, JSON.stringify({ options, requests: REQUESTS }));
  return runWatched(['test/support/requests.ts', file], { NODE_COMPILE_CACHE: join(folder, 'cache') });
};

/** Bytes of the smallest budget that is not refused, as the refusal of a smaller one tells it. */
function smallestBudget(model: string, mtp: boolean): number {
  try {
    inspectModel({ model, ram: MIB, threads: THREADS, context: 768, mtp });
  } catch (error) {
    const { code, hint } = error as ColiError;
    expect(code).toBe('RAM_TOO_SMALL');
    return Number(/the smallest possible is --ram (\d+)M/.exec(hint!)?.[1]) * MIB;
  }
  throw new Error('one MiB was enough');
}

// so that compiling is not what is measured
beforeAll(async () => {
  expect(await run(packDirectory('mixtral'), 1024 * MIB, false)).toMatchObject({ status: 0, stderr: '' });
});

test.each(PACKS)('%s', async pack => {
  const model = packDirectory(pack);
  const mtp = pack.startsWith('deepseek-v3') || pack.startsWith('glm') || pack === 'qwen36';
  const ram = smallestBudget(model, mtp);
  const { status, stdout, stderr, maxRssBytes: seen } = await run(model, ram, mtp);
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  const { maxRssBytes, tokens, total } = JSON.parse(stdout);
  expect(total).toBeLessThanOrEqual(ram);
  expect(tokens).toBeGreaterThan(350);
  expect(Math.max(seen, ...maxRssBytes)).toBeLessThanOrEqual(ram);
  // the budget is what is needed, not any large number
  expect(maxRssBytes.at(-1)).toBeGreaterThan(ram / 2);
});
