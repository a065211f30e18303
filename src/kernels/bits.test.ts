/** Every implementation gives the reference's bits, on ordinary and on extreme inputs. */

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { LAYOUT_ID, type Layout, layoutBytes } from '../quant/layouts.ts';
import * as cases from './cases.ts';
import { type Kernels, KV_BLOCK } from './kernels.ts';
import { type Kind, RandomValues } from './random-values.ts';
import { createReferenceKernels } from './reference/reference.ts';
import type { Op, Scene } from './scene.ts';
import { kernelsFor } from './select.ts';
import {
  ALL_NAMES,
  expectSameBits,
  FLOAT_LAYOUTS,
  IMPLEMENTATIONS,
  MISSING,
  memory,
  reference,
  SCENES,
  TILE_LAYOUTS,
} from './test-support.ts';
import { compileWasm } from './wasm/wasm.ts';

for (const { name, reason } of MISSING) test.skip(`${name}: not here (${reason})`, () => {});

test('all variants are under test, unless this machine cannot run one', () => {
  expect([...IMPLEMENTATIONS, ...MISSING].map(one => one.name).sort()).toEqual([...ALL_NAMES].sort());
  for (const { name, kernels } of IMPLEMENTATIONS) {
    expect(Object.keys(kernels).sort(), name).toEqual(Object.keys(reference).sort());
  }
});

describe('same bits as the reference', () => {
  for (const [op, scenes] of Object.entries(SCENES)) {
    test(op, () => {
      for (const scene of scenes()) expectSameBits(scene);
    });
  }
});

