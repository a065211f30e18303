import fc from 'fast-check';
import { expect, test } from 'vitest';
import { escapeControls, stripControls } from './terminal.ts';

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
