/** Writes GGUF files, right ones and, where a test says so, wrong ones. */

import { writeFileSync } from 'node:fs';

const VALUE_TYPES = ['u8', 'i8', 'u16', 'i16', 'u32', 'i32', 'f32', 'bool', 'string', 'array', 'u64', 'i64', 'f64'];

/** [type, value] of a key; arrays say the type of their elements first. */
export type GgufField =
  | readonly [type: string, value: number | bigint | boolean | string]
  | readonly [type: 'array', element: string, values: readonly (number | bigint | boolean | string | GgufField)[]];

export interface GgufEntry {
  readonly name: string;
  /** As in the file: row length first. */
  readonly dims: readonly (number | bigint)[];
  /** Number of its type. */
  readonly type: number;
  readonly bytes: Uint8Array;
  /** Instead of the place where the writer puts it. */
  readonly offset?: number | bigint;
}

export interface GgufFile {
  readonly metadata: readonly (readonly [key: string, field: GgufField])[];
  readonly tensors: readonly GgufEntry[];
  readonly version?: number;
  readonly magic?: string;
  readonly alignment?: number;
  /** Counts in the header, instead of the true ones. */
  readonly tensorCount?: bigint;
  readonly pairCount?: bigint;
}

type Write = (view: DataView, value: number) => void;

const SCALARS: Readonly<Record<string, readonly [bytes: number, write: Write]>> = {
  u8: [1, (view, value) => view.setUint8(0, value)],
  i8: [1, (view, value) => view.setInt8(0, value)],
  bool: [1, (view, value) => view.setUint8(0, Number(value))],
  u16: [2, (view, value) => view.setUint16(0, value, true)],
  i16: [2, (view, value) => view.setInt16(0, value, true)],
  u32: [4, (view, value) => view.setUint32(0, value, true)],
  i32: [4, (view, value) => view.setInt32(0, value, true)],
  f32: [4, (view, value) => view.setFloat32(0, value, true)],
  u64: [8, (view, value) => view.setBigUint64(0, BigInt(value), true)],
  i64: [8, (view, value) => view.setBigInt64(0, BigInt(value), true)],
  f64: [8, (view, value) => view.setFloat64(0, value, true)],
};

class Bytes {
  readonly #chunks: Uint8Array[] = [];
  length = 0;

  append(bytes: Uint8Array): void {
    this.#chunks.push(bytes);
    this.length += bytes.length;
  }

  scalar(type: string, value: number | bigint | boolean): void {
    const view = new DataView(new ArrayBuffer(8));
    const [bytes, write] = SCALARS[type];
    write(view, value as number);
    this.append(new Uint8Array(view.buffer, 0, bytes));
  }

  string(text: string): void {
    const bytes = new TextEncoder().encode(text);
    this.scalar('u64', bytes.length);
    this.append(bytes);
  }

  value(type: string, value: number | bigint | boolean | string): void {
    if (type === 'string') this.string(value as string);
    else this.scalar(type, value as number);
  }

  array([, element, values]: Extract<GgufField, readonly ['array', ...unknown[]]>): void {
    this.scalar('u32', VALUE_TYPES.indexOf(element));
    this.scalar('u64', values.length);
    for (const value of values) {
      if (element === 'array') this.array(value as Extract<GgufField, readonly ['array', ...unknown[]]>);
      else this.value(element, value as number);
    }
  }

  pad(alignment: number): void {
    this.append(new Uint8Array((alignment - (this.length % alignment)) % alignment));
  }

  join(): Uint8Array {
    const all = new Uint8Array(this.length);
    let at = 0;
    for (const chunk of this.#chunks) {
      all.set(chunk, at);
      at += chunk.length;
    }
    return all;
  }
}

/** The whole file. A `general.alignment` must be among the metadata when `alignment` is not 32. */
export function encodeGguf(file: GgufFile): Uint8Array {
  const { metadata, tensors, version = 3, magic = 'GGUF', alignment = 32 } = file;
  const out = new Bytes();
  out.append(new TextEncoder().encode(magic));
  out.scalar('u32', version);
  out.scalar('u64', file.tensorCount ?? tensors.length);
  out.scalar('u64', file.pairCount ?? metadata.length);
  for (const [key, field] of metadata) {
    out.string(key);
    out.scalar('u32', VALUE_TYPES.indexOf(field[0]));
    if (field[0] === 'array') out.array(field as Extract<GgufField, readonly ['array', ...unknown[]]>);
    else out.value(field[0], field[1] as number);
  }
  let offset = 0;
  for (const tensor of tensors) {
    out.string(tensor.name);
    out.scalar('u32', tensor.dims.length);
    for (const dim of tensor.dims) out.scalar('u64', dim);
    out.scalar('u32', tensor.type);
    out.scalar('u64', tensor.offset ?? offset);
    offset += Math.ceil(tensor.bytes.length / alignment) * alignment;
  }
  out.pad(alignment);
  for (const { bytes } of tensors) {
    out.append(bytes);
    out.pad(alignment);
  }
  return out.join();
}

export function writeGguf(path: string, file: GgufFile): string {
  writeFileSync(path, encodeGguf(file));
  return path;
}

/** Writes `file` in parts of at most `perPart` tensors; the first part holds none of them when `emptyFirst`. */
export function writeSplitGguf(stem: string, file: GgufFile, perPart: number, emptyFirst = false): string[] {
  const groups: GgufEntry[][] = emptyFirst ? [[]] : [];
  for (let i = 0; i < file.tensors.length; i += perPart) groups.push(file.tensors.slice(i, i + perPart));
  const five = (n: number) => String(n).padStart(5, '0');
  return groups.map((tensors, i) => {
    const split: [string, GgufField][] = [
      ['split.no', ['u16', i]],
      ['split.count', ['u16', groups.length]],
      ['split.tensors.count', ['i32', file.tensors.length]],
    ];
    const metadata = [...(i === 0 ? file.metadata : []), ...split];
    return writeGguf(`${stem}-${five(i + 1)}-of-${five(groups.length)}.gguf`, { ...file, metadata, tensors });
  });
}
