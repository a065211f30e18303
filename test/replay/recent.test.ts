/** The last passes outlive the engine, and `auto` goes by them. */

import fs from 'node:fs';
import os from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { readModel } from '../../src/engine/model-files.ts';
import { Routing } from '../../src/engine/routing.ts';
import { DEFAULT_POLICY } from '../../src/experts/policies/policies.ts';

const OPTIONS = { model: 'models/nano' };
let directory: string;
let notes: string[];

beforeEach(() => {
  directory = fs.mkdtempSync(join(os.tmpdir(), 'coli-recent-'));
  vi.stubEnv('XDG_CACHE_HOME', directory);
  notes = [];
});
afterEach(() => {
  vi.unstubAllEnvs();
  fs.rmSync(directory, { recursive: true, force: true });
});

const open = (remembers = true) => new Routing(readModel(OPTIONS), OPTIONS, remembers, line => notes.push(line));
const kept = () => fs.readdirSync(directory, { recursive: true }).filter(name => String(name).endsWith('.trace'));

function replaced(path: string): string {
  fs.rmSync(path);
  return path;
}

function passes(routing: Routing, count: number): void {
  for (let pass = 0; pass < count; pass++) {
    for (let layer = 0; layer < 6; layer++) {
      const experts = Int32Array.from([0, 1, 2, 3], i => (4 * ((pass + layer) % 7) + i) % 32).sort();
      for (const observer of routing.observers) observer.leaseBegins?.(layer, experts, new Int32Array(4).fill(1), 4);
    }
    routing.passDone();
  }
}

test('several short runs come together, and one that did nothing changes nothing', () => {
  for (const count of [30, 0, 40]) {
    const routing = open();
    passes(routing, count);
    routing.close();
  }
  const [name] = kept();
  const bytes = fs.statSync(join(directory, String(name))).size;
  expect(bytes).toBeGreaterThan(70 * 6 * 7);
  open().close();
  expect(kept()).toEqual([name]);
});

test('nothing is kept, and nothing read, when no history is', () => {
  const routing = open(false);
  passes(routing, 300);
  routing.close();
  expect(kept()).toEqual([]);
  expect(open(false).policy(48)).toBe(DEFAULT_POLICY);
});

test.each([
  ['is damaged', (path: string) => fs.truncateSync(path, 20)],
  ['is of another kind', (path: string) => fs.writeFileSync(path, 'something else')],
  ['is a directory', (path: string) => fs.renameSync(fs.mkdtempSync(`${path}-`), replaced(path))],
])('a memory that %s fails nothing', (_, spoil) => {
  const first = open();
  passes(first, 300);
  first.close();
  spoil(join(directory, String(kept()[0])));
  const second = open();
  expect(second.policy(48)).toBe(DEFAULT_POLICY);
  passes(second, 10);
  second.close();
  expect(notes).toEqual([]);
});

test('a policy that was asked for is not replaced, and auto tells when it takes another than the default', () => {
  const first = open();
  passes(first, 400);
  first.close();
  expect(new Routing(readModel(OPTIONS), { ...OPTIONS, policy: 'lru' }, true, () => {}).policy(48)).toBe('lru');
  const chosen = open().policy(48);
  expect(notes).toHaveLength(chosen === DEFAULT_POLICY ? 0 : 1);
  expect(open().policy(192)).toBe(DEFAULT_POLICY);
});
