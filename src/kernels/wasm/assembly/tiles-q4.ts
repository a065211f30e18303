// q4 tiles times int8 activations. A 16-byte vector of a tile holds 4 rows x 4 columns of low nibbles (columns 4q..4q+3)
// and as many of high nibbles (columns 32+4q..); its 32-bit lane is the row, so four activations are broadcast to all lanes.
// The zero point 8 is folded in as -8 * (sum of the group's activation codes).

import { storePart } from './lanes';

/** Built from a run-time value on purpose: V8 builds a constant vector anew at each use, which costs a third of the speed. */
@inline
function nibbleMask(groups: i32): v128 {
  return i32x4.splat((ASC_FEATURE_RELAXED_SIMD ? 0x0f0f0f0f : 0x000f000f) | (groups >> 31));
}

/** Sign-extended even and odd bytes. */
@inline
export function evenBytes(v: v128): v128 {
  return i16x8.shr_s(i16x8.shl(v, 8), 8);
}

@inline
export function oddBytes(v: v128): v128 {
  return i16x8.shr_s(v, 8);
}

/** acc + (low nibbles of v) . a, per 32-bit lane. Nibbles are 0..15, so the relaxed dot is exact on every engine. */
@inline
function dotLow(a: v128, v: v128, mask: v128, acc: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return i32x4.relaxed_dot_i8x16_i7x16_add_s(a, v128.and(v, mask), acc);
  const even = i32x4.dot_i16x8_s(v128.and(v, mask), evenBytes(a));
  const odd = i32x4.dot_i16x8_s(v128.and(i16x8.shr_u(v, 8), mask), oddBytes(a));
  return i32x4.add(acc, i32x4.add(even, odd));
}

/** acc + (high nibbles of v) . a, per 32-bit lane. */
@inline
function dotHigh(a: v128, v: v128, mask: v128, acc: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) {
    return i32x4.relaxed_dot_i8x16_i7x16_add_s(a, v128.and(i16x8.shr_u(v, 4), mask), acc);
  }
  const even = i32x4.dot_i16x8_s(v128.and(i16x8.shr_u(v, 4), mask), evenBytes(a));
  const odd = i32x4.dot_i16x8_s(i16x8.shr_u(v, 12), oddBytes(a));
  return i32x4.add(acc, i32x4.add(even, odd));
}

/** Scales of rows 4b .. 4b+3. `p` is where the tile's scales start; S is their type: f32, or u16 for bfloat16 bits. */
@inline
export function tileScales<S>(p: usize, b: usize): v128 {
  if (isFloat<S>()) return v128.load(p + 16 * b);
  return i32x4.shl(v128.load16x4_u(p + 8 * b), 16);
}

/** What a group adds to four rows: float(dot) * (wScale * xScale). */
@inline
export function scaled(dot: v128, wScale: v128, xScale: v128): v128 {
  return f32x4.mul(f32x4.convert_i32x4_s(dot), f32x4.mul(wScale, xScale));
}

@inline
export function addTo(y: usize, term: v128): void {
  v128.store(y, f32x4.add(v128.load(y), term));
}

/** Stores the first `count` of 16 sums. */
export function storeRows(y: usize, count: i32, s0: v128, s1: v128, s2: v128, s3: v128): void {
  storeUpTo4(y, s0, count);
  storeUpTo4(y + 16, s1, count - 4);
  storeUpTo4(y + 32, s2, count - 8);
  storeUpTo4(y + 48, s3, count - 12);
}

@inline
function storeUpTo4(y: usize, v: v128, count: i32): void {
  if (count >= 4) v128.store(y, v);
  else if (count > 0) storePart(y, v, count);
}

