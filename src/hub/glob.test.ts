import { expect, test } from 'vitest';
import { matchesGlob } from './glob.ts';

test.each([
  ['*.gguf', 'x.gguf', true],
  ['*.gguf', 'deep/x.gguf', true],
  ['*.gguf', 'x.gguf.part', false],
  ['Q4/*', 'Q4/x', true],
  ['Q4/*', 'Q40/x', false],
  ['*Q4_K*M*', 'a-Q4_K_M.gguf', true],
  ['?.bin', 'a.bin', true],
  ['?.bin', '.bin', false],
  ['a[1].json', 'a[1].json', true],
  ['x.y', 'xzy', false],
  ['', '', true],
  ['*', '', true],
  ['**a', 'ba', true],
])('%j on %j: %s', (pattern, text, expected) => {
  expect(matchesGlob(pattern, text)).toBe(expected);
});

test('many stars on a long name that does not match are answered at once', () => {
  // with backtracking over every star this would not end
  expect(matchesGlob('*a'.repeat(50), `${'a'.repeat(1000)}b`)).toBe(false);
});
