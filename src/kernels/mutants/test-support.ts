/** Kernels that can be made wrong in one way at a time. Without a flaw they give the reference's bits. */

import { isBlockLayoutId } from '../../quant/layouts.ts';
import type { Kernels } from '../kernels.ts';
import { decodeBlockRow } from '../reference/blocks.ts';
import { decodeElement, tileScale } from '../reference/decode.ts';
import { exp32, tree16 } from '../reference/math.ts';
import type { Op } from '../scene.ts';
import { memory, reference } from '../test-support.ts';

export const f = Math.fround;
export const f32 = new Float32Array(memory.buffer);
export const i32 = new Int32Array(memory.buffer);
const i8 = new Int8Array(memory.buffer);
export const bytes = new DataView(memory.buffer);

/** The reference kernel with some arguments changed, by their place among them. */
export function changed<K extends Op>(op: K, changes: Readonly<Record<number, (value: number) => number>>): Kernels[K] {
  const call = (...args: number[]) =>
    (reference[op] as (...args: number[]) => unknown)(...args.map((value, i) => changes[i]?.(value) ?? value));
  return call as Kernels[K];
}

/** Sums of the terms in 16 lanes, joined by `join`; `lane` says where term i goes. */
export function reduce(
  count: number,
  term: (i: number) => number,
  join = tree16,
  lane = (i: number): number => i & 15,
): number {
  const lanes = new Float32Array(16);
  for (let i = 0; i < count; i++) lanes[lane(i)] += term(i);
  return join(lanes);
}

/** Neighbours first: lanes 0+1, 2+3, ... */
export function neighbourTree(lanes: Float32Array): number {
  for (let step = 1; step < 16; step *= 2) {
    for (let i = 0; i < 16; i += 2 * step) lanes[i] += lanes[i + step];
  }
  return lanes[0];
}

/** The product is not rounded before it is added. */
export function fusedSum(count: number, product: (i: number) => number): number {
  const lanes = new Float32Array(16);
  for (let i = 0; i < count; i++) lanes[i & 15] = f(lanes[i & 15] + product(i));
  return tree16(lanes);
}

const inOneLane = (): number => 0;
export type Sum = (count: number, product: (i: number) => number) => number;
export const SUMS: Record<string, Sum> = {
  'swapped tree': (count, product) => reduce(count, i => f(product(i)), neighbourTree),
  'fused multiply-add': fusedSum,
  'one lane': (count, product) => reduce(count, i => f(product(i)), tree16, inOneLane),
  'lanes in blocks': (count, product) =>
    reduce(
      count,
      i => f(product(i)),
      tree16,
      i => (i >> 2) & 15,
    ),
};

const rowOf = (index: number, i: number): number => (index === 0 ? i : i32[(index >> 2) + i]);

export function quantiseWith(
  code: (ratio: number) => number,
  smallest: number,
  onNonFinite: number,
): Kernels['quantise'] {
  return (x, columns, codes, scales, sums, row0, row1) => {
    const groups = (columns + 63) >> 6;
    for (let at = row0 * groups; at < row1 * groups; at++) {
      const from = (at % groups) * 64;
      const start = (x >> 2) + Math.floor(at / groups) * columns + from;
      const group = f32.subarray(start, start + Math.min(64, columns - from));
      const finite = group.every(Number.isFinite);
      const max = group.reduce((m, value) => Math.max(m, Math.abs(value)), 0);
      const scale = f(max / 127) < smallest ? 0 : f(max / 127);
      let sum = 0;
      for (let i = 0; i < 64; i++) {
        const q = finite && scale > 0 && i < group.length ? code(f(group[i] / scale)) : 0;
        i8[codes + at * 64 + i] = q;
        sum += q;
      }
      f32[(scales >> 2) + at] = finite ? scale : onNonFinite;
      i32[(sums >> 2) + at] = sum;
    }
  };
}

export const roundEven = (x: number): number => f(f(x + 12582912) - 12582912);

interface TileFlaws {
  zeroPoint?: number;
  column?: (c: number) => number;
  /** Joins the group's integer, both scales and the sum so far. */
  add?: (sum: number, dot: number, w: number, x: number) => number;
  backwards?: boolean;
}