describe('laws', () => {
  const kinds = fc.constantFrom<Kind>('ordinary', 'extreme', 'special');
  const shape = {
    rows: fc.integer({ min: 1, max: 40 }),
    columns: fc.integer({ min: 1, max: 300 }),
    n: fc.integer({ min: 1, max: 9 }),
    kind: kinds,
    indexed: fc.boolean(),
    misalign: fc.integer({ min: 0, max: 15 }),
  };
  const matmuls: [Op, readonly Layout[], (seed: number, facts: cases.MatrixFacts) => Scene][] = [
    ['matmulTiles', TILE_LAYOUTS, cases.tilesCase],
    ['matmulFloat', FLOAT_LAYOUTS, cases.floatCase],
    ['matmulExact', TILE_LAYOUTS, cases.exactCase],
  ];

  for (const [op, layouts, makeScene] of matmuls) {
    test(`${op} of any shape`, () => {
      const facts = fc.record({ ...shape, layout: fc.constantFrom(...layouts) });
      fc.assert(
        fc.property(fc.nat(), facts, (seed, one) => expectSameBits(makeScene(seed, one))),
        { numRuns: 60, seed: 7 },
      );
    });

    test(`${op}: one activation row alone gives the bits it has in a batch`, () => {
      for (const layout of layouts) {
        const facts = { layout, rows: 35, columns: 200, kind: 'ordinary' as const };
        const batch = makeScene(3, { ...facts, n: 9 });
        for (const { name, kernels } of IMPLEMENTATIONS) {
          const whole = batch.outcome(kernels, memory);
          const alone = batch.outcome({ ...kernels, [op]: oneByOne(kernels[op] as Call, op) }, memory);
          expect(batch.difference(alone, whole), `${name} ${layout}`).toBeNull();
        }
      }
    });
  }

  test('attention over bfloat16 is attention over the float32 numbers that it stands for', () => {
    const [keys, heads, kvHeads, headDim] = [130, 6, 2, 45];
    const count = 2 * KV_BLOCK * kvHeads * headDim;
    const random = new RandomValues(21);
    const [q, positions, tables, table] = [4096, 16384, 16448, 16512];
    const [scratch, wide, narrow, out] = [65536, 131072, 524288, 1048576];
    const floats = (at: number, length: number) => new Float32Array(memory.buffer, at, length);
    const words = (at: number, values: number[]) => new Int32Array(memory.buffer, at, values.length).set(values);
    floats(q, heads * headDim).set(random.floats(heads * headDim, 'ordinary'));
    floats(wide, 3 * count).set(random.floats(3 * count, 'ordinary'));
    const bits = new Uint32Array(memory.buffer, wide, 3 * count);
    for (let i = 0; i < bits.length; i++) bits[i] &= 0xffff0000;
    words(positions, [keys - 1]);
    words(tables, [table]);
    for (const { name, kernels } of IMPLEMENTATIONS) {
      const attend = (layout: 'f32' | 'bf16', first: number, blockBytes: number): number[] => {
        words(table, [first, first + blockBytes, first + 2 * blockBytes]);
        attendPlainly(kernels, {
          ...{ q, out, heads, kvHeads, headDim, scale: 0.2, positions, tables, scratch },
          layout: LAYOUT_ID[layout],
        });
        return [...new Int32Array(memory.buffer, out, heads * headDim)];
      };
      floats(narrow, 3 * count).fill(Number.NaN);
      kernels.toBf16(wide, narrow, 0, 3 * count);
      expect(attend('bf16', narrow, count * 2), name).toEqual(attend('f32', wide, count * 4));
    }
  });

  test('work may be cut anywhere', () => {
    const kind = 'ordinary';
    const scenes = [
      cases.quantiseCase(1, { rows: 5, columns: 70, kind }),
      ...TILE_LAYOUTS.map(layout => cases.tilesCase(2, { layout, rows: 70, columns: 130, n: 5, kind })),
      ...FLOAT_LAYOUTS.map(layout => cases.floatCase(3, { layout, rows: 37, columns: 70, n: 5, kind })),
      ...TILE_LAYOUTS.map(layout => cases.exactCase(4, { layout, rows: 37, columns: 70, n: 5, kind })),
      ...FLOAT_LAYOUTS.map(layout => cases.embedCase(5, { layout, rows: 9, columns: 70, n: 6, kind })),
      cases.rmsNormCase(6, { rows: 6, columns: 70, kind }),
      cases.ropeCase(7, { rows: 6, heads: 2, headDim: 24, first: 5, rotaryDim: 16, kind }),
      cases.layerNormCase(7, { rows: 6, columns: 70, kind }),
      ...(['f32', 'bf16'] as const).flatMap(layout => [
        cases.attentionCase(8, { keys: [5, 70, 30], heads: 4, kvHeads: 2, keyDim: 24, kind, layout }),
        cases.attentionCase(8, { keys: [70, 70, 69], shared: true, heads: 4, kvHeads: 4, keyDim: 21, kind, layout }),
        cases.attentionCase(8, { ...LATENT, keys: [5, 70, 30], layout, window: 20, sinks: kind }),
        cases.attentionCase(8, { ...LATENT, keys: [5, 70, 30], layout, selected: 20 }),
        cases.indexScoresCase(8, { keys: [5, 170, 64], heads: 3, headDim: 21, kind, layout }),
      ]),
      cases.selectKeysCase(8, { keys: [5, 170, 64, 100], k: 30, kind }),
      cases.toBf16Case(9, { elements: 75, kind: 'ties', misalign: 2 }),
      ...cases.ELEMENT_OPS.map(op => cases.elementCase(op, 9, { elements: 75, kind })),
      cases.softmaxCase(10, { rows: 6, columns: 70, kind }),
      cases.gateRowsCase(10, { rows: 6, columns: 70, kind }),
      cases.addRowsCase(10, { rows: 6, columns: 70, kind }),
      cases.copyColumnsCase(10, { items: 6, width: 70, xStride: 75, yStride: 73 }),
      cases.topKCase(11, { rows: 6, columns: 20, k: 4, weightRule: 1, kind: 'steps' }),
      cases.topKCase(11, { rows: 6, columns: 20, k: 4, weightRule: 2, bias: kind, groups: 5, keptGroups: 2, kind }),
      cases.combineCase(12, { rows: 6, columns: 70, k: 3, kind }),
      cases.convSiluCase(13, { rows: 5, channels: 70, taps: 4, kind }),
      cases.deltaGatesCase(13, { rows: 6, heads: 9, kind }),
      cases.deltaRuleCase(13, { rows: 5, keyHeads: 2, valueHeads: 6, keyDim: 21, valueDim: 37, kind }),
    ];
    for (const scene of scenes) {
      fc.assert(
        fc.property(fc.uniqueArray(fc.integer({ min: 0, max: scene.units }), { maxLength: 4 }), cuts =>
          expectSameBits(
            scene,
            cuts.sort((a, b) => a - b),
          ),
        ),
        { numRuns: 6, seed: 11 },
      );
    }
  });
});

describe('state is carried from one run of tokens to the next', () => {
  const kind = 'ordinary';
  const scenes: [Scene, (call: Call) => Call][] = [
    ...[2, 4, 5].map((taps): [Scene, (call: Call) => Call] => [
      cases.convSiluCase(2, { rows: 5, channels: 23, taps, kind }),
      convInRuns,
    ]),
    [cases.deltaRuleCase(2, { rows: 5, keyHeads: 2, valueHeads: 6, keyDim: 20, valueDim: 37, kind }), deltaInRuns],
  ];

  test.each(scenes)('$op $label', (scene, inRuns) => {
    for (const { name, kernels } of [{ name: 'reference', kernels: reference }, ...IMPLEMENTATIONS]) {
      const whole = scene.outcome(kernels, memory);
      const runs = scene.outcome({ ...kernels, [scene.op]: inRuns(kernels[scene.op] as Call) }, memory);
      expect(scene.difference(runs, whole), name).toBeNull();
    }
  });
});

