// Rows of block layouts decoded to float32, 16 weights at a time. The definition is quant/blocks.ts.

import { bfloatToFloat, halfToFloat } from './lanes';
import {
  FP8, IQ4_NL, IQ4_XS, MXFP4, MXFP4_GGUF, NVFP4, Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0,
} from './layouts';
import { iq4_xs, q2_k, q3_k, q4_1 } from './low-bits';

const NOT_A_NUMBER: u32 = 0x7fc00000;
const TWO_120: u32 = (127 + 120) << 23;

/** Built from a run-time value on purpose: V8 builds a constant vector anew at each use. */
@inline
export function lowNibbles(columns: i32): v128 {
  return i32x4.splat(0x0f0f0f0f | (columns >> 31));
}

@inline
export function highNibbles(v: v128, mask: v128): v128 {
  return v128.and(i16x8.shr_u(v, 4), mask);
}

/** Entries 0 .. 15 of a table of bytes. */
@inline
export function lookUp(table: v128, indices: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return i8x16.relaxed_swizzle(table, indices);
  return i8x16.swizzle(table, indices);
}

/** float16 at p, in all lanes. */
@inline
export function half(p: usize): v128 {
  return halfToFloat(i32x4.splat(<i32>load<i16>(p)));
}

@inline
function scaledQuad(halves: v128, upper: bool, scale: v128): v128 {
  const words = upper ? i32x4.extend_high_i16x8_s(halves) : i32x4.extend_low_i16x8_s(halves);
  return f32x4.mul(f32x4.convert_i32x4_s(words), scale);
}

/** y = 16 signed bytes * scale. */
@inline
export function storeScaled(y: usize, codes: v128, scale: v128): void {
  const low = i16x8.extend_low_i8x16_s(codes), high = i16x8.extend_high_i8x16_s(codes);
  v128.store(y, scaledQuad(low, false, scale));
  v128.store(y, scaledQuad(low, true, scale), 16);
  v128.store(y, scaledQuad(high, false, scale), 32);
  v128.store(y, scaledQuad(high, true, scale), 48);
}

/** y = 16 signed bytes * scale - low. */
@inline
export function storeAbove(y: usize, codes: v128, scale: v128, low: v128): void {
  const first = i16x8.extend_low_i8x16_s(codes), last = i16x8.extend_high_i8x16_s(codes);
  v128.store(y, f32x4.sub(scaledQuad(first, false, scale), low));
  v128.store(y, f32x4.sub(scaledQuad(first, true, scale), low), 16);
  v128.store(y, f32x4.sub(scaledQuad(last, false, scale), low), 32);
  v128.store(y, f32x4.sub(scaledQuad(last, true, scale), low), 48);
}

function q4_0(p: usize, columns: i32, y: usize): void {
  const mask = lowNibbles(columns);
  for (const end = y + (<usize>columns << 2); y < end; y += 128, p += 18) {
    const scale = half(p), codes = v128.load(p, 2);
    storeScaled(y, i8x16.sub(v128.and(codes, mask), i8x16.splat(8)), scale);
    storeScaled(y + 64, i8x16.sub(highNibbles(codes, mask), i8x16.splat(8)), scale);
  }
}

