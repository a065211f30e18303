/**
 * Routing traces as bytes (docs/formats.md, "Routing traces"): a header, then one lease after the other. What is written is never
 * changed, so the beginning of a trace is a trace.
 */

import { z } from 'zod';
import { ModelFileError } from '../../common/errors.ts';
import { MIB } from '../../common/units.ts';
import { readSmallFile } from '../../formats/files.ts';
import { decodeUtf8, parseJson } from '../../formats/json.ts';
import { type Trace, TraceBuilder, type TraceHeader } from './trace.ts';

export const TRACE_MAGIC = 'COLITRC1';
/** A token of the largest models takes a kilobyte, of small ones a tenth: this is many hours. */
export const MAX_TRACE_BYTES = 64 * MIB;
/** A byte of a bitmap stands for eight requests; this is 128 MiB in memory. */
const MAX_REQUESTS = 2 ** 26;
/** A label, a digest and a number for each layer. */
const MAX_HEADER_BYTES = 64 * 1024;
/** The deepest published models have about 130 layers, the widest 512 experts. */
const MAX_LAYERS = 1024;
const MAX_EXPERTS = 4096;
/** Rows of one forward pass; plans stay far below. */
const MAX_ROWS = 2 ** 24;
/** Five bytes of seven bits hold every number of a lease. */
const VARINT_BYTES = 5;
const PREFIX_BYTES = 12;

const headerSchema = z.strictObject({
  model: z.string().max(128),
  label: z.string().max(1000),
  experts: z.int().min(1).max(MAX_EXPERTS),
  topK: z.int().min(1).max(MAX_EXPERTS),
  expertBytes: z
    .array(
      z
        .int()
        .min(0)
        .max(2 ** 40),
    )
    .max(MAX_LAYERS),
});

export function encodeHeader(header: TraceHeader): Uint8Array {
  const { model, label, experts, topK, expertBytes } = header;
  const text = Buffer.from(JSON.stringify({ model, label: label.slice(0, 1000), experts, topK, expertBytes }));
  const prefix = Buffer.alloc(PREFIX_BYTES);
  prefix.write(TRACE_MAGIC, 'latin1');
  prefix.writeUInt32LE(text.length, TRACE_MAGIC.length);
  return Buffer.concat([prefix, text]);
}

/** Most bytes that one lease takes. */
export function maxLeaseBytes(experts: number): number {
  return 3 * VARINT_BYTES + 2 * Math.ceil(experts / 8) + VARINT_BYTES;
}

/** Writes a lease at `at`, where maxLeaseBytes are free, and returns its end. `ids` 0..count-1 are distinct and ascending. */
export function encodeLease(
  to: Uint8Array,
  at: number,
  layer: number,
  rows: number,
  ids: ArrayLike<number>,
  count: number,
  experts: number,
): number {
  const bitmapBytes = Math.ceil(experts / 8);
  const isBitmap = count > bitmapBytes;
  let end = putVarint(to, at, layer);
  end = putVarint(to, end, rows);
  end = putVarint(to, end, count * 2 + (isBitmap ? 1 : 0));
  if (isBitmap) {
    to.fill(0, end, end + bitmapBytes);
    for (let i = 0; i < count; i++) to[end + (ids[i] >> 3)] |= 1 << (ids[i] & 7);
    return end + bitmapBytes;
  }
  for (let i = 0, next = 0; i < count; next = ids[i++] + 1) end = putVarint(to, end, ids[i] - next);
  return end;
}

function putVarint(to: Uint8Array, at: number, value: number): number {
  let rest = value;
  let end = at;
  for (; rest >= 128; rest = Math.floor(rest / 128)) to[end++] = (rest & 127) | 128;
  to[end++] = rest;
  return end;
}

/** Reads a trace. Errors: TRACE_INVALID with the position, and those of files. A lease that is cut off at the end is left out. */
export function readTrace(path: string): Trace {
  return decodeTrace(readSmallFile(path, MAX_TRACE_BYTES), path);
}