export function tilesWith({ zeroPoint = 0, column = c => c, add, backwards }: TileFlaws): Kernels['matmulTiles'] {
  return (layout, w, rows, groups, codes, scales, _sums, xIndex, y, yStride, yIndex, n, panel0, panel1) => {
    for (let i = 0; i < n; i++) {
      const x = rowOf(xIndex, i) * groups;
      for (let row = panel0 * 16; row < Math.min(panel1 * 16, rows); row++) {
        let sum = 0;
        for (let step = 0; step < groups; step++) {
          const g = backwards ? groups - 1 - step : step;
          let dot = 0;
          for (let c = 0; c < 64; c++) {
            const code = decodeElement(bytes, layout, w, groups, row, g * 64 + column(c)) + zeroPoint;
            dot += code * i8[codes + (x + g) * 64 + c];
          }
          const wScale = tileScale(bytes, layout, w, groups, row, g);
          const xScale = f32[(scales >> 2) + x + g];
          sum = add ? add(sum, dot, wScale, xScale) : f(sum + f(dot * f(wScale * xScale)));
        }
        f32[(y >> 2) + rowOf(yIndex, i) * yStride + row] = sum;
      }
    }
  };
}

export function floatWith(sum: Sum): Kernels['matmulFloat'] {
  return (layout, w, columns, x, xStride, xIndex, y, yStride, yIndex, n, row0, row1) => {
    for (let i = 0; i < n; i++) {
      const from = (x >> 2) + rowOf(xIndex, i) * xStride;
      for (let row = row0; row < row1; row++) {
        const product = (c: number): number => decodeElement(bytes, layout, w, columns, row, c) * f32[from + c];
        f32[(y >> 2) + rowOf(yIndex, i) * yStride + row] = sum(columns, product);
      }
    }
  };
}

export function exactWith(sum: Sum): Kernels['matmulExact'] {
  return (layout, w, columns, x, xStride, xIndex, y, yStride, yIndex, n, scratch, row0, row1) => {
    const groups = (columns + 63) >> 6;
    const weights = f32.subarray(scratch >> 2, (scratch >> 2) + columns);
    for (let row = row0; row < row1; row++) {
      if (isBlockLayoutId(layout)) decodeBlockRow(bytes, layout, w, columns, row, weights);
      else {
        for (let c = 0; c < columns; c++) {
          const code = decodeElement(bytes, layout, w, groups, row, c);
          weights[c] = code * tileScale(bytes, layout, w, groups, row, c >> 6);
        }
      }
      for (let i = 0; i < n; i++) {
        const from = (x >> 2) + rowOf(xIndex, i) * xStride;
        f32[(y >> 2) + rowOf(yIndex, i) * yStride + row] = sum(columns, c => weights[c] * f32[from + c]);
      }
    }
  };
}

interface SoftmaxFlaws {
  exp?: (x: number) => number;
  sum?: (values: Float32Array) => number;
  divide?: (value: number, sum: number) => number;
}

export const laneSum = (values: Float32Array): number => reduce(values.length, i => values[i]);
export const plainSum = (values: Float32Array): number => values.reduce((sum, value) => f(sum + value), 0);

/** NaN is passed over, unlike Math.max. */
export function largest(values: Float32Array): number {
  let max = Number.NEGATIVE_INFINITY;
  for (const value of values) if (value > max) max = value;
  return max;
}

function softmaxInto(x: Float32Array, y: Float32Array, flaws: SoftmaxFlaws): void {
  const { exp = exp32, sum = laneSum, divide = (value, total) => value / total } = flaws;
  const max = largest(x);
  for (let i = 0; i < x.length; i++) y[i] = exp(f(x[i] - max));
  const total = sum(y);
  for (let i = 0; i < x.length; i++) y[i] = divide(y[i], total);
}

export function softmaxWith(flaws: SoftmaxFlaws): Kernels['softmax'] {
  return (x, y, columns, row0, row1) => {
    for (let row = row0; row < row1; row++) {
      const [from, to] = [(x >> 2) + row * columns, (y >> 2) + row * columns];
      softmaxInto(f32.subarray(from, from + columns), f32.subarray(to, to + columns), flaws);
    }
  };
}

export function rmsWith(
  output: (x: number, weight: number, factor: number) => number,
  factorOf: (mean: number, eps: number) => number,
  sum: Sum,
): Kernels['rmsNorm'] {
  return (x, xStride, weight, y, yStride, columns, eps, row0, row1) => {
    for (let row = row0; row < row1; row++) {
      const [from, to] = [(x >> 2) + row * xStride, (y >> 2) + row * yStride];
      const factor = factorOf(f(sum(columns, i => f32[from + i] * f32[from + i]) / columns), f(eps));
      for (let i = 0; i < columns; i++) f32[to + i] = output(f32[from + i], f32[(weight >> 2) + i], factor);
    }
  };
}

