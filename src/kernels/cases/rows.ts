/** Scenes of kernels on rows and elements of activations. */

import { type Kind, RandomValues } from '../random-values.ts';
import { label, type Run, Scene } from '../scene.ts';

export interface RowFacts {
  rows: number;
  columns: number;
  kind: Kind;
  /** The result replaces x. */
  inPlace?: boolean;
}

/** Strides in floats; default: rows follow each other. In place only the first counts. */
export interface NormFacts extends RowFacts {
  xStride?: number;
  yStride?: number;
  eps?: number;
}

export function rmsNormCase(seed: number, facts: NormFacts): Scene {
  const scene = new Scene('rmsNorm', label(facts));
  const random = new RandomValues(seed);
  const { rows, columns, kind, inPlace, eps = 1e-5, xStride = columns } = facts;
  const yStride = inPlace ? xStride : (facts.yStride ?? columns);
  const x = scene.floats(random.floats(rows * xStride, kind));
  const weight = scene.floats(random.floats(columns, 'ordinary'));
  const y = inPlace ? x : scene.reserveFloats(rows * yStride);
  scene.units = rows;
  scene.run = (k, from, to) => k.rmsNorm(x, xStride, weight, y, yStride, columns, eps, from, to);
  return scene;
}

export function layerNormCase(seed: number, facts: NormFacts): Scene {
  const scene = new Scene('layerNorm', label(facts));
  const random = new RandomValues(seed);
  const { rows, columns, kind, eps = 1e-6, xStride = columns } = facts;
  const x = scene.floats(random.floats(rows * xStride, kind));
  const weight = scene.floats(random.floats(columns, 'ordinary'));
  const bias = scene.floats(random.floats(columns, 'ordinary'));
  scene.units = rows;
  scene.run = (k, from, to) => k.layerNorm(x, xStride, weight, bias, columns, eps, from, to);
  return scene;
}

export function softmaxCase(seed: number, facts: RowFacts): Scene {
  const scene = new Scene('softmax', label(facts));
  const { rows, columns, kind, inPlace } = facts;
  const x = scene.floats(new RandomValues(seed).floats(rows * columns, kind));
  const y = inPlace ? x : scene.reserveFloats(rows * columns);
  scene.units = rows;
  scene.run = (k, from, to) => k.softmax(x, y, columns, from, to);
  return scene;
}

export function gateRowsCase(seed: number, facts: RowFacts): Scene {
  const scene = new Scene('gateRows', label(facts));
  const random = new RandomValues(seed);
  const { rows, columns, kind } = facts;
  const x = scene.floats(random.floats(rows * columns, kind));
  const gates = scene.floats(random.floats(rows, kind));
  scene.units = rows;
  scene.run = (k, from, to) => k.gateRows(x, gates, columns, from, to);
  return scene;
}

export function addRowsCase(seed: number, facts: RowFacts): Scene {
  const scene = new Scene('addRows', label(facts));
  const random = new RandomValues(seed);
  const { rows, columns, kind } = facts;
  const x = scene.floats(random.floats(rows * columns, kind));
  const bias = scene.floats(random.floats(columns, kind));
  scene.units = rows;
  scene.run = (k, from, to) => k.addRows(x, bias, columns, from, to);
  return scene;
}

export interface RopeFacts {
  rows: number;
  heads: number;
  headDim: number;
  /** First element of a head that turns; default 0. */
  first?: number;
  rotaryDim: number;
  /** Pairs are neighbours. */
  adjacent?: boolean;
  kind: Kind;
}

export function ropeCase(seed: number, facts: RopeFacts): Scene {
  const scene = new Scene('rope', label(facts));
  const random = new RandomValues(seed);
  const { rows, heads, headDim, first = 0, rotaryDim, adjacent, kind } = facts;
  const places = 7;
  const x = scene.floats(random.floats(rows * heads * headDim, kind));
  const table = scene.floats(random.floats(places * rotaryDim, 'ordinary'));
  const positions = scene.ints(Array.from({ length: rows }, () => random.integer(0, places - 1)));
  scene.units = rows;
  scene.run = (k, from, to) =>
    k.rope(x, heads, headDim, first, rotaryDim, adjacent ? 1 : 0, table, positions, from, to);
  return scene;
}

