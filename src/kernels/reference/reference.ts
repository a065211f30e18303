/** The oracle: every kernel in plain TypeScript, one float32 operation at a time. Slow on purpose. */

import { roundToBfloat } from '../../quant/floats.ts';
import { LAYOUT_ID } from '../../quant/layouts.ts';
import { type Kernels, KV_BLOCK } from '../kernels.ts';
import { decodeElement, tileScale } from './decode.ts';
import { exp32, roundEven, silu32, tree16 } from './math.ts';

const f = Math.fround;
const SMALLEST_NORMAL = 2 ** -126;

export function createReferenceKernels(memory: WebAssembly.Memory): Kernels {
  const buffer = memory.buffer;
  const f32 = new Float32Array(buffer);
  const i32 = new Int32Array(buffer);
  const i8 = new Int8Array(buffer);
  const bytes = new DataView(buffer);
  const lanes = new Float32Array(16);

  const rowOf = (index: number, i: number): number => (index === 0 ? i : i32[(index >>> 2) + i]);

  /** Sum over 16 lanes of the products term(i), i < count. */
  const reduce16 = (count: number, term: (i: number) => number): number => {
    lanes.fill(0);
    for (let i = 0; i < count; i++) lanes[i & 15] = lanes[i & 15] + f(term(i));
    return tree16(lanes);
  };

  return {
    name: 'reference',

    quantise(x, columns, codes, scales, sums, row0, row1) {
      const groups = (columns + 63) >> 6;
      for (let row = row0; row < row1; row++) {
        for (let g = 0; g < groups; g++) {
          const from = (x >>> 2) + row * columns + g * 64;
          const count = Math.min(64, columns - g * 64);
          const code = codes + (row * groups + g) * 64;
          let max = 0;
          let finite = true;
          for (let i = 0; i < count; i++) {
            const magnitude = Math.abs(f32[from + i]);
            if (!(magnitude < Number.POSITIVE_INFINITY)) finite = false;
            if (magnitude > max) max = magnitude;
          }
          let scale = f(max / 127);
          if (scale < SMALLEST_NORMAL) scale = 0;
          let sum = 0;
          for (let i = 0; i < 64; i++) {
            let q = 0;
            if (finite && scale > 0 && i < count) {
              q = Math.max(-127, Math.min(127, roundEven(f(f32[from + i] / scale))));
            }
            i8[code + i] = q;
            sum += q;
          }
          f32[(scales >>> 2) + row * groups + g] = finite ? scale : Number.NaN;
          i32[(sums >>> 2) + row * groups + g] = sum;
        }
      }
    },

    matmulTiles(layout, w, rows, groups, codes, scales, _sums, xIndex, y, yStride, yIndex, n, panel0, panel1) {
      for (let i = 0; i < n; i++) {
        const xRow = rowOf(xIndex, i);
        const out = (y >>> 2) + rowOf(yIndex, i) * yStride;
        for (let row = panel0 * 16; row < Math.min(panel1 * 16, rows); row++) {
          let sum = 0;
          for (let g = 0; g < groups; g++) {
            let dot = 0;
            for (let c = 0; c < 64; c++) {
              dot +=
                decodeElement(bytes, layout, w, groups, row, g * 64 + c) * i8[codes + (xRow * groups + g) * 64 + c];
            }
            const scale = f(tileScale(bytes, layout, w, groups, row, g) * f32[(scales >>> 2) + xRow * groups + g]);
            sum = f(sum + f(f(dot) * scale));
          }
          f32[out + row] = sum;
        }
      }
    },

    matmulFloat(layout, w, columns, x, xStride, xIndex, y, yStride, yIndex, n, row0, row1) {
      for (let i = 0; i < n; i++) {
        const from = (x >>> 2) + rowOf(xIndex, i) * xStride;
        const out = (y >>> 2) + rowOf(yIndex, i) * yStride;
        for (let row = row0; row < row1; row++) {
          f32[out + row] = reduce16(columns, c => decodeElement(bytes, layout, w, columns, row, c) * f32[from + c]);
        }
      }
    },

    matmulExact(layout, w, columns, x, xStride, xIndex, y, yStride, yIndex, n, scratch, row0, row1) {
      const groups = (columns + 63) >> 6;
      for (let row = row0; row < row1; row++) {
        for (let c = 0; c < columns; c++) {
          const code = decodeElement(bytes, layout, w, groups, row, c);
          f32[(scratch >>> 2) + c] = code * tileScale(bytes, layout, w, groups, row, c >> 6);
        }
        for (let i = 0; i < n; i++) {
          const from = (x >>> 2) + rowOf(xIndex, i) * xStride;
          const sum = reduce16(columns, c => f32[(scratch >>> 2) + c] * f32[from + c]);
          f32[(y >>> 2) + rowOf(yIndex, i) * yStride + row] = sum;
        }
      }
    },

    embed(layout, w, columns, ids, y, row0, row1) {
      const groups = (columns + 63) >> 6;
      for (let i = row0; i < row1; i++) {
        const row = i32[(ids >>> 2) + i];
        for (let c = 0; c < columns; c++) {
          const tile = layout >= LAYOUT_ID.q4g64;
          const value = decodeElement(bytes, layout, w, tile ? groups : columns, row, c);
          f32[(y >>> 2) + i * columns + c] = tile ? value * tileScale(bytes, layout, w, groups, row, c >> 6) : value;
        }
      }
    },

    rmsNorm(x, weight, y, columns, eps, row0, row1) {
      for (let row = row0; row < row1; row++) {
        const from = (x >>> 2) + row * columns;
        const mean = f(reduce16(columns, i => f32[from + i] * f32[from + i]) / columns);
        const factor = f(1 / f(Math.sqrt(f(mean + f(eps)))));
        for (let i = 0; i < columns; i++) {
          f32[(y >>> 2) + row * columns + i] = f32[(weight >>> 2) + i] * f(f32[from + i] * factor);
        }
      }
    },

    rope(x, heads, headDim, rotaryDim, table, positions, row0, row1) {
      const half = rotaryDim >> 1;
      for (let row = row0; row < row1; row++) {
        const cos = (table >>> 2) + i32[(positions >>> 2) + row] * rotaryDim;
        for (let head = 0; head < heads; head++) {
          const a = (x >>> 2) + (row * heads + head) * headDim;
          for (let i = 0; i < half; i++) {
            const low = f32[a + i];
            const high = f32[a + half + i];
            const c = f32[cos + i];
            const s = f32[cos + half + i];
            f32[a + i] = f(low * c) - f(high * s);
            f32[a + half + i] = f(high * c) + f(low * s);
          }
        }
      }
    },

    attention(q, out, heads, kvHeads, headDim, scale, positions, tables, layout, scratch, item0, item1) {
      const kvColumns = kvHeads * headDim;
      const scores = scratch >>> 2;
      for (let item = item0; item < item1; item++) {
        const row = Math.floor(item / heads);
        const kvHead = Math.floor((item - row * heads) / (heads / kvHeads));
        const keys = i32[(positions >>> 2) + row] + 1;
        const table = i32[(tables >>> 2) + row] >>> 2;
        const query = (q >>> 2) + item * headDim;
        const to = (out >>> 2) + item * headDim;
        /** Element i of this head in the key of a position (first = 0) or in its value (first = KV_BLOCK). */
        const element = (key: number, first: number, i: number): number => {
          const block = i32[table + Math.floor(key / KV_BLOCK)] >>> 0;
          return decodeElement(bytes, layout, block, kvColumns, first + (key % KV_BLOCK), kvHead * headDim + i);
        };
        let max = Number.NEGATIVE_INFINITY;
        for (let key = 0; key < keys; key++) {
          const score = f(reduce16(headDim, i => f32[query + i] * element(key, 0, i)) * f(scale));
          f32[scores + key] = score;
          if (score > max) max = score;
        }
        for (let key = 0; key < keys; key++) f32[scores + key] = exp32(f(f32[scores + key] - max));
        const sum = reduce16(keys, key => f32[scores + key]);
        for (let i = 0; i < headDim; i++) {
          let value = 0;
          for (let key = 0; key < keys; key++) {
            value = f(value + f(f32[scores + key] * element(key, KV_BLOCK, i)));
          }
          f32[to + i] = value / sum;
        }
      }
    },

    swiglu(gate, up, y, element0, element1) {
      for (let i = element0; i < element1; i++) {
        f32[(y >>> 2) + i] = silu32(f32[(gate >>> 2) + i]) * f32[(up >>> 2) + i];
      }
    },

    add(x, y, element0, element1) {
      for (let i = element0; i < element1; i++) f32[(x >>> 2) + i] += f32[(y >>> 2) + i];
    },

    scale(x, factor, element0, element1) {
      for (let i = element0; i < element1; i++) f32[(x >>> 2) + i] *= f(factor);
    },

    clamp(x, limit, element0, element1) {
      for (let i = element0; i < element1; i++) {
        const value = f32[(x >>> 2) + i];
        f32[(x >>> 2) + i] = value > f(limit) ? limit : value < -f(limit) ? -limit : value;
      }
    },

    toBf16(x, y, element0, element1) {
      for (let i = element0; i < element1; i++) bytes.setUint16(y + 2 * i, roundToBfloat(i32[(x >>> 2) + i]), true);
    },

    softmax(x, y, columns, row0, row1) {
      for (let row = row0; row < row1; row++) {
        const from = (x >>> 2) + row * columns;
        const to = (y >>> 2) + row * columns;
        let max = Number.NEGATIVE_INFINITY;
        for (let i = 0; i < columns; i++) if (f32[from + i] > max) max = f32[from + i];
        for (let i = 0; i < columns; i++) f32[to + i] = exp32(f(f32[from + i] - max));
        const sum = reduce16(columns, i => f32[to + i]);
        for (let i = 0; i < columns; i++) f32[to + i] = f32[to + i] / sum;
      }
    },

    topK(x, columns, k, ids, weights, normalise, row0, row1) {
      for (let row = row0; row < row1; row++) {
        const from = (x >>> 2) + row * columns;
        const to = row * k;
        for (let slot = 0; slot < k; slot++) {
          let best = -1;
          for (let i = 0; i < columns; i++) {
            let taken = false;
            for (let s = 0; s < slot; s++) if (i32[(ids >>> 2) + to + s] === i) taken = true;
            if (!taken && (best < 0 || f32[from + i] > f32[from + best])) best = i;
          }
          i32[(ids >>> 2) + to + slot] = best;
          f32[(weights >>> 2) + to + slot] = f32[from + best];
        }
        if (normalise) {
          const sum = reduce16(k, slot => f32[(weights >>> 2) + to + slot]);
          for (let slot = 0; slot < k; slot++) f32[(weights >>> 2) + to + slot] /= sum;
        }
      }
    },

    combine(x, parts, weights, k, columns, row0, row1) {
      for (let row = row0; row < row1; row++) {
        for (let i = 0; i < columns; i++) {
          let sum = 0;
          for (let slot = 0; slot < k; slot++) {
            const product = f(
              f32[(weights >>> 2) + row * k + slot] * f32[(parts >>> 2) + (row * k + slot) * columns + i],
            );
            sum = slot === 0 ? product : f(sum + product);
          }
          f32[(x >>> 2) + row * columns + i] += sum;
        }
      }
    },

    allFinite(x, elements) {
      for (let i = 0; i < elements; i++) if (!Number.isFinite(f32[(x >>> 2) + i])) return 0;
      return 1;
    },
  };
}