test('offsets above 2 GiB', () => {
  // Only the touched pages of this memory take room.
  const pages = 2 ** 15 + 64;
  const arena = new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true });
  const random = new RandomValues(5);
  const x = random.floats(8 * 64, 'ordinary');
  const w = random.bytes(layoutBytes('q4g64-f32', 16, 64));
  for (let r = 0; r < 16; r++) new DataView(w.buffer).setFloat32(512 + r * 4, random.float('ordinary'), true);
  const run = (kernels: Kernels, base: number): Float32Array => {
    const [codes, scales, sums] = [base + 4096, base + 8192, base + 12288];
    const [weights, y, positions, tables, blocks] = [16384, 20480, 24576, 24640, 24704].map(at => base + at);
    const [block, scratch, out] = [base + 32768, base + 65536, base + 69632];
    const [half, halfOut] = [base + 73728, base + 90112];
    new Float32Array(arena.buffer, base, x.length).set(x);
    new Uint8Array(arena.buffer, weights, w.length).set(w);
    new Float32Array(arena.buffer, block, 2 * 64 * 64).set(random.floats(2 * 64 * 64, 'equal'));
    new Int32Array(arena.buffer, positions, 1).set([40]);
    new Int32Array(arena.buffer, tables, 1).set([blocks]);
    new Int32Array(arena.buffer, blocks, 1).set([block]);
    kernels.quantise(base, 64, codes, scales, sums, 0, 8);
    kernels.matmulTiles(LAYOUT_ID['q4g64-f32'], weights, 16, 1, codes, scales, sums, 0, y, 16, 0, 8, 0, 1);
    const shape = { q: base, heads: 1, kvHeads: 1, headDim: 64, scale: 0.1, positions, tables, scratch };
    attendPlainly(kernels, { ...shape, out, layout: LAYOUT_ID.f32 });
    kernels.toBf16(block, half, 0, 2 * 64 * 64);
    new Int32Array(arena.buffer, blocks, 1).set([half]);
    attendPlainly(kernels, { ...shape, out: halfOut, layout: LAYOUT_ID.bf16 });
    const floats = (at: number, count: number) => [...new Float32Array(arena.buffer, at, count)];
    return Float32Array.from([...floats(y, 128), ...floats(out, 64), ...floats(halfOut, 64)]);
  };
  const names = ['reference', ...IMPLEMENTATIONS.map(one => one.name)] as const;
  const wanted = run(createReferenceKernels(arena), 65536);
  for (const name of names) {
    const module = name.startsWith('wasm') ? compileWasm(name === 'wasm-relaxed' ? 'relaxed' : 'baseline') : null;
    expect(run(kernelsFor(name, module)(arena), 2 ** 31 + 65536), name).toEqual(wanted);
  }
});

type Call = (...args: number[]) => unknown;

/** One key for many heads, whose beginning is the value. */
const LATENT = { heads: 5, kvHeads: 1, keyDim: 24, valueDim: 20, kind: 'ordinary', valuesInKeys: true } as const;

/** Attention of the first row over all its keys. */
function attendPlainly(
  kernels: Kernels,
  shape: Record<
    'q' | 'out' | 'heads' | 'kvHeads' | 'headDim' | 'scale' | 'positions' | 'tables' | 'layout' | 'scratch',
    number
  >,
): void {
  const { q, out, heads, kvHeads, headDim: d, scale, positions, tables, layout, scratch } = shape;
  kernels.attention(q, out, heads, kvHeads, d, d, scale, 0, 0, positions, tables, layout, 0, 0, 0, scratch, 0, heads);
}

/** Five tokens as two and three. */
const RUNS = [
  { first: 0, rows: 2 },
  { first: 2, rows: 3 },
];

function convInRuns(call: Call): Call {
  return (u, tail, w, y, channels, taps, _rows, from, to) => {
    for (const { first, rows } of RUNS) {
      const skipped = first * channels * 4;
      call(u + skipped, tail, w, y + skipped, channels, taps, rows, from, to);
    }
  };
}

function deltaInRuns(call: Call): Call {
  return (qkv, decay, beta, state, out, keyHeads, valueHeads, tiled, keyDim, valueDim, _rows, scratch, from, to) => {
    for (const { first, rows } of RUNS) {
      const [x, gate, y] = [2 * keyHeads * keyDim + valueHeads * valueDim, valueHeads, valueHeads * valueDim].map(
        columns => first * columns * 4,
      );
      const shape = [keyHeads, valueHeads, tiled, keyDim, valueDim, rows, scratch, from, to];
      call(qkv + x, decay + gate, beta + gate, state, out + y, ...shape);
    }
  };
}

/** A matmul that makes a call of its own for every activation row. The scene has no index tables. */
function oneByOne(call: Call, op: Op): Call {
  // Argument positions of matmulTiles and of the two others.
  const tiles = op === 'matmulTiles';
  const [y, yStride, n] = tiles ? [8, 9, 11] : [6, 7, 9];
  return (...args) => {
    for (let i = 0; i < args[n]; i++) {
      const one = [...args];
      one[n] = 1;
      one[y] += i * args[yStride] * 4;
      if (tiles) {
        one[4] += i * args[3] * 64;
        one[5] += i * args[3] * 4;
        one[6] += i * args[3] * 4;
      } else {
        one[3] += i * args[4] * 4;
      }
      call(...one);
    }
  };
}
