// Two-pass softmax attention of one query head over KV blocks.

import { dotRow } from './float-rows';
import { decode4, decodePart, decodeQuad, loadPart, storePart, tree16 } from './lanes';
import { BF16, Bfloat16 } from './layouts';
import { exp4 } from './math';

const KV_BLOCK: i32 = 64;

/** max(a, b) that keeps a where b is NaN. */
@inline
function largest(v: v128): f32 {
  v = f32x4.pmax(v, i32x4.shuffle(v, v, 2, 3, 2, 3));
  v = f32x4.pmax(v, i32x4.shuffle(v, v, 1, 1, 1, 1));
  return f32x4.extract_lane(v, 0);
}

/** Largest of `count` floats, NaN left out; -inf when there is none. */
export function maxOf(x: usize, count: i32): f32 {
  let max = f32x4.splat(-Infinity);
  let i = 0;
  for (; i + 4 <= count; i += 4) max = f32x4.pmax(max, v128.load(x + (<usize>i << 2)));
  let result = largest(max);
  for (; i < count; i++) {
    const value = load<f32>(x + (<usize>i << 2));
    if (value > result) result = value;
  }
  return result;
}

/** y[i] = e^(x[i] - max); returns the sum in the 16-lane order. y may be x. */
export function exponentials(x: usize, y: usize, count: i32, max: f32): f32 {
  const m = f32x4.splat(max);
  let a = f32x4.splat(0), b = a, c = a, d = a;
  let i = 0;
  for (; i + 16 <= count; i += 16) {
    let e = exp4(f32x4.sub(v128.load(x), m));
    v128.store(y, e);
    a = f32x4.add(a, e);
    e = exp4(f32x4.sub(v128.load(x, 16), m));
    v128.store(y, e, 16);
    b = f32x4.add(b, e);
    e = exp4(f32x4.sub(v128.load(x, 32), m));
    v128.store(y, e, 32);
    c = f32x4.add(c, e);
    e = exp4(f32x4.sub(v128.load(x, 48), m));
    v128.store(y, e, 48);
    d = f32x4.add(d, e);
    x += 64;
    y += 64;
  }
  if (i < count) {
    a = f32x4.add(a, exponentialsTail(x, y, count - i, m));
    b = f32x4.add(b, exponentialsTail(x + 16, y + 16, count - i - 4, m));
    c = f32x4.add(c, exponentialsTail(x + 32, y + 32, count - i - 8, m));
    d = f32x4.add(d, exponentialsTail(x + 48, y + 48, count - i - 12, m));
  }
  return tree16(a, b, c, d);
}

function exponentialsTail(x: usize, y: usize, count: i32, max: v128): v128 {
  if (count <= 0) return f32x4.splat(0);
  const whole = count >= 4;
  let e = exp4(f32x4.sub(whole ? v128.load(x) : loadPart(x, count), max));
  if (whole) {
    v128.store(y, e);
    return e;
  }
  storePart(y, e, count);
  return loadPart(y, count);
}

/** scores[0] = (q . k0) * scale, scores[1] = (q . k1) * scale; headDim is a multiple of 16. A quarter faster than one by one. */
@inline
function scorePair<E>(q: usize, k0: usize, k1: usize, headDim: i32, scale: f32, scores: usize): void {
  let a0 = f32x4.splat(0), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0, b2 = a0, b3 = a0;
  const end = q + (<usize>headDim << 2);
  while (q < end) {
    let x = v128.load(q);
    a0 = f32x4.add(a0, f32x4.mul(x, decodeQuad<E>(k0, 0)));
    b0 = f32x4.add(b0, f32x4.mul(x, decodeQuad<E>(k1, 0)));
    x = v128.load(q, 16);
    a1 = f32x4.add(a1, f32x4.mul(x, decodeQuad<E>(k0, 1)));
    b1 = f32x4.add(b1, f32x4.mul(x, decodeQuad<E>(k1, 1)));
    x = v128.load(q, 32);
    a2 = f32x4.add(a2, f32x4.mul(x, decodeQuad<E>(k0, 2)));
    b2 = f32x4.add(b2, f32x4.mul(x, decodeQuad<E>(k1, 2)));
    x = v128.load(q, 48);
    a3 = f32x4.add(a3, f32x4.mul(x, decodeQuad<E>(k0, 3)));
    b3 = f32x4.add(b3, f32x4.mul(x, decodeQuad<E>(k1, 3)));
    q += 64;
    k0 += 16 * sizeof<E>();
    k1 += 16 * sizeof<E>();
  }
  store<f32>(scores, tree16(a0, a1, a2, a3) * scale);
  store<f32>(scores, tree16(b0, b1, b2, b3) * scale, 4);
}

/** scores[key] = (q . K[key]) * scale. */
function scoreKeys<E>(
  q: usize, table: usize, keyOffset: usize, rowBytes: usize, headDim: i32, scale: f32, keys: i32, scores: usize,
): void {
  const whole = (headDim & 15) == 0;
  for (let from = 0; from < keys; from += KV_BLOCK) {
    let key = load<usize>(table) + keyOffset;
    let left = min(KV_BLOCK, keys - from);
    for (; whole && left >= 2; left -= 2) {
      scorePair<E>(q, key, key + rowBytes, headDim, scale, scores);
      key += 2 * rowBytes;
      scores += 8;
    }
    for (; left > 0; left--) {
      store<f32>(scores, dotRow<E>(key, q, headDim) * scale);
      key += rowBytes;
      scores += 4;
    }
    table += 4;
  }
}

