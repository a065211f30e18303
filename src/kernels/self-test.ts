/** Start-up check of an implementation: each kernel against the reference on a few small, nasty inputs. */

import type { Layout } from '../quant/layouts.ts';
import {
  allFiniteCase,
  attentionCase,
  combineCase,
  elementCase,
  embedCase,
  exactCase,
  floatCase,
  quantiseCase,
  rmsNormCase,
  ropeCase,
  softmaxCase,
  tilesCase,
  toBf16Case,
  topKCase,
} from './cases.ts';
import type { Kernels } from './kernels.ts';
import type { Kind } from './random-values.ts';
import { createReferenceKernels } from './reference/reference.ts';
import { compare, type Scene } from './scene.ts';

/** Pages of memory that the self-test needs. */
export const SELF_TEST_PAGES = 4;

/** A full panel and a ragged one, two groups of which the second is ragged. */
const SHAPE = { rows: 17, columns: 72, n: 7, indexed: true, misalign: 2 };
const FLOATS: readonly Layout[] = ['f32', 'bf16', 'f16'];
const TILES: readonly Layout[] = ['q4g64', 'q4g64-f32', 'q8g64', 'q8g64-f32'];

/** One or more scenes of every kernel. */
export function selfTestScenes(): Scene[] {
  const kind: Kind = 'ordinary';
  const elements = 37;
  return [
    ...(['extreme', 'special'] as const).map(k => quantiseCase(1, { rows: 3, columns: 150, kind: k })),
    // kernels take up to eight activation rows at once, each number with code of its own
    ...[8, 7, 6, 5, 4, 3, 2, 1].map(n => tilesCase(2, { ...SHAPE, layout: n % 2 ? 'q4g64' : 'q8g64', kind, n })),
    ...[8, 7, 6, 5, 4, 3, 2, 1].map(n =>
      tilesCase(2, { ...SHAPE, layout: n % 2 ? 'q8g64-f32' : 'q4g64-f32', kind, n }),
    ),
    // The largest sums: all activations 127, all codes 0x80.
    tilesCase(3, { ...SHAPE, layout: 'q4g64', kind: 'equal', n: 1 }),
    tilesCase(3, { ...SHAPE, layout: 'q8g64', kind: 'equal', n: 1 }),
    ...FLOATS.map(layout => floatCase(4, { ...SHAPE, layout, rows: 3, kind })),
    ...TILES.map(layout => exactCase(5, { ...SHAPE, layout, rows: 3, kind })),
    ...[...FLOATS, ...TILES].map(layout => embedCase(6, { layout, rows: 19, columns: 75, n: 2, kind, misalign: 2 })),
    rmsNormCase(7, { rows: 2, columns: 43, kind }),
    ropeCase(8, { rows: 2, heads: 2, headDim: 24, rotaryDim: 20, kind }),
    attentionCase(9, { keys: [66, 3], heads: 2, kvHeads: 1, headDim: 40, kind }),
    attentionCase(9, { keys: [67, 66, 65], shared: true, heads: 2, kvHeads: 2, headDim: 40, kind }),
    attentionCase(9, { keys: [66, 3], heads: 2, kvHeads: 1, headDim: 40, kind, layout: 'bf16' }),
    attentionCase(9, { keys: [67, 66, 65], shared: true, heads: 2, kvHeads: 2, headDim: 45, kind, layout: 'bf16' }),
    toBf16Case(9, { elements: 150, kind: 'ties', misalign: 2 }),
    elementCase('swiglu', 10, { elements, kind: 'extreme' }),
    elementCase('add', 11, { elements, kind }),
    elementCase('scale', 12, { elements, kind }),
    elementCase('clamp', 13, { elements, kind: 'special' }),
    allFiniteCase(14, { elements, kind: 'extreme' }),
    allFiniteCase(15, { elements, kind, at: elements - 1, odd: Number.NEGATIVE_INFINITY }),
    softmaxCase(16, { rows: 2, columns: 43, kind }),
    topKCase(17, { rows: 3, columns: 21, k: 5, normalise: 1, kind: 'steps' }),
    combineCase(18, { rows: 2, columns: 43, k: 3, kind }),
  ];
}

/** Null when `kernels`, bound to `memory` (SELF_TEST_PAGES or more), agrees with the reference; else the first difference. */
export function selfTest(kernels: Kernels, memory: WebAssembly.Memory): string | null {
  const reference = createReferenceKernels(memory);
  for (const scene of selfTestScenes()) {
    if (typeof kernels[scene.op] !== 'function') return `${scene.op} is missing`;
    const difference = compare(scene, kernels, reference, memory);
    if (difference) return difference;
  }
  return null;
}
