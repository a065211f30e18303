/** Scenes of attention and of the choice of keys by an indexer. */

import { LAYOUT_ID } from '../../quant/layouts.ts';
import { ATTENTION_SCRATCH, KV_BLOCK, SELECT_SCRATCH } from '../kernels.ts';
import { type Kind, RandomValues } from '../random-values.ts';
import { label, Scene } from '../scene.ts';

export interface AttentionFacts {
  /** Keys up to each row's position. */
  keys: readonly number[];
  /** All rows read the first row's history, which must then be the longest. */
  shared?: boolean;
  heads: number;
  kvHeads: number;
  keyDim: number;
  /** Default: keyDim. */
  valueDim?: number;
  kind: Kind;
  /** What the KV blocks hold; default f32. */
  layout?: 'f32' | 'bf16';
  /** Default: 0, all keys. */
  window?: number;
  /** Kind of the sinks; none without. */
  sinks?: Kind;
  /** Values are the beginnings of the keys. */
  valuesInKeys?: boolean;
  /** Most keys of a selection; none without. */
  selected?: number;
}

export function attentionCase(seed: number, facts: AttentionFacts): Scene {
  const scene = new Scene('attention', label(facts));
  const random = new RandomValues(seed);
  const { keys, heads, kvHeads, keyDim, kind, shared, layout = 'f32' } = facts;
  const { valueDim = keyDim, window = 0, valuesInKeys, selected = 0 } = facts;
  const chosen = keys.map(count => visibleKeys(random, count, window, selected));
  const widths = [kvHeads * keyDim, valuesInKeys ? 0 : kvHeads * valueDim] as const;
  const histories = (shared ? keys.slice(0, 1) : keys).map((count, row) => {
    const seen = new Set(shared ? chosen.flat() : chosen[row]);
    return scene.ints(keyBlocks(scene, random, { count, widths, kind, layout, isSeen: key => seen.has(key) }));
  });
  const q = scene.floats(random.floats(keys.length * heads * keyDim, kind));
  const sinks = facts.sinks ? scene.floats(random.floats(heads, facts.sinks)) : 0;
  const out = scene.reserveFloats(keys.length * heads * valueDim);
  const positions = scene.ints(keys.map(count => count - 1));
  const tables = scene.ints(keys.map((_, row) => histories[shared ? 0 : row]));
  const selectionStride = selected ? selected + 2 : 0;
  const selection = selected ? scene.ints(chosen.flatMap(row => padded([row.length, ...row], selectionStride))) : 0;
  const scratch = scene.scratch(Math.max(...chosen.map(row => row.length)) * ATTENTION_SCRATCH);
  scene.units = keys.length * heads;
  const scale = Math.fround(1 / Math.sqrt(keyDim));
  scene.run = (k, from, to) =>
    k.attention(
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
      LAYOUT_ID[layout],
      valuesInKeys ? 1 : 0,
      selection,
      selectionStride,
      scratch,
      from,
      to,
    );
  return scene;
}

/** Positions that a row with `count` keys sees, ascending. */
function visibleKeys(random: RandomValues, count: number, window: number, selected: number): number[] {
  if (selected) return random.distinct(Math.min(selected, count), count).sort((a, b) => a - b);
  const first = window ? Math.max(0, count - window) : 0;
  return Array.from({ length: count - first }, (_, i) => first + i);
}

/** Words up to `length`; what follows is no position. */
function padded(words: readonly number[], length: number): number[] {
  return [...words, ...new Array(length - words.length).fill(-1)];
}

/**
 * Offsets of the blocks of `count` tokens: rows of keys, then rows of values. What no row sees is NaN:
 * reading it shows.
 */
function keyBlocks(
  scene: Scene,
  random: RandomValues,
  facts: {
    count: number;
    /** Floats of a key and of a value; 0 = no values. */
    widths: readonly [number, number];
    kind: Kind;
    layout: 'f32' | 'bf16';
    isSeen: (key: number) => boolean;
  },
): number[] {
  const { count, widths, kind, layout, isSeen } = facts;
  const [keyWidth, valueWidth] = widths;
  const offsets: number[] = [];
  // The last block comes first in memory: only the table knows the order.
  for (let from = (Math.ceil(count / KV_BLOCK) - 1) * KV_BLOCK; from >= 0; from -= KV_BLOCK) {
    const block = new Float32Array(KV_BLOCK * (keyWidth + valueWidth)).fill(Number.NaN);
    for (let row = 0; row < KV_BLOCK; row++) {
      if (!isSeen(from + row)) continue;
      block.set(random.floats(keyWidth, kind), row * keyWidth);
      block.set(random.floats(valueWidth, kind), KV_BLOCK * keyWidth + row * valueWidth);
    }
    offsets.unshift(layout === 'f32' ? scene.floats(block) : scene.bytes(upperHalves(block), 4));
  }
  return offsets;
}

/** Float32 values as bfloat16, cut off. */
function upperHalves(values: Float32Array): Uint8Array {
  const words = new Uint32Array(values.buffer);
  return new Uint8Array(Uint16Array.from(words, word => word >>> 16).buffer);
}

export interface IndexFacts {
  /** Keys that each row sees, each with a history of its own. */
  keys: readonly number[];
  heads: number;
  headDim: number;
  kind: Kind;
  layout?: 'f32' | 'bf16';
}

export function indexScoresCase(seed: number, facts: IndexFacts): Scene {
  const scene = new Scene('indexScores', label(facts));
  const random = new RandomValues(seed);
  const { keys, heads, headDim, kind, layout = 'f32' } = facts;
  const histories = keys.map(count => {
    return scene.ints(
      keyBlocks(scene, random, { count, widths: [headDim, 0], kind, layout, isSeen: key => key < count }),
    );
  });
  const q = scene.floats(random.floats(keys.length * heads * headDim, kind));
  const weights = scene.floats(random.floats(keys.length * heads, kind));
  const positions = scene.ints(keys.map(count => count - 1));
  const tables = scene.ints(histories);
  const stride = Math.max(...keys) + 3;
  const scores = scene.reserveFloats(keys.length * stride);
  const blocks = Math.ceil(Math.max(...keys) / KV_BLOCK);
  scene.units = keys.length * blocks;
  const scale = Math.fround(1 / Math.sqrt(headDim));
  const id = LAYOUT_ID[layout];
  scene.run = (k, from, to) =>
    k.indexScores(q, weights, heads, headDim, scale, positions, tables, id, scores, stride, blocks, from, to);
  return scene;
}

export interface SelectFacts {
  /** Keys that each row sees. */
  keys: readonly number[];
  k: number;
  kind: Kind;
}

export function selectKeysCase(seed: number, facts: SelectFacts): Scene {
  const scene = new Scene('selectKeys', label(facts));
  const random = new RandomValues(seed);
  const { keys, k, kind } = facts;
  const stride = Math.max(...keys) + 2;
  // Behind the last key lies what would be chosen first.
  const rows = keys.flatMap(count => [
    ...random.floats(count, kind),
    ...new Array(stride - count).fill(Number.POSITIVE_INFINITY),
  ]);
  const scores = scene.floats(rows);
  const positions = scene.ints(keys.map(count => count - 1));
  const selectionStride = k + 3;
  const selection = scene.ints(new Int32Array(keys.length * selectionStride).fill(-1));
  const scratch = scene.scratch(SELECT_SCRATCH);
  scene.units = keys.length;
  scene.run = (kernels, from, to) =>
    kernels.selectKeys(scores, stride, k, positions, selection, selectionStride, scratch, from, to);
  return scene;
}
