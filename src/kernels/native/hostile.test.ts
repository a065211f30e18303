/** Wrong arguments of native kernels end in an error that wrote nothing, never in foreign memory. */

import { describe, expect, test } from 'vitest';
import { BLOCKS, type BlockLayout, blockRowBytes, LAYOUT_ID } from '../../quant/layouts.ts';
import { type Kernels, KV_BLOCK } from '../kernels.ts';
import type { Op, Scene } from '../scene.ts';
import { SELF_TEST_PAGES, selfTestScenes } from '../self-test.ts';
import { createNativeKernels, loadNative, nativeVariants } from './native.ts';

const NAMES = nativeVariants();
const PAGE = 65536;
const memory = new WebAssembly.Memory({ initial: SELF_TEST_PAGES, maximum: SELF_TEST_PAGES, shared: true });
const SIZE = SELF_TEST_PAGES * PAGE;
const words = new Uint32Array(memory.buffer);

/** What the arguments of every kernel are: pointer, pointer or 0 (t), count (or layout, or range), choice (n), float. */
const KINDS: Readonly<Record<Op, string>> = {
  quantise: 'p c p p p c c',
  matmulTiles: 'c p c c p p p t p c t c c c',
  matmulFloat: 'c p c p c t p c t c c c',
  matmulExact: 'c p c p c t p c t c p c c',
  embed: 'c p c p p c c',
  rmsNorm: 'p c p p c c f c c',
  layerNorm: 'p c p p c f c c',
  rope: 'p c c c c n p p c c',
  attention: 'p p c c c c f c t p p c n t c p c c',
  indexScores: 'p p c c f p p c p c c c c',
  selectKeys: 'p c c p p c p c c',
  swiglu: 'p p p c c',
  swigluClamped: 'p p p f f c c',
  add: 'p p c c',
  addRows: 'p p c c c',
  clamp: 'p f c c',
  toBf16: 'p p c c',
  softmax: 'p p c c c',
  sigmoid: 'p p c c',
  sigmoidGate: 'p p c c',
  gateRows: 'p p c c c',
  copyColumns: 'p c p c c c c',
  topK: 'p t c c c c n p p n f c c',
  combine: 'p p p c t c c c',
  convSilu: 'p p p p c c c c c',
  deltaGates: 'p p p n p p p c c c',
  deltaRule: 'p p p p p c c n c c c p c c',
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

/** Places of attention's arguments. */
const [WINDOW, POSITIONS, TABLES, KV_LAYOUT, IN_KEYS, SELECTION, SELECTION_STRIDE] = [7, 9, 10, 11, 12, 13, 14];
/** Attention over float32 and over bfloat16: two rows, the first with two blocks and the second with one. */
const ATTENTION: readonly Recorded[] = [LAYOUT_ID.f32, LAYOUT_ID.bf16].map(id =>
  recorded('attention', args => args[KV_LAYOUT] === id),
);
const WINDOWED = recorded('attention', args => args[WINDOW] > 0);
/** Rows that look at some keys only, which are their own values. */
const SELECTED = recorded('attention', args => args[SELECTION] > 0);
/** Products with blocks of 256 and of 32 columns and, in fp8, without whole blocks; reading rows of blocks. */
const BLOCK_CALLS: readonly Recorded[] = [
  ...[LAYOUT_ID.q4_k, LAYOUT_ID.iq4_xs, LAYOUT_ID.mxfp4, LAYOUT_ID.fp8].map(id =>
    recorded('matmulExact', args => args[0] === id),
  ),
  recorded('embed', args => args[0] === LAYOUT_ID.nvfp4),
];
/** One good call of every kernel, with several rows where the kernel has rows. */
const CALLS: readonly Recorded[] = [
  ...(Object.keys(KINDS) as Op[]).filter(op => op !== 'attention').map(op => recorded(op)),
  ...BLOCK_CALLS,
  recorded('topK', args => args[1] > 0 && args[4] > 1),
  recorded('combine', args => args[4] > 0),
  ...ATTENTION,
  WINDOWED,
  SELECTED,
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

  test('rows that do not consist of whole blocks, and layouts that do not exist', () => {
    for (const good of BLOCK_CALLS.filter(({ args }) => args[0] !== LAYOUT_ID.fp8)) {
      good.scene.arrange(memory);
      for (const columns of [1, 8, good.args[2] - 1, good.args[2] + 1, good.args[2] + 8]) {
        expectRefused(kernels[good.op] as Call, replaced(good.args, 2, columns), `${columns} columns`);
      }
      for (const layout of [Object.keys(LAYOUT_ID).length, 255, 2 ** 31 + 7, 2 ** 32]) {
        expectRefused(kernels[good.op] as Call, replaced(good.args, 0, layout), `layout ${layout}`);
      }
    }
  });

  test.each(BLOCK_CALLS)('the last row of blocks may end where the arena ends $scene.label', ({ op, scene, args }) => {
    scene.arrange(memory);
    const ids = words.subarray(args[3] / 4, args[3] / 4 + scene.units);
    const rows = op === 'embed' ? 1 + Math.max(...ids) : scene.units;
    const layout = (Object.keys(BLOCKS) as BlockLayout[]).find(name => LAYOUT_ID[name] === args[0])!;
    const last = SIZE - rows * blockRowBytes(layout, args[2]);
    expect(attempt(kernels[op] as Call, replaced(args, 1, last))).toBeNull();
    expectRefused(kernels[op] as Call, replaced(args, 1, last + 1), 'one byte beyond');
  });

  test('ids of embed, positions of rope and of the indexer', () => {
    for (const value of [-1, -(2 ** 31), 2 ** 31 - 1, SIZE]) {
      for (const entry of [0, 1]) {
        withWord(callOf('embed'), args => args[3] + 4 * entry, value);
        withWord(callOf('rope'), args => args[7] + 4 * entry, value);
        withWord(callOf('indexScores'), args => args[5] + 4 * entry, value);
        withWord(callOf('selectKeys'), args => args[3] + 4 * entry, value);
      }
    }
  });

  /** Address of a word of a block table; `tables`: the argument that says where the tables are. */
  const block =
    (row: number, index: number, tables = TABLES) =>
    (args: readonly number[]) =>
      words[args[tables] / 4 + row] + 4 * index;

  test.each(ATTENTION)('positions, tables and blocks of attention $scene.label', good => {
    for (const value of [-1, -(2 ** 31), 2 ** 31 - 1, SIZE]) withWord(good, args => args[POSITIONS], value);
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
    const [, , , kvHeads, keyDim, valueDim] = args;
    const elementBytes = args[KV_LAYOUT] === LAYOUT_ID.bf16 ? 2 : 4;
    const last = SIZE - KV_BLOCK * kvHeads * (keyDim + valueDim) * elementBytes;
    for (const at of [block(0, 1), block(1, 0)]) {
      withWord(good, at, last + 4);
      scene.arrange(memory);
      words[at(args) / 4] = last;
      expect(attempt(kernels.attention as Call, args)).toBeNull();
    }
  });

  test('tables and blocks of the indexer', () => {
    const good = callOf('indexScores');
    for (const value of [0, 2, -4, SIZE, SIZE - 4, 2 ** 31, 2 ** 32 - 4]) {
      for (const row of [0, 1]) withWord(good, args => args[6] + 4 * row, value);
      for (const at of [block(0, 0, 6), block(0, 1, 6), block(1, 0, 6)]) withWord(good, at, value);
    }
    expectRefused(kernels.indexScores as Call, replaced(good.args, 10, 0), 'no blocks');
  });

  test('blocks before the window are not looked at', () => {
    const args = replaced(WINDOWED.args, WINDOW, 1) as number[];
    const narrow = { ...WINDOWED, args };
    for (const row of [0, 1, 2]) withWord(narrow, block(row, 1), SIZE);
    WINDOWED.scene.arrange(memory);
    words[block(0, 0)(args) / 4] = SIZE;
    expect(attempt(kernels.attention as Call, args)).toBeNull();
    expectRefused(kernels.attention as Call, WINDOWED.args, 'the whole window');
  });

  test('selections: how many, in ascending order, none after the row', () => {
    const { scene, args } = SELECTED;
    const stride = args[SELECTION_STRIDE];
    scene.arrange(memory);
    for (const row of [0, 1]) {
      const first = args[SELECTION] + 4 * row * stride;
      const count = words[first / 4];
      const position = words[args[POSITIONS] / 4 + row];
      for (const value of [-1, stride, 2 ** 31 - 1, -(2 ** 31)]) withWord(SELECTED, () => first, value);
      for (const value of [-1, -(2 ** 31), position + 1, 2 ** 31 - 1]) {
        for (const entry of [1, count]) withWord(SELECTED, () => first + 4 * entry, value);
      }
      withWord(SELECTED, () => first + 8, words[first / 4 + 1]);
      scene.arrange(memory);
      words[first / 4] = 0;
      expect(attempt(kernels.attention as Call, args), 'no key at all').toBeNull();
    }
    // Blocks count only where a chosen key is in them.
    for (const at of [block(0, 0), block(1, 0)]) withWord(SELECTED, at, SIZE);
    for (const last of [63, 64]) {
      scene.arrange(memory);
      words.set([1, last], args[SELECTION] / 4);
      words[block(0, 1)(args) / 4] = SIZE;
      if (last === 63) expect(attempt(kernels.attention as Call, args)).toBeNull();
      else expectRefused(kernels.attention as Call, args, 'a chosen key in a wrong block');
    }
    scene.arrange(memory);
    expectRefused(kernels.attention as Call, replaced(args, SELECTION_STRIDE, 0), 'no room for a selection');
    expectRefused(kernels.attention as Call, replaced(args, 5, args[4] + 1), 'values longer than keys');
    for (const value of [-1, 2]) expectRefused(kernels.attention as Call, replaced(args, IN_KEYS, value), 'no choice');
    expectRefused(kernels.attention as Call, replaced(ATTENTION[0].args, 3, 2).with(IN_KEYS, 1), 'two key heads');
    const select = callOf('selectKeys');
    select.scene.arrange(memory);
    expectRefused(kernels.selectKeys as Call, replaced(select.args, 5, select.args[2]), 'no room for the count');
  });

  test('choices and sizes that do not go together', () => {
    const refused = (op: Op, at: number, value: number, good = callOf(op)): void => {
      good.scene.arrange(memory);
      expectRefused(kernels[op] as Call, replaced(good.args, at, value), `${op}: argument ${at}: ${value}`);
    };
    for (const value of [-1, 2]) refused('rope', 5, value);
    refused('rope', 3, callOf('rope').args[2]);
    const grouped = recorded('topK', args => args[4] > 1);
    const [, , columns, k, groups] = grouped.args;
    for (const value of [-1, 2]) refused('topK', 6, value, grouped);
    for (const value of [-1, 3]) refused('topK', 9, value, grouped);
    for (const value of [0, columns + 1, 1000]) refused('topK', 4, value, grouped);
    for (const value of [0, groups + 1]) refused('topK', 5, value, grouped);
    for (const value of [columns + 1, (columns / groups) * grouped.args[5] + 1]) refused('topK', 3, value, grouped);
    expect(k).toBeGreaterThan(0);
    for (const value of [0, 65]) refused('convSilu', 5, value);
    refused('convSilu', 8, callOf('convSilu').args[4] + 1);
    const [, , , , , keyHeads, valueHeads] = callOf('deltaRule').args;
    for (const value of [0, valueHeads + 1]) refused('deltaRule', 5, value);
    refused('deltaRule', 6, keyHeads - 1);
    refused('deltaRule', 13, valueHeads + 1);
    for (const value of [-1, 2]) refused('deltaRule', 7, value);
    for (const value of [-1, 2]) refused('deltaGates', 3, value);
  });

  test('layouts that keys and values cannot have', () => {
    for (const { scene, args } of ATTENTION) {
      for (const id of [...Object.values(LAYOUT_ID).filter(one => one > LAYOUT_ID.bf16), 99, -1, 2 ** 31, 2 ** 32]) {
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
    expectRefused(kernels.combine as Call, [1024, 1024, 1024, huge, 0, huge, 0, huge], 'rows * slots * columns');
    expectRefused(kernels.rope as Call, [1024, huge, huge, 0, 2, 0, 1024, 1024, 0, huge], 'rows * heads * headDim');
    expectRefused(kernels.copyColumns as Call, [1024, huge, 1024, huge, 16, 0, huge], 'items * stride');
    const delta = [1024, 1024, 1024, 1024, 1024, huge, huge, 0, huge, huge, huge, 1024, 0, huge];
    expectRefused(kernels.deltaRule as Call, delta, 'rows * heads * columns');
  });

  test('NaN is a value where a float is', () => {
    for (const { op, args, scene } of CALLS) {
      for (const [at, kind] of KINDS[op].split(' ').entries()) {
        if (kind !== 'f') continue;
        scene.arrange(memory);
        expect(attempt(kernels[op] as Call, replaced(args, at, Number.NaN)), op).toBeNull();
      }
    }
  });
});
