import fs from 'node:fs';
import os from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { loadProfile, type Profile, profileKey, profilePath, saveProfile } from './profile.ts';

let directory: string;
let model: string;

beforeEach(() => {
  directory = fs.mkdtempSync(join(os.tmpdir(), 'coli-tune-'));
  vi.stubEnv('XDG_CONFIG_HOME', join(directory, 'config'));
  model = join(directory, 'model');
  fs.mkdirSync(model);
  fs.writeFileSync(join(model, 'config.json'), '{}');
  fs.writeFileSync(join(model, 'model.safetensors'), 'weights');
});
afterEach(() => {
  vi.unstubAllEnvs();
  fs.rmSync(directory, { recursive: true });
});

const profile = (): Profile => ({
  version: 1,
  key: profileKey(model),
  created_at: '2026-11-30T00:00:00.000Z',
  program: '0.1.0',
  model,
  machine: 'm',
  budget_bytes: 4e9,
  complete: true,
  settings: { readers: 8, io: 'buffered' },
  together: [],
  trials: [],
});

test('a profile comes back as it was saved, and nothing else is left there', () => {
  const path = saveProfile(profile());
  expect(loadProfile(model)).toEqual({ profile: profile() });
  expect(fs.readdirSync(join(path, '..'))).toEqual([`${profile().key}.json`]);
});

test('none is no news', () => {
  expect(loadProfile(model)).toEqual({ profile: null, note: null });
});

test('the model is known by the names and sizes of its files, not by its place or by sidecars', () => {
  const key = profileKey(model);
  fs.renameSync(model, `${model}2`);
  fs.writeFileSync(join(`${model}2`, 'coli.usage'), 'heat');
  expect(profileKey(`${model}2`)).toBe(key);
  fs.writeFileSync(join(`${model}2`, 'model.safetensors'), 'other weights');
  expect(profileKey(`${model}2`)).not.toBe(key);
  expect(profileKey(join(`${model}2`, 'model.safetensors'))).not.toBe(key);
});

describe('what cannot be used is told in a line, and left alone', () => {
  const cases: [string, string | object][] = [
    ['not JSON', '{'],
    ['a later version', { ...({} as Profile), version: 2 }],
    ['a setting of another kind', { settings: { kv: 'bf16' } }],
    ['a setting out of its range', { settings: { readers: 0 } }],
    ['another model', { key: 'x' }],
  ];
  test.each(cases)('%s', (_name, change) => {
    saveProfile(profile());
    const path = profilePath(profileKey(model));
    const text = typeof change === 'string' ? change : JSON.stringify({ ...profile(), ...change });
    fs.writeFileSync(path, text);
    const loaded = loadProfile(model);
    expect(loaded.profile).toBeNull();
    expect((loaded as { note: string }).note).toContain('is not used: ');
    expect(fs.readFileSync(path, 'utf8')).toBe(text);
  });
});
