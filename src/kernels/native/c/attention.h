// Two-pass softmax attention of one query head over KV blocks.
#ifndef COLI_ATTENTION_H
#define COLI_ATTENTION_H

#include "floats.h"
#include "rows.h"

// Keys scored together: their sums are independent, so nothing waits for an addition.
enum { SCORE_KEYS = SUM_REGISTERS / PARTS < 4 ? SUM_REGISTERS / PARTS : 4 };
// 16-float blocks of value columns whose sums stay in registers.
enum { VALUE_BLOCKS = SUM_REGISTERS / PARTS < 8 ? SUM_REGISTERS / PARTS : 8 };

// scores[key] = (q . K[key]) * scale for the keys of one KV block.
static void scoreBlock(const float *q, const float *keys, int64_t stride, int64_t headDim, float scale, int64_t count,
                       float *scores) {
  const float *const x[1] = {q};
  float result[4][4];
  int64_t key = 0;
  for (; key + SCORE_KEYS <= count; key += SCORE_KEYS) {
    dots(F32, SCORE_KEYS, 1, (const uint8_t *)(keys + key * stride), stride * 4, x, headDim, result);
    UNROLL for (int i = 0; i < SCORE_KEYS; i++) scores[key + i] = result[i][0] * scale;
  }
  for (; key < count; key++) {
    dots(F32, 1, 1, (const uint8_t *)(keys + key * stride), stride * 4, x, headDim, result);
    scores[key] = result[0][0] * scale;
  }
}

// `blocks` blocks of 16 value columns, key by key in ascending position, divided by the sum.
INLINE void valueColumns(const int blocks, const AttentionCall *call, const uint32_t *table, int64_t offset,
                         int64_t stride, int64_t keys, float sum, float *out) {
  Lanes total[VALUE_BLOCKS];
  UNROLL for (int b = 0; b < blocks; b++) total[b] = zeros();
  for (int64_t from = 0; from < keys; from += KV_BLOCK) {
    const float *v = (const float *)(call->arena + table[from / KV_BLOCK]) + offset;
    const int64_t count = atMost(KV_BLOCK, keys - from);
    for (int64_t key = 0; key < count; key++, v += stride) {
      const float p = call->scratch[from + key];
      UNROLL for (int b = 0; b < blocks; b++) total[b] = add16(total[b], scale16(load16(v + b * 16), p));
    }
  }
  UNROLL for (int b = 0; b < blocks; b++) store16(out + b * 16, divide16(total[b], sum));
}

// The last columns of a head, fewer than 16.
static void lastColumns(const AttentionCall *call, const uint32_t *table, int64_t offset, int64_t stride, int64_t keys,
                        float sum, float *out, int64_t columns) {
  Lanes total = zeros();
  for (int64_t key = 0; key < keys; key++) {
    const float *v = (const float *)(call->arena + table[key / KV_BLOCK]) + offset + key % KV_BLOCK * stride;
    total = add16(total, scale16(loadUpTo16(v, columns), call->scratch[key]));
  }
  storeUpTo16(out, divide16(total, sum), columns);
}

static void attendItem(const AttentionCall *call, int64_t item) {
  const int64_t headDim = call->headDim, row = item / call->heads;
  const int64_t stride = call->kvHeads * headDim;
  const int64_t head = (item - row * call->heads) / (call->heads / call->kvHeads) * headDim;
  const int64_t keys = (int64_t)call->positions[row] + 1;
  const uint32_t *table = (const uint32_t *)(call->arena + call->tables[row]);
  const float *q = call->q + item * headDim;
  float *out = call->out + item * headDim;
  for (int64_t from = 0; from < keys; from += KV_BLOCK)
    scoreBlock(q, (const float *)(call->arena + table[from / KV_BLOCK]) + head, stride, headDim, call->scale,
               atMost(KV_BLOCK, keys - from), call->scratch + from);
  const float sum = exponentials(call->scratch, call->scratch, keys, maxOf(call->scratch, keys));
  const int64_t values = KV_BLOCK * stride + head;
  int64_t column = 0;
  for (; column + 16 * VALUE_BLOCKS <= headDim; column += 16 * VALUE_BLOCKS)
    valueColumns(VALUE_BLOCKS, call, table, values + column, stride, keys, sum, out + column);
  for (; column + 16 <= headDim; column += 16)
    valueColumns(1, call, table, values + column, stride, keys, sum, out + column);
  if (column < headDim) lastColumns(call, table, values + column, stride, keys, sum, out + column, headDim - column);
}

static void attention(AttentionCall call, int64_t item0, int64_t item1) {
  for (int64_t item = item0; item < item1; item++) attendItem(&call, item);
}

#endif
