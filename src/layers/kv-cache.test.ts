import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Arenas, WASM_PAGE } from '../compute/arenas.ts';
import type { Compute } from '../compute/compute.ts';
import { KV_BLOCK } from '../kernels/kernels.ts';
import { KvCache } from './kv-cache.ts';

const LAYERS = 2;
const COLUMNS = 6;
const CONTEXT = 3 * KV_BLOCK - 5;

const SESSIONS = 2;

function makeCache() {
  // each layer's blocks go to an arena of their own
  const arenas = new Arenas(3 * WASM_PAGE);
  const shape = { layers: LAYERS, columns: COLUMNS, context: CONTEXT, sessions: SESSIONS, maxRows: 8 };
  const cache = new KvCache(arenas, { ...shape, encoding: 'f32' });
  const keys = arenas.tensor(CONTEXT, COLUMNS);
  const values = arenas.tensor(CONTEXT, COLUMNS);
  arenas.place(arenas.roomIn(0) - 6 * 4096, 'resident');
  cache.placeBlocks();
  arenas.commit();
  return { arenas, cache, keys, values };
}

/** What an attention kernel reads: the row's table, the block of a position, the key or value row in it. */
function read(arenas: Arenas, cache: KvCache, layer: number, position: number, kind: 'key' | 'value', session = 0) {
  cache.pointRows(layer, 3, 1, session);
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

/** float32 needs no commands. */
const NO_COMPUTE = undefined as unknown as Compute;

function write(made: ReturnType<typeof makeCache>, layer: number, first: number, n: number, session = 0): void {
  const { arenas, cache, keys, values } = made;
  const rows = (of: typeof keyRow) => Array.from({ length: n }, (_, i) => of(layer, first + i)).flat();
  arenas.floats(keys).set(rows(keyRow));
  arenas.floats(values).set(rows(valueRow));
  cache.write(NO_COMPUTE, layer, keys, values, 0, session, first, n);
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
});

test('sessions do not touch each other, and a block read is a block written', () => {
  const made = makeCache();
  const { arenas, cache } = made;
  write(made, 0, 0, 70, 0);
  write(made, 1, 0, 70, 0);
  for (const layer of [0, 1]) expect(read(arenas, cache, layer, 5, 'key', 1)).toEqual([0, 0, 0, 0, 0, 0]);
  const block = new Uint8Array(cache.blockBytes);
  expect(block.length).toBe(LAYERS * KV_BLOCK * COLUMNS * 2 * 4);
  cache.readBlock(0, 1, block);
  cache.writeBlock(1, 1, block);
  for (const layer of [0, 1]) {
    expect(read(arenas, cache, layer, 69, 'value', 1)).toEqual(valueRow(layer, 69));
    expect(read(arenas, cache, layer, 5, 'key', 1)).toEqual([0, 0, 0, 0, 0, 0]);
  }
});

test('the beginning of a session can be copied to another', () => {
  const made = makeCache();
  const { arenas, cache } = made;
  for (const layer of [0, 1]) write(made, layer, 0, 100, 0);
  cache.copy(0, 1, 80);
  for (const layer of [0, 1]) {
    for (const position of [0, 63, 64, 79]) {
      expect(read(arenas, cache, layer, position, 'key', 1)).toEqual(keyRow(layer, position));
      expect(read(arenas, cache, layer, position, 'value', 1)).toEqual(valueRow(layer, position));
    }
  }
});
