/**
 * The latest events in shared memory: one thread writes, any number read, nobody waits. A reader that is too slow loses the oldest
 * and is told how many.
 */

import { type EventKind, HEAD_WORDS, KIND_CODE, RECORD_WORDS } from './fields.ts';

/** A power of two. Minutes of a large model, seconds of a tiny one; 1.4 MB. */
export const RING_RECORDS = 4096;

// Counters of records, each on its own cache line; they wrap, so only differences count.
const BEGUN = 0;
const DONE = 16;
const CONTROL_WORDS = 32;

export function ringBytes(records = RING_RECORDS): number {
  return CONTROL_WORDS * 4 + records * RECORD_WORDS * 8;
}

export class RingWriter {
  readonly #control: Int32Array;
  readonly #words: Float64Array;
  readonly #records: number;
  #next = 0;

  constructor(buffer: SharedArrayBuffer, offset: number, records = RING_RECORDS) {
    this.#control = new Int32Array(buffer, offset, CONTROL_WORDS);
    this.#words = new Float64Array(buffer, offset + CONTROL_WORDS * 4, records * RECORD_WORDS);
    this.#records = records;
  }

  /** Writes values[from .. from + count) as the fields of an event. */
  write(
    kind: EventKind,
    step: number,
    layer: number,
    ms: number,
    values: Float64Array,
    from: number,
    count: number,
  ): void {
    const words = this.#words;
    const at = (this.#next % this.#records) * RECORD_WORDS;
    this.#next++;
    // whoever reads this place now sees that it is written to
    Atomics.add(this.#control, BEGUN, 1);
    words[at] = KIND_CODE[kind];
    words[at + 1] = step;
    words[at + 2] = layer;
    words[at + 3] = ms;
    for (let i = 0; i < count; i++) words[at + HEAD_WORDS + i] = values[from + i];
    Atomics.add(this.#control, DONE, 1);
  }
}

export class RingReader {
  /** Records that were overwritten before they were read. */
  lost = 0;
  readonly #control: Int32Array;
  readonly #words: Float64Array;
  readonly #records: number;
  /** Number of the next record to read, as the counters have it. */
  #next: number;

  /** Reads what is written from now on. */
  constructor(buffer: SharedArrayBuffer, offset: number, records = RING_RECORDS) {
    this.#control = new Int32Array(buffer, offset, CONTROL_WORDS);
    this.#words = new Float64Array(buffer, offset + CONTROL_WORDS * 4, records * RECORD_WORDS);
    this.#records = records;
    this.#next = Atomics.load(this.#control, DONE);
  }

  /** The next record [RECORD_WORDS], or null when all are read. */
  read(): Float64Array | null {
    for (;;) {
      const behind = (Atomics.load(this.#control, DONE) - this.#next) | 0;
      if (behind <= 0) return null;
      const excess = behind - this.#records;
      if (excess > 0) this.#skip(excess);
      const at = ((this.#next >>> 0) % this.#records) * RECORD_WORDS;
      const record = this.#words.slice(at, at + RECORD_WORDS);
      if (((Atomics.load(this.#control, BEGUN) - this.#next) | 0) <= this.#records) {
        this.#next = (this.#next + 1) | 0;
        return record;
      }
      this.#skip(1);
    }
  }

  #skip(count: number): void {
    this.lost += count;
    this.#next = (this.#next + count) | 0;
  }
}
