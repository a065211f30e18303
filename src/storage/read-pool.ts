/**
 * The engine's side of storage: submits loads of records into arenas and waits for them without an event loop. Opening
 * and closing are asynchronous; everything between is synchronous and belongs to one thread.
 */

import { Worker } from 'node:worker_threads';
import { InternalError, StorageError } from '../common/errors.ts';
import { threadLives } from '../common/os-thread.ts';
import { workerUrl } from '../common/worker-url.ts';
import type { FileIdentity } from '../formats/checkpoint-types.ts';
import { Drives, type MirrorOptions } from './drives.ts';
import type { FaultPlan } from './faults.ts';
import { closeFiles, type IoMode, type OpenFunction, openFiles } from './open-files.ts';
import { readError, START_AGAIN } from './read-errors.ts';
import type { ReaderData, ReaderReady } from './reader.ts';
import { MAX_PIECE_BYTES } from './record-loader.ts';
import { PAGE, type RecordTable } from './record-table.ts';
import { type Priority, RequestQueue, type TicketState } from './request-queue.ts';

/** Heap of a reader: it keeps no data, only the modules it runs. */
const READER_OLD_SPACE_MB = 16;
const READER_YOUNG_SPACE_MB = 2;
const READER_STACK_MB = 1;
/** Waiting this long without one piece arriving from any disk means that no reader will ever answer. */
export const STUCK_MS = 300_000;
/** How often a wait looks whether the readers still live. */
const LIVENESS_MS = 1000;
/** How long close() lets a running read end before it stops the thread. */
const CLOSE_GRACE_MS = 5000;

export interface ReadPoolOptions {
  readonly files: readonly FileIdentity[];
  readonly table: RecordTable;
  /** Shared memories that loads go to; they must not grow while the pool is open. */
  readonly arenas: readonly WebAssembly.Memory[];
  /** Threads, and so reads in flight at the disk. */
  readonly readers: number;
  readonly io: IoMode;
  /** Raw bytes of packed records: reader i uses bytesPerReader bytes from offset + i * bytesPerReader. */
  readonly staging: { readonly arena: number; readonly offset: number; readonly bytesPerReader: number } | null;
  /** Check the hash, where one is known, on the first load of each record. */
  readonly verify: boolean;
  readonly faults?: FaultPlan;
  /** Copies of the model: each record has one drive from which it is read, here or from a copy. */
  readonly mirrors?: MirrorOptions;
  /** Test hooks. */
  readonly hooks?: { readonly openFile?: OpenFunction; readonly pieceBytes?: number; readonly stuckMs?: number };
}

interface Reader {
  readonly worker: Worker;
  thread: number;
  alive: boolean;
}

export class ReadPool {
  readonly directIo: boolean;
  /** One line when some file cannot be read directly. */
  readonly note: string | null;
  readonly readers: number;
  /** The model's own drive and those of its mirrors: which records each has, and what has been read from it. */
  readonly drives: Drives;
  readonly #o: ReadPoolOptions;
  readonly #descriptors: readonly number[];
  readonly #queue = new RequestQueue();
  readonly #arenaBytes: readonly number[];
  readonly #stuckMs: number;
  #threads: Reader[] = [];
  #seenDone = 0;
  #seenProgress = 0;
  #stalledMs = 0;
  #uncheckedMs = 0;
  #outstanding = 0;
  /** Readers that have not ended. */
  #aliveReaders = 0;
  /** Microseconds spent in waitAny so far. */
  waitedUs = 0;
  /** Of that, the time of reads that went on, summed over readers. */
  waitedServiceUs = 0;
  #closed: Promise<void> | null = null;

  private constructor(options: ReadPoolOptions) {
    this.#o = options;
    this.#arenaBytes = options.arenas.map(arena => arena.buffer.byteLength);
    this.#stuckMs = options.hooks?.stuckMs ?? STUCK_MS;
    this.readers = options.readers;
    const paths = options.files.map(file => file.path);
    const opened = openFiles(paths, options.io, options.hooks?.openFile);
    this.#descriptors = opened.descriptors;
    this.directIo = opened.direct;
    this.note = opened.note;
    this.drives = new Drives(options.table, options.files, options.io, options.mirrors, options.hooks?.openFile);
  }

