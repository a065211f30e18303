import { expect, test } from 'vitest';
import { pinNote } from './idle-placement.ts';

test('pins that are wanted and not possible are told, with what is missing', () => {
  const note = (mode: 'on' | 'off', tokens: number, pinned = 0, policy: 'pin' | 'lfru' = 'pin') =>
    pinNote({ policy, usage: { mode, tokens } }, pinned);
  expect(note('off', 0)).toMatch(/--usage off$/);
  expect(note('on', 7)).toMatch(/knows 7 tokens, and 512 are needed$/);
  expect(note('on', 9000)).toMatch(/so few slots$/);
  expect(note('on', 9000, 4)).toBeNull();
  expect(note('off', 0, 0, 'lfru')).toBeNull();
});
