/** Attention and the choice of keys that can be made wrong in one way at a time. */

import { type Kernels, KV_BLOCK } from '../../kernels.ts';
import { decodeElement } from '../../reference/decode.ts';
import { exp32 } from '../../reference/math.ts';
import { bytes, f, f32, i32, laneProducts, largest, reduce, type Sum } from '../test-support.ts';

interface AttentionFlaws {
  score?: Sum;
  /** Sum of the exponentials, of which the n-th belongs to the key at positions[n]. */
  expSum?: (values: Float32Array, positions: readonly number[]) => number;
  kvHead?: (head: number, kvHeads: number, heads: number) => number;
  fused?: boolean;
  early?: boolean;
  backwards?: boolean;
  /** What the layout of keys and values is taken for. */
  readAs?: (layout: number) => number;
  /** Joins the sum of a sink's head and what the sink gives. */
  addSink?: (sum: number, sink: number) => number;
  /** The sink does not take part in the maximum. */
  lowSink?: boolean;
}

export const sumByPosition = (values: Float32Array, positions: readonly number[]): number =>
  reduce(
    values.length,
    n => values[n],
    undefined,
    n => positions[n] & 15,
  );

export function attentionWith(flaws: AttentionFlaws): Kernels['attention'] {
  const { score = laneProducts, expSum = sumByPosition, early, fused, backwards, lowSink } = flaws;
  const { kvHead = (head, kvHeads, heads) => Math.floor((head * kvHeads) / heads) } = flaws;
  const { readAs = layout => layout, addSink = (sum, sink) => f(sum + sink) } = flaws;
  return (q, out, heads, kvHeads, keyDim, valueDim, scale, window, sinks, positions, tables, layout, ...rest) => {
    const [valuesInKeys, selection, selectionStride, scratch, item0, item1] = rest;
    for (let item = item0; item < item1; item++) {
      const row = Math.floor(item / heads);
      const head = item % heads;
      const keys = keysOf(i32[(positions >> 2) + row], window, selection && (selection >> 2) + row * selectionStride);
      const element = (key: number, dim: number, values: number, i: number): number => {
        const block = i32[(i32[(tables >> 2) + row] >> 2) + Math.floor(key / KV_BLOCK)];
        const skipped = values * KV_BLOCK * kvHeads * keyDim * (readAs(layout) === 0 ? 4 : 2);
        const column = kvHead(head, kvHeads, heads) * dim + i;
        return decodeElement(bytes, readAs(layout), block + skipped, kvHeads * dim, key % KV_BLOCK, column);
      };
      const e = f32.subarray(scratch >> 2, (scratch >> 2) + keys.length);
      const query = (q >> 2) + item * keyDim;
      for (const [n, key] of keys.entries()) {
        e[n] = f(score(keyDim, i => f32[query + i] * element(key, keyDim, 0, i))) * f(scale);
      }
      const sink = f32[(sinks >> 2) + head];
      const max = sinks && !lowSink ? largest(Float32Array.of(sink, largest(e))) : largest(e);
      for (let n = 0; n < keys.length; n++) e[n] = exp32(f(e[n] - max));
      let sum = expSum(e, keys);
      if (sinks) sum = addSink(sum, exp32(f(sink - max)));
      for (let i = 0; i < valueDim; i++) {
        let value = 0;
        for (let step = 0; step < keys.length; step++) {
          const n = backwards ? keys.length - 1 - step : step;
          const weight = early ? f(e[n] / sum) : e[n];
          const v = valuesInKeys ? element(keys[n], keyDim, 0, i) : element(keys[n], valueDim, 1, i);
          value = f(value + (fused ? weight * v : f(weight * v)));
        }
        f32[(out >> 2) + item * valueDim + i] = early ? value : value / sum;
      }
    }
  };
}

/** Positions that a row at `last` sees; chosen: the word of its selection, or 0. */
function keysOf(last: number, window: number, chosen: number): number[] {
  if (chosen) return [...i32.subarray(chosen + 1, chosen + 1 + i32[chosen])];
  const first = window ? Math.max(0, last + 1 - window) : 0;
  return Array.from({ length: last + 1 - first }, (_, n) => first + n);
}

interface IndexFlaws {
  dot?: Sum;
  positive?: (score: number) => number;
  order?: (step: number, heads: number) => number;
  fused?: boolean;
}

export function indexScoresWith(flaws: IndexFlaws): Kernels['indexScores'] {
  const { dot = laneProducts, positive = score => (score > 0 ? score : +0), order = step => step, fused } = flaws;
  return (q, weights, heads, headDim, scale, positions, tables, layout, scores, stride, blocks, item0, item1) => {
    for (let item = item0; item < item1; item++) {
      const row = Math.floor(item / blocks);
      const block = i32[(i32[(tables >> 2) + row] >> 2) + (item % blocks)];
      const first = (item % blocks) * KV_BLOCK;
      const end = Math.min(first + KV_BLOCK, i32[(positions >> 2) + row] + 1);
      for (let key = first; key < end; key++) {
        let sum = 0;
        for (let step = 0; step < heads; step++) {
          const at = row * heads + order(step, heads);
          const element = (i: number): number => decodeElement(bytes, layout, block, headDim, key - first, i);
          const product = f(dot(headDim, i => f32[(q >> 2) + at * headDim + i] * element(i)));
          const term = f32[(weights >> 2) + at] * positive(f(product * f(scale)));
          sum = f(sum + (fused ? term : f(term)));
        }
        f32[(scores >> 2) + row * stride + key] = sum;
      }
    }
  };
}

/** `before`: whether key a, with score x, goes before key b, with score y. */
export function selectKeysWith(
  before: (x: number, y: number, a: number, b: number) => boolean,
  ascending = true,
): Kernels['selectKeys'] {
  return (scores, stride, k, positions, selection, selectionStride, _scratch, row0, row1) => {
    for (let row = row0; row < row1; row++) {
      const values = f32.subarray(
        (scores >> 2) + row * stride,
        (scores >> 2) + row * stride + i32[(positions >> 2) + row] + 1,
      );
      const keys = [...values.keys()].sort((a, b) => (before(values[a], values[b], a, b) ? -1 : 1)).slice(0, k);
      const to = (selection >> 2) + row * selectionStride;
      i32[to] = keys.length;
      i32.set(ascending ? keys.sort((a, b) => a - b) : keys, to + 1);
    }
  };
}

/** NaN below everything. */
const rank = (x: number): number => (Number.isNaN(x) ? Number.NEGATIVE_INFINITY : x);
export const goesBefore = (x: number, y: number, a: number, b: number): boolean => {
  if (rank(x) !== rank(y)) return rank(x) > rank(y);
  return Number.isNaN(x) === Number.isNaN(y) ? a < b : Number.isNaN(y);
};
