import { expect, test } from 'vitest';
import { Arenas, WASM_PAGE } from '../compute/arenas.ts';
import type { Compute } from '../compute/compute.ts';
import { KV_BLOCK } from '../kernels/kernels.ts';
import { blockBytesOf, isRewindable, SessionMemory } from './session-memory.ts';
import type { StateShape } from './state.ts';

const COLUMNS = 6;
const ROWS: StateShape = { kind: 'rows', keyColumns: COLUMNS, valueColumns: COLUMNS, window: 0 };
const LATENTS: StateShape = { kind: 'rows', keyColumns: COLUMNS, valueColumns: 0, window: 0 };
const WINDOW: StateShape = { ...ROWS, window: 4 };
const FIXED: StateShape = { kind: 'fixed', floats: 5 };

/** float32 needs no commands. */
const NO_COMPUTE = undefined as unknown as Compute;

function make(states: readonly StateShape[], context = 1000) {
  const arenas = new Arenas(64 * WASM_PAGE);
  const memory = new SessionMemory(arenas, states, { context, sessions: 2, encoding: 'f32', maxRows: 8 });
  const x = arenas.tensor(context, COLUMNS);
  memory.placeBlocks();
  arenas.commit();
  /** Rows first..first+n-1 of a state whose elements are all `value`. */
  const write = (state: number, first: number, n: number, value: number, session = 0) => {
    arenas.floats(x).fill(value, 0, n * COLUMNS);
    const shape = states[state];
    const values = shape.kind === 'rows' && shape.valueColumns > 0 ? x : null;
    memory.write(NO_COMPUTE, state, x, values, 0, session, first, n);
  };
  const fixed = (state: number, session = 0) =>
    new Float32Array(arenas.memories[0].buffer, memory.fixedAddress(state, session), 5);
  /** First element of the key at a position, found as kernels find it. */
  const key = (state: number, position: number, session = 0) => {
    memory.pointRows(state, 3, 1, session);
    const arena = memory.arenaOf(state);
    const { buffer } = arenas.memories[arena];
    const table = new Int32Array(buffer, memory.rowTables(state).at[arena], 8)[3];
    const block = new Int32Array(buffer, table)[Math.floor(position / KV_BLOCK)];
    return new Float32Array(buffer, block + (position % KV_BLOCK) * COLUMNS * 4, 1)[0];
  };
  return { memory, write, fixed, key };
}

test('states that grow are told from others', () => {
  expect(isRewindable([ROWS, LATENTS])).toBe(true);
  expect(isRewindable([ROWS, WINDOW])).toBe(false);
  expect(isRewindable([ROWS, FIXED])).toBe(false);
  expect(blockBytesOf([ROWS, FIXED, LATENTS], 'f32')).toBe(3 * KV_BLOCK * COLUMNS * 4);
  expect(blockBytesOf([ROWS, FIXED, LATENTS], 'bf16')).toBe(3 * KV_BLOCK * COLUMNS * 2);
});

test('states do not touch each other, whatever stands between them', () => {
  const { memory, write, fixed, key } = make([FIXED, ROWS, FIXED, LATENTS]);
  write(1, 0, 70, 1);
  write(3, 0, 70, 3);
  fixed(0).fill(10);
  fixed(2).fill(12);
  expect([key(1, 69), key(3, 69)]).toEqual([1, 3]);
  expect([...fixed(0), ...fixed(2)]).toEqual([...Array(5).fill(10), ...Array(5).fill(12)]);
  expect([key(1, 69, 1), key(3, 69, 1), fixed(0, 1)[0]]).toEqual([0, 0, 0]);
  expect(memory.needsSnapshots).toBe(true);
});

test('a block read is a block written', () => {
  const { memory, write, key } = make([ROWS, LATENTS]);
  write(0, 0, 70, 1);
  write(1, 0, 70, 2);
  const block = new Uint8Array(memory.blockBytes);
  expect(block.length).toBe(blockBytesOf([ROWS, LATENTS], 'f32'));
  memory.readBlock(0, 1, block);
  memory.writeBlock(1, 1, block);
  expect([key(0, 69, 1), key(1, 69, 1)]).toEqual([1, 2]);
  expect([key(0, 5, 1), key(1, 5, 1)]).toEqual([0, 0]);
});

test('rows alone go back to every length', () => {
  const { memory, write } = make([ROWS]);
  write(0, 0, 100, 1);
  expect([100, 57, 0].map(n => memory.rewindLength(0, 100, true, n))).toEqual([100, 57, 0]);
  expect(memory.needsSnapshots).toBe(false);
});

test('fixed states go back to where a copy was taken, and stay where they are when nothing has failed', () => {
  const { memory, write, fixed } = make([FIXED, ROWS]);
  write(1, 0, 40, 1);
  fixed(0).fill(40);
  memory.snapshot(0, 40, 0);
  write(1, 40, 20, 2);
  fixed(0).fill(60);
  expect(memory.rewindLength(0, 60, true, 60)).toBe(60);
  expect(memory.rewindLength(0, 60, false, 60)).toBe(40);
  expect(memory.rewindLength(0, 60, true, 59)).toBe(40);
  expect(memory.rewindLength(0, 60, true, 39)).toBe(0);
  memory.rewind(0, 40);
  expect(fixed(0)[0]).toBe(40);
  memory.rewind(0, 0);
  expect(fixed(0)[0]).toBe(0);
});

test('a copy of fixed states counts only while the window of that time is there', () => {
  const { memory, write, fixed } = make([WINDOW, FIXED]);
  for (let first = 0; first < 800; first += 8) {
    write(0, first, 8, first);
    if (first + 8 === 80 || first + 8 === 600) {
      fixed(1).fill(first + 8);
      memory.snapshot(0, first + 8, 0);
    }
  }
  expect(memory.rewindLength(0, 800, true, 799)).toBe(600);
  // the copy is there, the rows are not
  expect(memory.rewindLength(0, 800, true, 599)).toBe(0);
  expect(memory.rewindLength(0, 800, true, 800)).toBe(800);
  // what is written from the beginning on overwrites the rows of all copies
  memory.rewind(0, 0);
  write(0, 0, 8, 0);
  expect(memory.rewindLength(0, 800, false, 800)).toBe(0);
});

test('a session becomes the beginning of another, with its copies', () => {
  const { memory, write, fixed, key } = make([FIXED, ROWS]);
  write(1, 0, 40, 1);
  fixed(0).fill(40);
  memory.snapshot(0, 40, 0);
  write(1, 40, 20, 2);
  fixed(0).fill(60);
  memory.copy(0, 1, 60, true);
  expect([fixed(0, 1)[0], key(1, 39, 1), key(1, 59, 1)]).toEqual([60, 1, 2]);
  expect(memory.rewindLength(1, 60, true, 59)).toBe(40);
  memory.copy(0, 1, 40, false);
  expect(fixed(0, 1)[0]).toBe(40);
});
