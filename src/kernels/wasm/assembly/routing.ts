// Which experts a row uses, and the sum of what they gave.

import { load4, store4 } from './elementwise';
import { divideRow, exponentials, maxOf, sumOf } from './softmax';

/** Added to the sum of weights before they are divided by it. */
const SMALLEST_SUM: f32 = 1e-20;

/** By what the choice is made: x + bias, or x without a bias. */
@inline
function choice(x: usize, bias: usize, i: i32): f32 {
  const at = <usize>i << 2;
  const value = load<f32>(x + at);
  return bias ? value + load<f32>(bias + at) : value;
}

/** Groups are the bits of a word: there are 64 at most. */
@inline
function has(groups: u64, group: i32): bool {
  return ((groups >> <u64>group) & 1) != 0;
}

function hasNaN(x: usize, bias: usize, count: i32): bool {
  for (let i = 0; i < count; i++) {
    const value = choice(x, bias, i);
    if (value != value) return true;
  }
  return false;
}

/** Index of the first of elements from .. to-1, `without` left out, that no later one exceeds. */
function firstLargest(x: usize, bias: usize, from: i32, to: i32, without: i32): i32 {
  let best = -1;
  let bestValue: f32 = 0;
  for (let i = from; i < to; i++) {
    const value = choice(x, bias, i);
    if (i != without && (best < 0 || value > bestValue)) {
      best = i;
      bestValue = value;
    }
  }
  return best;
}

function scoreOfGroup(x: usize, bias: usize, group: i32, perGroup: i32, rule: i32): f32 {
  const from = group * perGroup, to = from + perGroup;
  const first = firstLargest(x, bias, from, to, -1);
  const score = choice(x, bias, first);
  return rule == 0 ? score : score + choice(x, bias, firstLargest(x, bias, from, to, first));
}

/** The `kept` best groups, ties to the lower one. */
function bestGroups(x: usize, bias: usize, groups: i32, perGroup: i32, kept: i32, rule: i32): u64 {
  let taken: u64 = 0;
  for (let step = 0; step < kept; step++) {
    let best = -1;
    let bestScore: f32 = 0;
    for (let group = 0; group < groups; group++) {
      if (has(taken, group)) continue;
      const score = scoreOfGroup(x, bias, group, perGroup, rule);
      if (best < 0 || score > bestScore) {
        best = group;
        bestScore = score;
      }
    }
    taken |= <u64>1 << <u64>best;
  }
  return taken;
}

function isTaken(ids: usize, slots: i32, id: i32): bool {
  for (let s = 0; s < slots; s++) if (load<i32>(ids + (<usize>s << 2)) == id) return true;
  return false;
}

/** The first index of a group that takes part, not yet taken, whose value no later one exceeds. Slow; says what a row with NaN gives. */
function nextOfAny(x: usize, bias: usize, columns: i32, perGroup: i32, groups: u64, ids: usize, slot: i32): i32 {
  let best = -1;
  let bestValue: f32 = 0;
  for (let i = 0; i < columns; i++) {
    const value = choice(x, bias, i);
    if ((best < 0 || value > bestValue) && has(groups, i / perGroup) && !isTaken(ids, slot, i)) {
      best = i;
      bestValue = value;
    }
  }
  return best;
}

/** The first of the largest values that come after (last, lastId) in descending order, ties by ascending index. */
function nextInOrder(x: usize, bias: usize, columns: i32, perGroup: i32, groups: u64, last: f32, lastId: i32): i32 {
  let best = -1;
  let bestValue: f32 = 0;
  for (let from = 0, group = 0; from < columns; from += perGroup, group++) {
    if (!has(groups, group)) continue;
    const to = from + perGroup;
    for (let i = from; i < to; i++) {
      const value = choice(x, bias, i);
      const left = value < last || (value == last && i > lastId);
      if (left && (best < 0 || value > bestValue)) {
        best = i;
        bestValue = value;
      }
    }
  }
  return best;
}

/** 1: divided by their sum; 2: softmax. */
function applyRule(weights: usize, k: i32, rule: i32, factor: f32): void {
  if (rule == 1) divideRow(weights, k, sumOf(weights, k) + SMALLEST_SUM);
  else if (rule == 2) divideRow(weights, k, exponentials(weights, weights, k, maxOf(weights, k)));
  for (let slot = 0; slot < k; slot++) {
    const p = weights + (<usize>slot << 2);
    store<f32>(p, load<f32>(p) * factor);
  }
}

export function topK(
  x: usize, bias: usize, columns: i32, k: i32, groups: i32, keptGroups: i32, groupRule: i32, ids: usize,
  weights: usize, weightRule: i32, factor: f32, row0: i32, row1: i32,
): void {
  const perGroup = columns / groups;
  for (let row = row0; row < row1; row++) {
    const from = x + (<usize>row * columns << 2);
    const toIds = ids + (<usize>row * k << 2), toWeights = weights + (<usize>row * k << 2);
    const kept: u64 = groups > 1 ? bestGroups(from, bias, groups, perGroup, keptGroups, groupRule) : 1;
    const ordered = !hasNaN(from, bias, columns);
    let last: f32 = Infinity;
    let id = -1;
    for (let slot = 0; slot < k; slot++) {
      id = ordered
        ? nextInOrder(from, bias, columns, perGroup, kept, last, id)
        : nextOfAny(from, bias, columns, perGroup, kept, toIds, slot);
      last = choice(from, bias, id);
      store<i32>(toIds + (<usize>slot << 2), id);
      store<f32>(toWeights + (<usize>slot << 2), load<f32>(from + (<usize>id << 2)));
    }
    applyRule(toWeights, k, weightRule, factor);
  }
}

export function combine(
  x: usize, parts: usize, weights: usize, k: i32, shared: usize, columns: i32, row0: i32, row1: i32,
): void {
  const rowBytes = <usize>columns << 2;
  for (let row = row0; row < row1; row++) {
    const first = parts + <usize>(row * k) * rowBytes;
    const factors = weights + (<usize>(row * k) << 2);
    for (let i = 0; i < columns; i += 4) {
      const at = <usize>i << 2, left = columns - i;
      let sum = f32x4.splat(0);
      for (let slot = 0; slot < k; slot++) {
        const part = load4(first + <usize>slot * rowBytes + at, left);
        const product = f32x4.mul(v128.load32_splat(factors + (<usize>slot << 2)), part);
        sum = slot == 0 ? product : f32x4.add(sum, product);
      }
      const offset = <usize>row * rowBytes + at;
      if (shared) sum = f32x4.add(sum, load4(shared + offset, left));
      store4(x + offset, f32x4.add(load4(x + offset, left), sum), left);
    }
  }
}
