// Two-pass softmax attention over KV blocks. Up to four queries that read the same keys (heads of one group, or one head of
// several rows) are worked on together: their keys and values are then loaded once. Every query's own sums are as if alone.
#ifndef COLI_ATTENTION_H
#define COLI_ATTENTION_H

#include "floats.h"
#include "rows.h"

// Each has its own scores in scratch.
enum { QUERIES = ATTENTION_SCRATCH };
// Keys scored together, beside that many queries.
#define KEYS_FOR(queries) (SUM_REGISTERS / ((queries) * PARTS) >= 4 ? 4 : 1)
// 16-float blocks of value columns whose sums stay in registers.
#define VALUE_BLOCKS(queries) \
  (SUM_REGISTERS / ((queries) * PARTS) >= 8 ? 8 : SUM_REGISTERS / ((queries) * PARTS) >= 1 ? SUM_REGISTERS / ((queries) * PARTS) : 1)

// Queries with the same block table and KV head.
typedef struct {
  const float *q[QUERIES];
  float *out[QUERIES];
  float *scores[QUERIES];
  int64_t keys[QUERIES];
  // Keys that all of them see.
  int64_t common;
  const uint8_t *arena;
  const uint32_t *table;
  // Bytes: from one key to the next, and where this head begins in a block.
  int64_t rowBytes, keyOffset, valueOffset;
  int64_t headDim;
  float scale;
} Queries;

INLINE const uint8_t *keyAt(const Queries *a, int64_t key, int64_t offset) {
  return a->arena + a->table[key / KV_BLOCK] + offset + key % KV_BLOCK * a->rowBytes;
}

// scores = (q . K[key]) * scale for the keys from..to of one KV block, for `queries` queries from `first` on.
INLINE void scoreKeys(const int layout, const int queries, const Queries *a, int first, int64_t from, int64_t to) {
  float result[4][4];
  const float *q[4];
  UNROLL for (int j = 0; j < queries; j++) q[j] = a->q[first + j];
  const int step = KEYS_FOR(queries);
  int64_t key = from;
  for (; key + step <= to; key += step) {
    dots(layout, step, queries, keyAt(a, key, a->keyOffset), a->rowBytes, q, a->headDim, result);
    UNROLL for (int j = 0; j < queries; j++)
      UNROLL for (int i = 0; i < step; i++) a->scores[first + j][key + i] = result[i][j] * a->scale;
  }
  for (; key < to; key++) {
    dots(layout, 1, queries, keyAt(a, key, a->keyOffset), 0, q, a->headDim, result);
    UNROLL for (int j = 0; j < queries; j++) a->scores[first + j][key] = result[0][j] * a->scale;
  }
}

// total[query][block] += score * value for the keys from..to.
INLINE void addValues(const int layout, const int queries, const int blocks, const Queries *a, int first, int64_t offset,
                      int64_t from, int64_t to, Floats total[QUERIES][8][PARTS]) {
  while (from < to) {
    const int64_t end = atMost(to, (from / KV_BLOCK + 1) * KV_BLOCK);
    const uint8_t *v = keyAt(a, from, offset);
    for (; from < end; from++, v += a->rowBytes)
      UNROLL for (int b = 0; b < blocks; b++) EACH_PART {
        const Floats value = decodePart(layout, v + b * 16 * floatBytes(layout), k);
        UNROLL for (int j = 0; j < queries; j++) total[j][b][k] += value * a->scores[first + j][from];
      }
  }
}

// 16 * blocks value columns from `column` on: the common keys together, then each query's own last keys.
INLINE void valueColumns(const int layout, const int queries, const int blocks, const Queries *a, int64_t column,
                         const float *sum) {
  const int64_t offset = a->valueOffset + column * floatBytes(layout);
  Floats total[QUERIES][8][PARTS];
  UNROLL for (int j = 0; j < queries; j++)
    UNROLL for (int b = 0; b < blocks; b++) EACH_PART total[j][b][k] = (Floats){0};
  addValues(layout, queries, blocks, a, 0, offset, 0, a->common, total);
  UNROLL for (int j = 0; j < queries; j++) {
    addValues(layout, 1, blocks, a, j, offset, a->common, a->keys[j], &total[j]);
    UNROLL for (int b = 0; b < blocks; b++)
      EACH_PART *(LooseFloats *)(a->out[j] + column + b * 16 + k * LANES) = total[j][b][k] / sum[j];
  }
}