/** One activation row, 16 weight rows: 8 independent integer sums. Writes the first `count` results. */
export function q4Panel1<S>(
  w: usize, groups: i32, codes: usize, scales: usize, sums: usize, y: usize, count: i32,
): void {
  const mask = nibbleMask(groups);
  let s0 = f32x4.splat(0), s1 = s0, s2 = s0, s3 = s0;
  for (let g = 0; g < groups; g++) {
    let l0 = i32x4.splat(load<i32>(sums) * -8), l1 = l0, l2 = l0, l3 = l0;
    let h0 = i32x4.splat(0), h1 = h0, h2 = h0, h3 = h0;
    const end = codes + 32;
    while (codes < end) {
      const a = v128.load32_splat(codes), b = v128.load32_splat(codes, 32);
      let v = v128.load(w);
      l0 = dotLow(a, v, mask, l0);
      h0 = dotHigh(b, v, mask, h0);
      v = v128.load(w, 16);
      l1 = dotLow(a, v, mask, l1);
      h1 = dotHigh(b, v, mask, h1);
      v = v128.load(w, 32);
      l2 = dotLow(a, v, mask, l2);
      h2 = dotHigh(b, v, mask, h2);
      v = v128.load(w, 48);
      l3 = dotLow(a, v, mask, l3);
      h3 = dotHigh(b, v, mask, h3);
      codes += 4;
      w += 64;
    }
    codes += 32;
    const x = v128.load32_splat(scales);
    s0 = f32x4.add(s0, scaled(i32x4.add(l0, h0), tileScales<S>(w, 0), x));
    s1 = f32x4.add(s1, scaled(i32x4.add(l1, h1), tileScales<S>(w, 1), x));
    s2 = f32x4.add(s2, scaled(i32x4.add(l2, h2), tileScales<S>(w, 2), x));
    s3 = f32x4.add(s3, scaled(i32x4.add(l3, h3), tileScales<S>(w, 3), x));
    w += 16 * sizeof<S>();
    scales += 4;
    sums += 4;
  }
  storeRows(y, count, s0, s1, s2, s3);
}

/** Two activation rows, 8 weight rows (`half` 0 or 1 of the panel at w). */
export function q4Half2<S>(
  half: usize, w: usize, groups: i32, codes: usize, scales: usize, sums: usize,
  x0: usize, x1: usize, y0: usize, y1: usize,
): void {
  const mask = nibbleMask(groups);
  let c0 = codes + (x0 * groups << 6), c1 = codes + (x1 * groups << 6);
  let at0 = x0 * groups << 2, at1 = x1 * groups << 2;
  let s00 = f32x4.splat(0), s01 = s00, s10 = s00, s11 = s00;
  w += half * 32;
  for (let g = 0; g < groups; g++) {
    let d00 = i32x4.splat(load<i32>(sums + at0) * -8), d01 = d00;
    let d10 = i32x4.splat(load<i32>(sums + at1) * -8), d11 = d10;
    const end = c0 + 32;
    while (c0 < end) {
      const v0 = v128.load(w), v1 = v128.load(w, 16);
      let a = v128.load32_splat(c0), b = v128.load32_splat(c0, 32);
      d00 = dotHigh(b, v0, mask, dotLow(a, v0, mask, d00));
      d01 = dotHigh(b, v1, mask, dotLow(a, v1, mask, d01));
      a = v128.load32_splat(c1);
      b = v128.load32_splat(c1, 32);
      d10 = dotHigh(b, v0, mask, dotLow(a, v0, mask, d10));
      d11 = dotHigh(b, v1, mask, dotLow(a, v1, mask, d11));
      c0 += 4;
      c1 += 4;
      w += 64;
    }
    c0 += 32;
    c1 += 32;
    const p = w - half * 32;
    const w0 = tileScales<S>(p, half * 2), w1 = tileScales<S>(p, half * 2 + 1);
    let x = v128.load32_splat(scales + at0);
    s00 = f32x4.add(s00, scaled(d00, w0, x));
    s01 = f32x4.add(s01, scaled(d01, w1, x));
    x = v128.load32_splat(scales + at1);
    s10 = f32x4.add(s10, scaled(d10, w0, x));
    s11 = f32x4.add(s11, scaled(d11, w1, x));
    w += 16 * sizeof<S>();
    at0 += 4;
    at1 += 4;
  }
  y0 += half * 32;
  y1 += half * 32;
  v128.store(y0, s00);
  v128.store(y0, s01, 16);
  v128.store(y1, s10);
  v128.store(y1, s11, 16);
}