interface LayerNormFlaws {
  /** What is summed for the variance, of a value and the mean. */
  centred?: boolean;
  total?: (values: Float32Array) => number;
  squares?: Sum;
  output?: (d: number, factor: number, weight: number, bias: number) => number;
}

export function layerNormWith(flaws: LayerNormFlaws): Kernels['layerNorm'] {
  const { centred = true, total = laneSum, squares = laneProducts } = flaws;
  const { output = (d, factor, weight, bias) => f(f(d * factor) * weight) + bias } = flaws;
  return (x, stride, weight, bias, columns, eps, row0, row1) => {
    for (let row = row0; row < row1; row++) {
      const values = f32.subarray((x >> 2) + row * stride, (x >> 2) + row * stride + columns);
      const before = values.slice();
      const mean = f(total(values) / columns);
      for (let i = 0; i < columns; i++) values[i] -= mean;
      const spread = centred ? values : before;
      const factor = rmsFactor(f(squares(columns, i => spread[i] * spread[i]) / columns), f(eps));
      for (let i = 0; i < columns; i++) {
        values[i] = output(values[i], factor, f32[(weight >> 2) + i], f32[(bias >> 2) + i]);
      }
    }
  };
}

export const laneProducts: Sum = (count, product) => reduce(count, i => f(product(i)));
export const rmsOutput = (x: number, weight: number, factor: number): number => weight * f(x * factor);
export const rmsFactor = (mean: number, eps: number): number => f(1 / f(Math.sqrt(f(mean + eps))));

export function ropeWith(fused: boolean): Kernels['rope'] {
  return (x, heads, headDim, first, rotaryDim, adjacent, table, positions, row0, row1) => {
    const half = rotaryDim >> 1;
    for (let head = row0 * heads; head < row1 * heads; head++) {
      const cos = (table >> 2) + i32[(positions >> 2) + Math.floor(head / heads)] * rotaryDim;
      for (let i = 0; i < half; i++) {
        const a = (x >> 2) + head * headDim + first + (adjacent ? 2 * i : i);
        const b = adjacent ? a + 1 : a + half;
        const [low, high, c, s] = [f32[a], f32[b], f32[cos + i], f32[cos + half + i]];
        const round = fused ? (value: number): number => value : f;
        f32[a] = round(low * c) - f(high * s);
        f32[b] = round(high * c) + f(low * s);
      }
    }
  };
}

/** `round`: bits of a float32 to 16 bits, of which higher ones are cut. */
export function toBf16With(round: (word: number) => number): Kernels['toBf16'] {
  return (x, y, element0, element1) => {
    for (let i = element0; i < element1; i++) bytes.setUint16(y + 2 * i, round(i32[(x >> 2) + i]), true);
  };
}

type Elementwise = (x: number, y: number, element0: number, element1: number) => void;
export const mapped =
  (value: (x: number, y: number) => number): Elementwise =>
  (x, y, element0, element1) => {
    for (let i = element0; i < element1; i++) f32[(x >> 2) + i] = value(f32[(x >> 2) + i], f32[(y >> 2) + i]);
  };
export const mappedTo =
  (value: (x: number) => number): Elementwise =>
  (x, y, element0, element1) => {
    for (let i = element0; i < element1; i++) f32[(y >> 2) + i] = value(f32[(x >> 2) + i]);
  };
export const swigluWith =
  (value: (gate: number, up: number) => number): Kernels['swiglu'] =>
  (gate, up, y, element0, element1) => {
    for (let i = element0; i < element1; i++) f32[(y >> 2) + i] = value(f32[(gate >> 2) + i], f32[(up >> 2) + i]);
  };
/** x[r, i] becomes value(x, y[row or column]). */
export const rowsWith =
  (value: (x: number, y: number) => number, of: 'row' | 'column'): Kernels['gateRows'] =>
  (x, y, columns, row0, row1) => {
    for (let at = row0 * columns; at < row1 * columns; at++) {
      const other = of === 'row' ? Math.floor(at / columns) : at % columns;
      f32[(x >> 2) + at] = value(f32[(x >> 2) + at], f32[(y >> 2) + other]);
    }
  };
export const clampedWith =
  (value: (gate: number, up: number, limit: number, alpha: number) => number): Kernels['swigluClamped'] =>
  (gate, up, y, limit, alpha, element0, element1) => {
    for (let i = element0; i < element1; i++) {
      f32[(y >> 2) + i] = value(f32[(gate >> 2) + i], f32[(up >> 2) + i], f(limit), f(alpha));
    }
  };
