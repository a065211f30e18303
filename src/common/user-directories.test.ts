import { homedir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { cacheDirectory, configDirectory } from './user-directories.ts';

test('directories follow the XDG variables', () => {
  expect(cacheDirectory({ XDG_CACHE_HOME: '/c' })).toBe('/c/colibri');
  expect(configDirectory({ XDG_CONFIG_HOME: '/k' })).toBe('/k/colibri');
});

test('without them, or with a relative one, they lie in the home directory', () => {
  expect(cacheDirectory({})).toBe(join(homedir(), '.cache/colibri'));
  expect(cacheDirectory({ XDG_CACHE_HOME: 'c' })).toBe(join(homedir(), '.cache/colibri'));
  expect(configDirectory({ XDG_CONFIG_HOME: '' })).toBe(join(homedir(), '.config/colibri'));
});
