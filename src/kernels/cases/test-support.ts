/** The many shapes in which kernels other than those of matrices are tried. */

import type { Kind } from '../random-values.ts';
import type { Op, Scene } from '../scene.ts';
import * as attention from './attention.ts';
import * as delta from './delta.ts';
import * as routing from './routing.ts';
import * as rows from './rows.ts';

export const COLUMNS = [8, 24, 40, 64, 96, 128, 144, 160, 200];
export const ODD_COLUMNS = [1, 2, 3, 5, 15, 16, 17, 31, 33, 67];
const FINITE: readonly Kind[] = ['ordinary', 'wide', 'zero', 'equal', 'denormal', 'huge', 'steps', 'extreme'];
export const ALL: readonly Kind[] = [...FINITE, 'special'];

export const pick = <T>(values: readonly T[], i: number): T => values[i % values.length];

export function* each<T>(facts: Iterable<T>, scene: (seed: number, facts: T) => Scene): Generator<Scene> {
  let seed = 1;
  for (const one of facts) yield scene(seed++, one);
}

type Scenes<K extends Op> = Readonly<Record<K, () => Iterable<Scene>>>;

function* rowShapes(kinds: readonly Kind[]): Generator<rows.RowFacts> {
  for (const columns of [...ODD_COLUMNS, ...COLUMNS, 2048, 8192]) {
    for (const kind of kinds) {
      yield { rows: columns > 1000 ? 1 : 2, columns, kind };
      if (columns < 70) yield { rows: 3, columns, kind, inPlace: true };
    }
  }
}

/** Rows that follow each other, and rows with gaps that are nobody's business. */
function* normShapes(): Generator<rows.NormFacts> {
  let i = 0;
  for (const facts of rowShapes(ALL)) {
    yield facts;
    if (++i % 3 === 0)
      yield { ...facts, rows: 3, xStride: facts.columns + (i % 5), yStride: facts.columns + 7 - (i % 7) };
  }
}

function* ropeShapes(): Generator<rows.RopeFacts> {
  for (const headDim of [8, 24, 64, 128, 20, 6]) {
    const rotaryDim = headDim > 20 ? headDim - 8 : headDim;
    for (const kind of ALL) {
      for (const adjacent of [false, true]) yield { rows: 3, heads: 2, headDim, rotaryDim, adjacent, kind };
    }
  }
  for (const [headDim, first, rotaryDim] of [
    [192, 128, 64],
    [21, 7, 10],
    [13, 11, 2],
    [70, 3, 64],
  ]) {
    for (const adjacent of [false, true]) {
      yield { rows: 4, heads: 3, headDim, first, rotaryDim, adjacent, kind: 'ordinary' };
      yield { rows: 4, heads: 1, headDim, first, rotaryDim, adjacent, kind: 'special' };
    }
  }
}

function* copyShapes(): Generator<rows.CopyFacts> {
  for (const width of [...ODD_COLUMNS, 64, 200]) {
    yield { items: 5, width, xStride: width, yStride: width };
    yield { items: 3, width, xStride: width + 3, yStride: width + 1 };
    yield { items: 1, width, xStride: 0, yStride: 0 };
  }
}

function* elementScenes(op: rows.ElementOp, factors: readonly number[]): Generator<Scene> {
  let seed = 1;
  for (const elements of [...ODD_COLUMNS, 64, 100, 1000]) {
    for (const kind of ALL) {
      for (const factor of factors) yield rows.elementCase(op, seed++, { elements, kind, factor });
    }
  }
}

function* roundingShapes(): Generator<Parameters<typeof rows.toBf16Case>[1]> {
  for (const elements of [...ODD_COLUMNS, 64, 100, 1000]) {
    for (const kind of [...ALL, 'bits', 'ties'] as const) {
      for (const misalign of [0, 2, 14]) yield { elements, kind, misalign };
    }
  }
}

function* finiteShapes(): Generator<Parameters<typeof rows.allFiniteCase>[1]> {
  for (const elements of [...ODD_COLUMNS, 64, 100]) {
    for (const kind of FINITE) yield { elements, kind };
    for (const odd of [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]) {
      for (let at = 0; at < elements; at++) yield { elements, kind: 'extreme', at, odd };
    }
  }
}

