/** What an arena may be, and that functions keep theirs as long as they live. */

import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { describe, expect, test } from 'vitest';
import { loadNative, nativeVariants } from './native.ts';

const NAMES = nativeVariants();
const PAGE = 65536;
const memory = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true });
const words = new Uint32Array(memory.buffer);

type Call = (...args: unknown[]) => unknown;

describe.skipIf(NAMES.length === 0)('arenas', () => {
  const of = (arena: Uint8Array) => loadNative().create('scalar', arena);

  test('smaller than a page', () => {
    const buffer = new SharedArrayBuffer(1024);
    const floats = new Float32Array(buffer).fill(1);
    const { add } = of(new Uint8Array(buffer));
    add(64, 64, 0, 240);
    expect([floats[15], floats[16], floats[255]]).toEqual([1, 2, 2]);
    expect(() => add(64, 64, 0, 241)).toThrow('beyond the arena');
    expect(() => of(new Uint8Array(new SharedArrayBuffer(0))).add(4, 4, 0, 0)).toThrow('beyond the arena');
  });

  test('of 4 GiB', () => {
    // Only the touched pages of this memory take room.
    const large = new WebAssembly.Memory({ initial: PAGE, maximum: PAGE, shared: true });
    const { add } = of(new Uint8Array(large.buffer));
    const last = new Float32Array(large.buffer, 2 ** 32 - 64, 16).fill(3);
    add(2 ** 32 - 64, 2 ** 32 - 64, 0, 16);
    add(2 ** 32 - 4, 2 ** 32 - 8, 0, 1);
    expect([last[0], last[15]]).toEqual([6, 12]);
    expect(() => add(2 ** 32 - 64, 64, 0, 17)).toThrow('beyond the arena');
    expect(() => add(2 ** 32, 64, 0, 1)).toThrow('beyond the arena');
    expect(() => add(64, 64, 2 ** 30 - 16, 2 ** 30 - 15)).toThrow('beyond the arena');
  });

  test('create refuses what is no shared Uint8Array, and variants that do not exist', () => {
    const create = loadNative().create as Call;
    const shared = new Uint8Array(new SharedArrayBuffer(1024));
    for (const arena of [undefined, null, 1, 'x', {}, [], new SharedArrayBuffer(64), new Float32Array(16)])
      expect(() => create('scalar', arena), String(arena)).toThrow(TypeError);
    // Could be detached, or is not aligned.
    for (const arena of [
      new Uint8Array(1024),
      shared.subarray(1),
      new Uint8Array(new ArrayBuffer(64, { maxByteLength: 128 })),
    ])
      expect(() => create('scalar', arena)).toThrow('over shared memory');
    for (const variant of [undefined, null, 1, '', 'native-scalar', 'x'.repeat(100), {}])
      expect(() => create(variant, shared), String(variant)).toThrow('no such variant');
    expect(() => create('scalar')).toThrow('over shared memory');
    expect(() => create()).toThrow('over shared memory');
  });
});

describe.skipIf(NAMES.length === 0)('life', () => {
  test('functions keep their memory when nothing else does', () => {
    const script = `
      import { loadNative } from ${JSON.stringify(new URL('./native.ts', import.meta.url).href)};
      const make = () => {
        const memory = new WebAssembly.Memory({ initial: 64, maximum: 64, shared: true });
        new Float32Array(memory.buffer).fill(1);
        return loadNative().create('scalar', new Uint8Array(memory.buffer));
      };
      let { add, allFinite } = make();
      for (let round = 0; round < 50; round++) {
        make();
        gc();
        await new Promise(setImmediate);
        add(64, 64, 0, 1e6);
        if (allFinite(64, 1e6) !== 1) throw new Error('memory was lost');
      }
      add = allFinite = null;
      gc();
      await new Promise(setImmediate);
      console.log('done');`;
    const args = ['--expose-gc', '--input-type=module', '--eval', script];
    const { stdout, stderr, signal } = spawnSync(process.execPath, args, { encoding: 'utf8' });
    expect({ stdout, stderr, signal }).toEqual({ stdout: 'done\n', stderr: '', signal: null });
  });

  test('many threads load the addon at once, and end while others compute', async () => {
    const url = JSON.stringify(new URL('./native.ts', import.meta.url).href);
    const source = `
      const { parentPort, workerData } = require('node:worker_threads');
      import(${url}).then(({ loadNative }) => {
        const { clamp } = loadNative().create('scalar', new Uint8Array(workerData.memory.buffer));
        for (let i = 0; i < 100; i++) clamp(64 * (workerData.index + 1), 0.5, 0, 16);
        parentPort.postMessage('done');
        if (workerData.index % 2) process.exit();
        for (;;) clamp(64 * (workerData.index + 1), 0.5, 0, 16);
      });`;
    for (let round = 0; round < 3; round++) {
      words.fill(0);
      const floats = new Float32Array(memory.buffer).fill(1, 0, 256);
      const workers = Array.from(
        { length: 8 },
        (_, index) => new Worker(source, { eval: true, workerData: { memory, index } }),
      );
      await Promise.all(workers.map(worker => once(worker, 'message')));
      await Promise.all(workers.map(worker => worker.terminate()));
      expect([...floats.slice(16, 144)].every(value => value === 0.5)).toBe(true);
      expect([floats[15], floats[144]]).toEqual([1, 1]);
    }
    expect(loadNative().variants).toContain('scalar');
  });
});
