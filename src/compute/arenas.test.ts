import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Arenas, MAX_ARENA_BYTES, type Tensor, WASM_PAGE } from './arenas.ts';

const CAPACITY = 8 * WASM_PAGE;
const PAGE = 4096;

interface Span {
  arena: number;
  from: number;
  bytes: number;
}

/** A reservation: a place of some bytes, or a tensor, perhaps with copies everywhere. */
const reservation = fc.oneof(
  fc.record({ kind: fc.constant('place' as const), bytes: fc.integer({ min: 1, max: 150_000 }) }),
  fc.record({ kind: fc.constant('home' as const), bytes: fc.integer({ min: 1, max: 3000 }).map(n => n * 4) }),
  fc.record({ kind: fc.constant('copied' as const), bytes: fc.integer({ min: 1, max: 3000 }).map(n => n * 4) }),
);

function reserve(arenas: Arenas, { kind, bytes }: { kind: string; bytes: number }, spans: Span[], copied: Tensor[]) {
  if (kind === 'place') {
    const { arena, offset } = arenas.place(bytes, 'slots');
    spans.push({ arena, from: offset, bytes });
    return;
  }
  const tensor = arenas.tensor(bytes / 4, 1, { replicated: kind === 'copied' });
  if (kind === 'copied') copied.push(tensor);
  else spans.push({ arena: 0, from: tensor.at[0], bytes });
}

test('nothing overlaps, everything is page-aligned and inside, and copied tensors are in every arena', () => {
  fc.assert(
    fc.property(fc.array(reservation, { minLength: 1, maxLength: 30 }), reservations => {
      const arenas = new Arenas(CAPACITY);
      const spans: Span[] = [];
      const copied: Tensor[] = [];
      for (const each of reservations) {
        try {
          reserve(arenas, each, spans, copied);
        } catch (error) {
          // a tensor must be in arena 0 (and its copies where they belong), which may be full
          expect(error).toMatchObject({ code: 'ARENA_FULL', details: { purpose: 'scratch' } });
          return;
        }
      }
      for (const { rows, columns, at } of copied) {
        expect(at).toHaveLength(arenas.count);
        for (let arena = 0; arena < at.length; arena++)
          spans.push({ arena, from: at[arena], bytes: rows * columns * 4 });
      }
      spans.sort((a, b) => a.arena - b.arena || a.from - b.from);
      for (const [i, { arena, from, bytes }] of spans.entries()) {
        expect(from % PAGE).toBe(0);
        expect(from).toBeGreaterThanOrEqual(WASM_PAGE);
        expect(from + bytes).toBeLessThanOrEqual(CAPACITY);
        const next = spans[i + 1];
        if (next?.arena === arena) expect(from + bytes).toBeLessThanOrEqual(next.from);
      }
      const counted = Object.values(arenas.bytesByPurpose).reduce((sum, bytes) => sum + bytes, 0);
      expect(arenas.totalBytes).toBe(counted + arenas.count * WASM_PAGE);
    }),
  );
});

test('a fresh arena offers what it promised', () => {
  const arenas = new Arenas(CAPACITY);
  arenas.tensor(100, 10, { replicated: true });
  arenas.tensor(5000, 1);
  const room = arenas.freshArenaRoom;
  arenas.place(arenas.roomIn(0), 'resident');
  expect(arenas.count).toBe(1);
  expect(arenas.place(room, 'resident')).toEqual({ arena: 1, offset: CAPACITY - room });
  expect(arenas.roomIn(1)).toBe(0);
});

test('what no arena can hold is refused with its size', () => {
  const arenas = new Arenas(CAPACITY);
  expect(() => arenas.place(CAPACITY, 'kv')).toThrow(
    expect.objectContaining({ code: 'ARENA_FULL', details: { bytes: CAPACITY, purpose: 'kv' } }),
  );
  // and the arenas go on working
  expect(arenas.place(PAGE, 'kv').offset).toBe(WASM_PAGE);
});

describe('committing', () => {
  test('makes memories of the reserved sizes that cannot grow, then fills computed tables', () => {
    const arenas = new Arenas(CAPACITY);
    const table = arenas.tensor(2, 3, { replicated: true });
    arenas.place(CAPACITY - 2 * WASM_PAGE, 'slots');
    arenas.place(3 * WASM_PAGE, 'slots');
    arenas.onCommit(() => arenas.ints(table, 1).set([1, 2, 3, 4, 5, 6]));
    arenas.commit();
    expect(arenas.memories.map(memory => memory.buffer.byteLength / WASM_PAGE)).toEqual([8, 5]);
    for (const memory of arenas.memories) {
      expect(memory.buffer).toBeInstanceOf(SharedArrayBuffer);
      expect(() => (memory as unknown as { grow(pages: number): number }).grow(1)).toThrow();
    }
    expect([...arenas.ints(table, 1)]).toEqual([1, 2, 3, 4, 5, 6]);
    expect([...arenas.floats(table)]).toEqual([0, 0, 0, 0, 0, 0]);
  });

  test('an end address is never 2^32, which would wrap to nothing', () => {
    expect(MAX_ARENA_BYTES).toBeLessThan(2 ** 32);
    expect(new Arenas().capacityBytes).toBe(MAX_ARENA_BYTES);
  });
});
