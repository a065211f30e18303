/** Wrong arguments of native kernels end in an error that wrote nothing, never in foreign memory. */

import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { describe, expect, test } from 'vitest';
import { LAYOUT_ID } from '../../quant/layouts.ts';
import { type Kernels, KV_BLOCK } from '../kernels.ts';
import type { Op, Scene } from '../scene.ts';
import { SELF_TEST_PAGES, selfTestScenes } from '../self-test.ts';
import { createNativeKernels, loadNative, nativeVariants } from './native.ts';

const NAMES = nativeVariants();
const PAGE = 65536;
const memory = new WebAssembly.Memory({ initial: SELF_TEST_PAGES, maximum: SELF_TEST_PAGES, shared: true });
const SIZE = SELF_TEST_PAGES * PAGE;
const words = new Uint32Array(memory.buffer);

/** What the arguments of every kernel are: pointer, pointer or 0, count (or layout, or range), flag (n), float. */
const KINDS: Readonly<Record<Op, string>> = {
  quantise: 'p c p p p c c',
  matmulTiles: 'c p c c p p p t p c t c c c',
  matmulFloat: 'c p c p c t p c t c c c',
  matmulExact: 'c p c p c t p c t c p c c',
  embed: 'c p c p p c c',
  rmsNorm: 'p p p c f c c',
  rope: 'p c c c p p c c',
  attention: 'p p c c c f p p c p c c',
  swiglu: 'p p p c c',
  add: 'p p c c',
  scale: 'p f c c',
  clamp: 'p f c c',
  toBf16: 'p p c c',
  softmax: 'p p c c c',
  topK: 'p c c p p n c c',
  combine: 'p p p c c c c',
  allFinite: 'p c',
};

interface Recorded {
  readonly scene: Scene;
  readonly op: Op;
  readonly args: readonly number[];
}

/** A good call of a kernel: the first of the self-test that passes. */
function recorded(op: Op, passes: (args: readonly number[]) => boolean = () => true): Recorded {
  for (const scene of selfTestScenes().filter(one => one.op === op)) {
    let args: number[] = [];
    const record = { [op]: (...given: number[]) => void (args = given) } as unknown as Kernels;
    scene.run(record, 0, scene.units);
    if (passes(args)) return { scene, op, args };
  }
  throw new Error(`no such call of ${op}`);
}

/** Attention's arguments: offset of the block tables' table, layout of keys and values. */
const [TABLES, KV_LAYOUT] = [7, 8];
/** Attention over float32 and over bfloat16: two rows, the first with two blocks and the second with one. */
const ATTENTION: readonly Recorded[] = [LAYOUT_ID.f32, LAYOUT_ID.bf16].map(id =>
  recorded('attention', args => args[KV_LAYOUT] === id),
);
/** One good call of every kernel, with several rows where the kernel has rows. */
const CALLS: readonly Recorded[] = [
  ...(Object.keys(KINDS) as Op[]).filter(op => op !== 'attention').map(op => recorded(op)),
  ...ATTENTION,
];

type Call = (...args: unknown[]) => unknown;

/** Calls and gives the error; memory must be as before when there is one. */
function attempt(call: Call, args: readonly unknown[]): unknown {
  const before = Buffer.from(new Uint8Array(memory.buffer));
  try {
    call(...args);
    return null;
  } catch (error) {
    expect(before.equals(new Uint8Array(memory.buffer)), 'memory is as before').toBe(true);
    return error;
  }
}

function expectRefused(call: Call, args: readonly unknown[], what: string): void {
  const error = attempt(call, args);
  expect(error, what).toBeInstanceOf(RangeError);
  expect(error, what).toMatchObject({ code: 'KERNEL_BOUNDS', message: expect.stringMatching(/^\w+: [\w ]+$/) });
}

const replaced = (args: readonly number[], at: number, value: unknown): unknown[] =>
  args.map((one, i) => (i === at ? value : one));

const NO_INTEGER = [
  Number.NaN,
  Number.POSITIVE_INFINITY,
  Number.NEGATIVE_INFINITY,
  1024.5,
  2 ** 40,
  2 ** 63,
  -(2 ** 63),
];
const NO_NUMBER = [undefined, null, '1024', 1024n, {}, [1024], true, Symbol('1024')];
const NO_POINTER = [-1, -4, -(2 ** 31), SIZE, SIZE + 4, 2 ** 31, 2 ** 32 - 4, 2 ** 32];

