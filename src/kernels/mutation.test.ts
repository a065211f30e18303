/**
 * The suite can fail: for every kernel, deliberately wrong ones go through the same scenes and the same comparison and
 * must be told from the reference.
 */

import { expect, test } from 'vitest';
import { roundToBfloat } from '../quant/floats.ts';
import { LAYOUT_ID, type Layout } from '../quant/layouts.ts';
import type { Kernels } from './kernels.ts';
import { attentionWith, goesBefore, indexScoresWith, selectKeysWith } from './mutants/attention/test-support.ts';
import { convSiluWith, deltaGatesWith, deltaRuleWith } from './mutants/delta/test-support.ts';
import { combineWith, topKWith } from './mutants/routing/test-support.ts';
import * as make from './mutants/test-support.ts';
import { exp32, sigmoid32, silu32 } from './reference/math.ts';
import type { Op } from './scene.ts';
import { selfTest } from './self-test.ts';
import { counted, memory, reference, SCENES } from './test-support.ts';

const {
  f,
  f32,
  SUMS,
  mapped,
  swigluWith,
  changed,
  rowsWith,
  clampedWith,
  laneSum,
  plainSum,
  laneProducts,
  fusedSum,
  roundEven,
} = make;
const { rmsOutput, rmsFactor, reduce, neighbourTree } = make;