/**
 * Four activation rows, 8 weight rows. The float sums live in y: 16 vector registers hold the 8 integer sums, the
 * unpacked weights and one activation, and V8 would spill the integer sums instead.
 */
export function q4Half4<S>(
  half: usize, w: usize, groups: i32, codes: usize, scales: usize, sums: usize,
  x0: usize, x1: usize, x2: usize, x3: usize, y0: usize, y1: usize, y2: usize, y3: usize,
): void {
  const mask = nibbleMask(groups);
  let c0 = codes + (x0 * groups << 6), c1 = codes + (x1 * groups << 6);
  let c2 = codes + (x2 * groups << 6), c3 = codes + (x3 * groups << 6);
  let at0 = x0 * groups << 2, at1 = x1 * groups << 2, at2 = x2 * groups << 2, at3 = x3 * groups << 2;
  y0 += half * 32;
  y1 += half * 32;
  y2 += half * 32;
  y3 += half * 32;
  memory.fill(y0, 0, 32);
  memory.fill(y1, 0, 32);
  memory.fill(y2, 0, 32);
  memory.fill(y3, 0, 32);
  w += half * 32;
  for (let g = 0; g < groups; g++) {
    let d00 = i32x4.splat(load<i32>(sums + at0) * -8), d01 = d00;
    let d10 = i32x4.splat(load<i32>(sums + at1) * -8), d11 = d10;
    let d20 = i32x4.splat(load<i32>(sums + at2) * -8), d21 = d20;
    let d30 = i32x4.splat(load<i32>(sums + at3) * -8), d31 = d30;
    const end = c0 + 32;
    while (c0 < end) {
      const v0 = v128.load(w), v1 = v128.load(w, 16);
      let a = v128.load32_splat(c0), b = v128.load32_splat(c0, 32);
      d00 = dotHigh(b, v0, mask, dotLow(a, v0, mask, d00));
      d01 = dotHigh(b, v1, mask, dotLow(a, v1, mask, d01));
      a = v128.load32_splat(c1);
      b = v128.load32_splat(c1, 32);
      d10 = dotHigh(b, v0, mask, dotLow(a, v0, mask, d10));
      d11 = dotHigh(b, v1, mask, dotLow(a, v1, mask, d11));
      a = v128.load32_splat(c2);
      b = v128.load32_splat(c2, 32);
      d20 = dotHigh(b, v0, mask, dotLow(a, v0, mask, d20));
      d21 = dotHigh(b, v1, mask, dotLow(a, v1, mask, d21));
      a = v128.load32_splat(c3);
      b = v128.load32_splat(c3, 32);
      d30 = dotHigh(b, v0, mask, dotLow(a, v0, mask, d30));
      d31 = dotHigh(b, v1, mask, dotLow(a, v1, mask, d31));
      c0 += 4;
      c1 += 4;
      c2 += 4;
      c3 += 4;
      w += 64;
    }
    c0 += 32;
    c1 += 32;
    c2 += 32;
    c3 += 32;
    const p = w - half * 32;
    const w0 = tileScales<S>(p, half * 2), w1 = tileScales<S>(p, half * 2 + 1);
    let x = v128.load32_splat(scales + at0);
    addTo(y0, scaled(d00, w0, x));
    addTo(y0 + 16, scaled(d01, w1, x));
    x = v128.load32_splat(scales + at1);
    addTo(y1, scaled(d10, w0, x));
    addTo(y1 + 16, scaled(d11, w1, x));
    x = v128.load32_splat(scales + at2);
    addTo(y2, scaled(d20, w0, x));
    addTo(y2 + 16, scaled(d21, w1, x));
    x = v128.load32_splat(scales + at3);
    addTo(y3, scaled(d30, w0, x));
    addTo(y3 + 16, scaled(d31, w1, x));
    w += 16 * sizeof<S>();
    at0 += 4;
    at1 += 4;
    at2 += 4;
    at3 += 4;
  }
}
