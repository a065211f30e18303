/** An arena as the reference kernels see it, and the one way in which they sum. */

import { tree16 } from './math.ts';

const f = Math.fround;

export interface ReferenceMemory {
  readonly f32: Float32Array;
  readonly i32: Int32Array;
  readonly i8: Int8Array;
  readonly bytes: DataView;
  /** Sum over 16 lanes of term(i), i < count; `lane` says which lane an i belongs to (its position modulo 16). */
  reduce16(count: number, term: (i: number) => number, lane?: (i: number) => number): number;
  /** Entry i of an index table of int32; without a table (0) i itself. */
  rowOf(index: number, i: number): number;
}

export function referenceMemory({ buffer }: WebAssembly.Memory): ReferenceMemory {
  const i32 = new Int32Array(buffer);
  const lanes = new Float32Array(16);
  return {
    f32: new Float32Array(buffer),
    i32,
    i8: new Int8Array(buffer),
    bytes: new DataView(buffer),
    reduce16(count, term, lane = i => i) {
      lanes.fill(0);
      for (let i = 0; i < count; i++) {
        const l = lane(i) & 15;
        lanes[l] = lanes[l] + f(term(i));
      }
      return tree16(lanes);
    },
    rowOf: (index, i) => (index === 0 ? i : i32[(index >>> 2) + i]),
  };
}
