import { expect, test } from 'vitest';
import { Arenas, WASM_PAGE } from '../compute/arenas.ts';
import { FixedMemory, SNAPSHOTS } from './fixed-memory.ts';

const SHAPES = [
  { kind: 'fixed' as const, floats: 6 },
  { kind: 'fixed' as const, floats: 4 },
];
const SESSIONS = 2;

function make() {
  const arenas = new Arenas(4 * WASM_PAGE);
  const memory = new FixedMemory(arenas, SHAPES, SESSIONS);
  // some copies lie in other arenas
  arenas.place(arenas.roomIn(0) - 2 * 4096, 'resident');
  memory.placeSnapshots();
  arenas.commit();
  const floats = (state: number, session: number) =>
    new Float32Array(arenas.memories[0].buffer, memory.address(state, session), SHAPES[state].floats);
  return {
    arenas,
    memory,
    /** What the kernels of a pass would leave: the state after so many tokens of a text. */
    set(session: number, tokens: number, text = 0) {
      for (const state of [0, 1]) floats(state, session).fill(1000 * text + tokens + state / 2);
    },
    get: (session: number) => [0, 1].map(state => [...new Set(floats(state, session))]),
  };
}
const after = (tokens: number, text = 0) => [[1000 * text + tokens], [1000 * text + tokens + 0.5]];
const EMPTY = [[0], [0]];

test('states of sessions lie apart, and begin as zeros', () => {
  const { arenas, memory, set, get } = make();
  expect(arenas.count).toBeGreaterThan(1);
  expect(get(0)).toEqual(EMPTY);
  set(0, 5);
  expect(get(1)).toEqual(EMPTY);
  expect(new Set([0, 1].flatMap(s => [memory.address(0, s), memory.address(1, s)])).size).toBe(4);
});

test('the kept lengths, the longest first, with 0 for the beginning', () => {
  const { memory, set } = make();
  for (const tokens of [10, 30, 20]) {
    set(0, tokens);
    memory.snapshot(0, tokens, 0);
  }
  expect(memory.lengths(0, 100)).toEqual([30, 20, 10, 0]);
  expect(memory.lengths(0, 29)).toEqual([20, 10, 0]);
  expect(memory.lengths(1, 100)).toEqual([0]);
});

test('going back gives the state of then, and forgets what came after', () => {
  const { memory, set, get } = make();
  for (const tokens of [10, 20, 30]) {
    set(0, tokens);
    memory.snapshot(0, tokens, 0);
  }
  set(0, 35);
  memory.restore(0, 20);
  expect(get(0)).toEqual(after(20));
  expect(memory.lengths(0, 100)).toEqual([20, 10, 0]);
  memory.restore(0, 0);
  expect(get(0)).toEqual(EMPTY);
  expect(memory.lengths(0, 100)).toEqual([0]);
});

test('the copy that was not used for the longest time makes room', () => {
  const { memory, set } = make();
  for (let tokens = 1; tokens <= SNAPSHOTS; tokens++) {
    set(0, tokens);
    memory.snapshot(0, tokens, 0);
  }
  memory.copy(0, 1, 1, false); // uses the one after 1 token
  set(0, 50);
  memory.snapshot(0, 50, 0);
  expect(memory.lengths(0, 100)).toEqual([50, 3, 1, 0]);
});

test('a copy can replace another, or itself', () => {
  const { memory, set, get } = make();
  set(0, 10);
  memory.snapshot(0, 10, 0);
  set(0, 20);
  memory.snapshot(0, 20, 10);
  expect(memory.lengths(0, 100)).toEqual([20, 0]);
  set(0, 20, 1);
  memory.snapshot(0, 20, 0);
  expect(memory.lengths(0, 100)).toEqual([20, 0]);
  memory.restore(0, 20);
  expect(get(0)).toEqual(after(20, 1));
  // what is to be replaced is not there any more
  memory.snapshot(0, 25, 10);
  expect(memory.lengths(0, 100)).toEqual([25, 20, 0]);
});

test('a session becomes what another one is, or was', () => {
  const { memory, set, get } = make();
  for (const tokens of [10, 20, 30]) {
    set(0, tokens);
    memory.snapshot(0, tokens, 0);
  }
  set(0, 33);
  set(1, 7, 1);
  memory.snapshot(1, 7, 0);

  memory.copy(0, 1, 33, true);
  expect(get(1)).toEqual(after(33));
  expect(memory.lengths(1, 100)).toEqual([30, 20, 10, 0]);

  memory.copy(0, 1, 20, false);
  expect(get(1)).toEqual(after(20));
  expect(memory.lengths(1, 100)).toEqual([20, 10, 0]);
  memory.restore(1, 10);
  expect(get(1)).toEqual(after(10));

  // the source is as before
  expect(get(0)).toEqual(after(33));
  expect(memory.lengths(0, 100)).toEqual([30, 20, 10, 0]);
});

test('states too large for the first memory are refused by name', () => {
  const arenas = new Arenas(4 * WASM_PAGE);
  arenas.place(arenas.roomIn(0) - 4096, 'resident');
  expect(() => new FixedMemory(arenas, [{ kind: 'fixed', floats: 2000 }], 3)).toThrow(
    expect.objectContaining({ code: 'STATE_TOO_LARGE' }),
  );
});
