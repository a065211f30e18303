import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, test, vi } from 'vitest';
import { temporaryDirectory } from '../../test/hostile/fixtures.ts';
import { isRunning, lockState, processId, runningHolder, takeLock } from './process-lock.ts';

const lockPath = () => join(temporaryDirectory(), 'lock');

test('a lock is held once, names its process, and can be taken again when given back', () => {
  const path = lockPath();
  const { release } = takeLock(path);
  expect(takeLock(path)).toEqual({ release: null, holder: processId() });
  expect(runningHolder(path)).toEqual(processId());
  expect(fs.statSync(path).mode & 0o777).toBe(0o600);
  release!();
  expect(fs.existsSync(path)).toBe(false);
  expect(runningHolder(path)).toBeNull();
  expect(takeLock(path).release).not.toBeNull();
});

test('the lock of a process that runs is respected, and taken over when it has ended', async () => {
  const path = lockPath();
  const child = spawn(process.execPath, ['-e', 'process.stdin.resume()']);
  try {
    fs.writeFileSync(path, JSON.stringify({ pid: child.pid, start: null }));
    expect(takeLock(path)).toEqual({ release: null, holder: { pid: child.pid, start: null } });
  } finally {
    child.kill('SIGKILL');
    await once(child, 'exit');
  }
  expect(takeLock(path).release).not.toBeNull();
});

test.each([
  ['a process that is gone', () => JSON.stringify({ pid: spawnSync(process.execPath, ['-e', '']).pid, start: null })],
  ['an earlier process of the same number', () => JSON.stringify({ pid: process.pid, start: '1' })],
  ['a power cut, without its content', () => ''],
  ['somebody who wrote null', () => 'null'],
  ['somebody who wrote a negative number', () => JSON.stringify({ pid: -1, start: null })],
  ['somebody who wrote no start', () => JSON.stringify({ pid: process.pid })],
])('a lock left by %s is taken over', (_, content) => {
  const path = lockPath();
  fs.writeFileSync(path, content());
  takeLock(path).release!();
  expect(fs.existsSync(path)).toBe(false);
});

test('giving back leaves a lock alone that is no longer the own one', () => {
  const path = lockPath();
  const { release } = takeLock(path);
  fs.writeFileSync(path, 'of somebody else');
  release!();
  expect(fs.readFileSync(path, 'utf8')).toBe('of somebody else');
});

test('a pipe in the place of a lock is taken, and nobody waits for its writer', () => {
  const path = lockPath();
  spawnSync('mkfifo', [path]);
  expect(takeLock(path)).toEqual({ release: null, holder: null });
  expect(runningHolder(path)).toBeNull();
});

test('a full disk leaves no draft of a lock', () => {
  const path = lockPath();
  const write = vi.spyOn(fs, 'writeFileSync').mockImplementationOnce(draft => {
    fs.closeSync(fs.openSync(draft as string, 'wx'));
    throw Object.assign(new Error('full'), { code: 'ENOSPC' });
  });
  expect(() => takeLock(path)).toThrow('full');
  write.mockRestore();
  expect(fs.readdirSync(dirname(path))).toEqual([]);
});

test('a place that cannot be written says so', () => {
  expect(() => takeLock(join(lockPath(), 'in a directory that is not there'))).toThrow('ENOENT');
});

test('this process runs, and one of its number that started at another time does not', () => {
  expect(isRunning(processId())).toBe(true);
  expect(isRunning({ pid: process.pid, start: 'another' })).toBe(false);
});

test('a lock is free, held, left by a process that is gone, or blocked by what is no file', () => {
  const path = lockPath();
  expect(lockState(path)).toBe('free');
  const { release } = takeLock(path);
  expect(lockState(path)).toBe('held');
  release!();
  fs.writeFileSync(path, '');
  expect(lockState(path)).toBe('left');
  fs.rmSync(path);
  fs.mkdirSync(path);
  expect(lockState(path)).toBe('blocked');
});
