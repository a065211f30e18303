/** Writing safetensors files as a stream: the header first, because every size is known, then the data in order. */

import fs from 'node:fs';
import { InternalError } from '../common/errors.ts';
import { alignUp } from '../common/units.ts';
import type { SafetensorsDtype } from './checkpoint-types.ts';
import { MAX_READ_BYTES, quote, unwritable } from './files.ts';
import { MAX_HEADER_BYTES, MAX_NAME_CHARACTERS, tensorBytes } from './safetensors.ts';

export interface TensorSpec {
  readonly name: string;
  readonly dtype: SafetensorsDtype;
  readonly shape: readonly number[];
}

/** A tensor with its bytes, or with a function that makes them chunk by chunk when their turn comes. */
export interface TensorSource extends TensorSpec {
  readonly bytes: Uint8Array | (() => Iterable<Uint8Array>);
}

export interface WriterOptions {
  readonly metadata?: Readonly<Record<string, string>>;
  /** Tensor data starts at a multiple of this many bytes; the header is padded with spaces. */
  readonly alignDataTo?: number;
}

/** Header of a file that holds `entries` in this order: 8 bytes of length, then JSON padded with spaces. */
export function encodeSafetensorsHeader(entries: readonly TensorSpec[], options: WriterOptions = {}): Uint8Array {
  const root = new Map<string, unknown>();
  if (options.metadata) root.set('__metadata__', options.metadata);
  let begin = 0;
  for (const { name, dtype, shape } of entries) {
    if (root.has(name) || name === '__metadata__' || name.length > MAX_NAME_CHARACTERS) {
      throw new InternalError('WRITER_BAD_NAME', `tensor name ${quote(name)} is reserved, repeated or too long`);
    }
    const end = begin + sizeOf({ name, dtype, shape });
    root.set(name, { dtype, shape, data_offsets: [begin, end] });
    begin = end;
  }
  // Built entry by entry: an object would move names that look like array positions to the front.
  const members = [...root].map(([key, value]) => `${JSON.stringify(key)}:${JSON.stringify(value)}`);
  const json = new TextEncoder().encode(`{${members.join(',')}}`);
  const dataOffset = alignUp(8 + json.length, options.alignDataTo ?? 8);
  if (dataOffset - 8 > MAX_HEADER_BYTES) {
    throw new InternalError('WRITER_HEADER_TOO_LARGE', `header of ${dataOffset} bytes: write several shards`);
  }
  const header = new Uint8Array(dataOffset).fill(0x20);
  new DataView(header.buffer).setBigUint64(0, BigInt(dataOffset - 8), true);
  header.set(json, 8);
  return header;
}

/** One file being written. Bytes are appended in the order of `entries`, in chunks of any size. */
export class SafetensorsWriter {
  readonly path: string;
  /** Where tensor data starts in the file. */
  readonly dataOffset: number;
  /** Bytes of the finished file. */
  readonly totalBytes: number;
  #fd: number | null;
  #written = 0;

  /** Creates (or empties) `path` and writes the header. Use a temporary name and rename after close(). */
  constructor(path: string, entries: readonly TensorSpec[], options: WriterOptions = {}) {
    const header = encodeSafetensorsHeader(entries, options);
    this.path = path;
    this.dataOffset = header.length;
    this.totalBytes = entries.reduce((total, entry) => total + sizeOf(entry), header.length);
    try {
      this.#fd = fs.openSync(path, 'w');
    } catch (error) {
      throw unwritable(path, error, 0);
    }
    this.append(header);
  }

  /** Position in the file of the next byte to be appended. */
  get position(): number {
    return this.#written;
  }

  append(bytes: Uint8Array): void {
    if (this.#fd === null) throw new InternalError('WRITER_CLOSED', `${this.path} is closed`);
    if (this.#written + bytes.length > this.totalBytes) {
      throw new InternalError('WRITER_TOO_MANY_BYTES', `${this.path} must have ${this.totalBytes} bytes, not more`);
    }
    for (let done = 0; done < bytes.length; ) {
      const count = Math.min(bytes.length - done, MAX_READ_BYTES);
      try {
        const wrote = fs.writeSync(this.#fd, bytes, done, count, this.#written);
        done += wrote;
        this.#written += wrote;
      } catch (error) {
        throw unwritable(this.path, error, this.#written);
      }
    }
  }

  /** Flushes to disk and closes; fewer bytes than the header promises are an error. */
  close(): void {
    if (this.#fd === null) return;
    try {
      if (this.#written !== this.totalBytes) {
        const what = `${this.path} has ${this.#written} of ${this.totalBytes} bytes`;
        throw new InternalError('WRITER_INCOMPLETE', what);
      }
      fs.fsyncSync(this.#fd);
    } finally {
      this.abort();
    }
  }

  /** Closes without any check; the file on disk is not usable. */
  abort(): void {
    if (this.#fd !== null) fs.closeSync(this.#fd);
    this.#fd = null;
  }
}

/** Writes a whole file. Sources given as functions are run one after the other, so memory holds one chunk. */
export function writeSafetensors(path: string, tensors: Iterable<TensorSource>, options: WriterOptions = {}): void {
  const sources = [...tensors];
  const writer = new SafetensorsWriter(path, sources, options);
  try {
    for (const source of sources) {
      const end = writer.position + sizeOf(source);
      for (const chunk of typeof source.bytes === 'function' ? source.bytes() : [source.bytes]) writer.append(chunk);
      if (writer.position !== end) {
        const what = `tensor ${quote(source.name)} came with ${writer.position - end} bytes more than its shape says`;
        throw new InternalError('WRITER_WRONG_SIZE', what);
      }
    }
    writer.close();
  } finally {
    writer.abort();
  }
}

function sizeOf(spec: TensorSpec): number {
  const bytes = tensorBytes(spec.dtype, spec.shape);
  if (bytes === null || !spec.shape.every(size => Number.isSafeInteger(size) && size >= 0)) {
    throw new InternalError('WRITER_BAD_SHAPE', `tensor ${quote(spec.name)}: shape [${spec.shape}] has no exact size`);
  }
  return bytes;
}
