// Which keys attention looks at: scores of the lightning indexer, and the choice of the largest.
#ifndef COLI_INDEXER_H
#define COLI_INDEXER_H

#include "floats.h"

// Heads whose dots are computed together, and keys beside them.
enum { INDEX_HEADS = MAX_X, INDEX_KEYS = SUM_REGISTERS / (MAX_X * PARTS) >= 4 ? 4 : 1 };

// sum[key] += weight * max(score, 0) for heads head..head+heads-1 of `keys` keys.
INLINE void addHeads(const int layout, const int heads, const int keys, const IndexCall *c, const float *q,
                     const float *weights, const uint8_t *key, Four *sum) {
  Four result[4] = {{0}};
  const float *query[4];
  UNROLL for (int j = 0; j < heads; j++) query[j] = q + j * c->headDim;
  dots(layout, keys, heads, key, c->headDim * floatBytes(layout), query, c->headDim, result);
  UNROLL for (int j = 0; j < heads; j++) {
    const Four score = result[j] * c->scale;
    *sum += weights[j] * (Four)((score > 0.0f) & (__typeof__(score > 0.0f))score);
  }
}

// All heads of `keys` neighbouring keys of one block.
INLINE void indexKeys(const int layout, const int keys, const IndexCall *c, int64_t row, const uint8_t *key, float *to) {
  const float *q = c->q + row * c->heads * c->headDim, *weights = c->weights + row * c->heads;
  Four sum = {0};
  int64_t head = 0;
  for (; head + INDEX_HEADS <= c->heads; head += INDEX_HEADS)
    addHeads(layout, INDEX_HEADS, keys, c, q + head * c->headDim, weights + head, key, &sum);
  for (; head < c->heads; head++) addHeads(layout, 1, keys, c, q + head * c->headDim, weights + head, key, &sum);
  UNROLL for (int i = 0; i < keys; i++) to[i] = sum[i];
}

INLINE void indexBlock(const int layout, const IndexCall *c, int64_t row, const uint8_t *block, int64_t keys, float *to) {
  const int64_t rowBytes = c->headDim * floatBytes(layout);
  int64_t key = 0;
  for (; key + INDEX_KEYS <= keys; key += INDEX_KEYS)
    indexKeys(layout, INDEX_KEYS, c, row, block + key * rowBytes, to + key);
  for (; key < keys; key++) indexKeys(layout, 1, c, row, block + key * rowBytes, to + key);
}

#define INDEX_OF(layout) \
  static __attribute__((noinline)) void index_##layout(const IndexCall *c, int64_t row, const uint8_t *block, \
                                                       int64_t keys, float *to) { \
    indexBlock(layout, c, row, block, keys, to); \
  }
INDEX_OF(F32)
INDEX_OF(BF16)

static void indexScores(IndexCall call, int64_t item0, int64_t item1) {
  const History *h = &call.history;
  for (int64_t item = item0; item < item1; item++) {
    const int64_t row = item / call.blocks, number = item % call.blocks, first = number * KV_BLOCK;
    const int64_t keys = atMost(KV_BLOCK, (int64_t)h->positions[row] + 1 - first);
    if (keys <= 0) continue;
    const uint8_t *block = h->arena + ((const uint32_t *)(h->arena + h->tables[row]))[number];
    float *to = call.scores + row * call.stride + first;
    if (h->layout == F32) index_F32(&call, row, block, keys, to);
    else index_BF16(&call, row, block, keys, to);
  }
}

// Larger for a larger score, the same for +0 and -0, least for NaN.
INLINE uint32_t rankOf(float score) {
  uint32_t bits;
  // +0 makes -0 to +0.
  const float value = score + 0.0f;
  memcpy(&bits, &value, 4);
  const uint32_t rank = bits ^ ((uint32_t)((int32_t)bits >> 31) | 0x80000000u);
  return value != value ? 0 : rank;
}

// The rank of the k-th largest of `keys` scores, byte by byte; *equal becomes how many of that rank are among the k.
// counts: two tables, so that neighbours that agree do not wait for each other.
static uint32_t rankOfKth(const float *scores, int64_t keys, int64_t k, uint32_t *counts, int64_t *equal) {
  uint32_t prefix = 0, mask = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    memset(counts, 0, SELECT_SCRATCH * 4);
    for (int64_t i = 0; i < keys; i++) {
      const uint32_t rank = rankOf(scores[i]);
      if ((rank & mask) == prefix) counts[(i & 1) * 256 + (rank >> shift & 255)]++;
    }
    uint32_t digit = 255;
    while (digit > 0 && (int64_t)counts[digit] + counts[256 + digit] < k) {
      k -= (int64_t)counts[digit] + counts[256 + digit];
      digit--;
    }
    prefix |= digit << shift;
    mask |= 255u << shift;
  }
  *equal = k;
  return prefix;
}

static void selectKeys(const float *scores, int64_t stride, int64_t k, const int32_t *positions, int32_t *selection,
                       int64_t selectionStride, uint32_t *scratch, int64_t row0, int64_t row1) {
  for (int64_t row = row0; row < row1; row++) {
    const float *from = scores + row * stride;
    int32_t *to = selection + row * selectionStride;
    const int64_t keys = (int64_t)positions[row] + 1, count = atMost(keys, k);
    int64_t equal = 0, chosen = 0;
    const uint32_t least = keys > k && k > 0 ? rankOfKth(from, keys, k, scratch, &equal) : 0;
    for (int64_t key = 0; key < keys && chosen < count; key++) {
      const uint32_t rank = rankOf(from[key]);
      if (keys <= k || rank > least || (rank == least && equal-- > 0)) to[++chosen] = (int32_t)key;
    }
    to[0] = (int32_t)count;
  }
}

#endif
