import { Readable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { MAX_PROMPT_BYTES, readPrompt } from './prompt-input.ts';

const pipe = (...parts: (string | Buffer)[]) => Readable.from(parts.map(part => Buffer.from(part)));
const keyboard = () => Object.assign(pipe(), { isTTY: true }) as unknown as NodeJS.ReadStream;

test('words are joined by spaces, and standard input is not read', async () => {
  const endless = { [Symbol.asyncIterator]: () => ({ next: () => Promise.reject(new Error('read')) }) };
  expect(await readPrompt(['hi'], false, endless)).toBe('hi');
  expect(await readPrompt(['What', 'does  grep', 'do?'], false, pipe('other'))).toBe('What does  grep do?');
});

test('a dash, or no words and a pipe, is standard input without its last line feed', async () => {
  expect(await readPrompt(['-'], false, pipe('one\n', 'two\n'))).toBe('one\ntwo');
  expect(await readPrompt([], false, pipe('one\r\n'))).toBe('one');
  expect(await readPrompt([], false, pipe('one\n\n'))).toBe('one\n');
});

test('raw text keeps every byte', async () => {
  expect(await readPrompt([], true, pipe('\ufeffdef f():\n'))).toBe('\ufeffdef f():\n');
});

test('a character cut by two reads stays whole', async () => {
  const bytes = Buffer.from('è');
  expect(await readPrompt([], false, pipe(bytes.subarray(0, 1), bytes.subarray(1)))).toBe('è');
});

describe('refused', () => {
  test('a dash and words: one of them would be ignored', async () => {
    await expect(readPrompt(['-', 'hi'], false, pipe('x'))).rejects.toMatchObject({
      code: 'BAD_PROMPT',
      name: 'UsageError',
    });
    expect(await readPrompt(['5', '-', '3'], false, pipe('x'))).toBe('5 - 3');
  });

  test('nothing, on a keyboard and in a pipe', async () => {
    await expect(readPrompt([], false, keyboard())).rejects.toMatchObject({ code: 'NO_PROMPT', name: 'UsageError' });
    await expect(readPrompt([], false, pipe('\n'))).rejects.toMatchObject({ code: 'NO_PROMPT' });
  });

  test('what is not UTF-8', async () => {
    await expect(readPrompt([], false, pipe(Buffer.of(0x61, 0xff)))).rejects.toMatchObject({ code: 'BAD_UTF8' });
  });

  test('an endless pipe', async () => {
    const part = Buffer.alloc(1024 * 1024, 'x');
    let sent = 0;
    async function* endless() {
      for (; sent < 1000; sent++) yield part;
    }
    await expect(readPrompt([], false, endless())).rejects.toMatchObject({ code: 'PROMPT_TOO_LARGE' });
    expect(sent).toBeLessThanOrEqual(MAX_PROMPT_BYTES / part.length + 1);
  });
});
