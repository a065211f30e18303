import { expect, test } from 'vitest';
import { nameText, parseRepoName, tryRepoName } from './names.ts';

test('with and without a revision', () => {
  expect(parseRepoName('org/name')).toEqual({ id: 'org/name', revision: 'main', hasRevision: false });
  expect(parseRepoName('Org-1/Na.me_2@refs/pr/7')).toEqual({
    id: 'Org-1/Na.me_2',
    revision: 'refs/pr/7',
    hasRevision: true,
  });
  expect(nameText(parseRepoName('org/name'))).toBe('org/name');
  expect(nameText(parseRepoName('org/name@main'))).toBe('org/name@main');
});

test.each([
  '',
  'name',
  'a/b/c',
  '/a/b',
  './a',
  '../a',
  '..',
  'a/..',
  'a/.b',
  'a/b.',
  'a--b/c',
  'a/b--c',
  'a/b c',
  'a/b@',
  'a/b@..',
  'a/b@x/../y',
  'a/b@/x',
  'a/b@x/',
  'a/b@x//y',
  'a/b@-x',
  'a/b@x@y',
  'a/b@x\n',
  'a\\b',
  'a/b\0',
  '~/models',
  `a/${'b'.repeat(96)}`,
  `a/b@${'c'.repeat(201)}`,
])('%j is no name', text => {
  expect(tryRepoName(text)).toBeNull();
  expect(() => parseRepoName(text)).toThrow(expect.objectContaining({ code: 'BAD_MODEL_NAME', name: 'UsageError' }));
});

test('a whole address gets its own hint', () => {
  expect(() => parseRepoName('https://huggingface.co/org/name')).toThrow(
    expect.objectContaining({ hint: expect.stringContaining('the last two parts') }),
  );
});
