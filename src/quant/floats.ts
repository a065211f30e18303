/** float16 and bfloat16 rows to float32 and back, over byte views of any alignment (little-endian, as files are). */

const word = new Uint32Array(1);
const wordAsFloat = new Float32Array(word.buffer);

/** Value of every float16 bit pattern, as float32 bits: made on first use (256 KiB), then a conversion is one load. */
let halfTable: Uint32Array | null = null;

function makeHalfTable(): Uint32Array {
  const table = new Uint32Array(65536);
  const asFloat = new Float32Array(table.buffer);
  for (let h = 0; h < 65536; h++) {
    const sign = (h & 0x8000) << 16;
    const exponent = (h >> 10) & 31;
    const fraction = h & 1023;
    if (exponent === 31) table[h] = sign | 0x7f800000 | (fraction << 13);
    else if (exponent > 0) table[h] = sign | ((exponent + 112) << 23) | (fraction << 13);
    else {
      asFloat[h] = fraction * 2 ** -24;
      table[h] |= sign;
    }
  }
  return table;
}

/** The same bytes as a typed array; copies only when the view does not start at a multiple of the element size. */
export function asUint16(bytes: Uint8Array): Uint16Array {
  const aligned = bytes.byteOffset % 2 === 0 ? bytes : bytes.slice();
  return new Uint16Array(aligned.buffer, aligned.byteOffset, aligned.byteLength >> 1);
}

export function asUint32(bytes: Uint8Array): Uint32Array {
  const aligned = bytes.byteOffset % 4 === 0 ? bytes : bytes.slice();
  return new Uint32Array(aligned.buffer, aligned.byteOffset, aligned.byteLength >> 2);
}

export function asFloat32(bytes: Uint8Array): Float32Array {
  const words = asUint32(bytes);
  return new Float32Array(words.buffer, words.byteOffset, words.length);
}

/** bfloat16 elements -> float32 bits, exact. `out` has at least as many elements. */
export function bfloatsToFloatBits(input: Uint16Array, out: Uint32Array): void {
  for (let i = 0; i < input.length; i++) out[i] = input[i] << 16;
}

/** float16 elements -> float32 bits, exact (NaN payloads are kept). */
export function halvesToFloatBits(input: Uint16Array, out: Uint32Array): void {
  halfTable ??= makeHalfTable();
  for (let i = 0; i < input.length; i++) out[i] = halfTable[input[i]];
}

/** bfloat16 bits of a float32 given by its bits: round to nearest, ties to even; NaN stays NaN. */
export function roundToBfloat(bits: number): number {
  if ((bits & 0x7fffffff) > 0x7f800000) return ((bits >>> 16) | 0x40) & 0xffff;
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff;
}

/** A number rounded to float32 and then to bfloat16, as its 16 bits. */
export function bfloatOf(value: number): number {
  wordAsFloat[0] = value;
  return roundToBfloat(word[0]);
}

/** The number that 16 bits of a bfloat16 mean. */
export function bfloatValue(bits: number): number {
  word[0] = bits << 16;
  return wordAsFloat[0];
}

/** The number that 16 bits of a float16 mean. */
export function halfValue(bits: number): number {
  halfTable ??= makeHalfTable();
  word[0] = halfTable[bits];
  return wordAsFloat[0];
}

/** float32 elements (as bits) -> bfloat16. */
export function floatBitsToBfloats(input: Uint32Array, out: Uint16Array): void {
  for (let i = 0; i < input.length; i++) out[i] = roundToBfloat(input[i]);
}
