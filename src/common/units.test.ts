import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { exactSize, formatBytes, formatSeconds, MIB, parseSize, sizeFlag } from './units.ts';

describe('sizes', () => {
  test.each([
    [0, '0 B'],
    [999, '999 B'],
    [1000, '1.00 kB'],
    [9994, '9.99 kB'],
    [9996, '10.0 kB'],
    [99_960, '100 kB'],
    [999_499, '999 kB'],
    [999_600, '1.00 MB'],
    [1_234_567_890, '1.23 GB'],
    [999_999_999_999, '1.00 TB'],
    [1e16, '10000 TB'],
  ])('%i bytes are %s', (bytes, text) => {
    expect(formatBytes(bytes)).toBe(text);
  });

  test('what is written is within half of its last digit', () => {
    const units: Record<string, number> = { B: 1, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12 };
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 2 ** 50 }), bytes => {
        const [number, unit] = formatBytes(bytes).split(' ');
        expect(Math.abs(Number(number) * units[unit] - bytes)).toBeLessThanOrEqual(bytes * 0.00501);
        expect(number.length).toBeLessThanOrEqual(4);
      }),
    );
  });

  test('as a flag takes them: never less than was asked for', () => {
    expect(sizeFlag(228 * MIB)).toBe('228M');
    expect(sizeFlag(228 * MIB + 1)).toBe('229M');
    expect(parseSize(sizeFlag(238_500_001))).toBeGreaterThanOrEqual(238_500_001);
  });

  test.each(['', 'x', '12X', '-1G', '1e3', '1GG', '99999999999G'])('%j is refused', text => {
    expect(() => parseSize(text)).toThrow(expect.objectContaining({ code: 'BAD_SIZE' }));
  });
});

test.each([
  [0, '0.0 s'],
  [59.94, '59.9 s'],
  [59.97, '1 min 0 s'],
  [60, '1 min 0 s'],
  [119.4, '1 min 59 s'],
  [119.7, '2 min 0 s'],
  [3599.4, '59 min 59 s'],
  [3599.6, '1 h 0 min'],
  [7170, '2 h 0 min'],
  [Number.POSITIVE_INFINITY, 'unknown'],
])('%d seconds are %s', (seconds, text) => {
  expect(formatSeconds(seconds)).toBe(text);
});

test.each([
  [0, '0'],
  [1000, '1000'],
  [1536, '1536'],
  [10240, '10K'],
  [2147483648, '2G'],
  [2388 * MIB, '2388M'],
  [MIB + 1, '1048577'],
  [1024 ** 4, '1T'],
])('%d is typed as %s', (bytes, text) => {
  expect(exactSize(bytes)).toBe(text);
  expect(parseSize(text)).toBe(bytes);
});
