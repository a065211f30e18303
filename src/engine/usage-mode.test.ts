import { afterEach, expect, test, vi } from 'vitest';
import { usageMode } from './usage-mode.ts';

afterEach(() => vi.unstubAllEnvs());

test('modes are words in any case, from the environment too', () => {
  expect(['on', 'READ', 'Off'].map(usageMode)).toEqual(['on', 'read', 'off']);
  vi.stubEnv('COLI_USAGE', 'OFF');
  expect(usageMode(undefined)).toBe('off');
  expect(usageMode('on')).toBe('on');
  vi.stubEnv('COLI_USAGE', '');
  expect(usageMode(undefined)).toBe('on');
});

test('a file has a dot or a slash in its name; what has none is a mistyped mode', () => {
  for (const file of ['./raed', '/tmp/Read', 'a.usage', '.coli_usage']) expect(usageMode(file)).toBe(file);
  const refusal = { code: 'BAD_USAGE', hint: 'write --usage ./raed for a file of that name' };
  expect(() => usageMode('raed')).toThrow(expect.objectContaining(refusal));
});
