/**
 * Read requests in shared memory: one thread submits, any number of readers take. A request is a ticket; a reader claims
 * the oldest queued one, demand before ahead, by compare-and-swap on its state word. With at most MAX_TICKETS words to
 * look at (about a microsecond, against reads of 100 and more) a scan needs no lock, and makes promotion a single store.
 */

import { InternalError } from '../common/errors.ts';

/** Requests that may be in the air: the experts of a large layer, twice. */
export const MAX_TICKETS = 1024;
/** Longest failure text kept (UTF-8 bytes): an errno name, a hash or the message of a packer. */
export const MAX_TEXT_BYTES = 192;

export type Priority = 'demand' | 'ahead';
export type TicketState = 'free' | 'queued' | 'running' | 'done' | 'failed';
export type FailureCode = 'READ_FAILED' | 'SHORT_READ' | 'HASH_MISMATCH' | 'PACK_FAILED' | 'READER_DIED';

/** Facts of a failed load. Offset and byte counts are of the extent, not of the aligned read. */
export interface Failure {
  readonly code: FailureCode;
  /** Index of the file, or -1 when no file is to blame. */
  readonly file: number;
  readonly offset: number;
  readonly expected: number;
  readonly got: number;
  /** Errno name (READ_FAILED), computed hash (HASH_MISMATCH) or message. */
  readonly text: string;
}

const FREE = 0;
const QUEUED = 1;
const RUNNING = 2;
const DONE = 3;
const FAILED = 4;
/** Low bits of a state word; those above say which reader runs it, so that a claim names its owner in one step. */
const STATE_BITS = 3;
const STATES: readonly TicketState[] = ['free', 'queued', 'running', 'done', 'failed'];
const FAILURES: readonly FailureCode[] = ['READ_FAILED', 'SHORT_READ', 'HASH_MISMATCH', 'PACK_FAILED', 'READER_DIED'];
const DEMAND = 0;
const AHEAD = 1;

// Control words, each on its own cache line.
const LINE = 16;
const WORK_WORD = 0;
const DONE_WORD = LINE;
const PROGRESS_WORD = 2 * LINE;
const CLOSING_WORD = 3 * LINE;
const HIGH_WORD = 4 * LINE;
const CONTROL_WORDS = 5 * LINE;

// Words of a ticket: one cache line.
const STATE = 0;
const PRIORITY = 1;
const SEQUENCE = 2;
const RECORD = 3;
const ARENA = 4;
const DESTINATION = 5;
const FAILURE = 6;
const FAILED_FILE = 7;
const TEXT_BYTES = 8;
const DRIVE = 9;
const TICKET_WORDS = LINE;

// Float64 results of a ticket.
const READ_BYTES = 0;
const SERVICE_US = 1;
const OFFSET = 2;
const EXPECTED = 3;
const GOT = 4;
const RESULT_WORDS = 5;

const RESULTS_START = (CONTROL_WORDS + MAX_TICKETS * TICKET_WORDS) * 4;
const TEXTS_START = RESULTS_START + MAX_TICKETS * RESULT_WORDS * 8;

export class RequestQueue {
  readonly buffer: SharedArrayBuffer;
  readonly #words: Int32Array;
  readonly #results: Float64Array;
  readonly #texts: Uint8Array;
  /** Free ticket numbers, lowest on top: used by the submitting thread alone. */
  readonly #free: Int32Array;
  #freeCount: number;
  #sequence = 0;