const none = (): number => 0;
const librarySigmoid = (x: number): number => f(1 / f(1 + f(Math.exp(-x))));

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
  layerNorm: {
    'swapped tree': make.layerNormWith({ squares: SUMS['swapped tree'] }),
    'sum in a row': make.layerNormWith({ total: plainSum }),
    'squares of the values themselves': make.layerNormWith({ centred: false }),
    'weight first': make.layerNormWith({ output: (d, factor, weight, bias) => f(f(d * weight) * factor) + bias }),
    'fused multiply-add': make.layerNormWith({ output: (d, factor, weight, bias) => f(d * factor) * weight + bias }),
    'stride mistaken': changed('layerNorm', { 1: stride => stride + 1 }),
  },
  rope: {
    'pairs mistaken': changed('rope', { 5: adjacent => 1 - adjacent }),
    'from the first element on': changed('rope', { 3: none }),
    'fused multiply-add': make.ropeWith(true),
  },
  attention: {
    'swapped tree': attentionWith({ score: SUMS['swapped tree'] }),
    'exponentials summed in a row': attentionWith({ expSum: plainSum }),
    'lanes from the first key on': attentionWith({ expSum: laneSum }),
    'heads interleaved': attentionWith({ kvHead: (head, kvHeads) => head % kvHeads }),
    'fused multiply-add': attentionWith({ fused: true }),
    'division before the values': attentionWith({ early: true }),
    'keys backwards': attentionWith({ backwards: true }),
    'bfloat16 read as float16': attentionWith({ readAs: layout => (layout === bf16 ? f16 : layout) }),
    'float32 read as bfloat16': attentionWith({ readAs: () => bf16 }),
    'sinks ignored': changed('attention', { 8: none }),
    'sinks not in the sum': attentionWith({ addSink: sum => sum }),
    'sinks not in the maximum': attentionWith({ lowSink: true }),
    'window ignored': changed('attention', { 7: none }),
    'window one too wide': changed('attention', { 7: window => (window ? window + 1 : 0) }),
    'selection ignored': changed('attention', { 13: none }),
    'values behind the keys': changed('attention', { 12: none }),
  },
  indexScores: {
    'swapped tree': indexScoresWith({ dot: SUMS['swapped tree'] }),
    'negative scores kept': indexScoresWith({ positive: score => score }),
    'NaN passes': indexScoresWith({ positive: score => Math.max(score, 0) }),
    'heads backwards': indexScoresWith({ order: (step, heads) => heads - 1 - step }),
    'fused multiply-add': indexScoresWith({ fused: true }),
    'last block left out': changed('indexScores', { 12: item1 => item1 - 1 }),
  },
  selectKeys: {
    'ties to the higher position': selectKeysWith((x, y, a, b) => (x === y ? a > b : goesBefore(x, y, a, b))),
    'NaN above everything': selectKeysWith((x, y, a, b) => goesBefore(-y, -x, a, b)),
    smallest: selectKeysWith((x, y, a, b) => goesBefore(-x, -y, a, b)),
    '-0 below 0': selectKeysWith((x, y, a, b) => (x === y ? Object.is(y, -0) : goesBefore(x, y, a, b))),
    'by score': selectKeysWith(goesBefore, false),
    'one too few': changed('selectKeys', { 2: k => k - 1 }),
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
  sigmoid: {
    'library exponential': make.mappedTo(librarySigmoid),
    'exponential over one more': make.mappedTo(x => f(exp32(x) / f(1 + exp32(x)))),
  },
  sigmoidGate: {
    'library exponential': mapped((x, gate) => x * librarySigmoid(gate)),
    'silu of the gate': mapped((x, gate) => x * silu32(gate)),
    'division of x': mapped((x, gate) => x / f(1 + exp32(-gate))),
  },
  gateRows: {
    'gate as it is': rowsWith((x, gate) => x * gate, 'row'),
    'gates by column': (x, gates, columns, row0, row1) =>
      rowsWith((value, gate) => value * sigmoid32(gate), 'column')(x, gates, Math.min(columns, row1), row0, row1),
    'division of x': rowsWith((x, gate) => x / f(1 + exp32(-gate)), 'row'),
  },
  addRows: {
    'bias by row': rowsWith((x, bias) => x + bias, 'row'),
    'last row left out': changed('addRows', { 4: row1 => row1 - 1 }),
  },
  swigluClamped: {
    'up as it is': clampedWith((gate, up, limit, alpha) => {
      const g = Math.min(gate, limit);
      return f(g * sigmoid32(f(alpha * g))) * Math.max(Math.min(up, limit), -limit);
    }),
    'gate clamped below too': clampedWith((gate, up, limit, alpha) => {
      const g = Math.max(Math.min(gate, limit), -limit);
      return f(g * sigmoid32(f(alpha * g))) * f(Math.max(Math.min(up, limit), -limit) + 1);
    }),
    'no limit': changed('swigluClamped', { 3: () => Number.POSITIVE_INFINITY }),
    'alpha ignored': changed('swigluClamped', { 4: () => 1 }),
    'up first': clampedWith((gate, up, limit, alpha) => {
      const g = Math.min(gate, limit);
      return f(g * f(Math.max(Math.min(up, limit), -limit) + 1)) * sigmoid32(f(alpha * g));
    }),
  },
  copyColumns: {
    'one stride for both': changed('copyColumns', { 3: stride => stride - 1 }),
    'last column left out': changed('copyColumns', { 4: width => width - 1 }),
  },
  topK: {
    'ties to the higher index': topKWith({ better: (value, best) => value >= best }),
    smallest: topKWith({ better: (value, best) => value < best }),
    'sum in a row': topKWith({ sum: plainSum }),
    'nothing added to the sum': topKWith({ least: 0 }),
    'bias in the weights': topKWith({ biased: true }),
    'bias ignored': changed('topK', { 1: none }),
    'groups ignored': changed('topK', { 4: () => 1 }),
    'one group more': changed('topK', { 5: kept => kept + 1 }),
    'groups by their largest': topKWith({ scoreOf: first => first }),
    'factor before the rule': topKWith({ early: true }),
    'factor ignored': changed('topK', { 10: () => 1 }),
    'rules mistaken': changed('topK', { 9: rule => (rule === 0 ? 0 : 3 - rule) }),
  },
  combine: {
    'slots backwards': combineWith({ order: (slot, k) => k - 1 - slot }),
    'fused multiply-add': combineWith({ fused: true }),
    'added to the residual one by one': combineWith({ straight: true }),
    'shared part first': combineWith({ sharedFirst: true }),
    'shared part left out': changed('combine', { 4: none }),
  },
  convSilu: {
    'taps backwards': convSiluWith({ tap: (j, taps) => taps - 1 - j }),
    'fused multiply-add': convSiluWith({ fused: true }),
    'no silu': convSiluWith({ activate: sum => sum }),
    'tail as it was': convSiluWith({ keep: (inputs, before) => inputs.slice(0, before) }),
    'tail from the new inputs alone': convSiluWith({
      keep: (inputs, before) =>
        inputs.map((_, i) => inputs[Math.max(before, inputs.length - before + i)]).slice(0, before),
    }),
  },
  deltaGates: {
    'library softplus': deltaGatesWith({ softplus: x => f(Math.log1p(Math.exp(x))) }),
    'softplus without its small end': deltaGatesWith({ softplus: x => f(Math.log(f(1 + exp32(x)))) }),
    'growth for decay': deltaGatesWith({ decayOf: (given, step) => exp32(f(exp32(given) * step)) }),
    'logarithms as they are': changed('deltaGates', { 3: none }),
    'rates as logarithms': changed('deltaGates', { 3: () => 1 }),
    'beta as it is': deltaGatesWith({ betaOf: b => b }),
  },
  deltaRule: {
    'squares in a row': deltaRuleWith({ squares: SUMS['one lane'] }),
    'swapped tree': deltaRuleWith({ squares: SUMS['swapped tree'] }),
    'sums over the state in lanes': deltaRuleWith({ over: laneProducts }),
    'no eps': deltaRuleWith({ eps: 0 }),
    'queries not scaled': deltaRuleWith({ scaled: false }),
    'always tiled': changed('deltaRule', { 7: () => 1 }),
    'never tiled': changed('deltaRule', { 7: none }),
    'tiled the other way round': deltaRuleWith({
      keyHead: (head, keyHeads, heads, tiled) => Math.floor(head / (tiled ? keyHeads : heads / keyHeads)) % keyHeads,
    }),
    'decay after the change': deltaRuleWith({ lateDecay: true }),
    'output before the change': deltaRuleWith({ earlyOutput: true }),
    'fused multiply-add': deltaRuleWith({ fusedUpdate: true }),
    'last token left out': changed('deltaRule', { 10: rows => rows - 1 }),
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
    layerNorm: make.layerNormWith({}),
    rope: make.ropeWith(false),
    attention: attentionWith({}),
    indexScores: indexScoresWith({}),
    selectKeys: selectKeysWith(goesBefore),
    toBf16: make.toBf16With(roundToBfloat),
    softmax: make.softmaxWith({}),
    topK: topKWith({}),
    combine: combineWith({}),
    convSilu: convSiluWith({}),
    deltaGates: deltaGatesWith({}),
    deltaRule: deltaRuleWith({}),
  };
  for (const op of Object.keys(SCENES) as Op[]) expect(firstDifference(op, healthy, 7)).toBeNull();
});

test('the self-test finds a wrong kernel of every kind', () => {
  for (const [op, mutants] of Object.entries(MUTANTS) as [Op, Record<string, unknown>][]) {
    const found = Object.values(mutants).filter(mutant => selfTest({ ...reference, [op]: mutant }, memory) !== null);
    expect(found.length, op).toBeGreaterThan(0);
  }
});
