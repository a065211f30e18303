/** Keys and values as bfloat16: stored and read through commands, in any memory and by any number of lanes. */

import { expect, test } from 'vitest';
import { KV_BLOCK } from '../kernels/kernels.ts';
import { RandomValues } from '../kernels/random-values.ts';
import { roundToBfloat } from '../quant/floats.ts';
import { LAYOUT_ID } from '../quant/layouts.ts';
import { attention } from './attention.ts';
import { storeBf16 } from './rows.ts';
import { withCompute } from './test-support.ts';

const PAGES = 6;
const ROWS = 5;
const SHAPE = {
  heads: 4,
  kvHeads: 2,
  keyDim: 21,
  valueDim: 21,
  scale: 0.25,
  window: 0,
  valuesInKeys: false,
  sinks: null,
};
const COLUMNS = SHAPE.kvHeads * SHAPE.keyDim;
const BLOCK_BYTES = 2 * KV_BLOCK * COLUMNS * 2;

interface Outcome {
  readonly arena: number;
  readonly stored: readonly number[];
  readonly output: readonly number[];
}

/** Stores rows 1 and 2, then rows 3 and 4, of keys and values as positions 0 to 3, and attends to them with three rows. */
function attend(lanes: number, elsewhere: boolean): Promise<Outcome> {
  return withCompute(
    { lanes, pages: PAGES },
    ({ arenas }) => {
      const replicated = { replicated: true };
      const [k, v] = [arenas.tensor(ROWS, COLUMNS, replicated), arenas.tensor(ROWS, COLUMNS, replicated)];
      const q = arenas.tensor(ROWS, SHAPE.heads * SHAPE.keyDim, replicated);
      const out = arenas.tensor(ROWS, SHAPE.heads * SHAPE.keyDim, replicated);
      const [positions, tables] = [arenas.tensor(1, ROWS, replicated), arenas.tensor(1, ROWS, replicated)];
      const table = arenas.tensor(1, 1, replicated);
      if (elsewhere) arenas.place(arenas.roomIn(0), 'slots');
      return { k, v, q, out, positions, tables, table, block: arenas.place(BLOCK_BYTES, 'kv') };
    },
    ({ compute, made: { k, v, q, out, positions, tables, table, block } }) => {
      const { arenas } = compute;
      const { arena, offset } = block;
      // so that all lanes share even rows this short
      compute.lanes.minChunkCost = 100;
      const random = new RandomValues(4);
      for (const tensor of [k, v, q]) arenas.floats(tensor).set(random.floats(ROWS * tensor.columns, 'ordinary'));
      arenas.ints(positions, arena).set([3, 1, 2]);
      arenas.ints(tables, arena).fill(table.at[arena]);
      arenas.ints(table, arena)[0] = offset;
      const values = offset + KV_BLOCK * COLUMNS * 2;
      for (const [first, at] of [
        [1, 0],
        [3, 2],
      ]) {
        storeBf16(compute, k, first, 2, arena, offset + at * COLUMNS * 2);
        storeBf16(compute, v, first, 2, arena, values + at * COLUMNS * 2);
      }
      compute.run();
      const cache = { kvLayout: LAYOUT_ID.bf16, arenaOf: () => arena, rowTables: () => tables };
      attention(compute, q, out, { rows: 3, keys: 4, positions, cache }, 0, SHAPE);
      compute.run();
      const halves = (at: number) => [...new Uint16Array(arenas.memories[arena].buffer, at, 4 * COLUMNS)];
      const rounded = [k, v].flatMap(tensor => [...arenas.ints(tensor).subarray(COLUMNS)].map(roundToBfloat));
      const stored = [...halves(offset), ...halves(values)];
      expect(stored).toEqual(rounded);
      const written = 3 * SHAPE.heads * SHAPE.keyDim;
      return { arena, stored, output: [...arenas.ints(out).subarray(0, written)] };
    },
  );
}

test('keys and values are rounded, and attention gives the same bits from every memory and for any lanes', async () => {
  const home = await attend(1, false);
  expect(home.arena).toBe(0);
  expect(new Set(home.output).size).toBeGreaterThan(home.output.length * 0.9);
  for (const lanes of [1, 2, 3]) {
    const away = await attend(lanes, true);
    expect(away.arena).toBe(1);
    expect({ ...away, arena: 0 }).toEqual(home);
  }
});
