// Checks of attention and of the choice of keys. What block tables and selections name is checked before it is read.
#ifndef COLI_OPS_ATTENTION_H
#define COLI_OPS_ATTENTION_H

#include "call.h"

// positions, tables and layout are three arguments in this order, with `rows` rows.
static History historyAt(Call *c, int positions, int64_t rows) {
  const int64_t layout = c->at[positions + 2];
  if (layout != F32 && layout != BF16) fail(c, "not a layout of keys and values");
  History h = {.layout = c->failed ? F32 : (int)layout, .arena = c->arena->base};
  h.positions = span(c, positions, rows, 4);
  h.tables = span(c, positions + 1, rows, 4);
  return h;
}

// Keys 0..the row's position; the block table must hold as many.
static int64_t keysOfRow(Call *c, const History *h, int64_t row) {
  if (h->positions[row] < 0) fail(c, "a position is negative");
  const int64_t keys = (int64_t)h->positions[row] + 1;
  spanAt(c, h->tables[row], (uint64_t)(keys + KV_BLOCK - 1) / KV_BLOCK, 4);
  return c->failed ? 0 : keys;
}

// A block of a table that was checked; a token has `columns` elements in it.
static void checkBlock(Call *c, const History *h, int64_t row, int64_t block, uint64_t columns) {
  const uint32_t *table = (const uint32_t *)(h->arena + h->tables[row]);
  spanAt(c, table[block], times(columns, KV_BLOCK * floatBytes(h->layout) / 4), 4);
}

// The keys that a row has selected: each once, in order, none after the row itself. Returns how many.
static int64_t checkSelection(Call *c, const AttentionCall *a, int64_t row, int64_t keys, uint64_t columns) {
  const int32_t *chosen = a->selection + row * a->selectionStride;
  const int64_t count = chosen[0];
  if (count < 0 || count >= a->selectionStride) fail(c, "a selection does not fit its row");
  int64_t previous = -1;
  for (int64_t i = 1; i <= count && !c->failed; i++) {
    const int64_t position = chosen[i];
    if (position <= previous || position >= keys) {
      fail(c, "a selection is not in ascending order up to the position");
      break;
    }
    if (previous < 0 || position / KV_BLOCK != previous / KV_BLOCK)
      checkBlock(c, &a->history, row, position / KV_BLOCK, columns);
    previous = position;
  }
  return count;
}

// The rows that the items belong to: what they read of their history, and scratch for as many keys.
static void checkRows(Call *c, const AttentionCall *a, int64_t item0, int64_t item1) {
  const uint64_t columns = times(a->kvHeads, plus(a->keyDim, a->valuesInKeys ? 0 : a->valueDim));
  for (int64_t row = item0 / a->heads; row * a->heads < item1 && !c->failed; row++) {
    int64_t keys = keysOfRow(c, &a->history, row);
    if (c->failed) return;
    if (a->selection) {
      keys = checkSelection(c, a, row, keys, columns);
    } else {
      const int64_t first = a->window > 0 && keys > a->window ? keys - a->window : 0;
      for (int64_t b = first / KV_BLOCK; b * KV_BLOCK < keys && !c->failed; b++)
        checkBlock(c, &a->history, row, b, columns);
      keys -= first;
    }
    if (!c->failed) span(c, 15, times(keys, ATTENTION_SCRATCH), 4);
  }
}

static void run_attention(Call *c) {
  const int64_t item0 = c->at[16], item1 = c->at[17];
  AttentionCall a = {.heads = countOf(c, 2), .kvHeads = countOf(c, 3), .keyDim = countOf(c, 4), .valueDim = countOf(c, 5)};
  a.scale = c->real[6];
  a.window = countOf(c, 7);
  a.valuesInKeys = choiceOf(c, 12, 1);
  a.selectionStride = countOf(c, 14);
  checkRange(c, item0, item1);
  if (a.heads < 1 || a.kvHeads < 1 || a.heads % a.kvHeads != 0) fail(c, "kvHeads must divide heads");
  if (a.valuesInKeys && (a.kvHeads != 1 || a.valueDim > a.keyDim)) fail(c, "values do not fit into the one key head");
  if (c->at[13] != 0 && a.selectionStride < 1) fail(c, "a selection does not fit its row");
  if (c->failed) return;
  const int64_t rows = (item1 + a.heads - 1) / a.heads;
  a.q = span(c, 0, times(item1, a.keyDim), 4);
  a.out = span(c, 1, times(item1, a.valueDim), 4);
  a.sinks = spanOrNull(c, 8, a.heads);
  a.history = historyAt(c, 9, rows);
  a.selection = spanOrNull(c, 13, times(rows, a.selectionStride));
  a.scratch = span(c, 15, 1, 4);
  if (!c->failed) checkRows(c, &a, item0, item1);
  if (!c->failed) c->arena->kernels->attention(a, item0, item1);
}

static void run_indexScores(Call *c) {
  const int64_t item0 = c->at[11], item1 = c->at[12];
  IndexCall x = {.heads = countOf(c, 2), .headDim = countOf(c, 3), .scale = c->real[4]};
  x.stride = countOf(c, 9);
  x.blocks = countOf(c, 10);
  checkRange(c, item0, item1);
  if (x.blocks < 1) fail(c, "a row has no blocks");
  if (c->failed) return;
  const int64_t rows = (item1 + x.blocks - 1) / x.blocks;
  x.q = span(c, 0, times(rows, times(x.heads, x.headDim)), 4);
  x.weights = span(c, 1, times(rows, x.heads), 4);
  x.history = historyAt(c, 5, rows);
  x.scores = span(c, 8, 1, 4);
  for (int64_t item = item0; item < item1 && !c->failed; item++) {
    const int64_t row = item / x.blocks, block = item % x.blocks, keys = keysOfRow(c, &x.history, row);
    if (c->failed) return;
    if (block * KV_BLOCK >= keys) {
      // The rest of this row has no keys.
      item = (row + 1) * x.blocks - 1;
      continue;
    }
    checkBlock(c, &x.history, row, block, x.headDim);
    if (!c->failed) stridedSpan(c, 8, row + 1, x.stride, (uint64_t)keys);
  }
  if (!c->failed) c->arena->kernels->indexScores(x, item0, item1);
}

static void run_selectKeys(Call *c) {
  const int64_t stride = countOf(c, 1), count = countOf(c, 2), selectionStride = countOf(c, 5);
  const int64_t row0 = c->at[7], row1 = c->at[8];
  checkRange(c, row0, row1);
  if (selectionStride <= count) fail(c, "a selection does not fit its row");
  const int32_t *positions = span(c, 3, row1, 4);
  int32_t *selection = span(c, 4, times(row1, selectionStride), 4);
  uint32_t *scratch = span(c, 6, SELECT_SCRATCH, 4);
  const float *scores = span(c, 0, 1, 4);
  for (int64_t row = row0; row < row1 && !c->failed; row++) {
    if (positions[row] < 0) fail(c, "a position is negative");
    stridedSpan(c, 0, row + 1, stride, (uint64_t)positions[row] + 1);
  }
  if (!c->failed)
    c->arena->kernels->selectKeys(scores, stride, count, positions, selection, selectionStride, scratch, row0, row1);
}

#endif
