/**
 * The promise with everything at random: prompts, conversations, neighbours, chunks, lanes, memories, sessions, expert slots, kernels.
 * Every answer has the bytes of a new session in a plain engine.
 */

import { describe, expect, test } from 'vitest';
import { playRandomly } from '../support/driver.ts';

const PACKS = ['qwen36', 'gpt-oss-mxfp4', 'glm-moe-dsa-fp8', 'deepseek-v3', 'minimax-m2-fp8'] as const;

describe.each(PACKS)('%s', pack => {
  test.each([1, 2])('time %i', async time => {
    const { answered, cancelled, failed } = await playRandomly(pack, 7 * PACKS.indexOf(pack) + time, 3);
    expect({ cancelled, failed }).toEqual({ cancelled: 0, failed: 0 });
    expect(answered).toBeGreaterThan(3);
  });
});