  /** Opens the files and starts the readers. Errors: FILE_OPEN_FAILED, DIRECT_IO_REFUSED, READER_DIED. */
  static async open(options: ReadPoolOptions): Promise<ReadPool> {
    checkOptions(options);
    const pool = new ReadPool(options);
    try {
      await pool.#start();
    } catch (error) {
      await pool.close();
      throw error;
    }
    return pool;
  }

  /** Asks for a record; `destination` is PAGE-aligned and has placedBytes(record) bytes behind it. Gives a ticket. */
  submit(record: number, arena: number, destination: number, priority: Priority): number {
    const end = destination + this.#o.table.placedBytes(record);
    if (destination % PAGE !== 0 || destination < 0 || !(end <= this.#arenaBytes[arena])) {
      throw new InternalError('BAD_DESTINATION', `${this.#o.table.name(record)} does not fit where it should go`, {
        details: { record, arena, destination, end, arenaBytes: this.#arenaBytes[arena] },
      });
    }
    if (this.#closed || this.#aliveReaders === 0) {
      throw new StorageError('READER_DIED', `nobody is left to read ${this.#o.table.name(record)}`, {
        hint: START_AGAIN,
      });
    }
    const ticket = this.#queue.submit(record, arena, destination, priority);
    this.#outstanding++;
    this.#stalledMs = 0;
    return ticket;
  }

  /** Requests that may still be submitted before some are finished. */
  get freeTickets(): number {
    return this.#queue.freeTickets;
  }

  state(ticket: number): TicketState {
    return this.#queue.state(ticket);
  }

  promote(ticket: number): void {
    this.#queue.promote(ticket);
  }

  /** True: the request was still queued and is gone, ticket included. False: it runs or has ended, so finish it. */
  cancel(ticket: number): boolean {
    if (!this.#queue.cancel(ticket)) return false;
    this.#outstanding--;
    return true;
  }

  /**
   * Blocks until some request has ended since the last call returned true (so look at states after, not before); false
   * when the time is over. Throws READER_STUCK when nothing has come from any disk for STUCK_MS.
   */
  waitAny(timeoutMs: number): boolean {
    let left = timeoutMs;
    for (;;) {
      const done = this.#queue.doneCount();
      if (done !== this.#seenDone) {
        this.#seenDone = done;
        return true;
      }
      if (!(left > 0)) return false;
      const running = Math.min(this.#aliveReaders, this.#queue.unfinished());
      const began = performance.now();
      this.#queue.waitDone(done, Math.min(left, LIVENESS_MS, this.#stuckMs));
      const waited = performance.now() - began;
      const waitedUs = Math.round(waited * 1000);
      this.waitedUs += waitedUs;
      this.waitedServiceUs += waitedUs * running;
      left -= waited;
      if (this.#queue.doneCount() === done) this.#checkReaders(waited);
    }
  }

  /**
   * Takes the result of a request that is done or failed, and frees its ticket; `drive` 0 is the model's own. Throws StorageError READ_FAILED,
   * SHORT_READ, HASH_MISMATCH, PACK_FAILED or READER_DIED: then not a byte at the destination may be used.
   */
  finish(ticket: number): { bytes: number; serviceUs: number; drive: number } {
    const state = this.#queue.state(ticket);
    if (state !== 'done' && state !== 'failed') {
      throw new InternalError('BAD_TICKET', `ticket ${ticket} is ${state}, not finished`);
    }
    const bytes = this.#queue.readBytes(ticket);
    const drive = this.#queue.drive(ticket);
    const result = { bytes, serviceUs: this.#queue.serviceUs(ticket), drive };
    const failure = state === 'failed' ? this.#queue.failure(ticket) : null;
    if (failure === null) this.drives.count(drive, bytes);
    this.drives.tellLosses();
    const record = this.#queue.record(ticket);
    this.#queue.release(ticket);
    this.#outstanding--;
    if (failure) throw readError(failure, this.#o.table, record, this.#o.files);
    return result;
  }

  /** Lets running reads end, drops queued ones, stops the readers and closes the files. */
  close(): Promise<void> {
    this.#closed ??= this.#stop();
    return this.#closed;
  }

  async #start(): Promise<void> {
    const { table, arenas, staging, verify, faults, hooks } = this.#o;
    const shared = {
      table: table.toShared(),
      queue: this.#queue.buffer,
      descriptors: this.#descriptors,
      mirrors: this.drives.shared(),
      arenas,
      verified: verify ? new Uint8Array(new SharedArrayBuffer(table.records)) : null,
      pieceBytes: hooks?.pieceBytes ?? MAX_PIECE_BYTES,
      faults: faults ? { plan: faults, counter: new Int32Array(new SharedArrayBuffer(4)) } : null,
    };
    const started: Promise<void>[] = [];
    for (let i = 0; i < this.readers; i++) {
      const own = staging && { arena: staging.arena, offset: staging.offset + i * staging.bytesPerReader };
      started.push(this.#startReader({ ...shared, reader: i, staging: own }));
    }
    await Promise.all(started);
  }

  #startReader(data: ReaderData): Promise<void> {
    const worker = new Worker(workerUrl('reader', import.meta.url), {
      name: `reader ${data.reader}`,
      workerData: data,
      execArgv: [],
      resourceLimits: {
        maxOldGenerationSizeMb: READER_OLD_SPACE_MB,
        maxYoungGenerationSizeMb: READER_YOUNG_SPACE_MB,
        stackSizeMb: READER_STACK_MB,
      },
    });
    const reader: Reader = { worker, thread: 0, alive: true };
    this.#threads.push(reader);
    this.#aliveReaders++;
    return new Promise((resolve, reject) => {
      let cause: unknown;
      worker.once('message', (ready: ReaderReady) => {
        reader.thread = ready.thread;
        worker.unref();
        resolve();
      });
      worker.on('error', error => {
        cause = error;
      });
      worker.on('exit', () => {
        this.#readerGone(data.reader);
        reject(new InternalError('READER_DIED', `reader ${data.reader} could not start`, { cause }));
      });
    });
  }

  async #stop(): Promise<void> {
    this.#queue.close();
    const running = this.#threads.filter(reader => reader.alive);
    await Promise.all(
      running.map(async ({ worker }) => {
        worker.ref();
        const force = setTimeout(() => worker.terminate(), CLOSE_GRACE_MS);
        await new Promise(resolve => worker.once('exit', resolve));
        clearTimeout(force);
      }),
    );
    closeFiles(this.#descriptors);
    this.drives.close();
  }

  /** After a wait in vain. An 'exit' event cannot reach a blocked thread, so the system is asked whether threads live. */
  #checkReaders(waitedMs: number): void {
    const progress = this.#queue.progressCount();
    if (progress !== this.#seenProgress || this.#outstanding === 0) {
      this.#seenProgress = progress;
      this.#stalledMs = 0;
      return;
    }
    this.#stalledMs += waitedMs;
    this.#uncheckedMs += waitedMs;
    if (this.#uncheckedMs >= LIVENESS_MS) {
      this.#uncheckedMs = 0;
      for (let i = 0; i < this.#threads.length; i++) {
        const { alive, thread } = this.#threads[i];
        if (alive && !threadLives(thread)) this.#readerGone(i);
      }
    }
    if (this.#stalledMs >= this.#stuckMs && this.#queue.doneCount() === this.#seenDone) {
      const seconds = Math.round(this.#stalledMs / 1000);
      throw new StorageError('READER_STUCK', `the disk has not answered for ${seconds} s`, {
        details: { outstanding: this.#outstanding, stalledMs: Math.round(this.#stalledMs) },
        hint: 'check the disk or network file system that holds the model',
      });
    }
  }

  #readerGone(index: number): void {
    const reader = this.#threads[index];
    if (!reader.alive) return;
    reader.alive = false;
    this.#aliveReaders--;
    this.#queue.abandonReader(index, `reader ${index} ended`);
    if (this.#aliveReaders === 0) this.#queue.abandonQueued('the last reader ended');
  }
}

function checkOptions({ readers, staging, table, arenas }: ReadPoolOptions): void {
  const bytes = staging?.bytesPerReader ?? 0;
  const end = staging ? staging.offset + bytes * readers : 0;
  const fits = staging === null || end <= (arenas[staging.arena]?.buffer.byteLength ?? -1);
  if (!(Number.isInteger(readers) && readers >= 1)) throw new InternalError('BAD_POOL', `${readers} readers`);
  if (bytes < table.stagingBytes || bytes % PAGE !== 0 || (staging?.offset ?? 0) % PAGE !== 0 || !fits) {
    throw new InternalError('BAD_POOL', 'staging is too small, unaligned or outside its arena', {
      details: { ...staging, readers, needed: table.stagingBytes },
    });
  }
}
