import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Arenas, WASM_PAGE } from '../compute/arenas.ts';
import type { Compute } from '../compute/compute.ts';
import { KV_BLOCK } from '../kernels/kernels.ts';
import { REWIND_TOKENS, RowMemory } from './row-memory.ts';

const KEY_COLUMNS = 6;
const VALUE_COLUMNS = 4;
const SESSIONS = 2;
const MAX_ROWS = 8;

interface Wish {
  readonly context?: number;
  readonly window?: number;
  readonly valueColumns?: number;
}

function make({ context = 3 * KV_BLOCK - 5, window = 0, valueColumns = VALUE_COLUMNS }: Wish = {}) {
  const arenas = new Arenas(32 * WASM_PAGE);
  const shape = { kind: 'rows' as const, keyColumns: KEY_COLUMNS, valueColumns, window };
  const options = { context, sessions: SESSIONS, encoding: 'f32' as const, maxRows: MAX_ROWS };
  const memory = new RowMemory(arenas, shape, options);
  const keys = arenas.tensor(context, KEY_COLUMNS);
  const values = arenas.tensor(context, Math.max(1, valueColumns));
  // the blocks go to an arena of their own
  arenas.place(arenas.roomIn(0), 'resident');
  memory.placeBlocks();
  arenas.commit();
  return { arenas, memory, keys, values };
}
type Made = ReturnType<typeof make>;

/** float32 needs no commands. */
const NO_COMPUTE = undefined as unknown as Compute;

const keyRow = (position: number, text = 0) =>
  Array.from({ length: KEY_COLUMNS }, (_, c) => text * 1e5 + position * 10 + c);
const valueRow = (position: number, text = 0) =>
  keyRow(position, text)
    .slice(0, VALUE_COLUMNS)
    .map(x => -x - 1);

/** Rows of a text at positions first..first+n-1; texts have other values at every position. */
function write({ arenas, memory, keys, values }: Made, first: number, n: number, session = 0, text = 0): void {
  const rows = (of: typeof keyRow) => Array.from({ length: n }, (_, i) => of(first + i, text)).flat();
  arenas.floats(keys).set(rows(keyRow));
  const hasValues = memory.shape.valueColumns > 0;
  if (hasValues) arenas.floats(values).set(rows(valueRow));
  memory.write(NO_COMPUTE, keys, hasValues ? values : null, 0, session, first, n);
}

/** What a kernel reads: the session's table, the block of a position, the key or value row in it. */
function read({ arenas, memory }: Made, position: number, kind: 'key' | 'value', session = 0): number[] {
  const { buffer } = arenas.memories[memory.arena];
  const block = new Int32Array(buffer, memory.tableOf(session))[Math.floor(position / KV_BLOCK)];
  const row = position % KV_BLOCK;
  if (kind === 'key') return [...new Float32Array(buffer, block + row * KEY_COLUMNS * 4, KEY_COLUMNS)];
  const values = block + KV_BLOCK * KEY_COLUMNS * 4;
  return [...new Float32Array(buffer, values + row * VALUE_COLUMNS * 4, VALUE_COLUMNS)];
}

describe('every token is kept', () => {
  test('rows are found again however they were written: alone, in chunks, over block boundaries', () => {
    const context = 3 * KV_BLOCK - 5;
    const chunks = fc.array(fc.integer({ min: 1, max: 70 }), { minLength: 1, maxLength: 40 });
    fc.assert(
      fc.property(chunks, sizes => {
        const made = make();
        let length = 0;
        for (const size of sizes) {
          const n = Math.min(size, context - length);
          write(made, length, n);
          length += n;
        }
        for (let position = 0; position < length; position++) {
          expect(read(made, position, 'key')).toEqual(keyRow(position));
          expect(read(made, position, 'value')).toEqual(valueRow(position));
        }
      }),
      { numRuns: 20 },
    );
  });

  test.each([63, 64, 65])('a chunk that ends at position %i continues there', end => {
    const made = make();
    write(made, 0, end);
    write(made, end, 2);
    for (let position = end - 2; position < end + 2; position++) {
      expect(read(made, position, 'key')).toEqual(keyRow(position));
      expect(read(made, position, 'value')).toEqual(valueRow(position));
    }
  });

  test('the last position of the context has a place, and sessions do not touch each other', () => {
    const made = make();
    const last = 3 * KV_BLOCK - 6;
    write(made, last, 1);
    expect(read(made, last, 'value')).toEqual(valueRow(last));
    expect(read(made, last, 'value', 1)).toEqual([0, 0, 0, 0]);
  });

  test('rows without values', () => {
    const made = make({ valueColumns: 0 });
    write(made, 0, 70);
    expect(made.memory.blockBytes).toBe(KV_BLOCK * KEY_COLUMNS * 4);
    for (const position of [0, 63, 64, 69]) expect(read(made, position, 'key')).toEqual(keyRow(position));
  });

  test('every earlier length can be had', () => {
    const made = make();
    write(made, 0, 150);
    expect(made.memory.goesRound).toBe(false);
    for (const n of [0, 1, 100, 150]) expect(made.memory.reaches(0, n)).toBe(true);
  });

  test('the beginning of a session can be copied to another', () => {
    const made = make();
    write(made, 0, 100);
    made.memory.copy(0, 1, 80);
    for (const position of [0, 63, 64, 79]) {
      expect(read(made, position, 'key', 1)).toEqual(keyRow(position));
      expect(read(made, position, 'value', 1)).toEqual(valueRow(position));
    }
  });
});

