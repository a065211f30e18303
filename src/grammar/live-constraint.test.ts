import { expect, test } from 'vitest';
import type { Matcher } from './adapter.ts';
import { COUNT, type ConstraintChannel, channelWords, READY, RUNNING, STATUS, TIMED_OUT } from './api.ts';
import { LiveConstraint, MASKS_MS, MASKS_PER_TOKEN_MS } from './live-constraint.ts';

const MAX_TOKENS = 200;
const VOCABULARY = 32;

/** A constraint each of whose masks takes `maskMs` of a clock of the test's own; returns how many it gave. */
async function masksGiven(maskMs: number): Promise<{ masks: number; status: number }> {
  const words = new Int32Array(new SharedArrayBuffer(channelWords(MAX_TOKENS, VOCABULARY) * 4));
  words[READY] = -1;
  const doorbell = new Int32Array(new SharedArrayBuffer(4));
  const channel: ConstraintChannel = { words, doorbell, maxTokens: MAX_TOKENS, vocabSize: VOCABULARY };
  let clock = 0;
  const mask = async () => {
    clock += maskMs;
    return true;
  };
  const matcher = { mask, accept: () => true, rollback: () => {}, dispose: () => {} } as unknown as Matcher;
  const constraint = new LiveConstraint(matcher, channel, undefined, () => clock);
  let masks = 0;
  for (; masks <= MAX_TOKENS; masks++) {
    words[COUNT] = masks;
    await constraint.catchUp();
    if (words[STATUS] !== RUNNING) break;
    expect(words[READY]).toBe(masks);
  }
  return { masks, status: words[STATUS] };
}

test('masks that are slow one after the other end the request', async () => {
  expect(await masksGiven(MASKS_PER_TOKEN_MS)).toEqual({ masks: MAX_TOKENS + 1, status: RUNNING });
  const slow = await masksGiven(900);
  expect(slow.status).toBe(TIMED_OUT);
  expect(slow.masks).toBe(Math.ceil((MASKS_MS - 900) / (900 - MASKS_PER_TOKEN_MS)));
});
