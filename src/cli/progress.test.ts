import { expect, test } from 'vitest';
import { Progress, progressText, tokenAmount } from './progress.ts';

function setUp(isTTY: boolean) {
  const written: string[] = [];
  let now = 0;
  const stream = { isTTY, columns: 60, write: (text: string) => written.push(text) } as unknown as NodeJS.WriteStream;
  const progress = new Progress(stream, () => now);
  return { written, progress, at: (ms: number) => (now = ms) };
}

test('the time left follows from the speed so far', () => {
  expect(progressText('prefill', 128, 512, 2000, tokenAmount)).toBe('prefill 128 of 512 tokens, 6.0 s left');
  expect(progressText('prefill', 0, 512, 2000, tokenAmount)).toBe('prefill 0 of 512 tokens, 2.0 s so far');
});

test('who knows better says what remains', () => {
  const { written, progress, at } = setUp(true);
  at(2000);
  progress.update('prefill', 50, 100, tokenAmount, 9000);
  at(3000);
  progress.update('prefill', 50, 100, tokenAmount, null);
  expect(written).toEqual([
    '\rprefill 50 of 100 tokens, 9.0 s left\x1b[K',
    '\rprefill 50 of 100 tokens, 3.0 s so far\x1b[K',
  ]);
});

test('shows nothing in the first second, then redraws one line and clears it', () => {
  const { written, progress, at } = setUp(true);
  at(900);
  progress.update('prefill', 10, 100, tokenAmount);
  expect(written).toEqual([]);
  at(1500);
  progress.update('prefill', 50, 100, tokenAmount);
  at(1550);
  progress.update('prefill', 60, 100, tokenAmount);
  expect(written).toEqual(['\rprefill 50 of 100 tokens, 1.5 s left\x1b[K']);
  progress.clear();
  progress.clear();
  expect(written.slice(1)).toEqual(['\r\x1b[K']);
});

test('writes nothing where no terminal is', () => {
  const { written, progress, at } = setUp(false);
  at(5000);
  progress.update('prefill', 50, 100, tokenAmount);
  progress.clear();
  expect(written).toEqual([]);
});
