/** A session over states that cannot be cut: recurrent floats beside a window that goes round, fed by a model that is only a sum. */

import { describe, expect, test } from 'vitest';
import { Arenas, WASM_PAGE } from '../compute/arenas.ts';
import type { Compute } from '../compute/compute.ts';
import { KV_BLOCK } from '../kernels/kernels.ts';
import { SessionMemory } from '../layers/session-memory.ts';
import type { StateShape } from '../layers/state.ts';
import type { Runtime } from './runtime.ts';
import { Session } from './session.ts';

const WINDOW = 8;
const CONTEXT = 1024;
const MAX_ROWS = 64;
const STATES: readonly StateShape[] = [
  { kind: 'rows', keyColumns: 1, valueColumns: 0, window: WINDOW },
  { kind: 'fixed', floats: 1 },
];
/** float32 needs no commands. */
const NO_COMPUTE = undefined as unknown as Compute;

interface Row {
  readonly session: number;
  readonly ids: ArrayLike<number>;
  readonly from: number;
  readonly to: number;
  readonly first: number;
}

/** A pass adds ids to the recurrent sum and writes each as the row of its token. `fail`: passes until one fails after its work. */
function make() {
  const arenas = new Arenas(64 * WASM_PAGE);
  const options = { context: CONTEXT, sessions: 1, encoding: 'f32', maxRows: MAX_ROWS } as const;
  const memory = new SessionMemory(arenas, STATES, options);
  const x = arenas.tensor(MAX_ROWS, 1);
  memory.placeBlocks();
  arenas.commit();
  const sum = () => new Float32Array(arenas.memories[0].buffer, memory.fixedAddress(1, 0), 1);
  const key = (position: number): number => {
    memory.pointRows(0, 0, 1, 0);
    const arena = memory.arenaOf(0);
    const { buffer } = arenas.memories[arena];
    const table = new Int32Array(buffer, memory.rowTables(0).at[arena], 1)[0];
    const block = new Int32Array(buffer, table)[Math.floor(position / KV_BLOCK)];
    return new Float32Array(buffer, block + (position % KV_BLOCK) * 4, 1)[0];
  };
  const passes = { left: Number.POSITIVE_INFINITY };
  let rows: Row[] = [];
  const batch = {
    maxRows: MAX_ROWS,
    cache: memory,
    clear: () => (rows = []),
    add: (session: number, ids: ArrayLike<number>, from: number, to: number, first: number) =>
      rows.push({ session, ids, from, to, first }),
  };
  const forward = () => {
    for (const { session, ids, from, to, first } of rows) {
      for (let i = from; i < to; i++) {
        arenas.floats(x).fill(ids[i], 0, 1);
        memory.write(NO_COMPUTE, 0, x, null, 0, session, first + i - from, 1);
        sum()[0] += ids[i];
      }
    }
    if (passes.left-- === 0) throw new Error('a pass that fails');
  };
  const runtime = { batch, model: { forward }, info: { layers: 1 }, cancelled: () => false, passDone: () => {} };
  const session = new Session(runtime as unknown as Runtime);
  /** What a query at the end sees. */
  const seen = () => {
    const first = Math.max(0, session.length - WINDOW + 1);
    return [sum()[0], ...Array.from({ length: session.length - first }, (_, i) => key(first + i))];
  };
  /** What it ought to see. */
  const expected = () => {
    const { ids } = session;
    return [ids.reduce((total, id) => total + id, 0), ...ids.slice(Math.max(0, ids.length - WINDOW + 1))];
  };
  return { session, passes, seen, expected };
}

const IDS = Array.from({ length: 1000 }, (_, i) => 1 + (i % 97));

/** Where the window lies in memory goes round: old rows lie about where the beginning of the text is computed again. */
describe.each([
  { name: 'in the middle of a prompt', prompt: 1000, counts: [0, 1] },
  { name: 'in an answer', prompt: 180, counts: [0, 1, 2, 3, 9, 12] },
])('making good a failed pass fails too, $name', ({ prompt, counts }) => {
  test.each(counts)('after %i passes: what is left is right', passes => {
    for (const length of [1000, 900, 899, 700, 164, 64, 30, 0]) {
      const { session, passes: budget, seen, expected } = make();
      session.expectPrompt(180, 0);
      session.feedAll(IDS.slice(0, 180), () => {});
      if (prompt > 180) session.expectPrompt(prompt, 0);
      // the copy of 164 tokens stays, but not the rows that they see
      session.feedAll(IDS.slice(180, 900), () => {});
      budget.left = 0;
      expect(() => session.feed([5])).toThrow('a pass that fails');
      budget.left = passes;
      expect(() => session.feed([5])).toThrow('a pass that fails');
      expect(session.ids).toEqual(IDS.slice(0, 900));
      budget.left = Number.POSITIVE_INFINITY;
      session.truncate(length);
      expect(seen(), `${length} tokens`).toEqual(expected());
      session.feedAll(IDS.slice(session.length, 950), () => {});
      expect(session.ids).toEqual(IDS.slice(0, 950));
      expect(seen()).toEqual(expected());
    }
  });
});
