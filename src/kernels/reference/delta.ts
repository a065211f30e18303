/** Linear attention: the short convolution before it, its gates and the delta rule. */

import type { Kernels } from '../kernels.ts';
import { exp32, sigmoid32, silu32, softplus32 } from './math.ts';
import type { ReferenceMemory } from './memory.ts';

const f = Math.fround;
/** Added to the sum of squares of a query or key before its root is taken. */
const L2_EPS = f(1e-6);

export function deltaKernels({
  f32,
  reduce16,
}: ReferenceMemory): Pick<Kernels, 'convSilu' | 'deltaGates' | 'deltaRule'> {
  return {
    convSilu(u, tail, w, y, channels, taps, rows, channel0, channel1) {
      const before = taps - 1;
      for (let c = channel0; c < channel1; c++) {
        /** Input at row t; negative rows come from the tail. */
        const input = (t: number): number =>
          t < 0 ? f32[(tail >>> 2) + (before + t) * channels + c] : f32[(u >>> 2) + t * channels + c];
        for (let t = 0; t < rows; t++) {
          let sum = 0;
          for (let j = 0; j < taps; j++) sum = f(sum + f(f32[(w >>> 2) + c * taps + j] * input(t - before + j)));
          f32[(y >>> 2) + t * channels + c] = silu32(sum);
        }
        const last = Array.from({ length: before }, (_, i) => input(rows - before + i));
        for (let i = 0; i < before; i++) f32[(tail >>> 2) + i * channels + c] = last[i];
      }
    },

    deltaGates(a, b, rates, logarithms, dtBias, decay, beta, heads, row0, row1) {
      for (let row = row0; row < row1; row++) {
        for (let h = 0; h < heads; h++) {
          const i = row * heads + h;
          const step = softplus32(f(f32[(a >>> 2) + i] + f32[(dtBias >>> 2) + h]));
          const given = f32[(rates >>> 2) + h];
          const rate = logarithms ? -exp32(given) : given;
          f32[(decay >>> 2) + i] = exp32(f(rate * step));
          f32[(beta >>> 2) + i] = sigmoid32(f32[(b >>> 2) + i]);
        }
      }
    },

    deltaRule(
      qkv,
      decay,
      beta,
      state,
      out,
      keyHeads,
      valueHeads,
      tiled,
      keyDim,
      valueDim,
      rows,
      scratch,
      head0,
      head1,
    ) {
      const stride = 2 * keyHeads * keyDim + valueHeads * valueDim;
      const query = scratch >>> 2;
      const key = query + keyDim;
      const change = key + keyDim;
      const root = f(1 / f(Math.sqrt(keyDim)));
      const normalise = (from: number, to: number, factor: number): void => {
        const square = reduce16(keyDim, i => f32[from + i] * f32[from + i]);
        const inverse = f(1 / f(Math.sqrt(f(square + L2_EPS))));
        for (let i = 0; i < keyDim; i++) f32[to + i] = f(f32[from + i] * inverse) * factor;
      };
      for (let head = head0; head < head1; head++) {
        const keyHead = tiled ? head % keyHeads : Math.floor(head / (valueHeads / keyHeads));
        const matrix = (state >>> 2) + head * keyDim * valueDim;
        /** sum over i of vector_i * S_i, in column c */
        const column = (vector: number, c: number): number => {
          let sum = 0;
          for (let i = 0; i < keyDim; i++) sum = f(sum + f(f32[vector + i] * f32[matrix + i * valueDim + c]));
          return sum;
        };
        for (let row = 0; row < rows; row++) {
          const at = (qkv >>> 2) + row * stride;
          const value = at + 2 * keyHeads * keyDim + head * valueDim;
          normalise(at + keyHead * keyDim, query, root);
          normalise(at + (keyHeads + keyHead) * keyDim, key, 1);
          const gate = row * valueHeads + head;
          for (let i = 0; i < keyDim * valueDim; i++) f32[matrix + i] *= f32[(decay >>> 2) + gate];
          for (let c = 0; c < valueDim; c++) {
            f32[change + c] = f32[(beta >>> 2) + gate] * f(f32[value + c] - column(key, c));
          }
          for (let i = 0; i < keyDim; i++) {
            for (let c = 0; c < valueDim; c++) f32[matrix + i * valueDim + c] += f(f32[key + i] * f32[change + c]);
          }
          for (let c = 0; c < valueDim; c++) {
            f32[(out >>> 2) + (row * valueHeads + head) * valueDim + c] = column(query, c);
          }
        }
      }
    },
  };
}
