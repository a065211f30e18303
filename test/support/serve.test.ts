/** What other tests rely on: no server outlives its test, and none is where the user's own are. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { expect, test } from 'vitest';
import { runtimeDirectory } from '../../src/server/runtime-file.ts';
import { NANO } from './nano.ts';

/** Starts a server as the tests do, says its number, and waits for its own end. */
const TEST_PROCESS = `
  const { spawn } = require('node:child_process');
  const child = spawn(process.execPath, ['bin/coli.js', 'serve', '--port', '0', '--ram', '1G', '--model', process.argv[1]], {
    env: { ...process.env, COLI_LAUNCHED: '1' },
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
  });
  child.stderr.on('data', data => String(data).includes('Ready:') && console.log(child.pid));
`;

test('a server ends when the process of its test is killed', async () => {
  const parent = spawn(process.execPath, ['-e', TEST_PROCESS, NANO], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [pid] = await once(createInterface(parent.stdout), 'line');
  expect(isThere(Number(pid))).toBe(true);
  parent.kill('SIGKILL');
  await expect.poll(() => isThere(Number(pid)), { timeout: 20_000, interval: 20 }).toBe(false);
});

test('runtime files of tests are in a directory of their own', () => {
  expect(path.dirname(runtimeDirectory())).toMatch(new RegExp(`^${tmpdir()}/coli-tests-\\w+/runtime$`));
});

function isThere(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
