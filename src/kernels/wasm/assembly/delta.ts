// Linear attention: the short convolution before it, its gates and the delta rule.

import { load4, store4 } from './elementwise';
import { dotRow } from './float-rows';
import { exp32, sigmoid32, silu4, softplus32 } from './math';

/** Added to the sum of squares of a query or key before its root is taken. */
const L2_EPS: f32 = 1e-6;

/** Element `tap` of `left` (at most four count) rows of `taps` floats. */
@inline
function tapOf4(w: usize, taps: usize, tap: usize, left: i32): v128 {
  const p = w + (tap << 2), step = taps << 2;
  let v = v128.load32_zero(p);
  if (left > 1) v = v128.load32_lane(p + step, v, 1);
  if (left > 2) v = v128.load32_lane(p + 2 * step, v, 2);
  if (left > 3) v = v128.load32_lane(p + 3 * step, v, 3);
  return v;
}

/** Where the inputs of token t lie; those before row 0 are in the tail. */
@inline
function inputAt(u: usize, tail: usize, rowBytes: usize, before: i32, t: i32): usize {
  return t < 0 ? tail + <usize>(before + t) * rowBytes : u + <usize>t * rowBytes;
}

/** Four channels with four taps: weights and inputs stay in registers. */
function convolve4(u: usize, tail: usize, w: usize, y: usize, rowBytes: usize, rows: i32, left: i32): void {
  const w0 = tapOf4(w, 4, 0, left), w1 = tapOf4(w, 4, 1, left), w2 = tapOf4(w, 4, 2, left), w3 = tapOf4(w, 4, 3, left);
  let x0 = load4(tail, left), x1 = load4(tail + rowBytes, left), x2 = load4(tail + 2 * rowBytes, left);
  const zero = f32x4.splat(0);
  for (let t = 0; t < rows; t++) {
    const x3 = load4(u, left);
    let sum = f32x4.add(zero, f32x4.mul(w0, x0));
    sum = f32x4.add(sum, f32x4.mul(w1, x1));
    sum = f32x4.add(sum, f32x4.mul(w2, x2));
    sum = f32x4.add(sum, f32x4.mul(w3, x3));
    store4(y, silu4(sum), left);
    x0 = x1;
    x1 = x2;
    x2 = x3;
    u += rowBytes;
    y += rowBytes;
  }
}

/** Four channels with any number of taps. */
function convolve(
  u: usize, tail: usize, w: usize, y: usize, rowBytes: usize, taps: i32, rows: i32, left: i32,
): void {
  for (let t = 0; t < rows; t++) {
    let sum = f32x4.splat(0);
    for (let j = 0; j < taps; j++) {
      const x = load4(inputAt(u, tail, rowBytes, taps - 1, t - taps + 1 + j), left);
      sum = f32x4.add(sum, f32x4.mul(tapOf4(w, taps, j, left), x));
    }
    store4(y + <usize>t * rowBytes, silu4(sum), left);
  }
}

export function convSilu(
  u: usize, tail: usize, w: usize, y: usize, channels: i32, taps: i32, rows: i32, channel0: i32, channel1: i32,
): void {
  const rowBytes = <usize>channels << 2;
  for (let c = channel0; c < channel1; c += 4) {
    const at = <usize>c << 2, left = channel1 - c;
    const from = u + at, old = tail + at, weights = w + at * <usize>taps;
    if (taps == 4) convolve4(from, old, weights, y + at, rowBytes, rows, left);
    else convolve(from, old, weights, y + at, rowBytes, taps, rows, left);
    for (let i = 0; i < taps - 1; i++) {
      const kept = load4(inputAt(from, old, rowBytes, taps - 1, rows - taps + 1 + i), left);
      store4(old + <usize>i * rowBytes, kept, left);
    }
  }
}

export function deltaGates(
  a: usize, b: usize, rates: usize, logarithms: i32, dtBias: usize, decay: usize, beta: usize, heads: i32, row0: i32,
  row1: i32,
): void {
  for (let row = row0; row < row1; row++) {
    for (let h = 0; h < heads; h++) {
      const at = <usize>(row * heads + h) << 2, head = <usize>h << 2;
      const step = softplus32(load<f32>(a + at) + load<f32>(dtBias + head));
      let rate = load<f32>(rates + head);
      if (logarithms) rate = -exp32(rate);
      store<f32>(decay + at, exp32(rate * step));
      store<f32>(beta + at, sigmoid32(load<f32>(b + at)));
    }
  }
}

