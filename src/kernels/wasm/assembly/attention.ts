// Two-pass softmax attention over KV blocks. Up to three heads that read the same keys are worked on together.

import { divideRow, exponentials, KV_BLOCK, maxOf, sumByPosition } from './softmax';
import { addValues, addValues3 } from './attention-values';
import { dotRow, dots3 } from './float-rows';
import { decodeQuad, tree16 } from './lanes';
import { BF16, Bfloat16 } from './layouts';
import { exp32 } from './math';

/** scores[0] = (q . k0) * scale, scores[1] = (q . k1) * scale; keyDim is a multiple of 16. A quarter faster than one by one. */
@inline
function scorePair<E>(q: usize, k0: usize, k1: usize, keyDim: i32, scale: f32, scores: usize): void {
  let a0 = f32x4.splat(0), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0, b2 = a0, b3 = a0;
  const end = q + (<usize>keyDim << 2);
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

/** scores[n] = (q . key n) * scale, for the keys whose addresses are listed. */
function score1<E>(q: usize, list: usize, count: i32, keyDim: i32, scale: f32, scores: usize): void {
  let n = 0;
  if ((keyDim & 15) == 0) {
    for (; n + 2 <= count; n += 2) {
      scorePair<E>(q, load<usize>(list), load<usize>(list, 4), keyDim, scale, scores);
      list += 8;
      scores += 8;
    }
  }
  for (; n < count; n++) {
    store<f32>(scores, dotRow<E>(load<usize>(list), q, keyDim) * scale);
    list += 4;
    scores += 4;
  }
}

/** score1 for three queries that follow each other; their scores are `count` floats apart. */
function score3<E>(q: usize, list: usize, count: i32, keyDim: i32, scale: f32, scores: usize): void {
  const queryBytes = <usize>keyDim << 2, step = <usize>count << 2;
  const factor = f32x4.splat(scale);
  for (const end = list + step; list < end; list += 4) {
    const dots = f32x4.mul(dots3<E>(load<usize>(list), keyDim, q, q + queryBytes, q + 2 * queryBytes), factor);
    v128.store32_lane(scores, dots, 0);
    v128.store32_lane(scores + step, dots, 1);
    v128.store32_lane(scores + 2 * step, dots, 2);
    scores += 4;
  }
}

/**
 * Addresses of `count` rows that lie `offset` bytes into their blocks: those of the tokens `first`, `first` + 1, ... or, when
 * `chosen` is not 0, of those named there.
 */
function listRows(
  list: usize, table: usize, first: i32, chosen: usize, count: i32, offset: usize, rowBytes: usize,
): void {
  const end = list + (<usize>count << 2);
  if (chosen) {
    for (; list < end; list += 4) {
      const key = load<i32>(chosen);
      const block = load<usize>(table + (<usize>(key / KV_BLOCK) << 2));
      store<usize>(list, block + offset + <usize>(key % KV_BLOCK) * rowBytes);
      chosen += 4;
    }
    return;
  }
  table += <usize>(first / KV_BLOCK) << 2;
  let skipped = <usize>(first % KV_BLOCK);
  while (list < end) {
    let row = load<usize>(table) + offset + skipped * rowBytes;
    const blockEnd = min(end, list + ((<usize>KV_BLOCK - skipped) << 2));
    for (; list < blockEnd; list += 4) {
      store<usize>(list, row);
      row += rowBytes;
    }
    table += 4;
    skipped = 0;
  }
}

/** Scores become exponentials; returns what the values are divided by. sink: the address of a logit, or 0. */
function toExponentials(scores: usize, count: i32, first: i32, chosen: usize, sink: usize): f32 {
  let max = maxOf(scores, count);
  let logit: f32 = 0;
  if (sink) {
    logit = load<f32>(sink);
    if (!(max > logit)) max = logit;
  }
  let sum = exponentials(scores, scores, count, max);
  // that is the sum when the first key is the first of 16
  if (chosen || (first & 15) != 0) sum = sumByPosition(scores, count, first, chosen);
  return sink ? sum + exp32(logit - max) : sum;
}

/**
 * `together` (1 or 3) heads from the one that q and out point to. sinks: the address of the first one's logit, or 0. Offsets: of
 * keys and values in a block.
 */
function attendHeads<E>(
  q: usize, out: usize, together: i32, keyDim: i32, valueDim: i32, scale: f32, sinks: usize, table: usize, first: i32,
  chosen: usize, count: i32, keyOffset: usize, keyBytes: usize, valueOffset: usize, valueBytes: usize, scores: usize,
): void {
  const step = <usize>count << 2;
  const list = scores + <usize>together * step;
  listRows(list, table, first, chosen, count, keyOffset, keyBytes);
  if (together == 3) score3<E>(q, list, count, keyDim, scale, scores);
  else score1<E>(q, list, count, keyDim, scale, scores);
  const sinkBytes: usize = sinks ? 4 : 0;
  const d0 = toExponentials(scores, count, first, chosen, sinks);
  const d1 = together == 3 ? toExponentials(scores + step, count, first, chosen, sinks + sinkBytes) : 0;
  const d2 = together == 3 ? toExponentials(scores + 2 * step, count, first, chosen, sinks + 2 * sinkBytes) : 0;
  const asListed = keyBytes == valueBytes;
  if (!asListed) listRows(list, table, first, chosen, count, valueOffset, valueBytes);
  const offset = asListed ? valueOffset - keyOffset : 0;
  const outBytes = <usize>valueDim << 2;
  memory.fill(out, 0, <usize>together * outBytes);
  if (together == 3) addValues3<E>(list, offset, count, scores, out, valueDim);
  else addValues<E>(list, offset, count, scores, out, valueDim);
  divideRow(out, valueDim, d0);
  if (together == 3) {
    divideRow(out + outBytes, valueDim, d1);
    divideRow(out + 2 * outBytes, valueDim, d2);
  }
}

@inline
function attend<E>(
  q: usize, out: usize, heads: i32, kvHeads: i32, keyDim: i32, valueDim: i32, scale: f32, window: i32, sinks: usize,
  positions: usize, tables: usize, valuesInKeys: i32, selection: usize, selectionStride: usize, scratch: usize,
  item0: i32, item1: i32,
): void {
  const keyBytes = <usize>kvHeads * keyDim * sizeof<E>();
  const valueBytes = valuesInKeys ? keyBytes : <usize>kvHeads * valueDim * sizeof<E>();
  const group = heads / kvHeads;
  let together = 1;
  for (let item = item0; item < item1; item += together) {
    const row = item / heads;
    const head = item - row * heads;
    const kvHead = head / group;
    together = item + 3 <= item1 && head + 3 <= (kvHead + 1) * group ? 3 : 1;
    const last = load<i32>(positions + (<usize>row << 2));
    const named = selection + (<usize>row * selectionStride << 2);
    const first = window > 0 && !selection ? max(0, last - window + 1) : 0;
    const keyOffset = <usize>kvHead * keyDim * sizeof<E>();
    attendHeads<E>(
      q + (<usize>item * keyDim << 2), out + (<usize>item * valueDim << 2), together, keyDim, valueDim, scale,
      sinks ? sinks + (<usize>head << 2) : 0,
      load<usize>(tables + (<usize>row << 2)), first, selection ? named + 4 : 0,
      selection ? load<i32>(named) : last - first + 1,
      keyOffset, keyBytes,
      valuesInKeys ? keyOffset : <usize>KV_BLOCK * keyBytes + <usize>kvHead * valueDim * sizeof<E>(), valueBytes, scratch,
    );
  }
}

export function attention(
  q: usize, out: usize, heads: i32, kvHeads: i32, keyDim: i32, valueDim: i32, scale: f32, window: i32, sinks: usize,
  positions: usize, tables: usize, layout: i32, valuesInKeys: i32, selection: usize, selectionStride: usize,
  scratch: usize, item0: i32, item1: i32,
): void {
  if (layout == BF16) {
    attend<Bfloat16>(
      q, out, heads, kvHeads, keyDim, valueDim, scale, window, sinks, positions, tables, valuesInKeys, selection,
      selectionStride, scratch, item0, item1,
    );
  } else {
    attend<f32>(
      q, out, heads, kvHeads, keyDim, valueDim, scale, window, sinks, positions, tables, valuesInKeys, selection,
      selectionStride, scratch, item0, item1,
    );
  }
}
