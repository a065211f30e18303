/** Resident weights: immutable, placed once, read in parallel by the readers. */

import { InternalError } from '../common/errors.ts';
import type { Arenas, Place, Tensor } from '../compute/arenas.ts';
import { type Matrix, type MatrixPiece, matrixOf } from '../compute/matrix.ts';
import type { PlacedWeights } from '../models/family.ts';
import type { ModelRecords } from '../models/records.ts';
import type { ReadPool } from '../storage/read-pool.ts';
import type { RecordTable } from '../storage/record-table.ts';

export class Weights implements PlacedWeights {
  readonly #arenas: Arenas;
  readonly #records: ModelRecords;
  readonly #table: RecordTable;
  readonly #places = new Map<number, Place>();
  readonly #vectors = new Map<string, Tensor>();

  /** Reserves all vectors at once: they must lie in arena 0, which large matrices may fill. */
  constructor(arenas: Arenas, records: ModelRecords, table: RecordTable, vectorNames: readonly string[]) {
    this.#arenas = arenas;
    this.#records = records;
    this.#table = table;
    for (const name of vectorNames) {
      const [record] = this.#recordsOf(name);
      const place = this.#placeRecord(record);
      if (place.arena !== 0) throw new InternalError('VECTOR_NOT_HOME', `${name} does not fit the first memory`);
      const { rows, columns } = records.records[record].parts[0];
      this.#vectors.set(name, { rows, columns, at: [place.offset + table.partOffset(record, 0)] });
    }
  }

  vector(name: string): Tensor {
    const vector = this.#vectors.get(name);
    if (!vector) throw new InternalError('UNKNOWN_TENSOR', `${name} is not in the family's list of vectors`);
    return vector;
  }

  matrix(name: string): Matrix {
    const pieces: MatrixPiece[] = [];
    let rows = 0;
    const indices = this.#recordsOf(name);
    for (const record of indices) {
      const place = this.#placeRecord(record);
      const part = this.#records.records[record].parts[0];
      const offset = place.offset + this.#table.partOffset(record, 0);
      pieces.push({ arena: place.arena, offset, firstRow: rows, rows: part.rows });
      rows += part.rows;
    }
    const { layout, columns } = this.#records.records[indices[0]].parts[0];
    return matrixOf(layout, rows, columns, pieces);
  }

  /** Bytes that loading will read. */
  get bytesToRead(): number {
    let bytes = 0;
    for (const record of this.#places.keys()) bytes += this.#table.readBytes(record);
    return bytes;
  }

  /** Reads everything that was placed. Throws StorageError of the first read that fails. */
  load(pool: ReadPool, onProgress: (doneBytes: number, totalBytes: number) => void): void {
    const total = this.bytesToRead;
    const waiting = [...this.#places];
    let running: number[] = [];
    let done = 0;
    while (waiting.length > 0 || running.length > 0) {
      while (waiting.length > 0 && pool.freeTickets > 0) {
        const [record, place] = waiting.pop()!;
        running.push(pool.submit(record, place.arena, place.offset, 'demand'));
      }
      const before = done;
      running = running.filter(ticket => {
        if (pool.state(ticket) === 'queued' || pool.state(ticket) === 'running') return true;
        done += pool.finish(ticket).bytes;
        return false;
      });
      if (done > before) onProgress(done, total);
      else if (running.length > 0) pool.waitAny(1000);
    }
  }

  #recordsOf(name: string): readonly number[] {
    const indices = this.#records.dense.get(name);
    if (!indices) throw new InternalError('UNKNOWN_TENSOR', `${name} is not in the family's tensor table`);
    return indices;
  }

  #placeRecord(record: number): Place {
    const place = this.#arenas.place(this.#table.placedBytes(record), 'resident');
    this.#places.set(record, place);
    return place;
  }
}