/** y = (x / |x|) * factor, for `count` floats. */
function unitVector(x: usize, y: usize, count: i32, factor: f32): void {
  const inverse = f32x4.splat(<f32>1 / sqrt<f32>(dotRow<f32>(x, x, count) + L2_EPS)), f = f32x4.splat(factor);
  for (let i = 0; i < count; i += 4) {
    const at = <usize>i << 2, left = count - i;
    store4(y + at, f32x4.mul(f32x4.mul(load4(x + at, left), inverse), f), left);
  }
}

/** Four columns of S * decay, times k. */
@inline
function kept(s: usize, k: v128, decay: v128, left: i32): v128 {
  return f32x4.mul(k, f32x4.mul(load4(s, left), decay));
}

/** S = S * decay + k * d in four columns, and what q * S adds to the sum. */
@inline
function renew(sum: v128, s: usize, k: v128, q: v128, decay: v128, d: v128, left: i32): v128 {
  const value = f32x4.add(f32x4.mul(load4(s, left), decay), f32x4.mul(k, d));
  store4(s, value, left);
  return f32x4.add(sum, f32x4.mul(q, value));
}

/** to += sum over four rows i, ascending, of k_i * (S_i * decay): rows of the state are read in the order of memory. */
function recall4(s: usize, rowBytes: usize, k: usize, decay: v128, to: usize): void {
  const k0 = v128.load32_splat(k), k1 = v128.load32_splat(k, 4);
  const k2 = v128.load32_splat(k, 8), k3 = v128.load32_splat(k, 12);
  const s1 = s + rowBytes, s2 = s1 + rowBytes, s3 = s2 + rowBytes;
  const whole = rowBytes & ~15;
  for (let at: usize = 0; at < whole; at += 16) {
    let sum = f32x4.add(v128.load(to + at), kept(s + at, k0, decay, 4));
    sum = f32x4.add(sum, kept(s1 + at, k1, decay, 4));
    sum = f32x4.add(sum, kept(s2 + at, k2, decay, 4));
    v128.store(to + at, f32x4.add(sum, kept(s3 + at, k3, decay, 4)));
  }
  const left = <i32>(rowBytes - whole) >> 2;
  if (left) {
    let sum = f32x4.add(load4(to + whole, left), kept(s + whole, k0, decay, left));
    sum = f32x4.add(sum, kept(s1 + whole, k1, decay, left));
    sum = f32x4.add(sum, kept(s2 + whole, k2, decay, left));
    store4(to + whole, f32x4.add(sum, kept(s3 + whole, k3, decay, left)), left);
  }
}

/** recall4 of one row. */
function recall1(s: usize, columns: i32, k: usize, decay: v128, to: usize): void {
  const factor = v128.load32_splat(k);
  for (let c = 0; c < columns; c += 4) {
    const at = <usize>c << 2, left = columns - c;
    store4(to + at, f32x4.add(load4(to + at, left), kept(s + at, factor, decay, left)), left);
  }
}

/** S_i = S_i * decay + k_i * d and out += q_i * S_i, for four rows i, ascending. */
function learn4(s: usize, rowBytes: usize, k: usize, q: usize, decay: v128, d: usize, out: usize): void {
  const k0 = v128.load32_splat(k), k1 = v128.load32_splat(k, 4);
  const k2 = v128.load32_splat(k, 8), k3 = v128.load32_splat(k, 12);
  const q0 = v128.load32_splat(q), q1 = v128.load32_splat(q, 4);
  const q2 = v128.load32_splat(q, 8), q3 = v128.load32_splat(q, 12);
  const s1 = s + rowBytes, s2 = s1 + rowBytes, s3 = s2 + rowBytes;
  const whole = rowBytes & ~15;
  for (let at: usize = 0; at < whole; at += 16) {
    const change = v128.load(d + at);
    let sum = renew(v128.load(out + at), s + at, k0, q0, decay, change, 4);
    sum = renew(sum, s1 + at, k1, q1, decay, change, 4);
    sum = renew(sum, s2 + at, k2, q2, decay, change, 4);
    v128.store(out + at, renew(sum, s3 + at, k3, q3, decay, change, 4));
  }
  const left = <i32>(rowBytes - whole) >> 2;
  if (left) {
    const change = load4(d + whole, left);
    let sum = renew(load4(out + whole, left), s + whole, k0, q0, decay, change, left);
    sum = renew(sum, s1 + whole, k1, q1, decay, change, left);
    sum = renew(sum, s2 + whole, k2, q2, decay, change, left);
    store4(out + whole, renew(sum, s3 + whole, k3, q3, decay, change, left), left);
  }
}

