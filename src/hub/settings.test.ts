import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import type { UsageError } from '../common/errors.ts';
import { hubCache, hubSettings } from './settings.ts';

test.each<[Record<string, string>, string]>([
  [{}, path.join(homedir(), '.cache/huggingface/hub')],
  [{ XDG_CACHE_HOME: '/x' }, '/x/huggingface/hub'],
  [{ HF_HOME: '/h', XDG_CACHE_HOME: '/x' }, '/h/hub'],
  [{ HF_HOME: '~/h' }, path.join(homedir(), 'h/hub')],
  [{ HUGGINGFACE_HUB_CACHE: '/old', HF_HOME: '/h' }, '/old'],
  [{ HF_HUB_CACHE: '/c', HUGGINGFACE_HUB_CACHE: '/old' }, '/c'],
  [{ HF_HUB_CACHE: '', HF_HOME: '/h' }, '/h/hub'],
])('cache for %j', (env, expected) => {
  expect(hubCache(env)).toBe(expected);
});

test('the endpoint, without slashes at its end', () => {
  expect(hubSettings({ HF_HOME: '/nowhere' }).endpoint).toBe('https://huggingface.co');
  expect(hubSettings({ HF_HOME: '/nowhere', HF_ENDPOINT: 'http://mirror:80/hf//' }).endpoint).toBe(
    'http://mirror:80/hf',
  );
});

test.each(['mirror', 'ftp://x', 'https://user:hf_SECRET@x', 'https://x?a=b', 'https://x#y'])(
  'HF_ENDPOINT %s is refused',
  value => {
    const error = catchError(() => hubSettings({ HF_ENDPOINT: value, HF_HOME: '/nowhere' }));
    expect(error).toMatchObject({ code: 'BAD_ENDPOINT', message: expect.not.stringContaining('SECRET') });
    expect((error as UsageError).hint?.includes('token')).toBe(value.includes('SECRET'));
  },
);

test('the token: variable, then file, then none', () => {
  const home = mkdtempSync(path.join(tmpdir(), 'coli-token-'));
  onTestFinished(() => rmSync(home, { recursive: true }));
  expect(hubSettings({ HF_HOME: home }).token).toBeNull();
  writeFileSync(path.join(home, 'token'), 'hf_file\n');
  expect(hubSettings({ HF_HOME: home }).token).toBe('hf_file');
  expect(hubSettings({ HF_HOME: home, HF_TOKEN: ' hf_variable ' }).token).toBe('hf_variable');
  writeFileSync(path.join(home, 'other'), '');
  expect(hubSettings({ HF_HOME: home, HF_TOKEN_PATH: path.join(home, 'other') }).token).toBeNull();
});

test('a token with a line break is refused, and not shown', () => {
  const error = catchError(() => hubSettings({ HF_TOKEN: 'hf_SECRET\r\nx: y' }));
  expect(error).toMatchObject({ code: 'BAD_TOKEN', message: expect.not.stringContaining('SECRET') });
});

test('offline is offline', () => {
  expect(catchError(() => hubSettings({ HF_HUB_OFFLINE: '1' }))).toMatchObject({ code: 'HUB_OFFLINE' });
});

function catchError(work: () => unknown): unknown {
  try {
    return work();
  } catch (error) {
    return error;
  }
}
