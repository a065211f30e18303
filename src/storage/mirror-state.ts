/** What readers and the engine share about mirrors: the drive of every record, which files are given up, and why. */

import { everyFile, MAX_MIRRORS, PRIMARY } from './mirror-route.ts';
import type { RecordTable } from './record-table.ts';
import type { Failure } from './request-queue.ts';

/** Room for one failure as JSON: its text has at most 192 bytes, each of which may become six characters. */
const LOSS_BYTES = 2048;

const LOSS_COUNT = 0;
const LOSS_STATE = 1;
const LOSS_LENGTH = LOSS_STATE + MAX_MIRRORS + 1;
const WORDS = LOSS_LENGTH + MAX_MIRRORS + 1;
const WRITTEN = 2;

/** The first failure of a mirror. */
export interface MirrorLoss {
  /** 1 = the first mirror. */
  readonly drive: number;
  readonly record: number;
  readonly failure: Failure;
}

export interface MirrorSizes {
  readonly records: number;
  readonly files: number;
}

export class MirrorState {
  readonly buffer: SharedArrayBuffer;
  readonly sizes: MirrorSizes;
  /** The drive of each record. */
  readonly routes: Uint8Array;
  /** One byte for each record, a bit for each mirror from which its hash was right once. */
  readonly verified: Uint8Array;
  /** One byte for each drive and file: 1 = not to be read any more. */
  readonly #lost: Uint8Array;
  readonly #words: Int32Array;
  readonly #texts: Uint8Array;
  readonly #files: number;
  #seenLosses = 0;
  #told = 0;

  /** Without a buffer: makes one in which the primary has every record. With one: joins it. */
  constructor(sizes: MirrorSizes, buffer?: SharedArrayBuffer) {
    const { records, files } = sizes;
    this.sizes = sizes;
    const drives = MAX_MIRRORS + 1;
    const textStart = WORDS * 4;
    const routeStart = textStart + drives * LOSS_BYTES;
    this.#files = files;
    this.buffer = buffer ?? new SharedArrayBuffer(routeStart + 2 * records + drives * files);
    this.#words = new Int32Array(this.buffer, 0, WORDS);
    this.#texts = new Uint8Array(this.buffer, textStart, drives * LOSS_BYTES);
    this.routes = new Uint8Array(this.buffer, routeStart, records);
    this.verified = new Uint8Array(this.buffer, routeStart + records, records);
    this.#lost = new Uint8Array(this.buffer, routeStart + 2 * records, drives * files);
  }

  driveOf(record: number): number {
    return Atomics.load(this.routes, record);
  }

  isLost(drive: number, file: number): boolean {
    return Atomics.load(this.#lost, drive * this.#files + file) === 1;
  }

  /** The primary takes over all records of the failed file, or those of all files of `record` when none is to blame. */
  giveUp(table: RecordTable, drive: number, record: number, failure: Failure): void {
    everyFile(table, record, file => {
      if (failure.file === file || failure.file < 0) Atomics.store(this.#lost, drive * this.#files + file, 1);
      return true;
    });
    for (let each = 0; each < table.records; each++) {
      if (this.driveOf(each) !== drive || everyFile(table, each, file => !this.isLost(drive, file))) continue;
      Atomics.store(this.routes, each, PRIMARY);
    }
    if (Atomics.compareExchange(this.#words, LOSS_STATE + drive, 0, 1) !== 0) return;
    const text = Buffer.from(JSON.stringify({ drive, record, failure } satisfies MirrorLoss));
    const length = Math.min(text.length, LOSS_BYTES);
    this.#texts.set(text.subarray(0, length), drive * LOSS_BYTES);
    this.#words[LOSS_LENGTH + drive] = length;
    Atomics.store(this.#words, LOSS_STATE + drive, WRITTEN);
    Atomics.add(this.#words, LOSS_COUNT, 1);
  }

  /** First failures of mirrors that this object has not given before; costs one look while there is none. */
  newLosses(): readonly MirrorLoss[] {
    const count = Atomics.load(this.#words, LOSS_COUNT);
    if (count === this.#seenLosses) return [];
    this.#seenLosses = count;
    const losses: MirrorLoss[] = [];
    for (let drive = 1; drive <= MAX_MIRRORS; drive++) {
      if (this.#told & (1 << drive) || Atomics.load(this.#words, LOSS_STATE + drive) !== WRITTEN) continue;
      this.#told |= 1 << drive;
      const start = drive * LOSS_BYTES;
      const text = this.#texts.slice(start, start + this.#words[LOSS_LENGTH + drive]);
      losses.push(JSON.parse(Buffer.from(text).toString()));
    }
    return losses;
  }
}
