/** Block layouts: every implementation gives the reference's bits for any shape, and wrong decoders are found. */

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { BLOCKS, type BlockLayout, isBlockLayout, type Layout } from '../quant/layouts.ts';
import * as cases from './cases.ts';
import { BLOCK_MUTANTS, type BlockMutant, HEALTHY } from './mutants/blocks/test-support.ts';
import type { Kind } from './random-values.ts';
import { selfTest } from './self-test.ts';
import { BLOCK_LAYOUTS, expectSameBits, IMPLEMENTATIONS, memory, reference, SCENES } from './test-support.ts';

const columnsOf = (layout: BlockLayout, n: number): number =>
  layout === 'fp8' ? n * 29 + 3 : n * BLOCKS[layout].columns;

describe.each(BLOCK_LAYOUTS)('%s', layout => {
  const facts = fc.record({
    columns: fc.integer({ min: 1, max: BLOCKS[layout].columns === 256 ? 4 : 17 }).map(n => columnsOf(layout, n)),
    rows: fc.integer({ min: 1, max: 6 }),
    n: fc.integer({ min: 1, max: 9 }),
    kind: fc.constantFrom<Kind>('ordinary', 'denormal', 'huge', 'extreme', 'special'),
    indexed: fc.boolean(),
    misalign: fc.integer({ min: 0, max: 15 }),
  });

  test('products and rows of any shape', () => {
    fc.assert(
      fc.property(fc.nat(), facts, (seed, one) => {
        expectSameBits(cases.exactCase(seed, { ...one, layout }));
        expectSameBits(cases.embedCase(seed, { ...one, layout }));
      }),
      { numRuns: 40, seed: 11 },
    );
  });

  test('a row of activations alone gives the bits it has among others, and work may be cut anywhere', () => {
    const many = { layout, rows: 7, columns: columnsOf(layout, 3), kind: 'ordinary' as const, n: 9 };
    const batch = cases.exactCase(5, many);
    for (const { name, kernels } of IMPLEMENTATIONS) {
      const whole = batch.outcome(kernels, memory);
      for (const pieces of [[1], [3, 4], [1, 2, 3, 4, 5, 6]]) {
        expect(batch.difference(batch.outcome(kernels, memory, pieces), whole), `${name} ${pieces}`).toBeNull();
      }
      const alone = batch.outcome({ ...kernels, matmulExact: oneByOne(kernels.matmulExact) }, memory);
      expect(batch.difference(alone, whole), name).toBeNull();
    }
  });
});

type Exact = typeof reference.matmulExact;

/** The same product, one row of activations at a time. */
function oneByOne(inner: Exact): Exact {
  return (layout, w, columns, x, xStride, _xIndex, y, yStride, _yIndex, n, scratch, row0, row1) => {
    for (let i = 0; i < n; i++) {
      const [from, to] = [x + i * xStride * 4, y + i * yStride * 4];
      inner(layout, w, columns, from, xStride, 0, to, yStride, 0, 1, scratch, row0, row1);
    }
  };
}

/** The first difference that the scenes of rows of blocks show. */
function found({ embed }: Pick<BlockMutant, 'embed'>): string | null {
  for (const scene of SCENES.embed()) {
    if (!isBlockLayout(/layout=(\S+)/.exec(scene.label)![1] as Layout)) continue;
    const got = scene.outcome({ ...reference, embed }, memory);
    const difference = scene.difference(got, scene.outcome(reference, memory));
    if (difference) return difference;
  }
  return null;
}

test.each(Object.entries(BLOCK_MUTANTS))('a wrong decoder is found: %s', (_, mutant) => {
  expect(found(mutant)).toMatch(`layout=${mutant.layout} `);
});

test('wrong decoders of every layout are found at start-up', () => {
  const noticed = Object.values(BLOCK_MUTANTS).filter(
    ({ embed }) => selfTest({ ...reference, embed }, memory) !== null,
  );
  expect([...new Set(noticed.map(one => one.layout))].sort()).toEqual([...BLOCK_LAYOUTS].sort());
});

test('the way in which wrong decoders are made is not wrong by itself', () => {
  expect(found(HEALTHY)).toBeNull();
});
