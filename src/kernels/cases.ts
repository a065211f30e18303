/** Scenes for every kernel: the self-test runs a few small ones, the unit tests many. */

import {
  GROUP,
  groupsOf,
  isTileLayout,
  LAYOUT_ID,
  type Layout,
  layoutBytes,
  panelsOf,
  TILE_BYTES,
  TILE_ROWS,
} from '../quant/layouts.ts';
import { ATTENTION_SCRATCH, KV_BLOCK } from './kernels.ts';
import { type Kind, RandomValues } from './random-values.ts';
import { type Op, type Run, Scene } from './scene.ts';

const label = (facts: object): string =>
  Object.entries(facts)
    .map(([name, value]) => `${name}=${value}`)
    .join(' ');

/** Bytes of a weight matrix. Tile codes are any byte; scales and floats are of the kind. */
function weights(random: RandomValues, layout: Layout, rows: number, columns: number, kind: Kind): Uint8Array {
  const bytes = new Uint8Array(layoutBytes(layout, rows, columns));
  const view = new DataView(bytes.buffer);
  const put = { f32: putFloat, bf16: putBfloat, f16: putHalf };
  if (!isTileLayout(layout)) {
    const size = layout === 'f32' ? 4 : 2;
    for (let at = 0; at < bytes.length; at += size) put[layout](view, at, random, kind);
    return bytes;
  }
  const wide = layout.endsWith('-f32');
  const codes = TILE_BYTES[layout] - TILE_ROWS * (wide ? 4 : 2);
  for (let tile = 0; tile < bytes.length; tile += TILE_BYTES[layout]) {
    for (let i = 0; i < codes; i++) bytes[tile + i] = kind === 'equal' ? 0x80 : random.bits();
    for (let r = 0; r < TILE_ROWS; r++) {
      if (wide) putFloat(view, tile + codes + r * 4, random, kind);
      else putBfloat(view, tile + codes + r * 2, random, kind);
    }
  }
  return bytes;
}

function putFloat(view: DataView, at: number, random: RandomValues, kind: Kind): void {
  view.setFloat32(at, random.float(kind), true);
}

function putBfloat(view: DataView, at: number, random: RandomValues, kind: Kind): void {
  const value = new DataView(new ArrayBuffer(4));
  value.setFloat32(0, random.float(kind));
  view.setUint16(at, value.getUint16(0), true);
}

/** Any float16 pattern: every exponent is as likely as another; infinities and NaN only when the kind has them. */
function putHalf(view: DataView, at: number, random: RandomValues, kind: Kind): void {
  const bits = random.bits() & (kind === 'denormal' ? 0x83ff : kind === 'zero' ? 0x8000 : 0xffff);
  view.setUint16(at, kind !== 'special' && (bits & 0x7c00) === 0x7c00 ? bits & 0xbfff : bits, true);
}

interface Rows {
  /** Activation rows of the call. */
  n: number;
  /** Choose x rows and y rows by tables; x rows may repeat. */
  indexed?: boolean;
}

/** Index tables for n of n + 3 rows, or "none". */
function indexTables(
  scene: Scene,
  random: RandomValues,
  { n, indexed }: Rows,
): { stored: number; xIndex: number; yIndex: number } {
  if (!indexed) return { stored: n, xIndex: 0, yIndex: 0 };
  const stored = n + 3;
  const xIndex = scene.ints(Array.from({ length: n }, () => random.integer(0, stored - 1)));
  return { stored, xIndex, yIndex: scene.ints(random.distinct(n, stored)) };
}

export function quantiseCase(seed: number, facts: { rows: number; columns: number; kind: Kind }): Scene {
  const scene = new Scene('quantise', label(facts));
  const { rows, columns, kind } = facts;
  const groups = groupsOf(columns);
  const x = scene.floats(new RandomValues(seed).floats(rows * columns, kind));
  const codes = scene.bytes(new Uint8Array(rows * groups * GROUP).fill(1));
  const scales = scene.floats(new Float32Array(rows * groups));
  const sums = scene.ints(new Int32Array(rows * groups));
  scene.units = rows;
  scene.run = (k, from, to) => k.quantise(x, columns, codes, scales, sums, from, to);
  return scene;
}

export interface MatrixFacts extends Rows {
  layout: Layout;
  rows: number;
  columns: number;
  kind: Kind;
  /** Bytes that the weights are off a multiple of 16. */
  misalign?: number;
}