type RowOp = rows.ElementOp | 'rmsNorm' | 'layerNorm' | 'rope' | 'toBf16' | 'softmax' | 'gateRows' | 'addRows';

export const ROW_SCENES: Scenes<RowOp | 'copyColumns' | 'allFinite'> = {
  rmsNorm: () => each(normShapes(), rows.rmsNormCase),
  layerNorm: () => each(normShapes(), rows.layerNormCase),
  rope: () => each(ropeShapes(), rows.ropeCase),
  swiglu: () => elementScenes('swiglu', [1]),
  swigluClamped: () => elementScenes('swigluClamped', [7, 0.3, 1e9]),
  add: () => elementScenes('add', [1]),
  clamp: () => elementScenes('clamp', [0.3, 1e9, 0, -1]),
  sigmoid: () => elementScenes('sigmoid', [1]),
  sigmoidGate: () => elementScenes('sigmoidGate', [1]),
  toBf16: () => each(roundingShapes(), rows.toBf16Case),
  softmax: () => each(rowShapes(ALL), rows.softmaxCase),
  gateRows: () => each(rowShapes(ALL), rows.gateRowsCase),
  addRows: () => each(rowShapes(ALL), rows.addRowsCase),
  copyColumns: () => each(copyShapes(), rows.copyColumnsCase),
  allFinite: () => each(finiteShapes(), rows.allFiniteCase),
};

const LAYOUTS = ['f32', 'bf16'] as const;

function* attentionShapes(): Generator<attention.AttentionFacts> {
  for (const facts of smallFacts()) for (const layout of LAYOUTS) yield { ...facts, layout };
  for (const layout of LAYOUTS) for (const facts of attentionFacts()) yield { ...facts, layout };
}

/** Every feature of attention once: first, because wrong kernels are soon found with them. */
function* smallFacts(): Generator<attention.AttentionFacts> {
  const small = { keys: [37, 3], heads: 4, kvHeads: 2, keyDim: 21, kind: 'ordinary' } as const;
  yield small;
  yield { ...small, kind: 'special', sinks: 'special' };
  yield { ...small, valueDim: 18, window: 19, sinks: 'ordinary' };
  yield { ...small, sinks: 'wide', selected: 17 };
  yield { ...small, heads: 5, kvHeads: 1, valueDim: 16, valuesInKeys: true };
}

function* attentionFacts(): Generator<attention.AttentionFacts> {
  for (const keyDim of [1, 8, 12, 15, 24, 30, 33, 64, 80, 128, 160]) {
    for (const kind of ALL) yield { keys: [1, 64, 65, 17], heads: 4, kvHeads: 2, keyDim, kind };
  }
  for (const kvHeads of [1, 2, 3, 6]) {
    for (const keyDim of [16, 20, 21, 80, 128]) {
      yield { keys: [140, 138, 139, 140, 1, 64], shared: true, heads: 6, kvHeads, keyDim, kind: 'ordinary' };
    }
  }
  yield { keys: [300, 1, 129], heads: 3, kvHeads: 3, keyDim: 40, kind: 'ordinary' };
  yield { keys: [1000], heads: 8, kvHeads: 1, keyDim: 32, kind: 'ordinary' };
  yield* windowFacts();
  yield* wideValueFacts();
  yield* latentFacts();
  yield* selectionFacts();
}

/** Windows shorter and longer than the history, that begin at every place of a block; sinks with and without them. */
function* windowFacts(): Generator<attention.AttentionFacts> {
  const keys = [140, 66, 3];
  for (const window of [1, 2, 15, 16, 17, 64, 65, 128, 140, 500]) {
    for (const keyDim of [16, 21]) yield { keys, heads: 4, kvHeads: 2, keyDim, kind: 'ordinary', window };
  }
  const rows = Array.from({ length: 20 }, (_, row) => 200 - row);
  yield { keys: rows, shared: true, heads: 2, kvHeads: 1, keyDim: 32, kind: 'ordinary', window: 77 };
  yield { keys: rows, shared: true, heads: 5, kvHeads: 5, keyDim: 17, kind: 'ordinary', window: 33, sinks: 'ordinary' };
  for (const kind of ALL) {
    yield { keys: [130, 40], heads: 4, kvHeads: 2, keyDim: 24, kind, window: 70 };
    yield { keys: [130, 40], heads: 4, kvHeads: 2, keyDim: 24, kind, sinks: kind };
    yield { keys: [70, 1], heads: 6, kvHeads: 1, keyDim: 64, kind, window: 5, sinks: 'special' };
    yield { keys: [70, 1], heads: 6, kvHeads: 2, keyDim: 16, kind: 'ordinary', sinks: kind };
  }
}

