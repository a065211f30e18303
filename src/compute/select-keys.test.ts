/** The indexer's choice of keys: the same from every memory, for any lanes, and however many rows are scored at a time. */

import { expect, test } from 'vitest';
import { KV_BLOCK } from '../kernels/kernels.ts';
import { RandomValues } from '../kernels/random-values.ts';
import { LAYOUT_ID } from '../quant/layouts.ts';
import { selectKeys } from './attention.ts';
import { withCompute } from './test-support.ts';

const PAGES = 6;
const ROWS = 7;
const KEYS = 2 * KV_BLOCK;
const SHAPE = { heads: 4, headDim: 12, scale: 0.3, topK: 5 };
/** Rows see few keys, as many as are chosen, and more than a block. */
const POSITIONS = [0, 3, 4, 5, 63, 64, KEYS - 1];

function choose(lanes: number, scoredRows: number, elsewhere = false): Promise<{ arena: number; chosen: number[][] }> {
  return withCompute(
    { lanes, pages: PAGES },
    ({ arenas }) => {
      const tensor = (rows: number, columns: number) => arenas.tensor(rows, columns, { replicated: true });
      const made = {
        q: tensor(ROWS, SHAPE.heads * SHAPE.headDim),
        weights: tensor(ROWS, SHAPE.heads),
        scores: tensor(scoredRows, KEYS),
        selection: tensor(ROWS, SHAPE.topK + 1),
        positions: tensor(1, ROWS),
        tables: tensor(1, ROWS),
        table: tensor(1, 2),
      };
      if (elsewhere) arenas.place(arenas.roomIn(0), 'slots');
      return { ...made, keys: arenas.place(KEYS * SHAPE.headDim * 4, 'kv') };
    },
    ({ compute, made: { q, weights, scores, selection, positions, tables, table, keys } }) => {
      const { arenas } = compute;
      const { arena, offset } = keys;
      compute.lanes.minChunkCost = 100;
      const random = new RandomValues(9);
      for (const tensor of [q, weights]) arenas.floats(tensor).set(random.floats(ROWS * tensor.columns, 'ordinary'));
      const at = new Float32Array(arenas.memories[arena].buffer, offset, KEYS * SHAPE.headDim);
      at.set(random.floats(KEYS * SHAPE.headDim, 'ordinary'));
      arenas.ints(positions, arena).set(POSITIONS);
      arenas.ints(tables, arena).fill(table.at[arena]);
      arenas.ints(table, arena).set([offset, offset + KV_BLOCK * SHAPE.headDim * 4]);
      const cache = { kvLayout: LAYOUT_ID.f32, arenaOf: () => arena, rowTables: () => tables };
      selectKeys(compute, q, weights, scores, selection, { rows: ROWS, keys: KEYS, positions, cache }, 0, SHAPE);
      const words = arenas.ints(selection);
      const chosen = POSITIONS.map((_, row) => {
        const first = row * selection.columns;
        return [...words.subarray(first + 1, first + 1 + words[first])];
      });
      return { arena, chosen };
    },
  );
}

test('keys are chosen alike however the work is divided', async () => {
  const { arena, chosen } = await choose(1, ROWS);
  expect(arena).toBe(0);
  expect(chosen.slice(0, 3)).toEqual([[0], [0, 1, 2, 3], [0, 1, 2, 3, 4]]);
  expect(chosen.map(keys => keys.length)).toEqual([1, 4, 5, 5, 5, 5, 5]);
  expect(chosen[6].some(key => key >= KV_BLOCK)).toBe(true);
  expect(chosen[6]).not.toEqual(chosen[5]);
  for (const [lanes, rows] of [
    [1, 1],
    [2, 3],
    [3, 6],
    [2, ROWS],
  ]) {
    expect((await choose(lanes, rows)).chosen).toEqual(chosen);
    expect(await choose(lanes, rows, true)).toEqual({ arena: 1, chosen });
  }
});
