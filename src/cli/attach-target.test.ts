import { expect, test } from 'vitest';
import type { RuntimeEntry } from '../server/runtime-file.ts';
import { attachTarget, attachWarnings } from './attach-target.ts';

const entry = (port: number, host: string): RuntimeEntry => ({
  pid: 1,
  start: null,
  host,
  port,
  token: `token-${port}`,
  model: 'nano',
  graceMs: 0,
});
const SERVERS = [
  entry(80, '127.0.0.1'),
  entry(81, '0.0.0.0'),
  entry(82, '::'),
  entry(83, '::1'),
  entry(84, 'localhost'),
];

const target = (attach: string | number, key?: string, env = {}) => attachTarget(attach, key, SERVERS, env);

test('a port is a server of this user with the token of its file, or one of this machine without', () => {
  expect(target(81)).toMatchObject({ base: 'http://127.0.0.1:81', key: 'token-81' });
  expect(target(82)).toMatchObject({ base: 'http://[::1]:82', key: 'token-82' });
  expect(target(83)).toMatchObject({ base: 'http://[::1]:83', key: 'token-83' });
  expect(target(84)).toMatchObject({ base: 'http://localhost:84', key: 'token-84' });
  expect(target(8080)).toMatchObject({ base: 'http://127.0.0.1:8080', key: null });
});

test('an address gets the token only when it is the very one that the server listens on', () => {
  expect(target('http://127.0.0.1').key).toBe('token-80');
  expect(target('http://127.0.0.1:81').key).toBe('token-81');
  for (const other of ['http://127.0.0.2:81', 'https://127.0.0.1:81', 'http://box:81', 'http://127.0.0.1:81/x']) {
    expect(target(other).key, other).toBeNull();
  }
});

test('a key that is given comes first, then COLI_API_KEY, which may be empty', () => {
  expect(target(81, 'mine', { COLI_API_KEY: 'env' }).key).toBe('mine');
  expect(target(81, undefined, { COLI_API_KEY: 'env' }).key).toBe('env');
  expect(target('http://box', undefined, { COLI_API_KEY: '' }).key).toBeNull();
  expect(() => target(81, undefined, { COLI_API_KEY: 'a b' })).toThrow(
    expect.objectContaining({ name: 'UsageError', message: expect.stringContaining('API key') }),
  );
});

test('other servers of this user are named without it', () => {
  expect(target(81).others).toEqual(['http://127.0.0.1', 'http://[::1]:82', 'http://[::1]:83', 'http://localhost:84']);
});

test('a key that leaves the machine without encryption is warned of', () => {
  const warnings = (base: string, key: string | null) => attachWarnings({ base, key, others: [] });
  expect(warnings('http://box:8080', 'k')).toEqual([expect.stringMatching(/^WARNING: .* box without encryption/)]);
  expect(warnings('http://[fe80::1]:8080', 'k')).toHaveLength(1);
  for (const base of ['https://box', 'http://localhost:1', 'http://127.0.0.1:1', 'http://[::1]:1']) {
    expect(warnings(base, 'k'), base).toEqual([]);
  }
  expect(warnings('http://box', null)).toEqual([]);
});
