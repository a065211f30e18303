import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { takeLock } from '../../common/process-lock.ts';
import { Usage } from './heat.ts';
import { LOCK, readUsage, saveUsage } from './usage-file.ts';

const OWNER = { identity: 'cd'.repeat(32), shape: { layers: 2, experts: 4, topK: 1 } };
const SAVER = fileURLToPath(new URL('../../../test/support/save-usage-and-die.ts', import.meta.url));
let directory: string;
let file: string;

beforeEach(() => {
  directory = fs.mkdtempSync(path.join(os.tmpdir(), 'coli-usage-'));
  file = path.join(directory, 'coli.usage');
});
afterEach(() => fs.rmSync(directory, { recursive: true }));

/** A history in which one expert of layer 0 was used once. */
function once(expert: number): Usage {
  const usage = new Usage(OWNER.shape);
  usage.leaseBegins(0, Int32Array.of(expert), Int32Array.of(1), 1);
  return usage;
}

const save = (recent: Usage, before = new Usage(OWNER.shape)) => saveUsage(file, OWNER, before, recent);

function counts(): number[] {
  const read = readUsage(file, OWNER);
  if (read.kind !== 'whole') throw new Error(`the file is ${read.kind}`);
  return [...read.usage.counts.subarray(0, OWNER.shape.experts)];
}

test('two that save in turn take nothing from each other', () => {
  save(once(0));
  const saved = save(once(1));
  save(once(1));
  expect(saved.kind === 'saved' && saved.usage.tokens).toBe(2);
  expect(counts()).toEqual([1, 2, 0, 0]);
  expect(fs.readdirSync(directory)).toEqual(['coli.usage']);
});

test('what came before counts only where there is no file', () => {
  save(once(0), once(3));
  save(once(0), once(3));
  expect(counts()).toEqual([2, 0, 0, 1]);
});

test('while another one saves, nothing is written', () => {
  const lock = takeLock(file + LOCK);
  expect(save(once(0))).toEqual({ kind: 'busy' });
  lock.release?.();
  expect(save(once(0)).kind).toBe('saved');
});

test('a foreign file stays, a damaged one is replaced', () => {
  fs.writeFileSync(file, 'a text of somebody');
  expect(save(once(0)).kind).toBe('foreign');
  expect(fs.readFileSync(file, 'utf8')).toBe('a text of somebody');
  fs.writeFileSync(file, 'coli-usage\n\0\0\0\0\0');
  expect(save(once(0)).kind).toBe('saved');
  expect(counts()).toEqual([1, 0, 0, 0]);
});

test('directories, pipes and links are not read, and links lead nowhere', () => {
  fs.mkdirSync(file);
  expect(readUsage(file, OWNER).kind).toBe('foreign');
  fs.rmdirSync(file);
  spawnSync('mkfifo', [file]);
  expect(readUsage(file, OWNER).kind).toBe('foreign');
  fs.rmSync(file);
  const target = path.join(directory, 'target');
  fs.writeFileSync(target, '');
  fs.symlinkSync(target, file);
  expect(save(once(0)).kind).toBe('foreign');
  expect(fs.readFileSync(target, 'utf8')).toBe('');
});

test('a file of gigabytes is refused without being read', () => {
  fs.writeFileSync(file, 'coli-usage\n\0\0\0\0\0');
  fs.truncateSync(file, 2 ** 34);
  expect(readUsage(file, OWNER).kind).toBe('foreign');
});

test('what the file system refuses is thrown, and nothing is left', () => {
  expect(() => saveUsage(path.join(directory, 'absent', 'x'), OWNER, once(0), once(0))).toThrow('ENOENT');
  expect(fs.readdirSync(directory)).toEqual([]);
});

test('a process killed at any moment leaves the old file or the new one', { timeout: 60_000 }, () => {
  let saved = 1;
  save(once(1));
  for (let moment = 0; ; moment++) {
    const { signal, status, stderr } = spawnSync(process.execPath, [SAVER, file, String(moment)], { encoding: 'utf8' });
    const now = counts()[1];
    if (signal === null) {
      expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
      expect(now).toBe(saved + 1);
      // both kinds of moments were there, and the last one has cleaned up after all others
      expect(moment).toBeGreaterThan(8);
      expect(fs.readdirSync(directory)).toEqual(['coli.usage']);
      break;
    }
    expect(signal).toBe('SIGKILL');
    expect([saved, saved + 1]).toContain(now);
    saved = now;
  }
  expect(saved).toBeGreaterThan(1);
});

test('what killed processes have left goes with the next save, what a running one writes stays', () => {
  const gone = spawnSync(process.execPath, ['-e', '']).pid;
  for (const name of [
    `${gone}.partial`,
    `${gone}.0123abcd.partial`,
    `lock.${gone}-7`,
    `${process.pid}.0123abcd.partial`,
  ]) {
    fs.writeFileSync(`${file}.${name}`, 'half');
  }
  const others = [
    `coli.usage.${process.ppid}.0123abcd.partial`,
    'coli.usage.x.partial',
    `coli.usage.${gone}.012.partial`,
  ];
  for (const name of others) fs.writeFileSync(path.join(directory, name), 'half');
  expect(save(once(0)).kind).toBe('saved');
  expect(fs.readdirSync(directory).sort()).toEqual(['coli.usage', ...others].sort());
});
