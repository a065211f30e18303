/** Reads the header of a GGUF file from front to back through a small window; nothing is believed beyond the file's end. */

import { ModelFileError } from '../common/errors.ts';
import { readExact } from './files.ts';
import { GGUF_SCALAR_BYTES, type GgufScalarType } from './gguf-types.ts';

/** Few reads for a header of megabytes, little memory for one of kilobytes. */
const WINDOW_BYTES = 256 * 1024;
/** Metadata and tensor table; vocabularies of 260,000 tokens with their merges take about 12 MB. */
export const MAX_GGUF_HEADER_BYTES = 256 * 2 ** 20;

export const DOWNLOAD = 'the file is damaged or incomplete: download it again';
export const REWRITE = 'no normal writer makes such a file: download it again, from a source you trust';

export function ggufFault(
  path: string,
  code: string,
  what: string,
  hint: string,
  details: Record<string, unknown> = {},
): ModelFileError {
  return new ModelFileError(code, `${path} ${what}`, { hint, details: { file: path, ...details } });
}

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

export class GgufCursor {
  readonly path: string;
  readonly fileBytes: number;
  readonly #fd: number;
  /** Reading further is refused. */
  readonly #end: number;
  #position: number;
  #window: Uint8Array = new Uint8Array(0);
  /** Position of the window's first byte in the file. */
  #windowAt = 0;

  constructor(fd: number, fileBytes: number, path: string, position = 0) {
    this.#fd = fd;
    this.path = path;
    this.fileBytes = fileBytes;
    this.#position = position;
    this.#end = Math.min(fileBytes, position + MAX_GGUF_HEADER_BYTES);
  }

  get position(): number {
    return this.#position;
  }

  /** The next `count` bytes; a view that the next call overwrites. */
  take(count: number, what: string): Uint8Array {
    this.#require(count, what);
    const from = this.#position - this.#windowAt;
    this.#position += count;
    if (from >= 0 && from + count <= this.#window.length) return this.#window.subarray(from, from + count);
    this.#windowAt = this.#position - count;
    const rest = this.#end - this.#windowAt;
    this.#window = new Uint8Array(Math.min(rest, Math.max(count, WINDOW_BYTES)));
    readExact(this.#fd, this.#window, this.#windowAt, this.path);
    return this.#window.subarray(0, count);
  }

  skip(count: number, what: string): void {
    this.#require(count, what);
    this.#position += count;
  }

  u32(what: string): number {
    return this.scalar('u32', what) as number;
  }

  /** Exact: 64-bit integers come as bigint. Booleans must be 0 or 1. */
  scalar(type: GgufScalarType, what: string): number | bigint | boolean {
    const bytes = this.take(GGUF_SCALAR_BYTES[type], what);
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    switch (type) {
      case 'u8':
        return view.getUint8(0);
      case 'i8':
        return view.getInt8(0);
      case 'u16':
        return view.getUint16(0, true);
      case 'i16':
        return view.getInt16(0, true);
      case 'u32':
        return view.getUint32(0, true);
      case 'i32':
        return view.getInt32(0, true);
      case 'f32':
        return view.getFloat32(0, true);
      case 'u64':
        return view.getBigUint64(0, true);
      case 'i64':
        return view.getBigInt64(0, true);
      case 'f64':
        return view.getFloat64(0, true);
      case 'bool': {
        const value = view.getUint8(0);
        if (value > 1) throw this.fault('GGUF_BAD_VALUE', `has ${what} with ${value} for a boolean`, REWRITE);
        return value === 1;
      }
    }
  }

  /** A u64 that counts things of at least `leastBytes` each, which must all fit into what is left. */
  count(leastBytes: number, what: string): number {
    const declared = this.scalar('u64', what) as bigint;
    const least = declared * BigInt(leastBytes);
    const left = this.fileBytes - this.#position;
    if (least > BigInt(left)) {
      const text = `declares ${declared} for ${what}, but only ${left} bytes follow`;
      throw this.fault('GGUF_TRUNCATED', text, DOWNLOAD, { expected: String(declared), got: left });
    }
    this.#require(Number(least), what);
    return Number(declared);
  }

  string(maxBytes: number, what: string): string {
    const length = this.count(1, `the length of ${what}`);
    if (length > maxBytes) {
      const text = `has ${what} of ${length} bytes; the limit is ${maxBytes}`;
      throw this.fault('GGUF_STRING_TOO_LONG', text, REWRITE, { expected: maxBytes, got: length });
    }
    const at = this.#position;
    try {
      return utf8.decode(this.take(length, what));
    } catch (error) {
      if (error instanceof ModelFileError) throw error;
      throw this.fault('GGUF_BAD_TEXT', `has ${what}, at byte ${at}, that is not UTF-8`, REWRITE, { position: at });
    }
  }

  fault(code: string, what: string, hint: string, details: Record<string, unknown> = {}): ModelFileError {
    return ggufFault(this.path, code, what, hint, { position: this.#position, ...details });
  }

  #require(count: number, what: string): void {
    if (count <= this.#end - this.#position) return;
    if (this.#end < this.fileBytes) {
      const text = `has a header of more than ${MAX_GGUF_HEADER_BYTES} bytes (at ${what})`;
      throw this.fault('HEADER_TOO_LARGE', text, REWRITE, { expected: MAX_GGUF_HEADER_BYTES });
    }
    const text = `ends at byte ${this.fileBytes}, inside ${what}`;
    throw this.fault('GGUF_TRUNCATED', text, DOWNLOAD, { expected: count, got: this.fileBytes - this.#position });
  }
}
