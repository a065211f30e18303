/**
 * The suite can fail: for every kernel, deliberately wrong ones go through the same scenes and the same comparison and
 * must be told from the reference.
 */

import { expect, test } from 'vitest';
import { roundToBfloat } from '../quant/floats.ts';
import { LAYOUT_ID, type Layout } from '../quant/layouts.ts';
import type { Kernels } from './kernels.ts';
import * as make from './mutants/test-support.ts';
import { exp32, silu32 } from './reference/math.ts';
import type { Op } from './scene.ts';
import { selfTest } from './self-test.ts';
import { counted, memory, reference, SCENES } from './test-support.ts';

const { f, f32, SUMS, mapped, swigluWith, laneSum, plainSum, laneProducts, fusedSum, roundEven } = make;
const { rmsOutput, rmsFactor, reduce, neighbourTree } = make;

const { bf16, f16 } = LAYOUT_ID;
const isNaNWord = (word: number): boolean => (word & 0x7fffffff) > 0x7f800000;

/** As the reference, but the layout is mistaken for another one. */
const embedAs =
  (from: Layout, to: Layout): Kernels['embed'] =>
  (layout, ...rest) =>
    reference.embed(layout === LAYOUT_ID[from] ? LAYOUT_ID[to] : layout, ...rest);

const MUTANTS: { readonly [K in Op]: Readonly<Record<string, Kernels[K]>> } = {
  quantise: {
    'half away from zero': make.quantiseWith(x => Math.sign(x) * Math.floor(Math.abs(x) + 0.5), 2 ** -126, Number.NaN),
    truncation: make.quantiseWith(Math.trunc, 2 ** -126, Number.NaN),
    'denormal scales kept': make.quantiseWith(roundEven, 0, Number.NaN),
    'non-finite input hidden': make.quantiseWith(roundEven, 2 ** -126, 0),
    'no sums': (x, columns, codes, scales, _sums, row0, row1) =>
      reference.quantise(x, columns, codes, scales, scales, row0, row1),
  },
  matmulTiles: {
    'missing zero point': make.tilesWith({ zeroPoint: 8 }),
    'nibbles swapped': make.tilesWith({ column: c => c ^ 32 }),
    'lanes mistaken': make.tilesWith({ column: c => c ^ 4 }),
    'groups backwards': make.tilesWith({ backwards: true }),
    'fused multiply-add': make.tilesWith({ add: (sum, dot, w, x) => f(sum + dot * f(w * x)) }),
    'scales in turn': make.tilesWith({ add: (sum, dot, w, x) => f(sum + f(f(dot * w) * x)) }),
    'padding rows written': (layout, w, rows, ...rest) => reference.matmulTiles(layout, w, (rows + 15) & ~15, ...rest),
  },
  matmulFloat: Object.fromEntries(Object.entries(SUMS).map(([name, sum]) => [name, make.floatWith(sum)])),
  matmulExact: Object.fromEntries(Object.entries(SUMS).map(([name, sum]) => [name, make.exactWith(sum)])),
  embed: {
    'float16 read as bfloat16': embedAs('f16', 'bf16'),
    'wide scales ignored': embedAs('q4g64-f32', 'q4g64'),
    'q8 read as q4': embedAs('q8g64', 'q4g64'),
    'denormals flushed': (layout, w, columns, ids, y, row0, row1) => {
      reference.embed(layout, w, columns, ids, y, row0, row1);
      for (let i = row0 * columns; i < row1 * columns; i++) {
        if (Math.abs(f32[(y >> 2) + i]) < 2 ** -126) f32[(y >> 2) + i] = 0;
      }
    },
  },
  rmsNorm: {
    'swapped tree': make.rmsWith(rmsOutput, rmsFactor, SUMS['swapped tree']),
    'fused multiply-add': make.rmsWith(rmsOutput, rmsFactor, fusedSum),
    'weight first': make.rmsWith((x, weight, factor) => f(weight * x) * factor, rmsFactor, laneProducts),
    'eps outside the root': make.rmsWith(rmsOutput, (mean, eps) => f(1 / f(f(Math.sqrt(mean)) + eps)), laneProducts),
    'unrounded root': make.rmsWith(rmsOutput, (mean, eps) => f(1 / Math.sqrt(f(mean + eps))), laneProducts),
  },
  rope: { 'neighbouring pairs': make.ropeWith(true, false), 'fused multiply-add': make.ropeWith(false, true) },
  attention: {
    'swapped tree': make.attentionWith({ score: SUMS['swapped tree'] }),
    'exponentials summed in a row': make.attentionWith({ expSum: plainSum }),
    'heads interleaved': make.attentionWith({ kvHead: (head, kvHeads) => head % kvHeads }),
    'fused multiply-add': make.attentionWith({ fused: true }),
    'division before the values': make.attentionWith({ early: true }),
    'bfloat16 read as float16': make.attentionWith({ readAs: layout => (layout === bf16 ? f16 : layout) }),
    'float32 read as bfloat16': make.attentionWith({ readAs: () => bf16 }),
  },
  swiglu: {
    'library exponential': swigluWith((x, up) => f(x / f(1 + f(Math.exp(-x)))) * up),
    'up first': swigluWith((gate, up) => silu32(up) * gate),
    'sigmoid, then product': swigluWith((x, up) => f(x * f(1 / f(1 + exp32(-x)))) * up),
  },
  add: {
    'last element left out': (x, y, element0, element1) => reference.add(x, y, element0, element1 - 1),
    'denormals flushed': mapped((x, y) => (Math.abs(f(x + y)) < 2 ** -126 ? 0 : x + y)),
  },
  scale: {
    'factor in double precision': (x, factor, element0, element1) => {
      for (let i = element0; i < element1; i++) f32[(x >> 2) + i] *= factor;
    },
  },
  clamp: {
    'NaN becomes the limit': (x, limit, element0, element1) =>
      mapped(value => (value < f(limit) ? Math.max(value, -f(limit)) : limit))(x, x, element0, element1),
    'one side only': (x, limit, element0, element1) =>
      mapped(value => (value > f(limit) ? limit : value))(x, x, element0, element1),
  },
  toBf16: {
    truncation: make.toBf16With(word => word >>> 16),
    'half away from zero': make.toBf16With(word => (word + 0x8000) >>> 16),
    'half towards zero': make.toBf16With(word => (word + 0x7fff) >>> 16),
    'NaN rounded as a number': make.toBf16With(word => (word + 0x7fff + ((word >>> 16) & 1)) >>> 16),
    'signalling NaN left so': make.toBf16With(word => (isNaNWord(word) ? word >>> 16 : roundToBfloat(word))),
    'denormals flushed': make.toBf16With(word => (word & 0x7f800000 ? roundToBfloat(word) : (word >>> 16) & 0x8000)),
    'too large stays finite': make.toBf16With(word => {
      const rounded = roundToBfloat(word);
      return (rounded & 0x7fff) === 0x7f80 && (word & 0x7fffffff) !== 0x7f800000 ? rounded - 1 : rounded;
    }),
    'last element left out': (x, y, element0, element1) => reference.toBf16(x, y, element0, element1 - 1),
  },
  softmax: {
    'library exponential': make.softmaxWith({ exp: Math.exp }),
    'sum in a row': make.softmaxWith({ sum: plainSum }),
    'product with the reciprocal': make.softmaxWith({ divide: (value, sum) => value * f(1 / sum) }),
    'swapped tree': make.softmaxWith({ sum: values => reduce(values.length, i => values[i], neighbourTree) }),
  },
  topK: {
    'ties to the higher index': make.topKWith((value, best) => value >= best, laneSum),
    smallest: make.topKWith((value, best) => value < best, laneSum),
    'sum in a row': make.topKWith((value, best) => value > best, plainSum),
  },
  combine: {
    'slots backwards': make.combineWith((slot, k) => k - 1 - slot, false, false),
    'fused multiply-add': make.combineWith(slot => slot, true, false),
    'added to the residual one by one': make.combineWith(slot => slot, false, true),
  },
  allFinite: {
    'infinity passes': (x, elements) => (f32.subarray(x >> 2, (x >> 2) + elements).some(Number.isNaN) ? 0 : 1),
    'last element not seen': (x, elements) => reference.allFinite(x, elements - 1),
  },
};

