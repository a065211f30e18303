/**
 * Sessions whose states cannot simply be cut, in trouble: requests are given up at any moment, passes and their repairs fail in any layer,
 * reads fail in the middle of a pass. What comes is right all the same, and so is everything after it.
 */

import { describe, expect, test } from 'vitest';
import { playRandomly } from '../support/driver.ts';

// recurrent matrices; windows beside rows
describe.each(['qwen36', 'gpt-oss-mxfp4'])('%s', pack => {
  test.each([42, 45])('passes that fail: seed %i', async seed => {
    const { answered, failed, cachedTokens } = await playRandomly(pack, seed, 6, { failures: true });
    expect(answered).toBeGreaterThan(2);
    expect(failed).toBeGreaterThan(0);
    expect(cachedTokens).toBeGreaterThan(0);
  });

  test('a read that fails', async () => {
    const { answered, failed } = await playRandomly(pack, 42, 6, { reads: true });
    expect(answered).toBeGreaterThan(5);
    // nothing of it shows where its neighbours are tried again
    expect(failed).toBeLessThanOrEqual(1);
  });

  test.each([42, 45])('all of it, and requests that are given up: seed %i', async seed => {
    const troubles = { failures: true, reads: true, cancels: true };
    const { answered, cancelled, failed } = await playRandomly(pack, seed, 6, troubles);
    expect(answered).toBeGreaterThan(0);
    expect(cancelled + failed).toBeGreaterThan(0);
  });
});
