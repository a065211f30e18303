// Layout numbers, as LAYOUT_ID of quant/layouts.ts has them, and what follows from them.

export const F32: i32 = 0;
export const BF16: i32 = 1;
export const F16: i32 = 2;
export const Q4: i32 = 3;
export const Q4_WIDE: i32 = 4;
export const Q8: i32 = 5;
export const Q8_WIDE: i32 = 6;
export const FP8: i32 = 7;
export const MXFP4: i32 = 8;
export const NVFP4: i32 = 9;
export const Q4_0: i32 = 10;
export const Q5_0: i32 = 11;
export const Q5_1: i32 = 12;
export const Q8_0: i32 = 13;
export const Q4_K: i32 = 14;
export const Q5_K: i32 = 15;
export const Q6_K: i32 = 16;
export const IQ4_NL: i32 = 17;
export const MXFP4_GGUF: i32 = 18;
export const Q4_1: i32 = 19;
export const Q2_K: i32 = 20;
export const Q3_K: i32 = 21;
export const IQ4_XS: i32 = 22;

/** Element types of float layouts besides f32, as type arguments: 16 bits in memory. */
export type Bfloat16 = u16;
export type Float16 = i16;

export const Q4_CODES: usize = 512;
export const Q8_CODES: usize = 1024;

@inline
export function isQ8(layout: i32): bool {
  return layout >= Q8;
}

/** Scales are float32 (else bfloat16). */
@inline
export function isWide(layout: i32): bool {
  return layout == Q4_WIDE || layout == Q8_WIDE;
}

@inline
export function codeBytes(layout: i32): usize {
  return isQ8(layout) ? Q8_CODES : Q4_CODES;
}

@inline
export function tileBytes(layout: i32): usize {
  return codeBytes(layout) + (isWide(layout) ? 64 : 32);
}

/** Entry i of an i32 index table, or i when there is no table. */
@inline
export function rowOf(index: usize, i: i32): usize {
  return index == 0 ? <usize>i : <usize>load<i32>(index + (<usize>i << 2));
}
