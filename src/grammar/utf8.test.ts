import fc from 'fast-check';
import { expect, it } from 'vitest';
import { ANY_CHARACTER, charClass, complement, normalise, type Ranges } from './expr.ts';
import { utf8Sequences } from './utf8.ts';

function matches(ranges: Ranges, bytes: Uint8Array): boolean {
  return utf8Sequences(ranges).some(
    sequence =>
      sequence.length === bytes.length &&
      sequence.every((byte, i) => byte.some(([from, to]) => bytes[i] >= from && bytes[i] <= to)),
  );
}

const codePoint = fc.oneof(
  fc.integer({ min: 0, max: 0x10ffff }),
  fc.constantFrom(0x7f, 0x80, 0x7ff, 0x800, 0xffff, 0x10000),
);

it('are exactly the UTF-8 of a class', () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(codePoint, codePoint), { maxLength: 4 }),
      fc.array(codePoint, { maxLength: 20 }),
      (pairs, probes) => {
        const made = charClass(pairs.map(([a, b]): [number, number] => [Math.min(a, b), Math.max(a, b)]));
        const ranges = made.kind === 'class' ? made.ranges : [];
        for (const code of [...probes, ...pairs.flat()]) {
          if (code >= 0xd800 && code <= 0xdfff) continue;
          const inside = ranges.some(([from, to]) => code >= from && code <= to);
          expect(matches(ranges, Buffer.from(String.fromCodePoint(code)))).toBe(inside);
          expect(matches(complement(ranges), Buffer.from(String.fromCodePoint(code)))).toBe(!inside);
        }
      },
    ),
    { numRuns: 300, seed: 3 },
  );
});

it('have no surrogates and no overlong forms', () => {
  for (const bytes of [
    [0xed, 0xa0, 0x80],
    [0xc0, 0x80],
    [0xe0, 0x80, 0x80],
    [0xf0, 0x80, 0x80, 0x80],
    [0xf4, 0x90, 0x80, 0x80],
    [0x80],
    [0xff],
  ]) {
    expect(matches(ANY_CHARACTER, Uint8Array.from(bytes))).toBe(false);
  }
});

it('normalises ranges', () => {
  expect(
    normalise([
      [5, 9],
      [1, 3],
      [4, 4],
      [8, 12],
      [20, 10],
    ]),
  ).toEqual([[1, 12]]);
});