/** Values narrower and wider than keys. */
function* wideValueFacts(): Generator<attention.AttentionFacts> {
  for (const [keyDim, valueDim] of [
    [192, 128],
    [24, 16],
    [16, 40],
    [33, 7],
    [5, 66],
  ]) {
    for (const kvHeads of [1, 2, 4]) {
      yield { keys: [130, 65, 2], heads: 4, kvHeads, keyDim, valueDim, kind: 'ordinary' };
      yield { keys: [130, 65, 2], heads: 4, kvHeads, keyDim, valueDim, kind: 'special', window: 66 };
    }
  }
}

/** One key for many heads, whose beginning is the value. */
function* latentFacts(): Generator<attention.AttentionFacts> {
  const latent = { kvHeads: 1, valuesInKeys: true };
  for (const heads of [1, 3, 4, 8, 9]) {
    for (const kind of ['ordinary', 'extreme', 'special'] as const) {
      yield { ...latent, keys: [130, 3], heads, keyDim: 40, valueDim: 32, kind };
      yield { ...latent, keys: [67, 64], heads, keyDim: 21, valueDim: 21, kind, sinks: kind };
      yield { ...latent, keys: [67, 66, 65], shared: true, heads, keyDim: 22, valueDim: 5, kind, window: 20 };
      yield { ...latent, keys: [150, 70], heads, keyDim: 100, valueDim: 96, kind, sinks: kind, window: 75 };
    }
  }
  yield { ...latent, keys: [140, 70], heads: 16, keyDim: 576, valueDim: 512, kind: 'ordinary' };
}

/** Selections smaller than, as large as and larger than the history. */
function* selectionFacts(): Generator<attention.AttentionFacts> {
  const keys = [300, 130, 64, 7, 1];
  for (const selected of [1, 2, 5, 16, 17, 64, 131]) {
    for (const kind of ['ordinary', 'extreme', 'special'] as const) {
      yield { keys, heads: 4, kvHeads: 2, keyDim: 24, kind, selected };
      yield { keys, heads: 5, kvHeads: 1, keyDim: 48, valueDim: 32, kind, selected, valuesInKeys: true };
      yield { keys, heads: 13, kvHeads: 1, keyDim: 81, valueDim: 80, kind, selected, valuesInKeys: true };
    }
    yield { keys, heads: 2, kvHeads: 2, keyDim: 17, valueDim: 9, kind: 'ordinary', selected, sinks: 'ordinary' };
  }
  yield { keys: [200, 199, 150], shared: true, heads: 3, kvHeads: 3, keyDim: 16, kind: 'ordinary', selected: 100 };
}

function* indexShapes(): Generator<attention.IndexFacts> {
  for (const layout of LAYOUTS) {
    for (const headDim of [1, 8, 15, 16, 33, 128]) {
      for (const heads of [1, 2, 3, 4, 7]) {
        yield { keys: [65, 2, 64], heads, headDim, kind: pick(ALL, heads + headDim), layout };
      }
      for (const kind of ALL) yield { keys: [3, 66], heads: 5, headDim, kind, layout };
    }
    yield { keys: [300, 129, 1], heads: 64, headDim: 128, kind: 'ordinary', layout };
  }
}

function* selectShapes(): Generator<attention.SelectFacts> {
  for (const k of [1, 2, 7, 64, 200]) {
    for (const kind of ALL) yield { keys: [1, k - 1 || 1, k, k + 1, 3 * k + 5, 300], k, kind };
  }
  yield { keys: [5000], k: 2048, kind: 'ordinary' };
  yield { keys: [5000, 4999], k: 2048, kind: 'steps' };
  yield { keys: [3000], k: 1000, kind: 'extreme' };
}