// The last columns of a head, fewer than 16.
INLINE void lastColumns(const int layout, const Queries *a, int j, int64_t column, float sum) {
  const int64_t columns = a->headDim - column, offset = a->valueOffset + column * floatBytes(layout);
  Lanes total = zeros();
  for (int64_t key = 0; key < a->keys[j]; key++)
    total = add16(total, scale16(decodeUpTo16(layout, keyAt(a, key, offset), columns), a->scores[j][key]));
  storeUpTo16(a->out[j] + column, divide16(total, sum), columns);
}

INLINE void attend(const int layout, const int queries, const Queries *a) {
  float sum[QUERIES];
  for (int64_t from = 0; from < a->common; from += KV_BLOCK)
    scoreKeys(layout, queries, a, 0, from, atMost(from + KV_BLOCK, a->common));
  UNROLL for (int j = 0; j < queries; j++) {
    for (int64_t from = a->common; from < a->keys[j];) {
      const int64_t to = atMost((from / KV_BLOCK + 1) * KV_BLOCK, a->keys[j]);
      scoreKeys(layout, 1, a, j, from, to);
      from = to;
    }
    sum[j] = exponentials(a->scores[j], a->scores[j], a->keys[j], maxOf(a->scores[j], a->keys[j]));
  }
  const int blocks = VALUE_BLOCKS(queries);
  int64_t column = 0;
  for (; column + 16 * blocks <= a->headDim; column += 16 * blocks) valueColumns(layout, queries, blocks, a, column, sum);
  for (; column + 16 <= a->headDim; column += 16) valueColumns(layout, queries, 1, a, column, sum);
  if (column < a->headDim)
    for (int j = 0; j < queries; j++) lastColumns(layout, a, j, column, sum[j]);
}

#define ATTEND(layout, queries) \
  static __attribute__((noinline)) void attend_##layout##_##queries(const Queries *a) { attend(layout, queries, a); }
#define ATTEND_OF(layout) \
  ATTEND(layout, 1) \
  ATTEND(layout, 2) \
  ATTEND(layout, 3) \
  ATTEND(layout, 4) \
  static void attend_##layout(int queries, const Queries *a) { \
    if (queries == 1) attend_##layout##_1(a); \
    else if (queries == 2) attend_##layout##_2(a); \
    else if (queries == 3) attend_##layout##_3(a); \
    else attend_##layout##_4(a); \
  }
ATTEND_OF(F32)
ATTEND_OF(BF16)

// Rows row..row+rows-1 with heads head..head+heads-1, all of one group: rows * heads queries.
static void attendQueries(const AttentionCall *call, int64_t row, int64_t rows, int64_t head, int64_t heads) {
  const int64_t headDim = call->headDim, group = call->heads / call->kvHeads, bytes = floatBytes(call->layout);
  Queries a = {.arena = call->arena,
               .table = (const uint32_t *)(call->arena + call->tables[row]),
               .rowBytes = call->kvHeads * headDim * bytes,
               .keyOffset = head / group * headDim * bytes,
               .headDim = headDim,
               .scale = call->scale,
               .common = (int64_t)call->positions[row] + 1};
  a.valueOffset = a.keyOffset + KV_BLOCK * a.rowBytes;
  int queries = 0;
  int64_t most = 0;
  for (int64_t r = row; r < row + rows; r++) {
    const int64_t keys = (int64_t)call->positions[r] + 1;
    a.common = atMost(a.common, keys);
    most = keys > most ? keys : most;
    for (int64_t h = head; h < head + heads; h++) {
      a.keys[queries] = keys;
      a.q[queries] = call->q + (r * call->heads + h) * headDim;
      a.out[queries++] = call->out + (r * call->heads + h) * headDim;
    }
  }
  for (int j = 0; j < queries; j++) a.scores[j] = call->scratch + j * most;
  if (call->layout == F32) attend_F32(queries, &a);
  else attend_BF16(queries, &a);
}

// Rows from `row` on, at most `limit`, that read the same history.
static int64_t rowsTogether(const AttentionCall *call, int64_t row, int64_t limit) {
  int64_t rows = 1;
  while (rows < limit && call->tables[row + rows] == call->tables[row]) rows++;
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
    } else {
      const int64_t together = atMost(atMost(QUERIES, group - head % group), item1 - item);
      attendQueries(&call, row, 1, head, together);
      item += together;
    }
  }
}

#endif
