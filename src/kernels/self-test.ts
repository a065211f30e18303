/** Start-up check of an implementation: each kernel against the reference on a few small, nasty inputs. */

import { BLOCKS, type BlockLayout, type Layout } from '../quant/layouts.ts';
import * as cases from './cases.ts';
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
  return [...matrixScenes(), ...rowScenes(), ...attentionScenes(), ...routingScenes(), ...deltaScenes()];
}

const kind: Kind = 'ordinary';

function matrixScenes(): Scene[] {
  const { tilesCase } = cases;
  return [
    ...(['extreme', 'special'] as const).map(k => cases.quantiseCase(1, { rows: 3, columns: 150, kind: k })),
    // kernels take up to eight activation rows at once, each number with code of its own
    ...[8, 7, 6, 5, 4, 3, 2, 1].map(n => tilesCase(2, { ...SHAPE, layout: n % 2 ? 'q4g64' : 'q8g64', kind, n })),
    ...[8, 7, 6, 5, 4, 3, 2, 1].map(n =>
      tilesCase(2, { ...SHAPE, layout: n % 2 ? 'q8g64-f32' : 'q4g64-f32', kind, n }),
    ),
    // The largest sums: all activations 127, all codes 0x80.
    tilesCase(3, { ...SHAPE, layout: 'q4g64', kind: 'equal', n: 1 }),
    tilesCase(3, { ...SHAPE, layout: 'q8g64', kind: 'equal', n: 1 }),
    ...FLOATS.map(layout => cases.floatCase(4, { ...SHAPE, layout, rows: 3, kind })),
    ...TILES.map(layout => cases.exactCase(5, { ...SHAPE, layout, rows: 3, kind })),
    ...[...FLOATS, ...TILES].map(layout =>
      cases.embedCase(6, { layout, rows: 19, columns: 75, n: 2, kind, misalign: 2 }),
    ),
    ...(Object.keys(BLOCKS) as BlockLayout[]).flatMap(blockScenes),
  ];
}

function blockScenes(layout: BlockLayout): Scene[] {
  // whole blocks, but fp8 may end inside one
  const columns = layout === 'fp8' ? 150 : Math.max(BLOCKS[layout].columns, 128);
  const facts = { layout, rows: 3, columns, n: 2, misalign: 1 };
  return [
    cases.exactCase(6, { ...facts, kind }),
    cases.embedCase(6, { ...facts, kind: 'special' }),
    cases.embedCase(7, { ...facts, kind: 'denormal' }),
  ];
}

function rowScenes(): Scene[] {
  const elements = 37;
  const rope = { rows: 2, heads: 2, headDim: 27, first: 3, rotaryDim: 20, kind };
  return [
    cases.rmsNormCase(7, { rows: 2, columns: 43, xStride: 50, yStride: 45, kind }),
    cases.layerNormCase(7, { rows: 2, columns: 43, xStride: 50, kind }),
    cases.ropeCase(8, rope),
    cases.ropeCase(8, { ...rope, adjacent: true }),
    cases.toBf16Case(9, { elements: 150, kind: 'ties', misalign: 2 }),
    ...cases.ELEMENT_OPS.flatMap((op, i) => [
      cases.elementCase(op, 10 + i, { elements, kind: 'wide' }),
      cases.elementCase(op, 10 + i, { elements, kind: 'special' }),
    ]),
    cases.allFiniteCase(14, { elements, kind: 'extreme' }),
    cases.allFiniteCase(15, { elements, kind, at: elements - 1, odd: Number.NEGATIVE_INFINITY }),
    cases.softmaxCase(16, { rows: 2, columns: 43, kind: 'wide' }),
    cases.gateRowsCase(16, { rows: 2, columns: 43, kind }),
    cases.addRowsCase(16, { rows: 2, columns: 43, kind }),
    cases.copyColumnsCase(16, { items: 2, width: 37, xStride: 43, yStride: 41 }),
  ];
}

function attentionScenes(): Scene[] {
  const one = { keys: [66, 3], heads: 2, kvHeads: 1, keyDim: 36, kind };
  const many = { keys: [67, 66, 65], shared: true, heads: 2, kvHeads: 2, keyDim: 21, kind };
  const latent = { heads: 9, kvHeads: 1, keyDim: 40, valueDim: 32, kind, valuesInKeys: true };
  return [
    ...(['f32', 'bf16'] as const).flatMap(layout => [
      cases.attentionCase(9, { ...one, layout }),
      cases.attentionCase(9, { ...many, layout }),
      cases.attentionCase(9, { ...many, keyDim: 16, valueDim: 11, layout, window: 18, sinks: kind }),
      cases.attentionCase(9, { ...latent, keys: [19, 7], layout }),
      cases.attentionCase(9, { ...latent, keys: [66, 19], layout, selected: 21 }),
      cases.indexScoresCase(9, { keys: [67, 3], heads: 4, headDim: 18, kind, layout }),
    ]),
    cases.selectKeysCase(9, { keys: [40, 5, 90], k: 20, kind: 'steps' }),
    cases.selectKeysCase(9, { keys: [40, 5, 90], k: 20, kind: 'special' }),
  ];
}

function routingScenes(): Scene[] {
  const groups = { rows: 3, columns: 24, k: 5, groups: 6, keptGroups: 3, bias: kind, kind: 'steps' as const };
  return [
    cases.topKCase(17, { rows: 3, columns: 21, k: 5, weightRule: 1, kind: 'steps' }),
    cases.topKCase(17, { rows: 3, columns: 21, k: 5, weightRule: 2, kind: 'special' }),
    cases.topKCase(17, { ...groups, groupRule: 0 }),
    cases.topKCase(17, { ...groups, groupRule: 1, weightRule: 1, factor: 2.5 }),
    cases.combineCase(18, { rows: 2, columns: 43, k: 3, kind }),
    cases.combineCase(18, { rows: 2, columns: 43, k: 2, kind, shared: true }),
  ];
}

function deltaScenes(): Scene[] {
  return [
    ...[2, 6].map(rows => cases.convSiluCase(19, { rows, channels: 21, taps: 4, kind })),
    cases.convSiluCase(19, { rows: 3, channels: 5, taps: 3, kind }),
    cases.deltaGatesCase(19, { rows: 2, heads: 7, kind: 'wide' }),
    cases.deltaGatesCase(19, { rows: 1, heads: 7, kind, rates: true }),
    cases.deltaRuleCase(19, { rows: 3, keyHeads: 2, valueHeads: 4, keyDim: 24, valueDim: 37, kind }),
    cases.deltaRuleCase(19, { rows: 2, keyHeads: 2, valueHeads: 4, keyDim: 20, valueDim: 21, kind, tiled: true }),
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