export interface CopyFacts {
  items: number;
  width: number;
  xStride: number;
  yStride: number;
}

export function copyColumnsCase(seed: number, facts: CopyFacts): Scene {
  const scene = new Scene('copyColumns', label(facts));
  const { items, width, xStride, yStride } = facts;
  const random = new RandomValues(seed);
  // as integers: any bits must arrive
  const x = scene.ints(Array.from({ length: items * xStride }, () => random.bits()));
  const y = scene.ints(Array.from({ length: items * yStride }, () => random.bits()));
  scene.units = items;
  scene.run = (k, from, to) => k.copyColumns(x, xStride, y, yStride, width, from, to);
  return scene;
}

/** `bits`: any words. `ties`: what lies half way between two bfloat16 numbers, at it or next to it, of any size and sign. */
export type RoundingKind = Kind | 'bits' | 'ties';

/** Upper halves around which rounding changes its kind: zero, the last denormal, the last number, infinity, NaN. */
const UPPER = [0, 0x7f, 0x80, 0x3f80, 0x3f81, 0x7f7f, 0x7f80, 0x7f81, 0x7fbf, 0x7fc0, 0x7fff];
const LOWER = [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff];

export function toBf16Case(seed: number, facts: { elements: number; kind: RoundingKind; misalign?: number }): Scene {
  const scene = new Scene('toBf16', label(facts));
  const random = new RandomValues(seed);
  const { elements, kind, misalign = 0 } = facts;
  const tie = () => {
    const upper = random.integer(0, 3) ? UPPER[random.integer(0, UPPER.length - 1)] : random.integer(0, 0x7fff);
    return (random.integer(0, 1) << 31) | (upper << 16) | LOWER[random.integer(0, LOWER.length - 1)];
  };
  const word = () => {
    if (kind === 'bits') return random.bits();
    return kind === 'ties' ? tie() : new Int32Array(Float32Array.of(random.float(kind)).buffer)[0];
  };
  // as integers, so that NaN keeps its payload and the result is compared in every bit
  const x = scene.ints(Array.from({ length: elements }, word));
  const y = scene.bytes(new Uint8Array(elements * 2).fill(0xa5), misalign);
  scene.units = elements;
  scene.run = (k, from, to) => k.toBf16(x, y, from, to);
  return scene;
}

export const ELEMENT_OPS = ['swiglu', 'swigluClamped', 'add', 'clamp', 'sigmoid', 'sigmoidGate'] as const;
export type ElementOp = (typeof ELEMENT_OPS)[number];

/** x, and y where there is one. `factor`: the limit. */
export function elementCase(
  op: ElementOp,
  seed: number,
  facts: { elements: number; kind: Kind; factor?: number },
): Scene {
  const scene = new Scene(op, label(facts));
  const random = new RandomValues(seed);
  const { elements, kind, factor = 0.3 } = facts;
  const x = scene.floats(random.floats(elements, kind));
  const y = scene.floats(random.floats(elements, kind));
  const calls: Record<ElementOp, Run> = {
    swiglu: (k, from, to) => k.swiglu(x, y, x, from, to),
    swigluClamped: (k, from, to) => k.swigluClamped(x, y, x, factor, 1.702, from, to),
    add: (k, from, to) => k.add(x, y, from, to),
    clamp: (k, from, to) => k.clamp(x, factor, from, to),
    sigmoid: (k, from, to) => k.sigmoid(x, y, from, to),
    sigmoidGate: (k, from, to) => k.sigmoidGate(x, y, from, to),
  };
  scene.units = elements;
  scene.run = calls[op];
  return scene;
}

/** One value, if any, replaced by `odd`. */
export function allFiniteCase(seed: number, facts: { elements: number; kind: Kind; at?: number; odd?: number }): Scene {
  const scene = new Scene('allFinite', label(facts));
  const { elements, kind, at, odd } = facts;
  const values = new RandomValues(seed).floats(elements, kind);
  if (at !== undefined && odd !== undefined) values[at] = odd;
  const x = scene.floats(values);
  scene.units = elements;
  scene.run = (k, from, to) => k.allFinite(x + from * 4, to - from);
  return scene;
}
