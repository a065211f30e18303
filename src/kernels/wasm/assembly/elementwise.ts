// Operations that treat every element alone. `load4` and `store4` cut the last, ragged quad.

import { loadPart, storePart } from './lanes';
import { sigmoid4, silu4 } from './math';

/** Up to four floats from `p`; `left` of them are wanted. */
@inline
export function load4(p: usize, left: i32): v128 {
  return left >= 4 ? v128.load(p) : loadPart(p, left);
}

@inline
export function store4(p: usize, v: v128, left: i32): void {
  if (left >= 4) v128.store(p, v);
  else storePart(p, v, left);
}

export function swiglu(gate: usize, up: usize, y: usize, element0: i32, element1: i32): void {
  for (let i = element0; i < element1; i += 4) {
    const at = <usize>i << 2, left = element1 - i;
    store4(y + at, f32x4.mul(silu4(load4(gate + at, left)), load4(up + at, left)), left);
  }
}

export function add(x: usize, y: usize, element0: i32, element1: i32): void {
  for (let i = element0; i < element1; i += 4) {
    const at = <usize>i << 2, left = element1 - i;
    store4(x + at, f32x4.add(load4(x + at, left), load4(y + at, left)), left);
  }
}

export function sigmoid(x: usize, y: usize, element0: i32, element1: i32): void {
  for (let i = element0; i < element1; i += 4) {
    const at = <usize>i << 2, left = element1 - i;
    store4(y + at, sigmoid4(load4(x + at, left)), left);
  }
}

export function sigmoidGate(x: usize, gate: usize, element0: i32, element1: i32): void {
  for (let i = element0; i < element1; i += 4) {
    const at = <usize>i << 2, left = element1 - i;
    store4(x + at, f32x4.mul(load4(x + at, left), sigmoid4(load4(gate + at, left))), left);
  }
}

/** Above `high`: high; else below `low`: low; NaN stays NaN. */
@inline
function clamped(v: v128, low: v128, high: v128): v128 {
  return v128.bitselect(high, f32x4.pmax(v, low), f32x4.gt(v, high));
}

export function swigluClamped(
  gate: usize, up: usize, y: usize, limit: f32, alpha: f32, element0: i32, element1: i32,
): void {
  const high = f32x4.splat(limit), low = f32x4.splat(-limit), steep = f32x4.splat(alpha), one = f32x4.splat(1);
  for (let i = element0; i < element1; i += 4) {
    const at = <usize>i << 2, left = element1 - i;
    const g = clamped(load4(gate + at, left), f32x4.splat(-Infinity), high);
    const u = clamped(load4(up + at, left), low, high);
    store4(y + at, f32x4.mul(f32x4.mul(g, sigmoid4(f32x4.mul(steep, g))), f32x4.add(u, one)), left);
  }
}

export function clamp(x: usize, limit: f32, element0: i32, element1: i32): void {
  const high = f32x4.splat(limit), low = f32x4.splat(-limit);
  for (let i = element0; i < element1; i += 4) {
    const at = <usize>i << 2, left = element1 - i;
    store4(x + at, clamped(load4(x + at, left), low, high), left);
  }
}

/** To the nearest, ties to even, in the lower half of each lane; the upper half of a NaN with the bit that makes it quiet. */
@inline
function roundedToBf16(v: v128): v128 {
  const upper = i32x4.shr_u(v, 16);
  const even = v128.and(upper, i32x4.splat(1));
  const rounded = i32x4.shr_u(i32x4.add(i32x4.add(v, i32x4.splat(0x7fff)), even), 16);
  return v128.bitselect(v128.or(upper, i32x4.splat(0x40)), rounded, f32x4.ne(v, v));
}

export function toBf16(x: usize, y: usize, element0: i32, element1: i32): void {
  for (let i = element0; i < element1; i += 4) {
    const to = y + (<usize>i << 1), left = element1 - i;
    const v = roundedToBf16(load4(x + (<usize>i << 2), left));
    const halves = i16x8.narrow_i32x4_u(v, v);
    if (left >= 4) v128.store64_lane(to, halves, 0);
    else {
      v128.store16_lane(to, halves, 0);
      if (left > 1) v128.store16_lane(to, halves, 1, 2);
      if (left > 2) v128.store16_lane(to, halves, 2, 4);
    }
  }
}

export function allFinite(x: usize, elements: i32): i32 {
  const infinity = f32x4.splat(Infinity);
  let finite = i32x4.splat(-1);
  for (let i = 0; i < elements; i += 4) {
    finite = v128.and(finite, f32x4.lt(f32x4.abs(load4(x + (<usize>i << 2), elements - i)), infinity));
  }
  return i32x4.all_true(finite);
}
