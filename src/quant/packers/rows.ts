/** Packers that move elements without changing them, and those that make vectors. */

import { asUint16, asUint32, bfloatsToFloatBits, halvesToFloatBits } from '../floats.ts';
import { expectBytes, KIND_BYTES, numbersOf, type Packer, scratch } from './packer.ts';

const piece = scratch();

/** Bytes as they are: `inputs` one after the other. */
export const copy: Packer = (inputs, _rows, _columns, out) => {
  let at = 0;
  for (const input of inputs) at += input.byteLength;
  expectBytes('copy', 'the input', at, out.byteLength);
  at = 0;
  for (const input of inputs) {
    out.set(input, at);
    at += input.byteLength;
  }
};

/** Every step-th row. params: bytes of a row, step. */
export const rows: Packer = ([input], count, _columns, out, params = []) => {
  const [rowBytes, step] = params;
  expectBytes('rows', 'the input', input.byteLength, ((count - 1) * step + 1) * rowBytes);
  expectBytes('rows', 'the output', out.byteLength, count * rowBytes);
  for (let r = 0; r < count; r++) {
    const from = r * step * rowBytes;
    out.set(input.subarray(from, from + rowBytes), r * rowBytes);
  }
};

/** Rows and columns of a block that stays in the first cache while it is turned. */
const BLOCK = 32;

/**
 * The input has [columns, of] elements, the output is rows first, first + step, ... of its transpose.
 * params: bytes of an element (2 or 4), of, first, step.
 */
export const transpose: Packer = ([input], rowCount, columns, out, params = []) => {
  const [elementBytes, of, first, step] = params;
  expectBytes('transpose', 'the input', input.byteLength, columns * of * elementBytes);
  expectBytes('transpose', 'the output', out.byteLength, rowCount * columns * elementBytes);
  const from = elementBytes === 2 ? asUint16(input) : asUint32(input);
  const aligned = out.byteOffset % elementBytes === 0;
  const target = aligned ? out : new Uint8Array(out.byteLength);
  const to = elementBytes === 2 ? asUint16(target) : asUint32(target);
  for (let r0 = 0; r0 < rowCount; r0 += BLOCK) {
    const r1 = Math.min(r0 + BLOCK, rowCount);
    for (let c0 = 0; c0 < columns; c0 += BLOCK) {
      const c1 = Math.min(c0 + BLOCK, columns);
      for (let r = r0; r < r1; r++) {
        const at = first + r * step;
        for (let c = c0; c < c1; c++) to[r * columns + c] = from[c * of + at];
      }
    }
  }
  if (!aligned) out.set(target);
};

function widen(name: string, convert: (input: Uint16Array, out: Uint32Array) => void): Packer {
  const STEP = 65536;
  return ([input], rowCount, columns, out) => {
    const elements = rowCount * columns;
    expectBytes(name, 'the input', input.byteLength, elements * 2);
    expectBytes(name, 'the output', out.byteLength, elements * 4);
    const words = piece(Math.min(STEP, elements));
    for (let from = 0; from < elements; from += STEP) {
      const count = Math.min(STEP, elements - from);
      convert(asUint16(input.subarray(from * 2, (from + count) * 2)), words);
      out.set(new Uint8Array(words.buffer, 0, count * 4), from * 4);
    }
  };
}

export const bfloatsToFloats = widen('bf16-to-f32', bfloatsToFloatBits);
export const halvesToFloats = widen('f16-to-f32', halvesToFloatBits);

/** A vector as float32: elements 0, step, 2 * step, ... plus `added`. params: kind, step, added. */
export const vector: Packer = ([input], _rows, length, out, params = []) => {
  const [kind, step, added] = params;
  expectBytes('vector', 'the input', input.byteLength, ((length - 1) * step + 1) * KIND_BYTES[kind]);
  expectBytes('vector', 'the output', out.byteLength, length * 4);
  const numbers = numbersOf(input, kind);
  const floats = new Float32Array(piece(length).buffer, 0, length);
  for (let i = 0; i < length; i++) floats[i] = added === 0 ? numbers[i * step] : added + numbers[i * step];
  out.set(new Uint8Array(floats.buffer, 0, length * 4));
};
