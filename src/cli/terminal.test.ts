import fc from 'fast-check';
import { expect, test } from 'vitest';
import { escapeControls, stripControls, terminalWidth, wrapLine } from './terminal.ts';

test('nothing that drives a terminal is left of model text; tab and line feed are', () => {
  expect(stripControls('a\x1b[2Jb\x07c\rd\te\nf\x7f\x9b31mg\0')).toBe('a[2Jbcd\te\nf31mg');
  expect(stripControls('però 日本 😀')).toBe('però 日本 😀');
});

test('of any text: no C0 but tab and line feed, no DEL, no C1, and the rest unchanged', () => {
  const anything = fc.string({
    unit: fc.oneof(
      fc.integer({ min: 0, max: 0xa5 }).map(c => String.fromCharCode(c)),
      fc.constant('é'),
    ),
  });
  const drives = (char: string) => char !== '\t' && char !== '\n' && /\p{Cc}/u.test(char);
  fc.assert(
    fc.property(anything, text => {
      expect(stripControls(text)).toBe([...text].filter(char => !drives(char)).join(''));
      expect(/\p{Cc}/u.test(escapeControls(text))).toBe(false);
    }),
  );
});

test('a file name shows its control characters and stays on one line', () => {
  expect(escapeControls('/models/a\x1b]0;x\x07\nb')).toBe('/models/a\\x1b]0;x\\x07\\nb');
  expect(escapeControls('/models/però')).toBe('/models/però');
});

test('lines of ours are broken between words and go on indented', () => {
  expect(wrapLine('one two three four five six', 20)).toBe('one two three four\n  five six');
  expect(wrapLine('exactly twenty chars', 20)).toBe('exactly twenty chars');
  expect(wrapLine('a word-that-is-longer-than-the-line b', 20)).toBe('a\n  word-that-is-longer-than-the-line\n  b');
});

test('the value of a table row goes on under itself', () => {
  expect(wrapLine('in all  one two three four five', 22)).toBe('in all  one two three\n        four five');
});

test('off a terminal no line is broken', () => {
  const line = 'word '.repeat(100);
  expect(wrapLine(line, null)).toBe(line);
  expect(terminalWidth({ columns: 40 } as NodeJS.WriteStream)).toBeNull();
  expect(terminalWidth({ isTTY: true, columns: 40 } as NodeJS.WriteStream)).toBe(40);
  expect(terminalWidth({ isTTY: true } as NodeJS.WriteStream)).toBe(80);
});

test('wrapping loses no word and keeps the order', () => {
  const words = fc.array(fc.stringMatching(/^[a-z]{1,12}$/), { minLength: 1, maxLength: 40 });
  fc.assert(
    fc.property(words, fc.integer({ min: 20, max: 60 }), (list, width) => {
      const lines = wrapLine(list.join(' '), width).split('\n');
      expect(lines.flatMap(line => line.trim().split(' '))).toEqual(list);
      expect(Math.max(...lines.map(line => line.length))).toBeLessThanOrEqual(width);
    }),
  );
});
