/** Kernels on rows and elements of activations. */

import { roundToBfloat } from '../../quant/floats.ts';
import type { Kernels } from '../kernels.ts';
import { exp32, sigmoid32, silu32 } from './math.ts';
import type { ReferenceMemory } from './memory.ts';

const f = Math.fround;

type RowKernels = Pick<
  Kernels,
  | 'rmsNorm'
  | 'layerNorm'
  | 'rope'
  | 'swiglu'
  | 'swigluClamped'
  | 'add'
  | 'addRows'
  | 'clamp'
  | 'toBf16'
  | 'softmax'
  | 'sigmoid'
  | 'sigmoidGate'
  | 'gateRows'
  | 'copyColumns'
  | 'allFinite'
>;

export function rowKernels({ f32, i32, bytes, reduce16 }: ReferenceMemory): RowKernels {
  return {
    rmsNorm(x, xStride, weight, y, yStride, columns, eps, row0, row1) {
      for (let row = row0; row < row1; row++) {
        const from = (x >>> 2) + row * xStride;
        const mean = f(reduce16(columns, i => f32[from + i] * f32[from + i]) / columns);
        const factor = f(1 / f(Math.sqrt(f(mean + f(eps)))));
        for (let i = 0; i < columns; i++) {
          f32[(y >>> 2) + row * yStride + i] = f32[(weight >>> 2) + i] * f(f32[from + i] * factor);
        }
      }
    },

    layerNorm(x, stride, weight, bias, columns, eps, row0, row1) {
      for (let row = row0; row < row1; row++) {
        const at = (x >>> 2) + row * stride;
        const mean = f(reduce16(columns, i => f32[at + i]) / columns);
        for (let i = 0; i < columns; i++) f32[at + i] = f32[at + i] - mean;
        const variance = f(reduce16(columns, i => f32[at + i] * f32[at + i]) / columns);
        const factor = f(1 / f(Math.sqrt(f(variance + f(eps)))));
        for (let i = 0; i < columns; i++) {
          const scaled = f(f(f32[at + i] * factor) * f32[(weight >>> 2) + i]);
          f32[at + i] = scaled + f32[(bias >>> 2) + i];
        }
      }
    },

    rope(x, heads, headDim, first, rotaryDim, adjacent, table, positions, row0, row1) {
      const half = rotaryDim >> 1;
      for (let row = row0; row < row1; row++) {
        const cos = (table >>> 2) + i32[(positions >>> 2) + row] * rotaryDim;
        for (let head = 0; head < heads; head++) {
          const at = (x >>> 2) + (row * heads + head) * headDim + first;
          for (let i = 0; i < half; i++) {
            const a = adjacent ? at + 2 * i : at + i;
            const b = adjacent ? a + 1 : a + half;
            const low = f32[a];
            const high = f32[b];
            const c = f32[cos + i];
            const s = f32[cos + half + i];
            f32[a] = f(low * c) - f(high * s);
            f32[b] = f(high * c) + f(low * s);
          }
        }
      }
    },

    swiglu(gate, up, y, element0, element1) {
      for (let i = element0; i < element1; i++) {
        f32[(y >>> 2) + i] = silu32(f32[(gate >>> 2) + i]) * f32[(up >>> 2) + i];
      }
    },

    swigluClamped(gate, up, y, limit, alpha, element0, element1) {
      const clamped = (value: number, least: number): number => (value > f(limit) ? f(limit) : Math.max(value, least));
      for (let i = element0; i < element1; i++) {
        const g = clamped(f32[(gate >>> 2) + i], Number.NEGATIVE_INFINITY);
        const u = clamped(f32[(up >>> 2) + i], -f(limit));
        f32[(y >>> 2) + i] = f(g * sigmoid32(f(f(alpha) * g))) * f(u + 1);
      }
    },

    add(x, y, element0, element1) {
      for (let i = element0; i < element1; i++) f32[(x >>> 2) + i] += f32[(y >>> 2) + i];
    },

    addRows(x, bias, columns, row0, row1) {
      for (let row = row0; row < row1; row++) {
        for (let i = 0; i < columns; i++) f32[(x >>> 2) + row * columns + i] += f32[(bias >>> 2) + i];
      }
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

    sigmoid(x, y, element0, element1) {
      for (let i = element0; i < element1; i++) f32[(y >>> 2) + i] = sigmoid32(f32[(x >>> 2) + i]);
    },

    sigmoidGate(x, gate, element0, element1) {
      for (let i = element0; i < element1; i++) f32[(x >>> 2) + i] *= sigmoid32(f32[(gate >>> 2) + i]);
    },

    gateRows(x, gates, columns, row0, row1) {
      for (let row = row0; row < row1; row++) {
        const factor = sigmoid32(f32[(gates >>> 2) + row]);
        for (let i = 0; i < columns; i++) f32[(x >>> 2) + row * columns + i] *= factor;
      }
    },

    copyColumns(x, xStride, y, yStride, width, item0, item1) {
      for (let item = item0; item < item1; item++) {
        const from = (x >>> 2) + item * xStride;
        f32.copyWithin((y >>> 2) + item * yStride, from, from + width);
      }
    },

    allFinite(x, elements) {
      for (let i = 0; i < elements; i++) if (!Number.isFinite(f32[(x >>> 2) + i])) return 0;
      return 1;
    },
  };
}
