/**
 * Recorders of routing traces. Each is told of leases by the expert store and writes them into memory that it has from the start;
 * files are written between forward passes only.
 */

import fs from 'node:fs';
import { dirname } from 'node:path';
import { StorageError } from '../../common/errors.ts';
import { KIB } from '../../common/units.ts';
import type { LeaseObserver } from '../store.ts';
import type { Trace, TraceHeader } from './trace.ts';
import { decodeTrace, encodeHeader, encodeLease, MAX_TRACE_BYTES, maxLeaseBytes, TRACE_MAGIC } from './trace-format.ts';

/** Passes that one step may make before its leases are written: a step that fails is made again part by part. */
const PASSES_KEPT = 16;
/** Written when so much has come together, so that small models do not write for every token. */
const FLUSH_BYTES = 4 * KIB;

/** Turns leases into bytes at the end of a buffer. */
class LeaseBuffer implements LeaseObserver {
  readonly bytes: Uint8Array;
  used = 0;
  readonly #experts: number;
  readonly #topK: number;
  readonly #most: number;

  constructor({ experts, topK }: TraceHeader, capacity: number) {
    this.#experts = experts;
    this.#topK = topK;
    this.#most = maxLeaseBytes(experts);
    this.bytes = new Uint8Array(Math.max(capacity, this.#most));
  }

  get isFull(): boolean {
    return this.used + this.#most > this.bytes.length;
  }

  leaseBegins(layer: number, experts: Int32Array, uses: Int32Array, count: number): void {
    let pairs = 0;
    for (let i = 0; i < count; i++) pairs += uses[i];
    this.add(layer, Math.max(1, Math.round(pairs / this.#topK)), experts, count);
  }

  add(layer: number, rows: number, experts: ArrayLike<number>, count: number): void {
    this.used = encodeLease(this.bytes, this.used, layer, rows, experts, count, this.#experts);
  }
}

/** Memory of a TraceFile for a model of so many layers that route. */
export function traceBufferBytes(layers: number, experts: number): number {
  return PASSES_KEPT * layers * maxLeaseBytes(experts) + FLUSH_BYTES;
}

/** `--trace FILE`. A file that cannot be opened is an error; one that cannot be written later is told once, and ends the trace. */
export class TraceFile implements LeaseObserver {
  readonly #path: string;
  readonly #buffer: LeaseBuffer;
  readonly #note: (line: string) => void;
  #fd: number | null;
  #written = 0;
  /** Leases came while the buffer was full: what follows would not be what happened. */
  #isLost = false;

  constructor(path: string, header: TraceHeader, note: (line: string) => void) {
    const layers = header.expertBytes.filter(bytes => bytes > 0).length;
    this.#path = path;
    this.#note = note;
    this.#buffer = new LeaseBuffer(header, traceBufferBytes(layers, header.experts));
    const { fd, replaced } = openForWriting(path);
    this.#fd = fd;
    if (replaced) note(`the trace in ${path} is replaced by the one of this run`);
    this.#write(encodeHeader(header));
  }

  leaseBegins(layer: number, experts: Int32Array, uses: Int32Array, count: number): void {
    if (this.#fd === null || this.#isLost) return;
    if (this.#buffer.isFull) this.#isLost = true;
    else this.#buffer.leaseBegins(layer, experts, uses, count);
  }

  /** Between forward passes. `all`: also little. */
  flush(all: boolean): void {
    const { bytes, used } = this.#buffer;
    if (used === 0 || this.#fd === null || (!all && used < FLUSH_BYTES)) return;
    if (this.#written + used > MAX_TRACE_BYTES) {
      this.#end(`the trace in ${this.#path} has reached ${MAX_TRACE_BYTES / 2 ** 20} MiB and ends here`);
      return;
    }
    this.#write(bytes.subarray(0, used));
    this.#buffer.used = 0;
    if (this.#isLost) this.#end(`the trace in ${this.#path} ends here: one step had more leases than it can hold`);
  }

  close(): void {
    this.flush(true);
    if (this.#fd !== null) fs.closeSync(this.#fd);
    this.#fd = null;
  }

  #write(bytes: Uint8Array): void {
    try {
      for (let at = 0; at < bytes.length; ) at += fs.writeSync(this.#fd!, bytes, at);
      this.#written += bytes.length;
    } catch (error) {
      this.#end(`the trace in ${this.#path} ends here: ${(error as Error).message}`);
    }
  }

  #end(why: string): void {
    fs.closeSync(this.#fd!);
    this.#fd = null;
    this.#buffer.used = 0;
    this.#note(why);
  }
}

/** A new file, or one that was a trace before: anything else is not overwritten. */
function openForWriting(path: string): { fd: number; replaced: boolean } {
  const fail = (why: string, cause?: unknown) =>
    new StorageError('TRACE_UNWRITABLE', `cannot write the trace ${path}: ${why}`, {
      hint: 'give --trace the name of a new file in a directory that can be written',
      details: { file: path },
      cause,
    });
  try {
    return { fd: fs.openSync(path, 'wx'), replaced: false };
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') throw fail(`there is no directory ${dirname(path)}`, error);
    if (code !== 'EEXIST') throw fail(message, error);
  }
  let fd: number | null = null;
  try {
    // a pipe would wait for its reader, and a link such as /dev/stdout may lead to where the answer goes
    if (!fs.lstatSync(path).isFile()) throw fail('it is not a regular file');
    fd = fs.openSync(path, 'r+');
    const magic = Buffer.alloc(TRACE_MAGIC.length);
    const read = fs.readSync(fd, magic, 0, magic.length, 0);
    if (read > 0 && magic.toString('latin1') !== TRACE_MAGIC) throw fail('it exists and is no trace');
    fs.ftruncateSync(fd);
    return { fd, replaced: read > 0 };
  } catch (error) {
    if (fd !== null) fs.closeSync(fd);
    throw error instanceof StorageError ? error : fail((error as Error).message, error);
  }
}

/** Keeps the last leases in memory: between one and two halves of its bytes. */
export class RecentTrace implements LeaseObserver {
  readonly #header: TraceHeader;
  #current: LeaseBuffer;
  #previous: LeaseBuffer;
  /** Something has been recorded. */
  isNew = false;

  /** `before`: what was kept by an earlier one of the same model. */
  constructor(header: TraceHeader, maxBytes: number, before: Trace | null = null) {
    this.#header = header;
    this.#current = new LeaseBuffer(header, maxBytes >> 1);
    this.#previous = new LeaseBuffer(header, maxBytes >> 1);
    for (let lease = 0; lease < (before?.layer.length ?? 0); lease++) {
      const { layer, rows, start, ids } = before!;
      this.#makeRoom();
      this.#current.add(layer[lease], rows[lease], ids.subarray(start[lease]), start[lease + 1] - start[lease]);
    }
  }

  leaseBegins(layer: number, experts: Int32Array, uses: Int32Array, count: number): void {
    this.#makeRoom();
    this.#current.leaseBegins(layer, experts, uses, count);
    this.isNew = true;
  }

  #makeRoom(): void {
    if (!this.#current.isFull) return;
    const emptied = this.#previous;
    emptied.used = 0;
    this.#previous = this.#current;
    this.#current = emptied;
  }

  /** What is kept, as a trace file has it. */
  bytes(): Uint8Array {
    const parts = [this.#previous, this.#current].map(({ bytes, used }) => bytes.subarray(0, used));
    return Buffer.concat([encodeHeader(this.#header), ...parts]);
  }

  trace(): Trace {
    return decodeTrace(this.bytes(), 'the trace in memory');
  }
}