export const ATTENTION_SCENES: Scenes<'attention' | 'indexScores' | 'selectKeys'> = {
  attention: () => each(attentionShapes(), attention.attentionCase),
  indexScores: () => each(indexShapes(), attention.indexScoresCase),
  selectKeys: () => each(selectShapes(), attention.selectKeysCase),
};

function* topKShapes(): Generator<routing.TopKFacts> {
  let i = 0;
  for (const columns of [1, 8, 21, 64, 128, 300]) {
    for (const k of [1, 2, 5, 8, 17].filter(count => count <= columns)) {
      for (const kind of ALL) {
        for (const weightRule of [0, 1, 2]) {
          yield { rows: 2, columns, k, kind, weightRule };
          const bias = pick(ALL, ++i);
          yield { rows: 2, columns, k, kind, weightRule, bias, factor: pick([2.5, 0.3, 1, Number.NaN], i) };
        }
      }
    }
  }
  yield* groupShapes();
}

function* groupShapes(): Generator<routing.TopKFacts> {
  let i = 0;
  for (const [columns, groups, keptGroups, k] of [
    [16, 8, 4, 8],
    [64, 8, 3, 6],
    [60, 4, 1, 5],
    [21, 7, 7, 9],
    [256, 8, 4, 8],
    [128, 64, 33, 17],
  ]) {
    for (const kind of ALL) {
      for (const groupRule of [0, 1]) {
        const facts = { rows: 3, columns, k, groups, keptGroups, groupRule, kind };
        yield { ...facts, weightRule: i++ % 3 };
        yield { ...facts, weightRule: 1, factor: 2.5, bias: pick(ALL, i) };
      }
    }
  }
}

export const ROUTING_SCENES: Scenes<'topK' | 'combine'> = {
  topK: () => each(topKShapes(), routing.topKCase),
  combine: () =>
    each(
      [...rowShapes(ALL)].flatMap(({ columns, kind }, i) => [
        { rows: 2, columns, kind, k: 1 + (i % 9) },
        { rows: 2, columns, kind, k: i % 4, shared: true },
      ]),
      routing.combineCase,
    ),
};

function* convShapes(): Generator<delta.ConvFacts> {
  for (const taps of [1, 2, 3, 4, 5]) {
    for (const rows of [1, 2, 3, 4, 9]) {
      for (const channels of [1, 3, 4, 18, 67]) yield { rows, channels, taps, kind: pick(ALL, rows + channels) };
    }
  }
  for (const kind of ALL) for (const rows of [1, 2, 6]) yield { rows, channels: 37, taps: 4, kind };
}

function* deltaShapes(): Generator<delta.DeltaFacts> {
  for (const kind of ALL) {
    for (const [keyDim, valueDim] of [
      [16, 16],
      [20, 36],
      [3, 5],
      [33, 67],
    ]) {
      yield { rows: 3, keyHeads: 2, valueHeads: 6, keyDim, valueDim, kind };
      yield { rows: 2, keyHeads: 3, valueHeads: 6, keyDim, valueDim, kind, tiled: true };
    }
  }
  yield { rows: 2, keyHeads: 1, valueHeads: 1, keyDim: 128, valueDim: 128, kind: 'ordinary' };
  yield { rows: 1, keyHeads: 1, valueHeads: 3, keyDim: 1, valueDim: 1, kind: 'ordinary' };
  yield { rows: 20, keyHeads: 2, valueHeads: 2, keyDim: 24, valueDim: 40, kind: 'wide' };
}

export const DELTA_SCENES: Scenes<'convSilu' | 'deltaGates' | 'deltaRule'> = {
  convSilu: () => each(convShapes(), delta.convSiluCase),
  deltaGates: () =>
    each(
      [1, 3, 4, 17, 48].flatMap(heads =>
        ALL.flatMap(kind => [
          { rows: 3, heads, kind },
          { rows: 3, heads, kind, inPlace: true },
          { rows: 2, heads, kind, rates: true },
        ]),
      ),
      delta.deltaGatesCase,
    ),
  deltaRule: () => each(deltaShapes(), delta.deltaRuleCase),
};
