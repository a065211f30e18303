// Blocks of GGUF with few bits, and those that came after them: rows decoded to float32. The definition is quant/blocks.ts.

import { half, highNibbles, iq4Table, lookUp, lowNibbles, storeAbove, storeScaled } from './blocks';

export function q4_1(p: usize, columns: i32, y: usize): void {
  const mask = lowNibbles(columns);
  for (const end = y + (<usize>columns << 2); y < end; y += 128, p += 20) {
    const scale = half(p), low = f32x4.neg(half(p + 2)), codes = v128.load(p, 4);
    storeAbove(y, v128.and(codes, mask), scale, low);
    storeAbove(y + 64, highNibbles(codes, mask), scale, low);
  }
}

/** Bits 2j and 2j + 1 of 16 bytes. */
@inline
function twoBits(codes: v128, j: i32): v128 {
  return v128.and(i16x8.shr_u(codes, 2 * j), i8x16.splat(3));
}

export function q2_k(p: usize, columns: i32, y: usize): void {
  for (const end = y + (<usize>columns << 2); y < end; y += 1024, p += 84) {
    const d = f32x4.extract_lane(half(p + 80), 0), dLow = f32x4.extract_lane(half(p + 82), 0);
    for (let v: usize = 0; v < 4; v++) {
      // 16 bytes hold the values 16 (v mod 2) to 16 (v mod 2) + 15 of the four quarters of a half
      const codes = v128.load(p + (v << 4), 16);
      const pairs = p + (v >> 1 << 3) + (v & 1), to = y + (v >> 1 << 9) + ((v & 1) << 6);
      for (let j = 0; j < 4; j++) {
        const pair = <u32>load<u8>(pairs + (<usize>j << 1));
        const step = f32x4.splat(d * <f32>(<i32>(pair & 15))), low = f32x4.splat(dLow * <f32>(<i32>(pair >> 4)));
        storeAbove(to + (<usize>j << 7), twoBits(codes, j), step, low);
      }
    }
  }
}

/** Scale i of 16, of 6 bits: its low bits are a nibble of the first 8 bytes, its high ones two bits of the last 4. */
@inline
function sixBits(p: usize, i: u32): f32 {
  const low = (<u32>load<u8>(p + (i & 7)) >> (i >> 3 << 2)) & 15;
  const high = (<u32>load<u8>(p + (i & 3), 8) >> (i >> 2 << 1)) & 3;
  return <f32>(<i32>(low | (high << 4)) - 32);
}

export function q3_k(p: usize, columns: i32, y: usize): void {
  for (const end = y + (<usize>columns << 2); y < end; y += 1024, p += 110) {
    const d = f32x4.extract_lane(half(p + 108), 0);
    for (let v = 0; v < 4; v++) {
      const codes = v128.load(p + (<usize>v << 4), 32), third = v128.load(p + (<usize>(v & 1) << 4));
      const to = y + (<usize>(v >> 1) << 9) + (<usize>(v & 1) << 6);
      for (let j = 0; j < 4; j++) {
        const bits = v128.and(i16x8.shr_u(third, 4 * (v >> 1) + j), i8x16.splat(1));
        const n = i8x16.sub(v128.or(twoBits(codes, j), i16x8.shl(bits, 2)), i8x16.splat(4));
        storeScaled(to + (<usize>j << 7), n, f32x4.splat(d * sixBits(p + 96, 8 * (v >> 1) + 2 * j + (v & 1))));
      }
    }
  }
}

export function iq4_xs(p: usize, columns: i32, y: usize): void {
  const mask = lowNibbles(columns), table = iq4Table();
  for (const end = y + (<usize>columns << 2); y < end; p += 136) {
    const d = f32x4.extract_lane(half(p), 0);
    // 4 low bits of eight scales, and 2 high ones
    let lows = load<u32>(p, 4), highs = <u32>load<u16>(p, 2);
    for (let j: usize = 0; j < 8; j++, y += 128) {
      const scale = f32x4.splat(d * <f32>(<i32>((lows & 15) | ((highs & 3) << 4)) - 32));
      const codes = v128.load(p + (j << 4), 8);
      storeScaled(y, lookUp(table, v128.and(codes, mask)), scale);
      storeScaled(y + 64, lookUp(table, highNibbles(codes, mask)), scale);
      lows >>= 4;
      highs >>= 2;
    }
  }
}
