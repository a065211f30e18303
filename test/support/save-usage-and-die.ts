/**
 * Test support, run as a process: adds one pass to a history and kills itself at a given moment of the saving. Arguments: the file,
 * and the number of the call of the file system (writes are cut in half) before which it dies.
 */

import fs from 'node:fs';
import { Usage } from '../../src/experts/usage/heat.ts';
import { saveUsage } from '../../src/experts/usage/usage-file.ts';

const [path, moment] = process.argv.slice(2);
let left = Number(moment);

const die = () => process.kill(process.pid, 'SIGKILL');

for (const name of [
  'openSync',
  'writeFileSync',
  'readSync',
  'fsyncSync',
  'closeSync',
  'renameSync',
  'rmSync',
] as const) {
  const real = fs[name] as (...args: unknown[]) => unknown;
  Object.assign(fs, {
    [name]: (...args: unknown[]) => {
      if (left-- === 0) die();
      return real(...args);
    },
  });
}
const write = fs.writeSync as (fd: number, bytes: Buffer, at: number, length: number, position: number) => number;
Object.assign(fs, {
  writeSync: (fd: number, bytes: Buffer, at: number, length: number, position: number) => {
    if (left-- === 0) {
      write(fd, bytes, at, length >> 1, position);
      die();
    }
    return write(fd, bytes, at, length, position);
  },
});

const shape = { layers: 2, experts: 4, topK: 1 };
const recent = new Usage(shape);
recent.leaseBegins(0, Int32Array.of(1), Int32Array.of(1), 1);
saveUsage(path, { identity: 'cd'.repeat(32), shape }, new Usage(shape), recent);
