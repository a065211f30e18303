/** Attention over blocks of keys and values, and the choice of keys by an indexer. */

import { type Kernels, KV_BLOCK } from '../kernels.ts';
import { decodeElement } from './decode.ts';
import { exp32 } from './math.ts';
import type { ReferenceMemory } from './memory.ts';

const f = Math.fround;

type AttentionKernels = Pick<Kernels, 'attention' | 'indexScores' | 'selectKeys'>;

export function attentionKernels({ f32, i32, bytes, reduce16 }: ReferenceMemory): AttentionKernels {
  const positionOf = (positions: number, row: number): number => i32[(positions >>> 2) + row];
  const blockOf = (tables: number, row: number, key: number): number =>
    i32[(i32[(tables >>> 2) + row] >>> 2) + Math.floor(key / KV_BLOCK)] >>> 0;

  return {
    attention(
      q,
      out,
      heads,
      kvHeads,
      keyDim,
      valueDim,
      scale,
      window,
      sinks,
      positions,
      tables,
      layout,
      valuesInKeys,
      selection,
      selectionStride,
      scratch,
      item0,
      item1,
    ) {
      const keyColumns = kvHeads * keyDim;
      const valueColumns = kvHeads * valueDim;
      const halfBytes = KV_BLOCK * keyColumns * (layout === 0 ? 4 : 2);
      const scores = scratch >>> 2;
      for (let item = item0; item < item1; item++) {
        const row = Math.floor(item / heads);
        const head = item - row * heads;
        const kvHead = Math.floor(head / (heads / kvHeads));
        const last = positionOf(positions, row);
        const first = window > 0 ? Math.max(0, last - window + 1) : 0;
        const chosen = (selection >>> 2) + row * selectionStride;
        const count = selection === 0 ? last - first + 1 : i32[chosen];
        const keyAt = (n: number): number => (selection === 0 ? first + n : i32[chosen + 1 + n]);
        const query = (q >>> 2) + item * keyDim;
        const keyElement = (key: number, i: number): number =>
          decodeElement(bytes, layout, blockOf(tables, row, key), keyColumns, key % KV_BLOCK, kvHead * keyDim + i);
        const valueElement = (key: number, i: number): number =>
          valuesInKeys
            ? keyElement(key, i)
            : decodeElement(
                bytes,
                layout,
                blockOf(tables, row, key) + halfBytes,
                valueColumns,
                key % KV_BLOCK,
                kvHead * valueDim + i,
              );
        let max = sinks === 0 ? Number.NEGATIVE_INFINITY : f32[(sinks >>> 2) + head];
        for (let n = 0; n < count; n++) {
          const score = f(reduce16(keyDim, i => f32[query + i] * keyElement(keyAt(n), i)) * f(scale));
          f32[scores + n] = score;
          if (score > max) max = score;
        }
        for (let n = 0; n < count; n++) f32[scores + n] = exp32(f(f32[scores + n] - max));
        let sum = reduce16(count, n => f32[scores + n], keyAt);
        if (sinks !== 0) sum = f(sum + exp32(f(f32[(sinks >>> 2) + head] - max)));
        for (let i = 0; i < valueDim; i++) {
          let value = 0;
          for (let n = 0; n < count; n++) value = f(value + f(f32[scores + n] * valueElement(keyAt(n), i)));
          f32[(out >>> 2) + item * valueDim + i] = value / sum;
        }
      }
    },

    indexScores(q, weights, heads, headDim, scale, positions, tables, layout, scores, stride, blocks, item0, item1) {
      for (let item = item0; item < item1; item++) {
        const row = Math.floor(item / blocks);
        const first = (item - row * blocks) * KV_BLOCK;
        const end = Math.min(first + KV_BLOCK, positionOf(positions, row) + 1);
        for (let key = first; key < end; key++) {
          const block = blockOf(tables, row, key);
          let sum = 0;
          for (let head = 0; head < heads; head++) {
            const query = (q >>> 2) + (row * heads + head) * headDim;
            const dot = reduce16(
              headDim,
              i => f32[query + i] * decodeElement(bytes, layout, block, headDim, key % KV_BLOCK, i),
            );
            const score = f(dot * f(scale));
            // NaN counts as 0, which Math.max would not do
            const positive = score > 0 ? score : +0;
            sum = f(sum + f(f32[(weights >>> 2) + row * heads + head] * positive));
          }
          f32[(scores >>> 2) + row * stride + key] = sum;
        }
      }
    },

    selectKeys(scores, stride, k, positions, selection, selectionStride, _scratch, row0, row1) {
      for (let row = row0; row < row1; row++) {
        const from = (scores >>> 2) + row * stride;
        const to = (selection >>> 2) + row * selectionStride;
        const keys = Array.from({ length: positionOf(positions, row) + 1 }, (_, key) => key);
        const score = (key: number): number => {
          const value = f32[from + key];
          return Number.isNaN(value) ? Number.NEGATIVE_INFINITY : value;
        };
        const isBelow = (key: number): number => (Number.isNaN(f32[from + key]) ? 1 : 0);
        const order = (a: number, b: number): number => {
          const [x, y] = [score(a), score(b)];
          if (x !== y) return x > y ? -1 : 1;
          return isBelow(a) - isBelow(b) || a - b;
        };
        const chosen = [...keys]
          .sort(order)
          .slice(0, k)
          .sort((a, b) => a - b);
        i32[to] = chosen.length;
        i32.set(chosen, to + 1);
      }
    },
  };
}