export function tilesCase(seed: number, facts: MatrixFacts): Scene {
  const scene = new Scene('matmulTiles', label(facts));
  const random = new RandomValues(seed);
  const { layout, rows, columns, n, kind, misalign } = facts;
  const groups = groupsOf(columns);
  const { stored, xIndex, yIndex } = indexTables(scene, random, facts);
  const codes = new Int8Array(stored * groups * GROUP);
  const sums = new Int32Array(stored * groups);
  for (let i = 0; i < codes.length; i++) {
    codes[i] = i % (groups * GROUP) < columns ? (kind === 'equal' ? 127 : random.integer(-127, 127)) : 0;
    sums[Math.floor(i / GROUP)] += codes[i];
  }
  const w = scene.bytes(weights(random, layout, rows, columns, kind), misalign);
  const code = scene.bytes(new Uint8Array(codes.buffer));
  const scales = scene.floats(random.floats(stored * groups, kind));
  const sum = scene.ints(sums);
  const yStride = rows + 5;
  const y = scene.reserveFloats(stored * yStride);
  scene.units = panelsOf(rows);
  scene.run = (k, from, to) =>
    k.matmulTiles(LAYOUT_ID[layout], w, rows, groups, code, scales, sum, xIndex, y, yStride, yIndex, n, from, to);
  return scene;
}

/** Inputs that matmulFloat and matmulExact share. */
function rowsCase(op: Op, seed: number, facts: MatrixFacts) {
  const scene = new Scene(op, label(facts));
  const random = new RandomValues(seed);
  const { layout, rows, columns, kind, misalign } = facts;
  const { stored, xIndex, yIndex } = indexTables(scene, random, facts);
  const w = scene.bytes(weights(random, layout, rows, columns, kind), misalign);
  const xStride = columns + (-columns & 3) + 4;
  const x = scene.floats(random.floats(stored * xStride, kind));
  const yStride = rows + 5;
  const y = scene.reserveFloats(stored * yStride);
  scene.units = rows;
  return { scene, id: LAYOUT_ID[layout], w, x, xStride, xIndex, y, yStride, yIndex };
}

export function floatCase(seed: number, facts: MatrixFacts): Scene {
  const { columns, n } = facts;
  const { scene, id, w, x, xStride, xIndex, y, yStride, yIndex } = rowsCase('matmulFloat', seed, facts);
  scene.run = (k, from, to) => k.matmulFloat(id, w, columns, x, xStride, xIndex, y, yStride, yIndex, n, from, to);
  return scene;
}

export function exactCase(seed: number, facts: MatrixFacts): Scene {
  const { columns, n } = facts;
  const { scene, id, w, x, xStride, xIndex, y, yStride, yIndex } = rowsCase('matmulExact', seed, facts);
  const scratch = scene.scratch(columns);
  scene.run = (k, from, to) =>
    k.matmulExact(id, w, columns, x, xStride, xIndex, y, yStride, yIndex, n, scratch, from, to);
  return scene;
}

export function embedCase(seed: number, facts: Omit<MatrixFacts, 'indexed'>): Scene {
  const scene = new Scene('embed', label(facts));
  const random = new RandomValues(seed);
  const { layout, rows, columns, n, kind, misalign } = facts;
  const w = scene.bytes(weights(random, layout, rows, columns, kind), misalign);
  const ids = scene.ints(Array.from({ length: n }, () => random.integer(0, rows - 1)));
  const y = scene.reserveFloats(n * columns);
  scene.units = n;
  scene.run = (k, from, to) => k.embed(LAYOUT_ID[layout], w, columns, ids, y, from, to);
  return scene;
}

export interface RowFacts {
  rows: number;
  columns: number;
  kind: Kind;
  /** The result replaces x. */
  inPlace?: boolean;
}

