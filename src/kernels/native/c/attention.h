// Two-pass softmax attention over KV blocks. Queries that read the same keys (heads of one group, or one head of several rows)
// are worked on four at a time: their keys and values are then loaded once.
#ifndef COLI_ATTENTION_H
#define COLI_ATTENTION_H

#include "queries.h"

INLINE void attend(const int layout, const int queries, const bool selected, const Queries *a) {
  float sum[QUERIES];
  scoreKeys(layout, queries, selected, a, 0, a->commonFirst, a->commonEnd);
  UNROLL for (int j = 0; j < queries; j++) {
    if (!selected) scoreKeys(layout, 1, false, a, j, a->first[j], a->commonFirst);
    if (!selected) scoreKeys(layout, 1, false, a, j, a->commonEnd, a->end[j]);
    sum[j] = weigh(a, j);
  }
  const int blocks = VALUE_BLOCKS(queries);
  int64_t column = 0;
  for (; column + 16 * blocks <= a->valueDim; column += 16 * blocks)
    valueColumns(layout, queries, blocks, selected, a, column, sum);
  for (; column + 16 <= a->valueDim; column += 16) valueColumns(layout, queries, 1, selected, a, column, sum);
  if (column < a->valueDim)
    for (int j = 0; j < queries; j++) lastColumns(layout, selected, a, j, column, sum[j]);
}

#define ATTEND(layout, queries) \
  static __attribute__((noinline)) void attend_##layout##_##queries(const Queries *a) { \
    attend(layout, queries, false, a); \
  } \
  static __attribute__((noinline)) void attendSelected_##layout##_##queries(const Queries *a) { \
    attend(layout, queries, true, a); \
  }
#define ATTEND_BY(name, layout) \
  static void name##_##layout(const Queries *a) { \
    if (a->count == 1) name##_##layout##_1(a); \
    else if (a->count == 2) name##_##layout##_2(a); \
    else if (a->count == 3) name##_##layout##_3(a); \
    else name##_##layout##_4(a); \
  }
#define ATTEND_OF(layout) \
  ATTEND(layout, 1) \
  ATTEND(layout, 2) \
  ATTEND(layout, 3) \
  ATTEND(layout, 4) \
  ATTEND_BY(attend, layout) \
  ATTEND_BY(attendSelected, layout)
ATTEND_OF(F32)
ATTEND_OF(BF16)

static void attendQueries(const AttentionCall *call, int64_t row, int64_t rows, int64_t head, int64_t heads) {
  const Queries a = queriesOf(call, row, rows, head, heads);
  if (call->history.layout == F32) (a.selection ? attendSelected_F32 : attend_F32)(&a);
  else (a.selection ? attendSelected_BF16 : attend_BF16)(&a);
}

// Where values are the beginnings of keys, many heads read the same rows. While the values of four heads are added, block by
// block, the next four are scored with the same block; their scores take the places of those that are not needed any more.
INLINE void addBlock(const int layout, const bool selected, const Queries *a, int64_t from, int64_t to) {
  const int blocks = VALUE_BLOCKS(QUERIES);
  int64_t column = 0;
  for (; column + 16 * blocks <= a->valueDim; column += 16 * blocks)
    addColumns(layout, blocks, selected, a, column, from, to);
  for (; column < a->valueDim; column += 16) addColumns(layout, 1, selected, a, column, from, to);
}

// Scoring comes first, for it reads a block from its start to its end; the values then come from the cache. Weights of the
// block that its scores replace are kept until then. `values` or `scores` may be NULL: at the end and at the beginning.
INLINE void passOver(const int layout, const bool selected, const Queries *values, const Queries *scores) {
  float weights[QUERIES][KV_BLOCK];
  Queries block = values ? *values : *scores;
  for (int64_t from = block.commonFirst; from < block.commonEnd;) {
    const int64_t end = atMost(block.commonEnd, (from / KV_BLOCK + 1) * KV_BLOCK);
    for (int j = 0; values && j < QUERIES; j++) {
      memcpy(weights[j], values->scores[j] + from, (size_t)(end - from) * 4);
      block.scores[j] = weights[j] - from;
    }
    if (scores) scoreKeys(layout, QUERIES, selected, scores, 0, from, end);
    if (values) addBlock(layout, selected, &block, from, end);
    from = end;
  }
}

#define PASS_OF(layout) \
  static __attribute__((noinline)) void pass_##layout(const Queries *values, const Queries *scores) { \
    passOver(layout, false, values, scores); \
  } \
  static __attribute__((noinline)) void passSelected_##layout(const Queries *values, const Queries *scores) { \
    passOver(layout, true, values, scores); \
  }
PASS_OF(F32)
PASS_OF(BF16)

// Heads head..head+heads-1 of one row; heads is a multiple of four, valueDim of 16.
static void attendLatents(const AttentionCall *call, int64_t row, int64_t head, int64_t heads) {
  Queries values, scores;
  float sum[QUERIES];
  const bool selected = call->selection != NULL;
  void (*const pass)(const Queries *, const Queries *) =
      call->history.layout == F32 ? selected ? passSelected_F32 : pass_F32 : selected ? passSelected_BF16 : pass_BF16;
  for (int64_t h = 0; h <= heads; h += QUERIES) {
    if (h < heads) scores = queriesOf(call, row, 1, head + h, QUERIES);
    pass(h > 0 ? &values : NULL, h < heads ? &scores : NULL);
    for (int j = 0; h > 0 && j < QUERIES; j++) divideRow(values.out[j], call->valueDim, sum[j]);
    if (h == heads) break;
    for (int j = 0; j < QUERIES; j++) {
      sum[j] = weigh(&scores, j);
      memset(scores.out[j], 0, (size_t)call->valueDim * 4);
    }
    values = scores;
  }
}

// Rows from `row` on, at most `limit`, that read the same history and all see at least one key of it.
static int64_t rowsTogether(const AttentionCall *call, int64_t row, int64_t limit) {
  int64_t rows = 1, commonFirst, commonEnd;
  if (call->selection) return 1;
  keysOf(call, row, &commonFirst, &commonEnd);
  while (rows < limit && call->history.tables[row + rows] == call->history.tables[row]) {
    int64_t first, end;
    keysOf(call, row + rows, &first, &end);
    commonFirst = first > commonFirst ? first : commonFirst;
    commonEnd = atMost(commonEnd, end);
    if (commonFirst >= commonEnd) break;
    rows++;
  }
  return rows;
}

static void attention(AttentionCall call, int64_t item0, int64_t item1) {
  const int64_t heads = call.heads, group = heads / call.kvHeads;
  for (int64_t item = item0; item < item1;) {
    const int64_t row = item / heads, head = item % heads;
    if (head == 0 && item + heads <= item1 && 2 * group <= QUERIES) {
      const int64_t rows = rowsTogether(&call, row, atMost(QUERIES / group, (item1 - item) / heads));
      for (int64_t h = 0; h < heads; h += group) attendQueries(&call, row, rows, h, group);
      item += rows * heads;
    } else if (call.valuesInKeys && call.valueDim % 16 == 0 && atMost(heads - head, item1 - item) >= 2 * QUERIES) {
      const int64_t together = atMost(heads - head, item1 - item) / QUERIES * QUERIES;
      attendLatents(&call, row, head, together);
      item += together;
    } else {
      const int64_t together = atMost(atMost(QUERIES, group - head % group), item1 - item);
      attendQueries(&call, row, 1, head, together);
      item += together;
    }
  }
}

#endif
