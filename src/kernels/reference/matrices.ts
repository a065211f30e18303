/** Products with matrices, and reading their rows. */

import { isBlockLayoutId, isTileLayoutId } from '../../quant/layouts.ts';
import type { Kernels } from '../kernels.ts';
import { decodeBlockRow } from './blocks.ts';
import { decodeElement, tileScale } from './decode.ts';
import { roundEven } from './math.ts';
import type { ReferenceMemory } from './memory.ts';

const f = Math.fround;
const SMALLEST_NORMAL = 2 ** -126;

type MatrixKernels = Pick<Kernels, 'quantise' | 'matmulTiles' | 'matmulFloat' | 'matmulExact' | 'embed'>;

export function matrixKernels({ f32, i32, i8, bytes, reduce16, rowOf }: ReferenceMemory): MatrixKernels {
  /** Row of any layout as float32, to the words from `to` on. */
  const decodeRow = (layout: number, w: number, columns: number, row: number, to: number): void => {
    if (isBlockLayoutId(layout)) {
      decodeBlockRow(bytes, layout, w, columns, row, f32.subarray(to, to + columns));
      return;
    }
    const tile = isTileLayoutId(layout);
    const groups = (columns + 63) >> 6;
    for (let c = 0; c < columns; c++) {
      const value = decodeElement(bytes, layout, w, tile ? groups : columns, row, c);
      f32[to + c] = tile ? value * tileScale(bytes, layout, w, groups, row, c >> 6) : value;
    }
  };

  return {
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
      for (let row = row0; row < row1; row++) {
        decodeRow(layout, w, columns, row, scratch >>> 2);
        for (let i = 0; i < n; i++) {
          const from = (x >>> 2) + rowOf(xIndex, i) * xStride;
          const sum = reduce16(columns, c => f32[(scratch >>> 2) + c] * f32[from + c]);
          f32[(y >>> 2) + rowOf(yIndex, i) * yStride + row] = sum;
        }
      }
    },

    embed(layout, w, columns, ids, y, row0, row1) {
      for (let i = row0; i < row1; i++) {
        decodeRow(layout, w, columns, i32[(ids >>> 2) + i], (y >>> 2) + i * columns);
      }
    },
  };
}