describe.skipIf(NAMES.length === 0)('bounds', () => {
  // The checks are the same code for all variants.
  const kernels = NAMES.length > 0 ? createNativeKernels(loadNative(), NAMES[0])(memory) : ({} as Kernels);

  describe.each(CALLS)('$op $scene.label', ({ scene, op, args }) => {
    const call = kernels[op] as Call;
    const kinds = KINDS[op].split(' ');
    const each = (kind: RegExp): number[] => args.map((_, i) => i).filter(i => kind.test(kinds[i]));

    test('the call itself is good', () => {
      expect(args).toHaveLength(kinds.length);
      scene.arrange(memory);
      expect(attempt(call, args)).toBeNull();
    });

    test('every argument must be there, and no other', () => {
      scene.arrange(memory);
      for (let count = 0; count < args.length; count++) expectRefused(call, args.slice(0, count), `${count} arguments`);
      expectRefused(call, [...args, 0], 'one more');
      expectRefused(call, [...args, ...Array(40).fill(0)], 'many more');
    });

    test('what is no number, or no integer, is refused', () => {
      scene.arrange(memory);
      for (const i of args.keys())
        for (const value of NO_NUMBER) expectRefused(call, replaced(args, i, value), `argument ${i}: ${String(value)}`);
      for (const i of each(/[ptcn]/))
        for (const value of NO_INTEGER) expectRefused(call, replaced(args, i, value), `argument ${i}: ${value}`);
    });

    test('pointers out of the arena, or into its last bytes, or not aligned', () => {
      scene.arrange(memory);
      for (const i of each(/[pt]/))
        for (const value of NO_POINTER) expectRefused(call, replaced(args, i, value), `argument ${i}: ${value}`);
      for (const i of each(/p/)) expectRefused(call, replaced(args, i, 0), `argument ${i}: none`);
      for (const i of each(/[pt]/)) expectRefused(call, replaced(args, i, SIZE - 1), `argument ${i}: the last byte`);
    });

    test('negative counts; huge ones stay in the arena or are refused', () => {
      for (const i of each(/c/)) {
        scene.arrange(memory);
        expectRefused(call, replaced(args, i, -1), `argument ${i}: -1`);
        for (const value of [SIZE, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1, 2 ** 32]) {
          scene.arrange(memory);
          const error = attempt(call, replaced(args, i, value));
          if (error !== null) expect(error, `argument ${i}: ${value}`).toMatchObject({ code: 'KERNEL_BOUNDS' });
        }
      }
    });

    test('a range that runs backwards', () => {
      if (op === 'allFinite') return;
      scene.arrange(memory);
      const [from, to] = [args.length - 2, args.length - 1];
      expectRefused(call, replaced(args, from, args[to] + 1), 'from > to');
    });
  });

  const callOf = (op: Op): Recorded => CALLS.find(one => one.op === op)!;

  /** Puts one word into the memory of a good call. */
  function withWord({ op, scene, args }: Recorded, at: (args: readonly number[]) => number, value: number): void {
    scene.arrange(memory);
    const offset = at(args);
    expect(offset % 4).toBe(0);
    words[offset / 4] = value;
    expectRefused(kernels[op] as Call, args, `${op}: word ${value} at ${offset}`);
  }

  test.each([
    ['matmulTiles', 7, 10],
    ['matmulFloat', 5, 8],
    ['matmulExact', 5, 8],
  ] as const)('index tables of %s', (op, xIndex, yIndex) => {
    for (const table of [xIndex, yIndex])
      for (const value of [-1, -(2 ** 31), 2 ** 31 - 1, 2 ** 16])
        for (const entry of [0, 1]) withWord(callOf(op), args => args[table] + 4 * entry, value);
  });

  test('ids of embed, positions of rope', () => {
    for (const value of [-1, -(2 ** 31), 2 ** 31 - 1, SIZE]) {
      for (const entry of [0, 1]) {
        withWord(callOf('embed'), args => args[3] + 4 * entry, value);
        withWord(callOf('rope'), args => args[5] + 4 * entry, value);
      }
    }
  });

  /** Address of a word of a block table. */
  const block = (row: number, index: number) => (args: readonly number[]) => words[args[TABLES] / 4 + row] + 4 * index;

  test.each(ATTENTION)('positions, tables and blocks of attention $scene.label', good => {
    for (const value of [-1, -(2 ** 31), 2 ** 31 - 1, SIZE]) withWord(good, args => args[6], value);
    const wrong = [0, 2, -4, SIZE, SIZE - 4, 2 ** 31, 2 ** 32 - 4];
    for (const value of wrong) {
      for (const row of [0, 1]) withWord(good, args => args[TABLES] + 4 * row, value);
      for (const at of [block(0, 0), block(0, 1), block(1, 0)]) withWord(good, at, value);
    }
    expectRefused(kernels.attention as Call, replaced(good.args, 3, 0), 'no KV heads');
    expectRefused(kernels.attention as Call, replaced(good.args, 2, 0), 'no heads');
  });

  test.each(ATTENTION)('the last block of attention may end where the arena ends $scene.label', good => {
    const { scene, args } = good;
    const [, , , kvHeads, headDim] = args;
    const elementBytes = args[KV_LAYOUT] === LAYOUT_ID.bf16 ? 2 : 4;
    const last = SIZE - 2 * KV_BLOCK * kvHeads * headDim * elementBytes;
    for (const at of [block(0, 1), block(1, 0)]) {
      withWord(good, at, last + 4);
      scene.arrange(memory);
      words[at(args) / 4] = last;
      expect(attempt(kernels.attention as Call, args)).toBeNull();
    }
  });

  test('layouts that keys and values cannot have', () => {
    for (const { scene, args } of ATTENTION) {
      for (const id of [...Object.values(LAYOUT_ID).filter(one => one > LAYOUT_ID.bf16), 7, -1, 2 ** 31, 2 ** 32]) {
        scene.arrange(memory);
        expectRefused(kernels.attention as Call, replaced(args, KV_LAYOUT, id), `layout ${id}`);
      }
    }
  });

  test('bfloat16 results may end where the arena ends, at any even address', () => {
    const { scene, args } = callOf('toBf16');
    const call = kernels.toBf16 as Call;
    const last = SIZE - 2 * args[3];
    for (const y of [last + 2, last + 1, last - 1, args[1] + 1]) {
      scene.arrange(memory);
      expectRefused(call, replaced(args, 1, y), `y at ${y}`);
    }
    for (const y of [last, last - 2]) expect(attempt(call, replaced(args, 1, y))).toBeNull();
  });

  test('sizes whose products pass 2^64', () => {
    const huge = 2 ** 32;
    const call = kernels.matmulTiles as Call;
    expectRefused(call, [3, 1024, huge, 0, 1024, 1024, 1024, 0, 1024, huge, 0, huge, 0, 2 ** 28], 'rows * stride');
    expectRefused(call, [3, 1024, huge, huge, 1024, 1024, 1024, 0, 1024, 0, 0, 1, 0, 2 ** 28], 'panels * groups');
    const floats = [0, 1024, huge, 1024, huge, 0, 1024, 0, 0, huge, 0, 1];
    expectRefused(kernels.matmulFloat as Call, floats, 'columns * rows');
    expectRefused(kernels.combine as Call, [1024, 1024, 1024, huge, huge, 0, huge], 'rows * slots * columns');
    expectRefused(kernels.rope as Call, [1024, huge, huge, 2, 1024, 1024, 0, huge], 'rows * heads * headDim');
  });

  test('NaN is a value where a float is', () => {
    for (const { op, args, scene } of CALLS) {
      const at = KINDS[op].split(' ').indexOf('f');
      if (at < 0) continue;
      scene.arrange(memory);
      expect(attempt(kernels[op] as Call, replaced(args, at, Number.NaN)), op).toBeNull();
    }
  });
});