  /** Without a buffer: makes one (submitting side). With one: joins it (reader side). */
  constructor(buffer?: SharedArrayBuffer) {
    this.buffer = buffer ?? new SharedArrayBuffer(TEXTS_START + MAX_TICKETS * MAX_TEXT_BYTES);
    this.#words = new Int32Array(this.buffer, 0, CONTROL_WORDS + MAX_TICKETS * TICKET_WORDS);
    this.#results = new Float64Array(this.buffer, RESULTS_START, MAX_TICKETS * RESULT_WORDS);
    this.#texts = new Uint8Array(this.buffer, TEXTS_START);
    this.#free = new Int32Array(buffer === undefined ? MAX_TICKETS : 0);
    this.#freeCount = this.#free.length;
    for (let i = 0; i < this.#freeCount; i++) this.#free[i] = MAX_TICKETS - 1 - i;
  }

  // ---- submitting thread ----

  get freeTickets(): number {
    return this.#freeCount;
  }

  submit(record: number, arena: number, destination: number, priority: Priority): number {
    if (this.#freeCount === 0) {
      throw new InternalError('QUEUE_FULL', `more than ${MAX_TICKETS} reads were asked for at once`);
    }
    const ticket = this.#free[--this.#freeCount];
    const at = row(ticket);
    this.#words[at + RECORD] = record;
    this.#words[at + ARENA] = arena;
    this.#words[at + DESTINATION] = destination;
    Atomics.store(this.#words, at + PRIORITY, priority === 'demand' ? DEMAND : AHEAD);
    Atomics.store(this.#words, at + SEQUENCE, this.#sequence++ | 0);
    Atomics.store(this.#words, at + STATE, QUEUED);
    if (ticket >= Atomics.load(this.#words, HIGH_WORD)) Atomics.store(this.#words, HIGH_WORD, ticket + 1);
    Atomics.add(this.#words, WORK_WORD, 1);
    Atomics.notify(this.#words, WORK_WORD, 1);
    return ticket;
  }

  state(ticket: number): TicketState {
    return STATES[Atomics.load(this.#words, row(ticket) + STATE) & (2 ** STATE_BITS - 1)];
  }

  /** Moves a queued request before all speculative ones, in its original order among the demanded. */
  promote(ticket: number): void {
    Atomics.store(this.#words, row(ticket) + PRIORITY, DEMAND);
  }

  /** True: no reader will touch it, and the ticket is free again. False: it runs or has ended, and must be released. */
  cancel(ticket: number): boolean {
    if (Atomics.compareExchange(this.#words, row(ticket) + STATE, QUEUED, FREE) !== QUEUED) return false;
    this.#free[this.#freeCount++] = ticket;
    return true;
  }

  /** Frees a ticket that is done or failed; its results are gone afterwards. */
  release(ticket: number): void {
    Atomics.store(this.#words, row(ticket) + STATE, FREE);
    this.#free[this.#freeCount++] = ticket;
  }

  /** Changes with every completion. */
  doneCount(): number {
    return Atomics.load(this.#words, DONE_WORD);
  }

  /** Requests that wait for a reader or are being read. */
  unfinished(): number {
    const high = Atomics.load(this.#words, HIGH_WORD);
    let count = 0;
    for (let ticket = 0; ticket < high; ticket++) {
      const state = Atomics.load(this.#words, row(ticket) + STATE) & (2 ** STATE_BITS - 1);
      if (state === QUEUED || state === RUNNING) count++;
    }
    return count;
  }

  /** Blocks until doneCount() differs from `seen`, or the time is over. */
  waitDone(seen: number, timeoutMs: number): void {
    Atomics.wait(this.#words, DONE_WORD, seen, timeoutMs);
  }

  /** Changes whenever any reader gets a piece from the disk. */
  progressCount(): number {
    return Atomics.load(this.#words, PROGRESS_WORD);
  }

  /** Tells readers to end after what they are doing. */
  close(): void {
    Atomics.store(this.#words, CLOSING_WORD, 1);
    Atomics.add(this.#words, WORK_WORD, 1);
    Atomics.notify(this.#words, WORK_WORD);
  }

  /** For a reader that died: fails what it was running. */
  abandonReader(reader: number, text: string): void {
    this.#failWhere(runningBy(reader), text);
  }

  /** For the death of the last reader: nobody will ever take what is queued. */
  abandonQueued(text: string): void {
    this.#failWhere(QUEUED, text);
  }

  // ---- readers ----

  /** Claims the next request for a reader, or -1. */
  take(reader: number): number {
    for (;;) {
      const ticket = this.#next();
      if (ticket < 0) return -1;
      const found = Atomics.compareExchange(this.#words, row(ticket) + STATE, QUEUED, runningBy(reader));
      if (found === QUEUED) return ticket;
    }
  }

  /** Changes with every submission and when the queue closes. */
  workCount(): number {
    return Atomics.load(this.#words, WORK_WORD);
  }

  /** Looks again `spins` times, then sleeps until workCount() differs from `seen`. */
  waitWork(seen: number, spins: number): void {
    for (let i = 0; i < spins; i++) {
      if (Atomics.load(this.#words, WORK_WORD) !== seen) return;
    }
    Atomics.wait(this.#words, WORK_WORD, seen);
  }

  get closing(): boolean {
    return Atomics.load(this.#words, CLOSING_WORD) === 1;
  }

  record(ticket: number): number {
    return this.#words[row(ticket) + RECORD];
  }

  arena(ticket: number): number {
    return this.#words[row(ticket) + ARENA];
  }

  destination(ticket: number): number {
    return this.#words[row(ticket) + DESTINATION] >>> 0;
  }

  noteProgress(): void {
    Atomics.add(this.#words, PROGRESS_WORD, 1);
  }

  /** `drive`: where the bytes came from. */
  complete(ticket: number, readBytes: number, serviceUs: number, drive = 0): void {
    this.#words[row(ticket) + DRIVE] = drive;
    this.#results[ticket * RESULT_WORDS + READ_BYTES] = readBytes;
    this.#results[ticket * RESULT_WORDS + SERVICE_US] = serviceUs;
    this.#publish(ticket, DONE);
  }

  fail(ticket: number, failure: Failure): void {
    const at = row(ticket);
    const result = ticket * RESULT_WORDS;
    const text = Buffer.from(failure.text).subarray(0, MAX_TEXT_BYTES);
    this.#words[at + FAILURE] = FAILURES.indexOf(failure.code);
    this.#words[at + FAILED_FILE] = failure.file;
    this.#words[at + TEXT_BYTES] = text.length;
    this.#texts.set(text, ticket * MAX_TEXT_BYTES);
    this.#results[result + OFFSET] = failure.offset;
    this.#results[result + EXPECTED] = failure.expected;
    this.#results[result + GOT] = failure.got;
    this.#publish(ticket, FAILED);
  }

  // ---- results, valid between completion and release ----

  /** Bytes that came from disk. */
  readBytes(ticket: number): number {
    return this.#results[ticket * RESULT_WORDS + READ_BYTES];
  }

  /** Microseconds spent inside reads. */
  serviceUs(ticket: number): number {
    return this.#results[ticket * RESULT_WORDS + SERVICE_US];
  }

  /** Number of the drive that the bytes came from: 0 = the model's own. */
  drive(ticket: number): number {
    return this.#words[row(ticket) + DRIVE];
  }

  failure(ticket: number): Failure {
    const at = row(ticket);
    const result = ticket * RESULT_WORDS;
    const start = ticket * MAX_TEXT_BYTES;
    return {
      code: FAILURES[this.#words[at + FAILURE]],
      file: this.#words[at + FAILED_FILE],
      offset: this.#results[result + OFFSET],
      expected: this.#results[result + EXPECTED],
      got: this.#results[result + GOT],
      text: Buffer.from(this.#texts.slice(start, start + this.#words[at + TEXT_BYTES])).toString(),
    };
  }

  /** Oldest queued demand, else oldest queued ahead, else -1. Sequence numbers wrap, so their difference is compared. */
  #next(): number {
    const high = Atomics.load(this.#words, HIGH_WORD);
    let best = -1;
    let bestPriority = AHEAD;
    let bestSequence = 0;
    for (let ticket = 0; ticket < high; ticket++) {
      const at = row(ticket);
      if (Atomics.load(this.#words, at + STATE) !== QUEUED) continue;
      const priority = Atomics.load(this.#words, at + PRIORITY);
      const sequence = Atomics.load(this.#words, at + SEQUENCE);
      const older = ((sequence - bestSequence) | 0) < 0;
      if (best < 0 || priority < bestPriority || (priority === bestPriority && older)) {
        best = ticket;
        bestPriority = priority;
        bestSequence = sequence;
      }
    }
    return best;
  }

  #publish(ticket: number, state: number): void {
    Atomics.store(this.#words, row(ticket) + STATE, state);
    Atomics.add(this.#words, PROGRESS_WORD, 1);
    Atomics.add(this.#words, DONE_WORD, 1);
    Atomics.notify(this.#words, DONE_WORD);
  }

  #failWhere(word: number, text: string): void {
    const high = Atomics.load(this.#words, HIGH_WORD);
    for (let ticket = 0; ticket < high; ticket++) {
      if (Atomics.load(this.#words, row(ticket) + STATE) !== word) continue;
      this.fail(ticket, { code: 'READER_DIED', file: -1, offset: 0, expected: 0, got: 0, text });
    }
  }
}

function row(ticket: number): number {
  return CONTROL_WORDS + ticket * TICKET_WORDS;
}

function runningBy(reader: number): number {
  return RUNNING | (reader << STATE_BITS);
}
