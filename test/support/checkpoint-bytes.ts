/** Contents of checkpoints, in memory only or in files, and loading of records from them as a reader does it. */

import type { Checkpoint, Dtype, TensorInfo } from '../../src/formats/checkpoint-types.ts';
import { readExact, withFile } from '../../src/formats/files.ts';
import { decodeRow } from '../../src/quant/decode.ts';
import { asUint16, asUint32, bfloatsToFloatBits } from '../../src/quant/floats.ts';
import { layoutBytes } from '../../src/quant/layouts.ts';
import { PACKERS } from '../../src/quant/pack.ts';
import type { Extent, StoredRecord } from '../../src/quant/stored.ts';

/** Small deterministic generator: enough variety, no library. */
export function noise(seed: number): () => number {
  let state = seed >>> 0 || 1;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state >>> 8;
  };
}

/** Bytes that mean ordinary numbers in a type: no NaN, no infinity, scales of a moderate size. */
function element(dtype: Dtype, next: () => number): number[] {
  const float = (): number => (next() % 2001) / 1000 - 1;
  const wide = new Uint8Array(Float32Array.of(float()).buffer);
  if (dtype === 'F32') return [...wide];
  if (dtype === 'BF16') return [...wide.subarray(2)];
  if (dtype === 'F16') return [next() & 255, 0x30 | (next() & 0x83)];
  if (dtype === 'F8_E8M0') return [100 + (next() % 50)];
  if (dtype === 'F8_E4M3') return [(next() & 0x80) | (next() % 0x7f)];
  return [next() & 255];
}

/** One file's content for the tensors of `fake()`. */
export function contentsOf(checkpoint: Checkpoint, seed = 1): Uint8Array {
  const bytes = new Uint8Array(checkpoint.bytesOnDisk);
  const next = noise(seed);
  for (const { dtype, offset, bytes: size } of checkpoint.tensors.values()) {
    for (let at = offset; at < offset + size; ) {
      for (const byte of element(dtype, next)) bytes[at++] = byte;
    }
  }
  return bytes;
}

export function tensorBytes(contents: Uint8Array, { offset, bytes }: TensorInfo): Uint8Array {
  return contents.subarray(offset, offset + bytes);
}

/** From the checkpoint's files. */
export function bytesOfTensor({ files }: Checkpoint, { file, offset, bytes }: TensorInfo): Uint8Array {
  const { path: name } = files[file];
  const out = new Uint8Array(bytes);
  withFile(name, fd => readExact(fd, out, offset, name));
  return out;
}

/** Values of a BF16 or F32 tensor. */
export function floatsOfTensor(checkpoint: Checkpoint, tensor: TensorInfo): Float32Array {
  const bytes = bytesOfTensor(checkpoint, tensor);
  if (tensor.dtype === 'F32') return new Float32Array(asUint32(bytes).slice().buffer);
  if (tensor.dtype !== 'BF16') throw new Error(`${tensor.name} is ${tensor.dtype}`);
  const values = new Float32Array(bytes.length / 2);
  bfloatsToFloatBits(asUint16(bytes), new Uint32Array(values.buffer));
  return values;
}

/** Bytes of every part in its layout. */
export function loadParts(record: StoredRecord, read: (extent: Extent) => Uint8Array): Uint8Array[] {
  const extents = record.extents.map(read);
  const end = Math.max(0, ...record.packs.map(step => step.target + step.bytes));
  const packed = new Uint8Array(end).fill(0xee);
  for (const step of record.packs) {
    const inputs = step.inputs.map(({ extent, offset, bytes }) => {
      const input = extents[extent].subarray(offset, offset + bytes);
      if (input.length !== bytes) throw new Error(`${record.name}: an input leaves its extent`);
      return input;
    });
    const out = packed.subarray(step.target, step.target + step.bytes);
    PACKERS[step.packer](inputs, step.rows, step.columns, out, step.params);
  }
  return record.parts.map(({ layout, rows, columns, source }, i) => {
    const bytes = layoutBytes(layout, rows, columns);
    if (source) return extents[source.extent].subarray(source.offset, source.offset + bytes);
    return packed.subarray(record.packs[i].target, record.packs[i].target + bytes);
  });
}

/** Compares every weight of a loaded part with `value`, decoded independently. */
export function checkPart(
  record: StoredRecord,
  index: number,
  bytes: Uint8Array,
  value: (row: number, column: number) => number,
): void {
  const { layout, rows, columns } = record.parts[index];
  const out = new Float32Array(columns);
  for (let row = 0; row < rows; row++) {
    decodeRow(layout, bytes, rows, columns, row, out);
    for (let c = 0; c < columns; c++) {
      const expected = Math.fround(value(row, c));
      if (!Object.is(out[c] + 0, expected + 0)) {
        throw new Error(`${record.name} part ${index} (${row}, ${c}): ${out[c]}, expected ${expected}`);
      }
    }
  }
}
