import { expect, test } from 'vitest';
import { PullSpeed } from './hub-report.ts';

test('speed and what is left count only bytes that came in this run', () => {
  let now = 0;
  const speed = new PullSpeed(() => now);
  const at = (doneBytes: number, fetchedBytes: number) => {
    const { amount, etaMs } = speed.amount({ doneBytes, totalBytes: 10_000_000, fetchedBytes });
    return [amount(doneBytes, 10_000_000), etaMs];
  };
  expect(at(6_000_000, 0)).toEqual(['6.00 MB of 10.0 MB', null]);
  now = 5000; // was spent on checking what was there
  expect(at(6_100_000, 100_000)).toEqual(['6.10 MB of 10.0 MB', null]);
  now = 7000;
  expect(at(8_000_000, 2_000_000)).toEqual(['8.00 MB of 10.0 MB, 1.00 MB/s', 2000]);
});
