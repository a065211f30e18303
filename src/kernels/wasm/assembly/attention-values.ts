// Sums of values, each times the exponential of its key: out += e0 * v0 + e1 * v1 + ..., keys ascending. The rows of values are
// listed by address. Keys are taken some at a time, over all columns, so that their rows stay in the nearest caches.

import { decode4, decodePart, decodeQuad, loadPart, storePart } from './lanes';

const KEYS: i32 = 64;

/** Columns 0 to 31 of `count` listed rows, `offset` bytes into each. */
function values32<E>(list: usize, offset: usize, count: i32, e: usize, out: usize): void {
  let a = v128.load(out), b = v128.load(out, 16), c = v128.load(out, 32), d = v128.load(out, 48);
  let f = v128.load(out, 64), g = v128.load(out, 80), h = v128.load(out, 96), i = v128.load(out, 112);
  for (const end = list + (<usize>count << 2); list < end; list += 4) {
    const v = load<usize>(list) + offset;
    const p = v128.load32_splat(e);
    a = f32x4.add(a, f32x4.mul(p, decodeQuad<E>(v, 0)));
    b = f32x4.add(b, f32x4.mul(p, decodeQuad<E>(v, 1)));
    c = f32x4.add(c, f32x4.mul(p, decodeQuad<E>(v, 2)));
    d = f32x4.add(d, f32x4.mul(p, decodeQuad<E>(v, 3)));
    f = f32x4.add(f, f32x4.mul(p, decodeQuad<E>(v, 4)));
    g = f32x4.add(g, f32x4.mul(p, decodeQuad<E>(v, 5)));
    h = f32x4.add(h, f32x4.mul(p, decodeQuad<E>(v, 6)));
    i = f32x4.add(i, f32x4.mul(p, decodeQuad<E>(v, 7)));
    e += 4;
  }
  v128.store(out, a);
  v128.store(out, b, 16);
  v128.store(out, c, 32);
  v128.store(out, d, 48);
  v128.store(out, f, 64);
  v128.store(out, g, 80);
  v128.store(out, h, 96);
  v128.store(out, i, 112);
}

/** As values32 for `left` columns, of which four at most are taken. */
function values4<E>(list: usize, offset: usize, count: i32, e: usize, out: usize, left: i32): void {
  let a = left >= 4 ? v128.load(out) : loadPart(out, left);
  for (const end = list + (<usize>count << 2); list < end; list += 4) {
    const v = load<usize>(list) + offset;
    a = f32x4.add(a, f32x4.mul(v128.load32_splat(e), left >= 4 ? decode4<E>(v) : decodePart<E>(v, left)));
    e += 4;
  }
  if (left >= 4) v128.store(out, a);
  else storePart(out, a, left);
}

/** Columns 0 to 7 for three heads, whose exponentials are `step` bytes apart and whose results outStep bytes. */
function values8x3<E>(list: usize, offset: usize, count: i32, e: usize, step: usize, out: usize, outStep: usize): void {
  const out1 = out + outStep, out2 = out1 + outStep;
  let a0 = v128.load(out), a1 = v128.load(out, 16);
  let b0 = v128.load(out1), b1 = v128.load(out1, 16);
  let c0 = v128.load(out2), c1 = v128.load(out2, 16);
  for (const end = list + (<usize>count << 2); list < end; list += 4) {
    const v = load<usize>(list) + offset;
    const v0 = decodeQuad<E>(v, 0), v1 = decodeQuad<E>(v, 1);
    let p = v128.load32_splat(e);
    a0 = f32x4.add(a0, f32x4.mul(p, v0));
    a1 = f32x4.add(a1, f32x4.mul(p, v1));
    p = v128.load32_splat(e + step);
    b0 = f32x4.add(b0, f32x4.mul(p, v0));
    b1 = f32x4.add(b1, f32x4.mul(p, v1));
    p = v128.load32_splat(e + 2 * step);
    c0 = f32x4.add(c0, f32x4.mul(p, v0));
    c1 = f32x4.add(c1, f32x4.mul(p, v1));
    e += 4;
  }
  v128.store(out, a0);
  v128.store(out, a1, 16);
  v128.store(out1, b0);
  v128.store(out1, b1, 16);
  v128.store(out2, c0);
  v128.store(out2, c1, 16);
}

/** Values lie `offset` bytes after the listed addresses. */
export function addValues<E>(list: usize, offset: usize, count: i32, e: usize, out: usize, valueDim: i32): void {
  for (let from = 0; from < count; from += KEYS) {
    const at = <usize>from << 2, n = min(KEYS, count - from);
    let column = 0;
    for (; column + 32 <= valueDim; column += 32) {
      values32<E>(list + at, offset + <usize>column * sizeof<E>(), n, e + at, out + (<usize>column << 2));
    }
    for (; column < valueDim; column += 4) {
      const v = offset + <usize>column * sizeof<E>();
      values4<E>(list + at, v, n, e + at, out + (<usize>column << 2), valueDim - column);
    }
  }
}

/** addValues for three heads; exponentials of a head follow those of the one before. */
export function addValues3<E>(list: usize, offset: usize, count: i32, e: usize, out: usize, valueDim: i32): void {
  const step = <usize>count << 2, outStep = <usize>valueDim << 2;
  for (let from = 0; from < count; from += KEYS) {
    const at = <usize>from << 2, n = min(KEYS, count - from);
    let column = 0;
    for (; column + 8 <= valueDim; column += 8) {
      const v = offset + <usize>column * sizeof<E>();
      values8x3<E>(list + at, v, n, e + at, step, out + (<usize>column << 2), outStep);
    }
    for (; column < valueDim; column += 4) {
      const v = offset + <usize>column * sizeof<E>(), to = out + (<usize>column << 2), left = valueDim - column;
      values4<E>(list + at, v, n, e + at, to, left);
      values4<E>(list + at, v, n, e + at + step, to + outStep, left);
      values4<E>(list + at, v, n, e + at + 2 * step, to + 2 * outStep, left);
    }
  }
}
