import fs from 'node:fs';
import os from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { replaceFile } from './whole-file.ts';

let directory: string;
beforeEach(() => {
  directory = fs.mkdtempSync(join(os.tmpdir(), 'coli-whole-'));
});
afterEach(() => fs.rmSync(directory, { recursive: true }));

test('a file is replaced, for its owner alone, and nothing else is left', () => {
  const path = join(directory, 'a');
  replaceFile(path, 'old');
  replaceFile(path, Buffer.from('new'));
  expect(fs.readFileSync(path, 'utf8')).toBe('new');
  expect(fs.statSync(path).mode & 0o777).toBe(0o600);
  expect(fs.readdirSync(directory)).toEqual(['a']);
});

test('two that write at the same time do not meet in one half-written file', () => {
  const path = join(directory, 'a');
  const rename = vi.spyOn(fs, 'renameSync').mockImplementationOnce((from, to) => {
    rename.mockRestore();
    replaceFile(path, 'another one');
    expect(fs.readFileSync(from, 'utf8')).toBe('one');
    fs.renameSync(from, to);
  });
  replaceFile(path, 'one');
  expect(fs.readFileSync(path, 'utf8')).toBe('one');
  expect(fs.readdirSync(directory)).toEqual(['a']);
});

test('what cannot be put in place leaves nothing behind', () => {
  fs.mkdirSync(join(directory, 'a', 'b'), { recursive: true });
  expect(() => replaceFile(join(directory, 'a'), 'x')).toThrow();
  expect(fs.readdirSync(directory)).toEqual(['a']);
});
