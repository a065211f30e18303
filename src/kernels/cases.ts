/** Scenes for every kernel: the self-test runs a few small ones, the unit tests many. Those of matrices stand here. */

import {
  GROUP,
  groupsOf,
  isBlockLayout,
  isTileLayout,
  LAYOUT_ID,
  type Layout,
  layoutBytes,
  panelsOf,
  TILE_BYTES,
  TILE_ROWS,
} from '../quant/layouts.ts';
import { blockWeights } from './cases/blocks.ts';
import { type Kind, RandomValues } from './random-values.ts';
import { label, type Op, Scene } from './scene.ts';

export * from './cases/attention.ts';
export * from './cases/delta.ts';
export * from './cases/routing.ts';
export * from './cases/rows.ts';

/** Bytes of a weight matrix. Codes of tiles and blocks are any byte; scales and floats are of the kind. */
function weights(random: RandomValues, layout: Layout, rows: number, columns: number, kind: Kind): Uint8Array {
  if (isBlockLayout(layout)) return blockWeights(random, layout, rows, columns, kind);
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