export function rmsNormCase(seed: number, facts: RowFacts & { eps?: number }): Scene {
  const scene = new Scene('rmsNorm', label(facts));
  const random = new RandomValues(seed);
  const { rows, columns, kind, inPlace, eps = 1e-5 } = facts;
  const x = scene.floats(random.floats(rows * columns, kind));
  const weight = scene.floats(random.floats(columns, 'ordinary'));
  const y = inPlace ? x : scene.reserveFloats(rows * columns);
  scene.units = rows;
  scene.run = (k, from, to) => k.rmsNorm(x, weight, y, columns, eps, from, to);
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

export function topKCase(seed: number, facts: RowFacts & { k: number; normalise: number }): Scene {
  const scene = new Scene('topK', label(facts));
  const { rows, columns, kind, k, normalise } = facts;
  const x = scene.floats(new RandomValues(seed).floats(rows * columns, kind));
  const ids = scene.ints(new Int32Array(rows * k));
  const weight = scene.reserveFloats(rows * k);
  scene.units = rows;
  scene.run = (kernels, from, to) => kernels.topK(x, columns, k, ids, weight, normalise, from, to);
  return scene;
}

export function combineCase(seed: number, facts: RowFacts & { k: number }): Scene {
  const scene = new Scene('combine', label(facts));
  const random = new RandomValues(seed);
  const { rows, columns, kind, k } = facts;
  const x = scene.floats(random.floats(rows * columns, kind));
  const parts = scene.floats(random.floats(rows * k * columns, kind));
  const weight = scene.floats(random.floats(rows * k, 'ordinary'));
  scene.units = rows;
  scene.run = (kernels, from, to) => kernels.combine(x, parts, weight, k, columns, from, to);
  return scene;
}

export function ropeCase(
  seed: number,
  facts: { rows: number; heads: number; headDim: number; rotaryDim: number; kind: Kind },
): Scene {
  const scene = new Scene('rope', label(facts));
  const random = new RandomValues(seed);
  const { rows, heads, headDim, rotaryDim, kind } = facts;
  const places = 7;
  const x = scene.floats(random.floats(rows * heads * headDim, kind));
  const table = scene.floats(random.floats(places * rotaryDim, 'ordinary'));
  const positions = scene.ints(Array.from({ length: rows }, () => random.integer(0, places - 1)));
  scene.units = rows;
  scene.run = (k, from, to) => k.rope(x, heads, headDim, rotaryDim, table, positions, from, to);
  return scene;
}

export interface AttentionFacts {
  /** Keys that each row sees. */
  keys: readonly number[];
  /** All rows read the first row's history, which must then be the longest. */
  shared?: boolean;
  heads: number;
  kvHeads: number;
  headDim: number;
  kind: Kind;
  /** What the KV blocks hold; default f32. */
  layout?: 'f32' | 'bf16';
}

export function attentionCase(seed: number, facts: AttentionFacts): Scene {
  const scene = new Scene('attention', label(facts));
  const random = new RandomValues(seed);
  const { keys, heads, kvHeads, headDim, kind, shared, layout = 'f32' } = facts;
  const kvColumns = kvHeads * headDim;
  const histories = (shared ? keys.slice(0, 1) : keys).map(count => {
    const blocks: number[] = [];
    for (let from = 0; from < count; from += KV_BLOCK) {
      // What lies behind the last key is NaN: reading it shows.
      const values = new Float32Array(2 * KV_BLOCK * kvColumns).fill(Number.NaN);
      const used = Math.min(KV_BLOCK, count - from) * kvColumns;
      values.set(random.floats(used, kind));
      values.set(random.floats(used, kind), KV_BLOCK * kvColumns);
      blocks.unshift(layout === 'f32' ? scene.floats(values) : scene.bytes(upperHalves(values), 4));
    }
    return scene.ints(blocks);
  });
  const q = scene.floats(random.floats(keys.length * heads * headDim, kind));
  const out = scene.reserveFloats(keys.length * heads * headDim);
  const positions = scene.ints(keys.map(count => count - 1));
  const tableOfTables = scene.ints(keys.map((_, row) => histories[shared ? 0 : row]));
  const scratch = scene.scratch(Math.max(...keys) * ATTENTION_SCRATCH);
  scene.units = keys.length * heads;
  const scale = Math.fround(1 / Math.sqrt(headDim));
  scene.run = (k, from, to) =>
    k.attention(q, out, heads, kvHeads, headDim, scale, positions, tableOfTables, LAYOUT_ID[layout], scratch, from, to);
  return scene;
}

/** Float32 values as bfloat16, cut off. */
function upperHalves(values: Float32Array): Uint8Array {
  const words = new Uint32Array(values.buffer);
  return new Uint8Array(Uint16Array.from(words, word => word >>> 16).buffer);
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

/** x, and y where there is one. */
export function elementCase(
  op: 'swiglu' | 'add' | 'scale' | 'clamp',
  seed: number,
  facts: { elements: number; kind: Kind; factor?: number },
): Scene {
  const scene = new Scene(op, label(facts));
  const random = new RandomValues(seed);
  const { elements, kind, factor = 0.3 } = facts;
  const x = scene.floats(random.floats(elements, kind));
  const y = scene.floats(random.floats(elements, kind));
  const calls: Record<typeof op, Run> = {
    swiglu: (k, from, to) => k.swiglu(x, y, x, from, to),
    add: (k, from, to) => k.add(x, y, from, to),
    scale: (k, from, to) => k.scale(x, factor, from, to),
    clamp: (k, from, to) => k.clamp(x, factor, from, to),
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