describe.skipIf(NAMES.length === 0)('arenas', () => {
  const of = (arena: Uint8Array) => loadNative().create('scalar', arena);

  test('smaller than a page', () => {
    const buffer = new SharedArrayBuffer(1024);
    const floats = new Float32Array(buffer).fill(1);
    const { scale } = of(new Uint8Array(buffer));
    scale(64, 2, 0, 240);
    expect([floats[15], floats[16], floats[255]]).toEqual([1, 2, 2]);
    expect(() => scale(64, 2, 0, 241)).toThrow('beyond the arena');
    expect(() => of(new Uint8Array(new SharedArrayBuffer(0))).scale(4, 2, 0, 0)).toThrow('beyond the arena');
  });

  test('of 4 GiB', () => {
    // Only the touched pages of this memory take room.
    const large = new WebAssembly.Memory({ initial: PAGE, maximum: PAGE, shared: true });
    const { scale, add } = of(new Uint8Array(large.buffer));
    const last = new Float32Array(large.buffer, 2 ** 32 - 64, 16).fill(3);
    scale(2 ** 32 - 64, 2, 0, 16);
    add(2 ** 32 - 4, 2 ** 32 - 8, 0, 1);
    expect([last[0], last[15]]).toEqual([6, 12]);
    expect(() => scale(2 ** 32 - 64, 2, 0, 17)).toThrow('beyond the arena');
    expect(() => scale(2 ** 32, 2, 0, 1)).toThrow('beyond the arena');
    expect(() => scale(64, 2, 2 ** 30 - 16, 2 ** 30 - 15)).toThrow('beyond the arena');
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
      let { scale, allFinite } = make();
      for (let round = 0; round < 50; round++) {
        make();
        gc();
        await new Promise(setImmediate);
        scale(64, 1.5, 0, 1e6);
        if (allFinite(64, 1e6) !== 1) throw new Error('memory was lost');
      }
      scale = allFinite = null;
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
        const { scale } = loadNative().create('scalar', new Uint8Array(workerData.memory.buffer));
        for (let i = 0; i < 100; i++) scale(64 * (workerData.index + 1), -1, 0, 16);
        parentPort.postMessage('done');
        if (workerData.index % 2) process.exit();
        for (;;) scale(64 * (workerData.index + 1), -1, 0, 16);
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
      expect([...floats.slice(0, 144)].every(value => Math.abs(value) === 1)).toBe(true);
      expect(floats[0]).toBe(1);
    }
    expect(loadNative().variants).toContain('scalar');
  });
});
