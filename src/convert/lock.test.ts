import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { temporaryDirectory } from '../../test/hostile/fixtures.ts';
import { convertCheckpoint, planConversion } from './convert.ts';
import { LOCK_FILE, lockDestination, requireNotBusy } from './lock.ts';
import { STATE_FILE } from './state.ts';
import type { ConvertOptions } from './types.ts';

const olmoe = join(import.meta.dirname, '../../test/oracles/olmoe');

function optionsFor(destination: string, more: Partial<ConvertOptions> = {}): ConvertOptions {
  return { source: olmoe, destination, experts: 'q4g64', dense: 'q8', ...more };
}

const busyWith = (pid: number) =>
  expect.objectContaining({ code: 'CONVERT_BUSY', message: expect.stringMatching(`process ${pid}$`) });

function writeLock(directory: string, content: unknown): void {
  fs.writeFileSync(join(directory, LOCK_FILE), typeof content === 'string' ? content : JSON.stringify(content));
}

function pidOfTheDead(): number {
  return spawnSync(process.execPath, ['-e', '']).pid;
}

describe('the lock', () => {
  test('is held once, and can be taken again when given back', () => {
    const directory = temporaryDirectory();
    const unlock = lockDestination(directory);
    expect(() => lockDestination(directory)).toThrow(busyWith(process.pid));
    unlock();
    expect(fs.readdirSync(directory)).toEqual([]);
    lockDestination(directory)();
  });

  test('of a process that runs is respected', async () => {
    const directory = temporaryDirectory();
    const child = spawn(process.execPath, ['-e', 'process.stdin.resume()']);
    try {
      writeLock(directory, { pid: child.pid, start: null });
      expect(() => requireNotBusy(directory)).toThrow(busyWith(child.pid!));
    } finally {
      child.kill('SIGKILL');
      await once(child, 'exit');
    }
    requireNotBusy(directory);
  });

  test.each([
    ['a process that is gone', () => ({ pid: pidOfTheDead(), start: null })],
    ['an earlier process of the same number', () => ({ pid: process.pid, start: '1' })],
    ['a power cut, without its content', () => ''],
    ['something else', () => ({ pid: 'x' })],
  ])('left by %s is taken over', (_, content) => {
    const directory = temporaryDirectory();
    writeLock(directory, content());
    lockDestination(directory)();
    expect(fs.readdirSync(directory)).toEqual([]);
  });
});

describe('two conversions into one destination', () => {
  test('the second is refused while the first runs, and the first is not disturbed', async () => {
    const options = optionsFor(join(temporaryDirectory(), 'out'));
    const refusals: unknown[] = [];
    const onProgress = (): void => {
      if (refusals.length > 0) return;
      for (const more of [{}, { experts: 'q8' as const }]) {
        try {
          planConversion({ ...options, ...more });
        } catch (error) {
          refusals.push(error);
        }
      }
    };
    await convertCheckpoint({ ...options, onProgress });
    expect(refusals).toEqual([busyWith(process.pid), busyWith(process.pid)]);
    expect(fs.existsSync(join(options.destination, LOCK_FILE))).toBe(false);
  });

  test('started at once, one of them converts', async () => {
    const options = optionsFor(join(temporaryDirectory(), 'out'));
    const [a, b] = await Promise.allSettled([convertCheckpoint(options), convertCheckpoint(options)]);
    expect(a.status).toBe('fulfilled');
    expect(b).toMatchObject({ status: 'rejected', reason: { code: 'CONVERT_BUSY' } });
    expect(fs.readdirSync(options.destination).filter(name => /lock|partial|convert/.test(name))).toEqual([]);
  });

  test('a stopped one gives the lock back', async () => {
    const options = optionsFor(join(temporaryDirectory(), 'out'));
    const stopped = convertCheckpoint({ ...options, signal: AbortSignal.abort() });
    await expect(stopped).rejects.toMatchObject({ code: 'CONVERT_STOPPED' });
    expect(fs.existsSync(join(options.destination, STATE_FILE))).toBe(true);
    expect(fs.existsSync(join(options.destination, LOCK_FILE))).toBe(false);
  });
});