/** learn4 of one row. */
function learn1(s: usize, columns: i32, k: usize, q: usize, decay: v128, d: usize, out: usize): void {
  const k0 = v128.load32_splat(k), q0 = v128.load32_splat(q);
  for (let c = 0; c < columns; c += 4) {
    const at = <usize>c << 2, left = columns - c;
    store4(out + at, renew(load4(out + at, left), s + at, k0, q0, decay, load4(d + at, left), left), left);
  }
}

/** One token of one value head. q and k are unit vectors; d: room for valueDim floats. */
function deltaStep(
  s: usize, q: usize, k: usize, v: usize, d: usize, out: usize, decay: f32, beta: f32, keyDim: i32, valueDim: i32,
): void {
  const shrink = f32x4.splat(decay), share = f32x4.splat(beta);
  const rowBytes = <usize>valueDim << 2;
  const whole = keyDim & ~3;
  memory.fill(d, 0, rowBytes);
  memory.fill(out, 0, rowBytes);
  for (let i = 0; i < whole; i += 4) recall4(s + <usize>i * rowBytes, rowBytes, k + (<usize>i << 2), shrink, d);
  for (let i = whole; i < keyDim; i++) recall1(s + <usize>i * rowBytes, valueDim, k + (<usize>i << 2), shrink, d);
  for (let c = 0; c < valueDim; c += 4) {
    const at = <usize>c << 2, left = valueDim - c;
    store4(d + at, f32x4.mul(share, f32x4.sub(load4(v + at, left), load4(d + at, left))), left);
  }
  for (let i = 0; i < whole; i += 4) {
    const at = <usize>i << 2;
    learn4(s + <usize>i * rowBytes, rowBytes, k + at, q + at, shrink, d, out);
  }
  for (let i = whole; i < keyDim; i++) {
    const at = <usize>i << 2;
    learn1(s + <usize>i * rowBytes, valueDim, k + at, q + at, shrink, d, out);
  }
}

export function deltaRule(
  qkv: usize, decay: usize, beta: usize, state: usize, out: usize, keyHeads: i32, valueHeads: i32, tiled: i32,
  keyDim: i32, valueDim: i32, rows: i32, scratch: usize, head0: i32, head1: i32,
): void {
  const keyBytes = <usize>keyDim << 2, valueBytes = <usize>valueDim << 2;
  const allKeys = <usize>keyHeads * keyBytes;
  const q = scratch, k = q + keyBytes, d = k + keyBytes;
  const root = <f32>1 / sqrt<f32>(<f32>keyDim);
  for (let head = head0; head < head1; head++) {
    const keyHead = <usize>(tiled ? head % keyHeads : head / (valueHeads / keyHeads)) * keyBytes;
    const s = state + <usize>head * keyDim * valueBytes;
    let from = qkv;
    for (let row = 0; row < rows; row++) {
      unitVector(from + keyHead, q, keyDim, root);
      unitVector(from + allKeys + keyHead, k, keyDim, 1);
      const gate = <usize>(row * valueHeads + head);
      const v = from + 2 * allKeys + <usize>head * valueBytes;
      const shrink = load<f32>(decay + (gate << 2)), share = load<f32>(beta + (gate << 2));
      deltaStep(s, q, k, v, d, out + gate * valueBytes, shrink, share, keyDim, valueDim);
      from += 2 * allKeys + <usize>valueHeads * valueBytes;
    }
  }
}