/** The first difference that a kernel's scenes, or every n-th of them, show. */
function firstDifference(op: Op, kernels: Kernels, everyNth = 1): string | null {
  let i = 0;
  for (const scene of SCENES[op]()) {
    if (i++ % everyNth) continue;
    const difference = scene.difference(scene.outcome(kernels, memory), scene.outcome(reference, memory));
    if (difference) return difference;
  }
  return null;
}

for (const [op, mutants] of Object.entries(MUTANTS) as [Op, Record<string, unknown>][]) {
  test(`${op}: every wrong kernel is found`, () => {
    for (const [name, mutant] of Object.entries(mutants)) {
      const { kernels, calls } = counted({ ...reference, [op]: mutant });
      expect(firstDifference(op, kernels), name).toMatch(new RegExp(`^${op} `));
      expect(calls[op], name).toBeGreaterThan(0);
    }
  });
}

test('the same machinery finds nothing wrong with the reference, nor with the mutants when nothing is mutated', () => {
  const healthy: Kernels = {
    ...reference,
    quantise: make.quantiseWith(roundEven, 2 ** -126, Number.NaN),
    matmulTiles: make.tilesWith({}),
    matmulFloat: make.floatWith(laneProducts),
    matmulExact: make.exactWith(laneProducts),
    rmsNorm: make.rmsWith(rmsOutput, rmsFactor, laneProducts),
    rope: make.ropeWith(false, false),
    attention: make.attentionWith({}),
    toBf16: make.toBf16With(roundToBfloat),
    softmax: make.softmaxWith({}),
    topK: make.topKWith((value, best) => value > best, laneSum),
    combine: make.combineWith(slot => slot, false, false),
  };
  for (const op of Object.keys(SCENES) as Op[]) expect(firstDifference(op, healthy, 7)).toBeNull();
});

test('the self-test finds a wrong kernel of every kind', () => {
  for (const [op, mutants] of Object.entries(MUTANTS) as [Op, Record<string, unknown>][]) {
    const found = Object.values(mutants).filter(mutant => selfTest({ ...reference, [op]: mutant }, memory) !== null);
    expect(found.length, op).toBeGreaterThan(0);
  }
});
