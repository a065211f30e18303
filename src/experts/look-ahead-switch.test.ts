/** When guesses are made, and what a trial of them decides. */

import { describe, expect, test } from 'vitest';
import { LookAheadSwitch } from './look-ahead-switch.ts';

/** Plays passes that take `msWith` where guesses are made and `msWithout` elsewhere, for each of `uses` experts; tells which had guesses. */
function play(look: LookAheadSwitch, passes: number, msWith: number, msWithout: number, uses = () => 10): boolean[] {
  return Array.from({ length: passes }, () => {
    const { isOn } = look;
    const count = uses();
    look.pass((isOn ? msWith : msWithout) * count, count);
    return isOn;
  });
}

function autoSwitch() {
  const told: boolean[] = [];
  return { look: new LookAheadSwitch('auto', pays => told.push(pays)), told };
}

const WARM_UP = 8;
/** A trial in which one side wins every round. */
const SHORTEST = 32;
const LONGEST = 512;

test('on is always on, off never, and neither tries', () => {
  for (const mode of ['on', 'off'] as const) {
    const look = new LookAheadSwitch(mode, () => expect.unreachable());
    expect(new Set(play(look, 1000, mode === 'on' ? 2 : 1, mode === 'on' ? 1 : 2))).toEqual(new Set([mode === 'on']));
    expect([look.pays, look.isTrying]).toEqual([mode === 'on', false]);
  }
});

describe('auto', () => {
  test('guesses nothing before its first trial, in which both sides take turns and go first in turn', () => {
    const { look } = autoSwitch();
    expect(play(look, WARM_UP, 1, 1)).toEqual(Array(WARM_UP).fill(false));
    expect(look.isTrying).toBe(true);
    expect(play(look, 16, 1, 1).map(Number).join('')).toBe('1100001111000011');
  });

  test('goes on with what wins', () => {
    const { look, told } = autoSwitch();
    play(look, WARM_UP + SHORTEST, 1, 1.01);
    expect([look.isTrying, look.pays, told]).toEqual([false, true, [true]]);
    expect(play(look, 256, 1, 1)).toEqual(Array(256).fill(true));
    expect(look.isTrying).toBe(true);
  });

  test('stays off where guesses lose, or change nothing, and tells nobody', () => {
    for (const [msWith, passes] of [
      [1.01, SHORTEST],
      [1, LONGEST],
    ]) {
      const { look, told } = autoSwitch();
      play(look, WARM_UP + passes, msWith, 1);
      expect([look.isTrying, look.pays, told]).toEqual([false, false, []]);
    }
  });

  test('looks again, more seldom each time, and as often as at first after a change', () => {
    const { look, told } = autoSwitch();
    const rests: number[] = [];
    const rest = () => {
      let passes = 0;
      for (; !look.isTrying; passes++) look.pass(1, 1);
      rests.push(passes);
    };
    play(look, WARM_UP, 1, 1);
    for (let i = 0; i < 6; i++) {
      play(look, SHORTEST, 2, 1);
      rest();
    }
    play(look, SHORTEST, 1, 2);
    rest();
    play(look, SHORTEST, 1, 2);
    rest();
    play(look, SHORTEST, 2, 1);
    rest();
    expect(rests).toEqual([512, 1024, 2048, 4096, 4096, 4096, 256, 512, 256]);
    expect(told).toEqual([true, false]);
  });

  test('compares the time of one expert, because neighbours come and go', () => {
    const { look } = autoSwitch();
    let pass = 0;
    // passes with guesses happen to have three times the experts
    play(look, WARM_UP + SHORTEST, 1, 1.1, () => (pass++ >= WARM_UP && look.isOn ? 30 : 10));
    expect(look.pays).toBe(true);
  });

  test('is not misled by a few slow passes', () => {
    const { look } = autoSwitch();
    play(look, WARM_UP, 1, 1);
    for (let round = 0; look.isTrying; round++) {
      // a pause of the machine falls on a pass with guesses in every fifth round
      const { isOn } = look;
      play(look, 1, isOn && round % 20 === 0 ? 100 : 0.9, 1);
    }
    expect(look.pays).toBe(true);
  });
});
