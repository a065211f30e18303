/**
 * What a packer is: raw bytes of a record's extents -> one matrix in a kernel layout (layouts.ts). Packers run in I/O threads,
 * so they keep their scratch between calls and work on 32-bit words or whole rows. Inputs and output may start at any byte.
 * A packer never judges values: non-finite scales pass through and are found when they are used.
 */

import { ColiError } from '../../common/errors.ts';
import type { Dtype } from '../../formats/checkpoint-types.ts';
import { asFloat32, asUint16, bfloatsToFloatBits, halvesToFloatBits } from '../floats.ts';
import { e8m0Value } from '../small-floats.ts';

/** `inputs` and `params` in the order that the packer documents; `out` has exactly the bytes of the layout. */
export type Packer = (
  inputs: readonly Uint8Array[],
  rows: number,
  columns: number,
  out: Uint8Array,
  params?: readonly number[],
) => void;

/** Scratch that grows to the largest need of this thread and is then reused. */
export function scratch(): (words: number) => Uint32Array<ArrayBuffer> {
  let kept = new Uint32Array(0);
  return words => {
    if (kept.length < words) kept = new Uint32Array(words);
    return kept;
  };
}

export function expectBytes(packer: string, what: string, got: number, expected: number): void {
  if (got === expected) return;
  throw new ColiError('PACK_SIZE', `${packer}: ${what} has ${got} bytes, expected ${expected}`, {
    details: { packer, expected, got },
  });
}

/** Numbers by which params name the type of scales and vectors. */
export const NUMBER_KIND: Readonly<Partial<Record<Dtype, number>>> = { F32: 0, BF16: 1, F16: 2, F8_E8M0: 3, U8: 3 };
/** Bytes of one, by kind. */
export const KIND_BYTES: readonly number[] = [4, 2, 2, 1];

const e8m0 = Float32Array.from({ length: 256 }, (_, code) => e8m0Value(code));

const converted = scratch();

/** Numbers of a kind as float32, exact. The result is valid until the next call unless `into` is given. */
export function numbersOf(input: Uint8Array, kind: number, into = converted): Float32Array {
  const count = input.byteLength / KIND_BYTES[kind];
  if (kind === 0) return asFloat32(input);
  const words = into(count);
  const floats = new Float32Array(words.buffer, 0, count);
  if (kind === 1) bfloatsToFloatBits(asUint16(input), words);
  else if (kind === 2) halvesToFloatBits(asUint16(input), words);
  else for (let i = 0; i < count; i++) floats[i] = e8m0[input[i]];
  return floats;
}
