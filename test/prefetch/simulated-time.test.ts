/** What guesses gain and cost, in simulated time, and that `auto` finds out which. */

import { describe, expect, test } from 'vitest';
import { decode, EXPERTS, LAYERS, type Machine, simulatedStore } from './simulation.ts';

/** An idle disk between the layers, and guesses like those of real models. */
const PAYS: Machine = {
  readMs: 1,
  readers: 4,
  attentionMs: 1,
  expertMs: 0.1,
  guessMs: 0.02,
  recall: 0.7,
  slots: (LAYERS * EXPERTS) / 4,
};
const USELESS: Machine = { ...PAYS, readers: 1, recall: 0 };
/** One reader that never rests: what is read early only takes the place of what is needed now. */
const SATURATED: Machine = { ...PAYS, readers: 1, attentionMs: 0.01, expertMs: 0.01, guessMs: 0.05, recall: 0.3 };
/** Everything is found in memory sooner or later; guesses cost time and gain nothing. */
const IN_MEMORY: Machine = { ...PAYS, slots: LAYERS * EXPERTS - 1, guessMs: 0.2 };

const TOKENS = 2000;
/** What `auto` may lose against the better of the two over all tokens, the first trial included. */
const MARGIN = 0.02;

function times(machine: Machine) {
  const time = (mode: 'off' | 'auto' | 'on') => {
    const subject = simulatedStore(machine, mode);
    const ms = decode(subject, machine, TOKENS);
    subject.store.settle();
    return { ms, ...subject.store.counters, looksAhead: subject.store.looksAhead };
  };
  return { off: time('off'), auto: time('auto'), on: time('on') };
}

test('where the disk would be idle, on reads what is used, waits less than off, and is faster', () => {
  const { off, on } = times(PAYS);
  expect(off).toMatchObject({ prefetched: 0, guessable: 0, usefulBytes: 0, wastedBytes: 0 });
  expect(on.usefulBytes).toBeGreaterThan(0);
  expect(on.usefulBytes).toBeGreaterThan(on.wastedBytes);
  expect(on.waitUs).toBeLessThan(0.85 * off.waitUs);
  expect(on.ms).toBeLessThan(0.95 * off.ms);
  expect(on.guessed / on.guessable).toBeCloseTo(PAYS.recall, 1);
  expect(on.prefetched).toBe(on.aheadHits + on.wasted);
  expect(on.aheadLate).toBeLessThan(on.aheadHits);
});

describe('auto', () => {
  test('loses next to nothing where guesses pay', () => {
    const { off, auto, on } = times(PAYS);
    expect(auto.ms).toBeLessThan(off.ms);
    expect(auto.ms / on.ms).toBeLessThan(1 + MARGIN);
    expect(auto).toMatchObject({ looksAhead: true, lookAheadChanges: 1 });
  });

  test.each([
    ['useless guesses', USELESS],
    ['a saturated disk', SATURATED],
    ['nothing to read', IN_MEMORY],
  ])('loses next to nothing with %s', (_, machine) => {
    const { off, auto, on } = times(machine);
    expect(on.ms / off.ms).toBeGreaterThan(1 + MARGIN);
    expect(auto.ms / off.ms).toBeLessThan(1 + MARGIN);
    expect(auto).toMatchObject({ looksAhead: false, lookAheadChanges: 0 });
  });

  test('follows a change, and tells it', () => {
    const told: boolean[] = [];
    const subject = simulatedStore(PAYS, 'auto', [{ lookAheadChanges: pays => told.push(pays) }]);
    decode(subject, PAYS, 500);
    expect(told).toEqual([true]);
    decode(subject, { ...PAYS, recall: 0, guessMs: 1 }, 1500, 500);
    expect(told).toEqual([true, false]);
    decode(subject, PAYS, 1500, 2000);
    expect(told).toEqual([true, false, true]);
    expect(subject.store.counters.lookAheadChanges).toBe(3);
  });
});
