import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { MAX_STOP_LENGTH, MAX_STOP_STRINGS, StopMatcher } from './stops.ts';

/** What a client sees when the pieces are streamed. */
function stream(stops: readonly string[], pieces: readonly string[]) {
  const matcher = new StopMatcher(stops);
  let text = '';
  for (const piece of pieces) text += matcher.push(piece).emit;
  text += matcher.flush();
  return { text, matched: matcher.matched };
}

/** The law in one line of thought: look at every end in turn, then at the longest stop string that ends there. */
function whole(stops: readonly string[], text: string) {
  for (let end = 1; end <= text.length; end++) {
    const found = stops.filter(stop => text.slice(0, end).endsWith(stop)).sort((a, b) => b.length - a.length)[0];
    if (found !== undefined) return { text: text.slice(0, end - found.length), matched: found };
  }
  return { text, matched: null };
}

function cut(text: string, cuts: readonly number[]): string[] {
  const places = [0, ...cuts.map(c => c % (text.length + 1)).sort((a, b) => a - b), text.length];
  return places.slice(1).map((end, i) => text.slice(places[i], end));
}

// Two letters make overlaps and false starts frequent.
const word = fc.string({ unit: fc.constantFrom('a', 'b'), minLength: 1, maxLength: 5 });
const text = fc.string({ unit: fc.constantFrom('a', 'b', 'é', '😀'), maxLength: 40 });
const cuts = fc.array(fc.nat(1000), { maxLength: 12 });

test('one stop string: any cutting of the text gives what indexOf finds in the whole', () => {
  fc.assert(
    fc.property(word, text, cuts, (stop, t, c) => {
      const at = t.indexOf(stop);
      const expected = at < 0 ? { text: t, matched: null } : { text: t.slice(0, at), matched: stop };
      expect(stream([stop], cut(t, c))).toEqual(expected);
    }),
    { numRuns: 1000 },
  );
});

test('several stop strings: any cutting gives the first completed, the longest of those', () => {
  fc.assert(
    fc.property(fc.array(word, { maxLength: 4 }), text, cuts, (stops, t, c) => {
      expect(stream(stops, cut(t, c))).toEqual(whole(stops, t));
    }),
    { numRuns: 1000 },
  );
});

test('a stop string across four tokens: nothing of it and nothing after it is sent (L01)', () => {
  const matcher = new StopMatcher(['beta gamma']);
  expect(matcher.push('al')).toEqual({ emit: 'al', matched: null });
  expect(matcher.push('pha be')).toEqual({ emit: 'pha ', matched: null });
  expect(matcher.push('ta gam')).toEqual({ emit: '', matched: null });
  expect(matcher.push('ma delta')).toEqual({ emit: '', matched: 'beta gamma' });
  expect(matcher.push('more')).toEqual({ emit: '', matched: 'beta gamma' });
  expect(matcher.flush()).toBe('');
});

test('holds back only what could still become a stop string', () => {
  const matcher = new StopMatcher(['\n\nUser:']);
  expect(matcher.push('one\n').emit).toBe('one');
  expect(matcher.push('two').emit).toBe('\ntwo');
  expect(matcher.push('\n\n\n').emit).toBe('\n');
  expect(matcher.flush()).toBe('\n\n');
});

test('of overlapping candidates the one completed first wins', () => {
  expect(stream(['abcd', 'bc'], ['ab', 'cd'])).toEqual({ text: 'a', matched: 'bc' });
  expect(stream(['bc', 'abc'], ['abc'])).toEqual({ text: '', matched: 'abc' });
});

describe('refused', () => {
  test.each([
    ['an empty string', ['']],
    ['a number', [1]],
    ['no list', 'abc'],
    ['half a surrogate pair', ['\ud83d']],
    ['too many', Array.from({ length: MAX_STOP_STRINGS + 1 }, (_, i) => `s${i}`)],
    ['too long', ['x'.repeat(MAX_STOP_LENGTH + 1)]],
  ])('%s', (_, stops) => {
    expect(() => new StopMatcher(stops as string[])).toThrow(
      expect.objectContaining({ code: 'BAD_PARAMETER', details: { parameter: 'stop' } }),
    );
  });

  test('the limits themselves are allowed', () => {
    const most = Array.from({ length: MAX_STOP_STRINGS }, (_, i) => `s${i}`);
    expect(stream(most, ['xs1'])).toEqual({ text: 'x', matched: 's1' });
    const longest = 'x'.repeat(MAX_STOP_LENGTH);
    expect(stream([longest], [`a${longest}`])).toEqual({ text: 'a', matched: longest });
  });
});