/** `name` is what messages call it. */
export function decodeTrace(bytes: Uint8Array, name: string): Trace {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const magic = Buffer.from(bytes.subarray(0, TRACE_MAGIC.length)).toString('latin1');
  if (magic !== TRACE_MAGIC) {
    const what = magic.startsWith('COLITRC') ? 'is a routing trace of another version' : 'is no routing trace';
    throw new ModelFileError('TRACE_INVALID', `${name} ${what}`, {
      hint: 'give a file that --trace has written',
      details: { file: name },
    });
  }
  if (bytes.length < PREFIX_BYTES) throw damaged(name, bytes.length, 'it ends within its header');
  const headerBytes = view.getUint32(TRACE_MAGIC.length, true);
  const end = PREFIX_BYTES + headerBytes;
  if (headerBytes > MAX_HEADER_BYTES) throw damaged(name, TRACE_MAGIC.length, `a header of ${headerBytes} bytes`);
  if (end > bytes.length) throw damaged(name, bytes.length, 'it ends within its header');
  return new Leases(bytes, end, decodeHeader(bytes.subarray(PREFIX_BYTES, end), name), name).read();
}

function decodeHeader(bytes: Uint8Array, name: string): TraceHeader {
  const parsed = headerSchema.safeParse(parseJson(decodeUtf8(bytes, name), name));
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw damaged(name, PREFIX_BYTES, `header field ${issue.path.join('.') || '(root)'}: ${issue.message}`);
  }
  const header = parsed.data;
  if (header.topK > header.experts) throw damaged(name, PREFIX_BYTES, 'header field topK is more than experts');
  return header;
}

function damaged(name: string, position: number, what: string): ModelFileError {
  return new ModelFileError('TRACE_INVALID', `${name} is damaged at byte ${position}: ${what}`, {
    hint: 'record the trace again with --trace',
    details: { file: name, position },
  });
}

/** Thrown where the bytes end within a lease. */
const CUT = Symbol('cut');

class Leases {
  readonly #bytes: Uint8Array;
  readonly #header: TraceHeader;
  readonly #name: string;
  readonly #found: Uint16Array;
  #at: number;

  constructor(bytes: Uint8Array, at: number, header: TraceHeader, name: string) {
    this.#bytes = bytes;
    this.#at = at;
    this.#header = header;
    this.#name = name;
    this.#found = new Uint16Array(header.experts);
  }

  read(): Trace {
    const trace = new TraceBuilder(this.#header);
    try {
      while (this.#at < this.#bytes.length) {
        const layer = this.#varint();
        const rows = this.#varint();
        const word = this.#varint();
        if (!(this.#header.expertBytes[layer] > 0)) throw this.#wrong(`layer ${layer} does not route`);
        if (rows < 1 || rows > MAX_ROWS) throw this.#wrong(`${rows} rows`);
        const count = Math.floor(word / 2);
        if (count < 1 || count > this.#header.experts) throw this.#wrong(`${count} experts`);
        if (word % 2 === 1) this.#bitmap(count);
        else this.#gaps(count);
        if (trace.requests + count > MAX_REQUESTS) throw this.#wrong(`more than ${MAX_REQUESTS} requests`);
        trace.add(layer, rows, this.#found, count);
      }
    } catch (error) {
      if (error !== CUT) throw error;
      return trace.build(true);
    }
    return trace.build();
  }

  #gaps(count: number): void {
    for (let i = 0, next = 0; i < count; i++, next++) {
      next += this.#varint();
      if (next >= this.#header.experts) throw this.#wrong(`expert ${next}`);
      this.#found[i] = next;
    }
  }

  #bitmap(count: number): void {
    const { experts } = this.#header;
    const from = this.#at;
    this.#at += Math.ceil(experts / 8);
    if (this.#at > this.#bytes.length) throw CUT;
    let found = 0;
    for (let expert = 0; expert < 8 * (this.#at - from); expert++) {
      if (!((this.#bytes[from + (expert >> 3)] >> (expert & 7)) & 1)) continue;
      if (expert >= experts) throw this.#wrong(`expert ${expert}`);
      if (found < count) this.#found[found] = expert;
      found++;
    }
    if (found !== count) throw this.#wrong(`a bitmap of ${found} experts where ${count} were announced`);
  }

  #varint(): number {
    let value = 0;
    for (let i = 0, unit = 1; i < VARINT_BYTES; i++, unit *= 128) {
      if (this.#at >= this.#bytes.length) throw CUT;
      const byte = this.#bytes[this.#at++];
      value += (byte & 127) * unit;
      if (byte < 128) return value;
    }
    throw this.#wrong('a number of more than five bytes');
  }

  #wrong(what: string): ModelFileError {
    return damaged(this.#name, this.#at, what);
  }
}