/** Eight quads of value columns from `column` on, key by key in ascending position, divided by the sum. */
function values32<E>(
  table: usize, valueOffset: usize, rowBytes: usize, keys: i32, scores: usize, sum: f32, out: usize,
): void {
  let a = f32x4.splat(0), b = a, c = a, d = a, e = a, f = a, g = a, h = a;
  for (let from = 0; from < keys; from += KV_BLOCK) {
    let v = load<usize>(table) + valueOffset;
    const end = v + <usize>min(KV_BLOCK, keys - from) * rowBytes;
    for (; v < end; v += rowBytes) {
      const p = v128.load32_splat(scores);
      a = f32x4.add(a, f32x4.mul(p, decodeQuad<E>(v, 0)));
      b = f32x4.add(b, f32x4.mul(p, decodeQuad<E>(v, 1)));
      c = f32x4.add(c, f32x4.mul(p, decodeQuad<E>(v, 2)));
      d = f32x4.add(d, f32x4.mul(p, decodeQuad<E>(v, 3)));
      e = f32x4.add(e, f32x4.mul(p, decodeQuad<E>(v, 4)));
      f = f32x4.add(f, f32x4.mul(p, decodeQuad<E>(v, 5)));
      g = f32x4.add(g, f32x4.mul(p, decodeQuad<E>(v, 6)));
      h = f32x4.add(h, f32x4.mul(p, decodeQuad<E>(v, 7)));
      scores += 4;
    }
    table += 4;
  }
  const divisor = f32x4.splat(sum);
  v128.store(out, f32x4.div(a, divisor));
  v128.store(out, f32x4.div(b, divisor), 16);
  v128.store(out, f32x4.div(c, divisor), 32);
  v128.store(out, f32x4.div(d, divisor), 48);
  v128.store(out, f32x4.div(e, divisor), 64);
  v128.store(out, f32x4.div(f, divisor), 80);
  v128.store(out, f32x4.div(g, divisor), 96);
  v128.store(out, f32x4.div(h, divisor), 112);
}

/** As values32 for the last `count` (1 to 4) columns of a head. */
function values4<E>(
  table: usize, valueOffset: usize, rowBytes: usize, keys: i32, scores: usize, sum: f32, out: usize, count: i32,
): void {
  let a = f32x4.splat(0);
  for (let from = 0; from < keys; from += KV_BLOCK) {
    let v = load<usize>(table) + valueOffset;
    const end = v + <usize>min(KV_BLOCK, keys - from) * rowBytes;
    for (; v < end; v += rowBytes) {
      const row = count == 4 ? decode4<E>(v) : decodePart<E>(v, count);
      a = f32x4.add(a, f32x4.mul(v128.load32_splat(scores), row));
      scores += 4;
    }
    table += 4;
  }
  a = f32x4.div(a, f32x4.splat(sum));
  if (count == 4) v128.store(out, a);
  else storePart(out, a, count);
}

@inline
function attend<E>(
  q: usize, out: usize, heads: i32, kvHeads: i32, headDim: i32, scale: f32, positions: usize, tables: usize,
  scratch: usize, item0: i32, item1: i32,
): void {
  const rowBytes = <usize>kvHeads * headDim * sizeof<E>();
  const group = heads / kvHeads;
  for (let item = item0; item < item1; item++) {
    const row = item / heads;
    const head = <usize>((item - row * heads) / group) * headDim * sizeof<E>();
    const keys = load<i32>(positions + (<usize>row << 2)) + 1;
    const table = load<usize>(tables + (<usize>row << 2));
    const query = q + (<usize>item * headDim << 2);
    scoreKeys<E>(query, table, head, rowBytes, headDim, scale, keys, scratch);
    const sum = exponentials(scratch, scratch, keys, maxOf(scratch, keys));
    const valueOffset = <usize>KV_BLOCK * rowBytes + head;
    const to = out + (<usize>item * headDim << 2);
    let column = 0;
    for (; column + 32 <= headDim; column += 32) {
      const v = valueOffset + <usize>column * sizeof<E>();
      values32<E>(table, v, rowBytes, keys, scratch, sum, to + (<usize>column << 2));
    }
    for (; column < headDim; column += 4) {
      const v = valueOffset + <usize>column * sizeof<E>();
      values4<E>(table, v, rowBytes, keys, scratch, sum, to + (<usize>column << 2), min(4, headDim - column));
    }
  }
}

export function attention(
  q: usize, out: usize, heads: i32, kvHeads: i32, headDim: i32, scale: f32, positions: usize, tables: usize,
  layout: i32, scratch: usize, item0: i32, item1: i32,
): void {
  if (layout == BF16) attend<Bfloat16>(q, out, heads, kvHeads, headDim, scale, positions, tables, scratch, item0, item1);
  else attend<f32>(q, out, heads, kvHeads, headDim, scale, positions, tables, scratch, item0, item1);
}
