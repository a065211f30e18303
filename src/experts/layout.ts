/** Which records are experts, and the shapes of their matrices. */

import { type Matrix, matrixOf } from '../compute/matrix.ts';
import type { StoredRecord } from '../quant/stored.ts';

/** Which records of the table are the experts of which layer. */
export interface ExpertRecords {
  /** Experts per layer. */
  readonly experts: number;
  /** First record of each layer's experts, -1 for layers that do not route. */
  readonly firstRecord: readonly number[];
  /** All records of the table, residents included. */
  readonly records: readonly StoredRecord[];
}

/** Most experts have the same shapes, so each distinct triple of matrices (gate, up, down) is made once. */
export class ExpertShapes {
  readonly #distinct: (readonly Matrix[])[] = [];
  /** Per record; experts only are ever set. */
  readonly #of: Int32Array;

  constructor({ experts, firstRecord, records }: ExpertRecords) {
    this.#of = new Int32Array(records.length);
    const known = new Map<string, number>();
    for (const first of firstRecord) {
      if (first < 0) continue;
      for (let record = first; record < first + experts; record++) {
        const { parts } = records[record];
        const key = parts.map(p => `${p.layout}:${p.rows}x${p.columns}`).join(' ');
        if (!known.has(key)) {
          known.set(key, this.#distinct.length);
          this.#distinct.push(parts.map(p => matrixOf(p.layout, p.rows, p.columns, [])));
        }
        this.#of[record] = known.get(key)!;
      }
    }
  }

  /** Part 0 gate, 1 up, 2 down. */
  of(record: number, part: number): Matrix {
    return this.#distinct[this.#of[record]][part];
  }
}
