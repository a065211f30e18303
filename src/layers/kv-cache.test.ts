import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Arenas, WASM_PAGE } from '../compute/arenas.ts';
import { KV_BLOCK } from '../kernels/kernels.ts';
import { KvCache } from './kv-cache.ts';

const LAYERS = 2;
const COLUMNS = 6;
const CONTEXT = 3 * KV_BLOCK - 5;

function makeCache() {
  // two pages: each layer's blocks go to an arena of their own
  const arenas = new Arenas(2 * WASM_PAGE);
  const cache = new KvCache(arenas, { layers: LAYERS, columns: COLUMNS, context: CONTEXT, maxRows: 8 });
  const keys = arenas.tensor(CONTEXT, COLUMNS);
  const values = arenas.tensor(CONTEXT, COLUMNS);
  arenas.place(arenas.roomIn(0) - 4 * 4096, 'resident');
  cache.placeBlocks();
  arenas.commit();
  return { arenas, cache, keys, values };
}

/** What an attention kernel reads: the row's table, the block of a position, the key or value row in it. */
function read(arenas: Arenas, cache: KvCache, layer: number, position: number, kind: 'key' | 'value'): number[] {
  const arena = cache.arenaOf(layer);
  const { buffer } = arenas.memories[arena];
  const table = new Int32Array(buffer, cache.rowTables(layer).at[arena], 8)[3];
  const block = new Int32Array(buffer, table, 3)[Math.floor(position / KV_BLOCK)];
  const row = (position % KV_BLOCK) + (kind === 'value' ? KV_BLOCK : 0);
  return [...new Float32Array(buffer, block + row * COLUMNS * 4, COLUMNS)];
}

const keyRow = (layer: number, position: number) =>
  Array.from({ length: COLUMNS }, (_, c) => layer * 1e5 + position * 10 + c);
const valueRow = (layer: number, position: number) => keyRow(layer, position).map(x => -x - 1);

function write(made: ReturnType<typeof makeCache>, layer: number, first: number, n: number): void {
  const { arenas, cache, keys, values } = made;
  const rows = (of: typeof keyRow) => Array.from({ length: n }, (_, i) => of(layer, first + i)).flat();
  arenas.floats(keys).set(rows(keyRow));
  arenas.floats(values).set(rows(valueRow));
  cache.write(layer, keys, values, first, n);
}

test('rows are found again however they were written: alone, in chunks, over block boundaries', () => {
  const chunks = fc.array(fc.integer({ min: 1, max: 70 }), { minLength: 1, maxLength: 40 });
  fc.assert(
    fc.property(chunks, sizes => {
      const made = makeCache();
      const { arenas, cache } = made;
      let length = 0;
      for (const size of sizes) {
        const n = Math.min(size, CONTEXT - length);
        for (let layer = 0; layer < LAYERS; layer++) write(made, layer, length, n);
        length += n;
      }
      for (let position = 0; position < length; position++) {
        for (let layer = 0; layer < LAYERS; layer++) {
          expect(read(arenas, cache, layer, position, 'key')).toEqual(keyRow(layer, position));
          expect(read(arenas, cache, layer, position, 'value')).toEqual(valueRow(layer, position));
        }
      }
    }),
    { numRuns: 20 },
  );
});

test.each([63, 64, 65])('a chunk that ends at position %i continues there', end => {
  const made = makeCache();
  const { arenas, cache } = made;
  write(made, 1, 0, end);
  write(made, 1, end, 2);
  for (let position = end - 2; position < end + 2; position++) {
    expect(read(arenas, cache, 1, position, 'key')).toEqual(keyRow(1, position));
    expect(read(arenas, cache, 1, position, 'value')).toEqual(valueRow(1, position));
  }
});

test('the last position of the context has a place, and layers do not touch each other', () => {
  const made = makeCache();
  const { arenas, cache } = made;
  expect(new Set([cache.arenaOf(0), cache.arenaOf(1)]).size).toBe(2);
  write(made, 0, CONTEXT - 1, 1);
  expect(read(arenas, cache, 0, CONTEXT - 1, 'value')).toEqual(valueRow(0, CONTEXT - 1));
  expect(read(arenas, cache, 1, CONTEXT - 1, 'key')).toEqual([0, 0, 0, 0, 0, 0]);
  expect(cache.bytes).toBe(LAYERS * 3 * KV_BLOCK * COLUMNS * 2 * 4);
});

test('truncating only ever shortens', () => {
  const { cache } = makeCache();
  cache.length = 10;
  cache.truncate(20);
  expect(cache.length).toBe(10);
  cache.truncate(4);
  expect(cache.length).toBe(4);
  cache.truncate(0);
  expect(cache.length).toBe(0);
});
