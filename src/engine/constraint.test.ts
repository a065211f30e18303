import { describe, expect, test } from 'vitest';
import {
  CLOSED,
  COUNT,
  type ConstraintChannel,
  CRASHED,
  channelWords,
  IDS,
  maskAt,
  READY,
  STATUS,
  TIMED_OUT,
} from '../grammar/api.ts';
import { ConstraintReader } from './constraint.ts';

const VOCABULARY = 40;

/** A channel whose worker is the test. */
function channel(maxTokens = 4): ConstraintChannel {
  const words = new Int32Array(new SharedArrayBuffer(channelWords(maxTokens, VOCABULARY) * 4));
  return { words, doorbell: new Int32Array(new SharedArrayBuffer(4)), maxTokens, vocabSize: VOCABULARY };
}

describe('a constraint', () => {
  test('asks for a mask with each id and is ready when it has come', () => {
    const shared = channel();
    const reader = new ConstraintReader(shared, null);
    expect(reader.isReady).toBe(true);
    shared.words[maskAt(shared)] = 0b1010;
    expect(reader.mask?.[0]).toBe(0b1010);
    expect(reader.mask).toHaveLength(2);
    reader.accept(3);
    expect(reader.isReady).toBe(false);
    expect([...shared.words.subarray(IDS, IDS + 1)]).toEqual([3]);
    expect(shared.words[COUNT]).toBe(1);
    expect(shared.doorbell[0]).toBe(1);
    reader.wait(1);
    expect(reader.isReady).toBe(false);
    shared.words[READY] = 1;
    expect(reader.isReady).toBe(true);
  });

  test('holds nothing back until its token has come, and does not tell what came before', () => {
    const shared = channel();
    const reader = new ConstraintReader(shared, 7);
    shared.words[READY] = -1;
    reader.accept(1);
    reader.accept(2);
    expect(reader.isReady).toBe(true);
    expect(reader.mask).toBeNull();
    expect(shared.words[COUNT]).toBe(0);
    reader.accept(7);
    expect(reader.isReady).toBe(false);
    shared.words[READY] = 0;
    expect(reader.isReady).toBe(true);
    reader.accept(9);
    expect(shared.words[IDS]).toBe(9);
  });

  test.each([
    [TIMED_OUT, 'CONSTRAINT_TOO_SLOW'],
    [CRASHED, 'CONSTRAINT_FAILED'],
    [CLOSED, 'CONSTRAINT_FAILED'],
  ])('status %i ends the request with %s', (status, code) => {
    const shared = channel();
    const reader = new ConstraintReader(shared, null);
    shared.words[STATUS] = status;
    reader.wait(1000);
    expect(() => reader.isReady).toThrow(expect.objectContaining({ code }));
  });
});
