/** Matrices in several memories: a cut changes no bit. */

import { describe, expect, test } from 'vitest';
import { RandomValues } from '../kernels/random-values.ts';
import { isTileLayout, type Layout, layoutBytes } from '../quant/layouts.ts';
import { quantiseMatrix } from '../quant/quantise.ts';
import type { Compute } from './compute.ts';
import { type Matrix, type MatrixPiece, matrixOf } from './matrix.ts';
import { withCompute } from './test-support.ts';

const ROWS = 80;
const COLUMNS = 136;
const MAX_N = 5;
const PAGES = 6;

function weightBytes(layout: Layout): Uint8Array {
  const random = new RandomValues(5);
  const values = random.floats(ROWS * COLUMNS, 'ordinary');
  if (layout === 'f32') return new Uint8Array(values.buffer);
  if (layout === 'q4g64' || layout === 'q8g64') {
    const out = new Uint8Array(layoutBytes(layout, ROWS, COLUMNS));
    quantiseMatrix(layout, values, ROWS, COLUMNS, out);
    return out;
  }
  const bits = new Uint32Array(values.buffer);
  return new Uint8Array(Uint16Array.from(bits, word => word >>> 16).buffer);
}

/** Places rows [0, cuts[0]), [cuts[0], cuts[1]), ... each in an arena of its own, or all in arena 0 without cuts. */
function place(compute: Compute, layout: Layout, cuts: readonly number[]): Matrix {
  const { arenas } = compute;
  const edges = [0, ...cuts, ROWS];
  const pieces: MatrixPiece[] = [];
  for (let i = 0; i + 1 < edges.length; i++) {
    const rows = edges[i + 1] - edges[i];
    const at = arenas.place(layoutBytes(layout, rows, COLUMNS), 'resident');
    pieces.push({ arena: at.arena, offset: at.offset, firstRow: edges[i], rows });
    // the rest of this arena is taken, so the next piece goes elsewhere
    if (i + 2 < edges.length) arenas.place(arenas.roomIn(at.arena), 'slots');
  }
  return matrixOf(layout, ROWS, COLUMNS, pieces);
}

function load(compute: Compute, matrix: Matrix, bytes: Uint8Array): void {
  const step = isTileLayout(matrix.layout) ? 16 : 1;
  const stepBytes = layoutBytes(matrix.layout, step, COLUMNS);
  for (const { arena, offset, firstRow, rows } of matrix.pieces) {
    const from = (firstRow / step) * stepBytes;
    const to = new Uint8Array(compute.arenas.memories[arena].buffer, offset);
    to.set(bytes.subarray(from, from + Math.ceil(rows / step) * stepBytes));
  }
}

interface Outcome {
  readonly arenas: number;
  readonly products: readonly (readonly number[])[];
  readonly rows: readonly number[];
}

/** y = w x for 1 and for MAX_N rows, twice with new activations, and some rows of w as an embedding. */
function compute(layout: Layout, exact: boolean, lanes: number, cuts: readonly number[]): Promise<Outcome> {
  return withCompute(
    { lanes, exact, pages: PAGES },
    compute => {
      const input = compute.input(MAX_N, COLUMNS);
      const y = compute.arenas.tensor(MAX_N, ROWS + 3, { replicated: true });
      const embedded = compute.arenas.tensor(ROWS, COLUMNS, { replicated: true });
      return { input, y, embedded, matrix: place(compute, layout, cuts) };
    },
    ({ compute, made: { input, y, embedded, matrix } }) => {
      load(compute, matrix, weightBytes(layout));
      const random = new RandomValues(9);
      const products: number[][] = [];
      for (const n of [1, MAX_N, 2]) {
        compute.arenas.floats(y).fill(7);
        compute.arenas.floats(input.x).set(random.floats(MAX_N * COLUMNS, 'ordinary'));
        compute.quantise(input, n);
        compute.linear(matrix, input, y, n);
        compute.run();
        products.push([...compute.arenas.ints(y)]);
      }
      const ids = [0, 15, 16, 17, 31, 32, 47, 48, 63, 64, 79];
      compute.embed(matrix, ids, embedded);
      const rows = [...compute.arenas.ints(embedded).subarray(0, ids.length * COLUMNS)];
      return { arenas: compute.arenas.count, products, rows };
    },
  );
}

describe.each(['f32', 'bf16', 'q8g64', 'q4g64'] as const)('%s', layout => {
  const cutsOf = isTileLayout(layout) ? [[16], [32, 48], [16, 32, 64]] : [[16], [31, 32], [1, 17, 79]];

  test.each([false, true])('in several memories gives the bits of one (exact: %s)', async exact => {
    const whole = await compute(layout, exact, 1, []);
    expect(whole.arenas).toBe(1);
    expect(new Set(whole.products[0]).size).toBeGreaterThan(ROWS / 2);
    for (const cuts of cutsOf) {
      const cut = await compute(layout, exact, 2, cuts);
      expect(cut.arenas).toBe(cuts.length + 1);
      expect(cut.products).toEqual(whole.products);
      expect(cut.rows).toEqual(whole.rows);
    }
  });
});

test('a token id outside the embedding is refused', async () => {
  await withCompute(
    { lanes: 1 },
    compute => ({ matrix: place(compute, 'f32', []), y: compute.arenas.tensor(1, COLUMNS) }),
    ({ compute, made: { matrix, y } }) => {
      for (const id of [-1, ROWS]) {
        expect(() => compute.embed(matrix, [id], y)).toThrow(expect.objectContaining({ code: 'BAD_TOKEN_ID' }));
      }
    },
  );
});