/** 0xff where bit i of the 16 at byte `first` (0 or 2) of the word is set, for byte i. */
@inline
function spreadBits(word: v128, upper: bool): v128 {
  const bytes = upper
    ? i8x16.shuffle(word, word, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3)
    : i8x16.shuffle(word, word, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
  const bits = i64x2.splat(<i64>0x8040201008040201);
  return i8x16.eq(v128.and(bytes, bits), bits);
}

function q5_0(p: usize, columns: i32, y: usize): void {
  const mask = lowNibbles(columns);
  for (const end = y + (<usize>columns << 2); y < end; y += 128, p += 22) {
    const scale = half(p), fifth = v128.load32_splat(p, 2), codes = v128.load(p, 6);
    // n - 16: without the fifth bit the upper half of the byte is that of a negative number
    const low = v128.andnot(i8x16.splat(-16), spreadBits(fifth, false));
    const high = v128.andnot(i8x16.splat(-16), spreadBits(fifth, true));
    storeScaled(y, v128.or(v128.and(codes, mask), low), scale);
    storeScaled(y + 64, v128.or(highNibbles(codes, mask), high), scale);
  }
}

function q5_1(p: usize, columns: i32, y: usize): void {
  const mask = lowNibbles(columns);
  for (const end = y + (<usize>columns << 2); y < end; y += 128, p += 24) {
    const scale = half(p), low = f32x4.neg(half(p + 2)), fifth = v128.load32_splat(p, 4), codes = v128.load(p, 8);
    const first = v128.and(i8x16.splat(16), spreadBits(fifth, false));
    const last = v128.and(i8x16.splat(16), spreadBits(fifth, true));
    storeAbove(y, v128.or(v128.and(codes, mask), first), scale, low);
    storeAbove(y + 64, v128.or(highNibbles(codes, mask), last), scale, low);
  }
}

function q8_0(p: usize, columns: i32, y: usize): void {
  for (const end = y + (<usize>columns << 2); y < end; y += 128, p += 34) {
    const scale = half(p);
    storeScaled(y, v128.load(p, 2), scale);
    storeScaled(y + 64, v128.load(p, 18), scale);
  }
}

/** Values of the codes of iq4_nl and iq4_xs. */
@inline
export function iq4Table(): v128 {
  return i8x16(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
}

function iq4_nl(p: usize, columns: i32, y: usize): void {
  const mask = lowNibbles(columns);
  const table = iq4Table();
  for (const end = y + (<usize>columns << 2); y < end; y += 128, p += 18) {
    const scale = half(p), codes = v128.load(p, 2);
    storeScaled(y, lookUp(table, v128.and(codes, mask)), scale);
    storeScaled(y + 64, lookUp(table, highNibbles(codes, mask)), scale);
  }
}

/** Codes of sub-blocks 2g (low nibbles) and 2g + 1, of which bytes 16v .. 16v+15; with fifth bits from `fifth` if there are any. */
@inline
function kQuarter<FIFTH>(
  codes: usize, fifth: usize, g: i32, y: usize, mask: v128, step0: v128, low0: v128, step1: v128, low1: v128,
): void {
  for (let v: usize = 0; v < 32; v += 16) {
    const pairs = v128.load(codes + v);
    let first = v128.and(pairs, mask), last = highNibbles(pairs, mask);
    if (isSigned<FIFTH>()) {
      const bits = i16x8.shr_u(v128.load(fifth + v), 2 * g), one = i8x16.splat(1);
      first = v128.or(first, i16x8.shl(v128.and(bits, one), 4));
      last = v128.or(last, i16x8.shl(v128.and(i16x8.shr_u(bits, 1), one), 4));
    }
    storeAbove(y + 4 * v, first, step0, low0);
    storeAbove(y + 4 * v + 128, last, step1, low1);
  }
}

/** Byte j of a word times d, in all lanes. */
@inline
function timesByte(d: f32, word: u32, j: u32): v128 {
  return f32x4.splat(d * <f32>(<i32>((word >> (8 * j)) & 255)));
}

/** q4_k; with FIFTH signed q5_k, whose fifth bits come before the codes. */
@inline
function kRow<FIFTH>(p: usize, columns: i32, y: usize): void {
  const mask = lowNibbles(columns);
  for (const end = y + (<usize>columns << 2); y < end; y += 1024) {
    const d = f32x4.extract_lane(half(p), 0), dLow = f32x4.extract_lane(half(p + 2), 0);
    const a = load<u32>(p, 4), b = load<u32>(p, 8), c = load<u32>(p, 12);
    // scales, then minima: four of 6 bits in a word each
    let scales = a & 0x3f3f3f3f, lows = b & 0x3f3f3f3f;
    const codes = p + (isSigned<FIFTH>() ? 48 : 16);
    for (let g = 0; g < 4; g++) {
      const j = <u32>(g & 1) << 1;
      if (g == 2) {
        scales = (c & 0x0f0f0f0f) | ((a >> 2) & 0x30303030);
        lows = ((c >> 4) & 0x0f0f0f0f) | ((b >> 2) & 0x30303030);
      }
      kQuarter<FIFTH>(
        codes + (<usize>g << 5), p + 16, g, y + (<usize>g << 8), mask,
        timesByte(d, scales, j), timesByte(dLow, lows, j), timesByte(d, scales, j + 1), timesByte(dLow, lows, j + 1),
      );
    }
    p += isSigned<FIFTH>() ? 176 : 144;
  }
}

/** 16 values of q6_k: nibbles and, in bits 4 and 5, what is above them. */
@inline
function q6Part(y: usize, nibbles: v128, above: v128, d: f32, scale: usize): void {
  const codes = i8x16.sub(v128.or(nibbles, v128.and(above, i8x16.splat(0x30))), i8x16.splat(32));
  storeScaled(y, codes, f32x4.splat(d * <f32>(<i32>load<i8>(scale))));
}

function q6_k(p: usize, columns: i32, y: usize): void {
  const mask = lowNibbles(columns);
  for (const end = y + (<usize>columns << 2); y < end; y += 1024, p += 210) {
    const d = f32x4.extract_lane(half(p + 208), 0);
    for (let i: usize = 0; i < 4; i++) {
      // half i / 2 of the block, and there the values that are 16 (i mod 2) to 16 (i mod 2) + 15 modulo 32
      const upper = i >> 1, at = (i & 1) << 4;
      const first = v128.load(p + 64 * upper + at), last = v128.load(p + 64 * upper + at, 32);
      const above = v128.load(p + 32 * upper + at, 128);
      const scale = p + 192 + 8 * upper + (i & 1), to = y + 512 * upper + 4 * at;
      q6Part(to, v128.and(first, mask), i16x8.shl(above, 4), d, scale);
      q6Part(to + 128, v128.and(last, mask), i16x8.shl(above, 2), d, scale + 2);
      q6Part(to + 256, highNibbles(first, mask), above, d, scale + 4);
      q6Part(to + 384, highNibbles(last, mask), i16x8.shr_u(above, 2), d, scale + 6);
    }
  }
}

/** e2m1 codes as bfloat16: lower and upper bytes interleaved, elements 0 .. 7 or 8 .. 15. */
@inline
function e2m1Halves(codes: v128, upper: bool): v128 {
  const low = lookUp(i8x16(0, 0, -128, -64, 0, 64, -128, -64, 0, 0, -128, -64, 0, 64, -128, -64), codes);
  const high = lookUp(i8x16(0, 63, 63, 63, 64, 64, 64, 64, -128, -65, -65, -65, -64, -64, -64, -64), codes);
  return upper
    ? i8x16.shuffle(low, high, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
    : i8x16.shuffle(low, high, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

/** y = 16 e2m1 codes * scale. */
@inline
function storeE2m1(y: usize, codes: v128, scale: v128): void {
  const low = e2m1Halves(codes, false), high = e2m1Halves(codes, true);
  v128.store(y, f32x4.mul(bfloatToFloat(low, false), scale));
  v128.store(y, f32x4.mul(bfloatToFloat(low, true), scale), 16);
  v128.store(y, f32x4.mul(bfloatToFloat(high, false), scale), 32);
  v128.store(y, f32x4.mul(bfloatToFloat(high, true), scale), 48);
}

/** 2^(code - 127) in all lanes; 255 is NaN. Both ends have a bit below the exponent: 2^-127 is a denormal. */
@inline
function e8m0(p: usize): v128 {
  const code = <u32>load<u8>(p);
  return f32x4.splat(reinterpret<f32>((code << 23) | (code == 0 || code == 255 ? 0x400000 : 0)));
}

/** Even columns are low nibbles: their codes beside those of the odd columns, columns 0 .. 15 or 16 .. 31. */
@inline
function inColumns(even: v128, odd: v128, upper: bool): v128 {
  return upper
    ? i8x16.shuffle(even, odd, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
    : i8x16.shuffle(even, odd, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

function mxfp4(p: usize, columns: i32, y: usize): void {
  const mask = lowNibbles(columns);
  let scales = p + (<usize>columns >> 1);
  for (const end = y + (<usize>columns << 2); y < end; y += 128, p += 16, scales++) {
    const pairs = v128.load(p), scale = e8m0(scales);
    const even = v128.and(pairs, mask), odd = highNibbles(pairs, mask);
    storeE2m1(y, inColumns(even, odd, false), scale);
    storeE2m1(y + 64, inColumns(even, odd, true), scale);
  }
}

function mxfp4Gguf(p: usize, columns: i32, y: usize): void {
  const mask = lowNibbles(columns);
  for (const end = y + (<usize>columns << 2); y < end; y += 128, p += 17) {
    const pairs = v128.load(p, 1), scale = e8m0(p);
    storeE2m1(y, v128.and(pairs, mask), scale);
    storeE2m1(y + 64, highNibbles(pairs, mask), scale);
  }
}

/** Value of an e4m3 code: sign, exponent and fraction in float32 places are the number times 2^-120. */
@inline
function e4m3(code: u32): f32 {
  const value = reinterpret<f32>(((code & 0x80) << 24) | ((code & 0x7f) << 20)) * reinterpret<f32>(TWO_120);
  return (code & 0x7f) == 0x7f ? reinterpret<f32>(NOT_A_NUMBER) : value;
}

function nvfp4(p: usize, columns: i32, y: usize): void {
  const mask = lowNibbles(columns);
  const whole = v128.load32_splat(p);
  let scales = p + 4;
  p = scales + (<usize>columns >> 4);
  for (const end = y + (<usize>columns << 2); y < end; y += 64, p += 8, scales++) {
    const pairs = v128.load64_zero(p), scale = f32x4.splat(e4m3(load<u8>(scales)));
    const codes = inColumns(v128.and(pairs, mask), highNibbles(pairs, mask), false);
    const low = e2m1Halves(codes, false), high = e2m1Halves(codes, true);
    v128.store(y, f32x4.mul(f32x4.mul(bfloatToFloat(low, false), scale), whole));
    v128.store(y, f32x4.mul(f32x4.mul(bfloatToFloat(low, true), scale), whole), 16);
    v128.store(y, f32x4.mul(f32x4.mul(bfloatToFloat(high, false), scale), whole), 32);
    v128.store(y, f32x4.mul(f32x4.mul(bfloatToFloat(high, true), scale), whole), 48);
  }
}

/** Four e4m3 codes, each the upper byte of its lane, without regard to NaN, times scale. */
@inline
function e4m3Quad(words: v128, places: v128, factor: v128, scale: v128): v128 {
  return f32x4.mul(f32x4.mul(v128.and(i32x4.shr_s(words, 4), places), factor), scale);
}

function storeNaNs(y: usize, mask: i32): void {
  for (; mask; mask &= mask - 1) store<u32>(y + (<usize>ctz(mask) << 2), NOT_A_NUMBER);
}

/** y = 16 e4m3 codes * scale. */
@inline
function storeE4m3(y: usize, codes: v128, places: v128, factor: v128, scale: v128): void {
  const zeros = i16x8.splat(0);
  const low = i8x16.shuffle(zeros, codes, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const high = i8x16.shuffle(zeros, codes, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  v128.store(y, e4m3Quad(bfloatToFloat(low, false), places, factor, scale));
  v128.store(y, e4m3Quad(bfloatToFloat(low, true), places, factor, scale), 16);
  v128.store(y, e4m3Quad(bfloatToFloat(high, false), places, factor, scale), 32);
  v128.store(y, e4m3Quad(bfloatToFloat(high, true), places, factor, scale), 48);
  const notNumbers = i8x16.eq(v128.or(codes, i8x16.splat(-128)), i8x16.splat(-1));
  if (v128.any_true(notNumbers)) storeNaNs(y, i8x16.bitmask(notNumbers));
}

function fp8(p: usize, columns: i32, y: usize): void {
  // from a run-time value, as lowNibbles
  const places = i32x4.splat(0x87f00000 | (columns >> 31)), factor = i32x4.splat(TWO_120 | (columns >> 31));
  let codes = p + (<usize>((columns + 127) >> 7) << 2);
  for (let c = 0; c < columns; c += 128, p += 4) {
    const count = min(columns - c, 128), scale = v128.load32_splat(p);
    let i = 0;
    for (; i + 16 <= count; i += 16, codes += 16, y += 64) {
      storeE4m3(y, v128.load(codes), places, factor, scale);
    }
    for (; i < count; i++, codes++, y += 4) store<f32>(y, e4m3(load<u8>(codes)) * load<f32>(p));
  }
}

/** The row of `columns` weights at p to y. */
function decodeRow(layout: i32, p: usize, columns: i32, y: usize): void {
  switch (layout) {
    case FP8: return fp8(p, columns, y);
    case MXFP4: return mxfp4(p, columns, y);
    case NVFP4: return nvfp4(p, columns, y);
    case Q4_0: return q4_0(p, columns, y);
    case Q5_0: return q5_0(p, columns, y);
    case Q5_1: return q5_1(p, columns, y);
    case Q8_0: return q8_0(p, columns, y);
    case Q4_K: return kRow<u32>(p, columns, y);
    case Q5_K: return kRow<i32>(p, columns, y);
    case Q6_K: return q6_k(p, columns, y);
    case IQ4_NL: return iq4_nl(p, columns, y);
    case MXFP4_GGUF: return mxfp4Gguf(p, columns, y);
    case Q4_1: return q4_1(p, columns, y);
    case Q2_K: return q2_k(p, columns, y);
    case Q3_K: return q3_k(p, columns, y);
    case IQ4_XS: return iq4_xs(p, columns, y);
  }
}

function rowBytes(layout: i32, columns: i32): usize {
  const blocks = <usize>columns >> 5, large = <usize>columns >> 8;
  switch (layout) {
    case FP8: return (<usize>((columns + 127) >> 7) << 2) + columns;
    case NVFP4: return 4 + 9 * (<usize>columns >> 4);
    case Q4_0: case IQ4_NL: return 18 * blocks;
    case Q5_0: return 22 * blocks;
    case Q5_1: return 24 * blocks;
    case Q8_0: return 34 * blocks;
    case Q4_K: return 144 * large;
    case Q5_K: return 176 * large;
    case Q6_K: return 210 * large;
    case Q4_1: return 20 * blocks;
    case Q2_K: return 84 * large;
    case Q3_K: return 110 * large;
    case IQ4_XS: return 136 * large;
  }
  return 17 * blocks;
}

/** Row `row` of w to `columns` floats at y. */
export function decodeBlockRow(layout: i32, w: usize, columns: i32, row: i32, y: usize): void {
  decodeRow(layout, w + <usize>row * rowBytes(layout, columns), columns, y);
}
