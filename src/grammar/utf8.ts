/** Classes of characters as alternatives of byte sequences. */

import type { Ranges } from './expr.ts';

/** One byte of a sequence: inclusive ranges. */
export type ByteRanges = readonly (readonly [number, number])[];

/** Last code point with so many bytes. */
const LAST_OF_LENGTH = [0x7f, 0x7ff, 0xffff, 0x10ffff];

/**
 * Every sequence stands for all combinations of its bytes, and together they are exactly the UTF-8 of the class. All one-byte
 * characters share one sequence.
 */
export function utf8Sequences(ranges: Ranges): ByteRanges[][] {
  const ascii: [number, number][] = [];
  const longer: ByteRanges[][] = [];
  for (const [from, to] of ranges) {
    let next = from;
    for (const last of LAST_OF_LENGTH) {
      if (next > last || next > to) continue;
      const end = Math.min(to, last);
      if (last === 0x7f) ascii.push([next, end]);
      else split(encode(next), encode(end), [], longer);
      next = end + 1;
    }
  }
  return ascii.length > 0 ? [[ascii], ...longer] : longer;
}

/** Sequences of equal length between two of them, in order. */
function split(from: number[], to: number[], prefix: ByteRanges[], out: ByteRanges[][]): void {
  const [first, ...restFrom] = from;
  const [last, ...restTo] = to;
  const tail = (fill: number) => restFrom.map(() => fill);
  if (restFrom.length === 0) {
    out.push([...prefix, [[first, last]]]);
  } else if (first === last) {
    split(restFrom, restTo, [...prefix, [[first, first]]], out);
  } else {
    let low = first;
    let high = last;
    if (restFrom.some(byte => byte !== 0x80)) {
      split(restFrom, tail(0xbf), [...prefix, [[first, first]]], out);
      low++;
    }
    const cutEnd = restTo.some(byte => byte !== 0xbf);
    if (cutEnd) high--;
    if (low <= high) out.push([...prefix, [[low, high]], ...tail(0).map((): ByteRanges => [[0x80, 0xbf]])]);
    if (cutEnd) split(tail(0x80), restTo, [...prefix, [[last, last]]], out);
  }
}

function encode(codePoint: number): number[] {
  return [...Buffer.from(String.fromCodePoint(codePoint))];
}