describe('a window', () => {
  const WINDOW = 20;
  const wish = { context: 2000, window: WINDOW };
  /** Tokens that the blocks of one session hold. */
  const HELD = Math.ceil((WINDOW - 1 + MAX_ROWS + REWIND_TOKENS) / KV_BLOCK) * KV_BLOCK;

  /** Writes up to n tokens in passes of at most MAX_ROWS, and checks after each that all its queries see is there. */
  function feed(made: Made, from: number, n: number, session = 0, text = 0): void {
    for (let first = from; first < n; first += MAX_ROWS) {
      const rows = Math.min(MAX_ROWS, n - first);
      write(made, first, rows, session, text);
      for (let position = Math.max(0, first - WINDOW + 1); position < first + rows; position++) {
        if (position >= from) expect(read(made, position, 'key', session)).toEqual(keyRow(position, text));
      }
    }
  }

  test('takes less memory than the context, and always holds what a pass sees', () => {
    const made = make(wish);
    expect(made.memory.goesRound).toBe(true);
    feed(made, 0, 2000);
  });

  test('a window as long as the context keeps everything', () => {
    expect(make({ context: 200, window: 200 }).memory.goesRound).toBe(false);
  });

  test('what reaches says can be had is there, and at least as far back as promised', () => {
    for (const written of [1, 64, HELD, HELD + 1, 1000, 1999]) {
      const made = make(wish);
      feed(made, 0, written);
      for (let n = written; n > 0; n--) {
        const from = Math.max(0, n - WINDOW + 1);
        const isThere = Array.from({ length: n - from }, (_, i) => from + i).every(
          position => read(made, position, 'key')[0] === keyRow(position)[0],
        );
        if (made.memory.reaches(0, n)) expect(isThere, `${n} of ${written}`).toBe(true);
        if (n >= written - REWIND_TOKENS) expect(made.memory.reaches(0, n), `${n} of ${written}`).toBe(true);
      }
      expect(made.memory.reaches(0, 0)).toBe(true);
      expect(made.memory.reaches(0, 1)).toBe(written <= HELD);
    }
  });

  test('going back does not bring back what is gone', () => {
    const made = make(wish);
    feed(made, 0, 1000);
    feed(made, 1000 - REWIND_TOKENS, 1000 - REWIND_TOKENS + 10, 0, 1);
    expect(made.memory.reaches(0, 1000 - REWIND_TOKENS)).toBe(true);
    expect(made.memory.reaches(0, 1000 - HELD)).toBe(false);
  });

  test('a copy can go back as far as its source, whatever the target held', () => {
    const made = make(wish);
    feed(made, 0, 1000);
    feed(made, 0, 500, 1, 1);
    made.memory.copy(0, 1, 900);
    for (let position = 900 - WINDOW + 1; position < 900; position++) {
      expect(read(made, position, 'key', 1)).toEqual(keyRow(position));
    }
    expect(made.memory.reaches(1, 900)).toBe(true);
    expect(made.memory.reaches(1, 1000 - HELD)).toBe(false);
    feed(made, 900, 930, 1, 2);
  });

  test('a cleared session starts anew', () => {
    const made = make(wish);
    feed(made, 0, 1000);
    made.memory.clear(0);
    feed(made, 0, 50, 0, 1);
    expect(made.memory.reaches(0, 10)).toBe(true);
  });
});
