// Queries of attention over KV blocks, up to four that read the same keys: their scores, and their sums of values. Every
// query's own sums are as if alone.
#ifndef COLI_QUERIES_H
#define COLI_QUERIES_H

#include "floats.h"
#include "rows.h"

// Each has its own scores in scratch.
enum { QUERIES = ATTENTION_SCRATCH };
// Keys scored together, beside that many queries.
#define KEYS_FOR(queries) (SUM_REGISTERS / ((queries) * PARTS) >= 4 ? 4 : 1)
// 16-float blocks of value columns whose sums stay in registers.
#define VALUE_BLOCKS(queries) \
  (SUM_REGISTERS / ((queries) * PARTS) >= 8 ? 8 : SUM_REGISTERS / ((queries) * PARTS) >= 1 ? SUM_REGISTERS / ((queries) * PARTS) : 1)

// Queries with the same block table and KV head, and the keys that each sees: from first to end.
typedef struct {
  int count;
  const float *q[QUERIES];
  float *out[QUERIES];
  // Where the score of key 0 would be: only what lies from first to end is memory of this call.
  float *scores[QUERIES];
  float sink[QUERIES];
  int64_t first[QUERIES], end[QUERIES];
  // Keys that all of them see.
  int64_t commonFirst, commonEnd;
  // Positions of the keys, when they were selected: all queries then see keys 0 to commonEnd.
  const int32_t *selection;
  const uint8_t *arena;
  const uint32_t *table;
  // Bytes: from one key or value to the next, and where this head begins in a block.
  int64_t keyBytes, valueBytes, keyOffset, valueOffset;
  int64_t keyDim, valueDim;
  float scale;
  bool hasSinks;
} Queries;

// Key `key`, or its value: `rowBytes` and `offset` say which.
INLINE const uint8_t *rowAt(const bool selected, const Queries *a, int64_t key, int64_t rowBytes, int64_t offset) {
  const int64_t position = selected ? a->selection[key] : key;
  return a->arena + a->table[position / KV_BLOCK] + offset + position % KV_BLOCK * rowBytes;
}

// `count` keys from `key` on, of one block unless they were selected, and `queries` queries from `first` on.
INLINE void scoreSome(const int layout, const int queries, const bool selected, const int count, const Queries *a,
                      int first, const float *const *q, int64_t key) {
  Four result[4] = {{0}};
  if (selected) {
    const uint8_t *rows[4];
    UNROLL for (int i = 0; i < count; i++) rows[i] = rowAt(true, a, key + i, a->keyBytes, a->keyOffset);
    dotsOf(layout, count, queries, rows, q, a->keyDim, result);
  } else {
    dots(layout, count, queries, rowAt(false, a, key, a->keyBytes, a->keyOffset), a->keyBytes, q, a->keyDim, result);
  }
  UNROLL for (int j = 0; j < queries; j++) {
    float *scores = a->scores[first + j] + key;
    result[j] *= a->scale;
    if (count == 4) *(LooseFour *)scores = result[j];
    else UNROLL for (int i = 0; i < count; i++) scores[i] = result[j][i];
  }
}

// scores = (q . K[key]) * scale for the keys from..to, for `queries` queries from `first` on.
INLINE void scoreKeys(const int layout, const int queries, const bool selected, const Queries *a, int first,
                      int64_t from, int64_t to) {
  const float *q[4];
  UNROLL for (int j = 0; j < queries; j++) q[j] = a->q[first + j];
  const int step = KEYS_FOR(queries);
  while (from < to) {
    const int64_t end = selected ? to : atMost(to, (from / KV_BLOCK + 1) * KV_BLOCK);
    for (; from + step <= end; from += step) scoreSome(layout, queries, selected, step, a, first, q, from);
    for (; from < end; from++) scoreSome(layout, queries, selected, 1, a, first, q, from);
  }
}

// total[query][block] += score * value for the keys from..to.
INLINE void addValues(const int layout, const int queries, const int blocks, const bool selected, const Queries *a,
                      int first, int64_t offset, int64_t from, int64_t to, Floats total[QUERIES][8][PARTS]) {
  while (from < to) {
    const int64_t end = selected ? from + 1 : atMost(to, (from / KV_BLOCK + 1) * KV_BLOCK);
    const uint8_t *v = rowAt(selected, a, from, a->valueBytes, offset);
    for (; from < end; from++, v += a->valueBytes)
      UNROLL for (int b = 0; b < blocks; b++) EACH_PART {
        const Floats value = decodePart(layout, v + b * 16 * floatBytes(layout), k);
        UNROLL for (int j = 0; j < queries; j++) total[j][b][k] += value * a->scores[first + j][from];
      }
  }
}

// 16 * blocks value columns from `column` on: each query's own first keys, the common keys together, its own last keys.
INLINE void valueColumns(const int layout, const int queries, const int blocks, const bool selected, const Queries *a,
                         int64_t column, const float *sum) {
  const int64_t offset = a->valueOffset + column * floatBytes(layout);
  Floats total[QUERIES][8][PARTS];
  UNROLL for (int j = 0; j < queries; j++) {
    UNROLL for (int b = 0; b < blocks; b++) EACH_PART total[j][b][k] = (Floats){0};
    if (!selected) addValues(layout, 1, blocks, false, a, j, offset, a->first[j], a->commonFirst, &total[j]);
  }
  addValues(layout, queries, blocks, selected, a, 0, offset, a->commonFirst, a->commonEnd, total);
  UNROLL for (int j = 0; j < queries; j++) {
    if (!selected) addValues(layout, 1, blocks, false, a, j, offset, a->commonEnd, a->end[j], &total[j]);
    UNROLL for (int b = 0; b < blocks; b++)
      EACH_PART *(LooseFloats *)(a->out[j] + column + b * 16 + k * LANES) = total[j][b][k] / sum[j];
  }
}

// As valueColumns for the keys from..to that all queries see, on top of what `out` holds; not yet divided.
INLINE void addColumns(const int layout, const int blocks, const bool selected, const Queries *a, int64_t column,
                       int64_t from, int64_t to) {
  Floats total[QUERIES][8][PARTS];
  UNROLL for (int j = 0; j < QUERIES; j++)
    UNROLL for (int b = 0; b < blocks; b++)
      EACH_PART total[j][b][k] = *(LooseFloats *)(a->out[j] + column + b * 16 + k * LANES);
  addValues(layout, QUERIES, blocks, selected, a, 0, a->valueOffset + column * floatBytes(layout), from, to, total);
  UNROLL for (int j = 0; j < QUERIES; j++)
    UNROLL for (int b = 0; b < blocks; b++)
      EACH_PART *(LooseFloats *)(a->out[j] + column + b * 16 + k * LANES) = total[j][b][k];
}

// The last columns of a head, fewer than 16.
INLINE void lastColumns(const int layout, const bool selected, const Queries *a, int j, int64_t column, float sum) {
  const int64_t columns = a->valueDim - column, offset = a->valueOffset + column * floatBytes(layout);
  Lanes total = zeros();
  for (int64_t key = a->first[j]; key < a->end[j]; key++) {
    const uint8_t *v = rowAt(selected, a, key, a->valueBytes, offset);
    total = add16(total, scale16(decodeUpTo16(layout, v, columns), a->scores[j][key]));
  }
  storeUpTo16(a->out[j] + column, divide16(total, sum), columns);
}

// Scores become exponentials, whose sum it returns: lanes by absolute position. Without a selection key `first` stands first.
static float weighKeys(float *scores, int64_t count, int64_t first, const int32_t *selection, float max) {
  const int64_t skipped = first % 16, ahead = skipped == 0 ? 0 : atMost(16 - skipped, count);
  float lanes[16] = {0};
  if (selection) {
    exponentials(scores, scores, count, max);
    for (int64_t i = 0; i < count; i++) lanes[selection[i] & 15] += scores[i];
    return tree16(load16(lanes));
  }
  exponentials(scores, scores, ahead, max);
  memcpy(lanes + skipped, scores, (size_t)ahead * 4);
  return tree16(addExponentials(load16(lanes), scores + ahead, scores + ahead, count - ahead, max));
}

static float weigh(const Queries *a, int j) {
  float *scores = a->scores[j] + a->first[j];
  const int64_t count = a->end[j] - a->first[j];
  const float largest = maxOf(scores, count);
  if (!a->hasSinks) return weighKeys(scores, count, a->first[j], a->selection, largest);
  const float sink = a->sink[j], max = largest > sink ? largest : sink;
  return weighKeys(scores, count, a->first[j], a->selection, max) + exp1(sink - max);
}

// Where the keys of a head lie, and where its values.
static Queries historyOf(const AttentionCall *call, int64_t row, int64_t kvHead) {
  const int64_t bytes = floatBytes(call->history.layout);
  Queries a = {.arena = call->history.arena,
               .table = (const uint32_t *)(call->history.arena + call->history.tables[row]),
               .keyBytes = call->kvHeads * call->keyDim * bytes,
               .valueBytes = call->kvHeads * call->valueDim * bytes,
               .keyOffset = kvHead * call->keyDim * bytes,
               .keyDim = call->keyDim,
               .valueDim = call->valueDim,
               .scale = call->scale,
               .hasSinks = call->sinks != NULL};
  a.valueOffset = KV_BLOCK * a.keyBytes + kvHead * call->valueDim * bytes;
  if (call->valuesInKeys) {
    a.valueBytes = a.keyBytes;
    a.valueOffset = a.keyOffset;
  }
  return a;
}

// The keys of one row, from *first to *end.
static void keysOf(const AttentionCall *call, int64_t row, int64_t *first, int64_t *end) {
  *first = 0;
  *end = (int64_t)call->history.positions[row] + 1;
  if (call->selection) *end = call->selection[row * call->selectionStride];
  else if (call->window > 0 && *end > call->window) *first = *end - call->window;
}

// Rows row..row+rows-1 with heads head..head+heads-1, all of one group: rows * heads queries.
static Queries queriesOf(const AttentionCall *call, int64_t row, int64_t rows, int64_t head, int64_t heads) {
  Queries a = historyOf(call, row, head / (call->heads / call->kvHeads));
  if (call->selection) a.selection = call->selection + row * call->selectionStride + 1;
  keysOf(call, row, &a.commonFirst, &a.commonEnd);
  int64_t most = 0;
  for (int64_t r = row; r < row + rows; r++) {
    int64_t first, end;
    keysOf(call, r, &first, &end);
    a.commonFirst = first > a.commonFirst ? first : a.commonFirst;
    a.commonEnd = atMost(a.commonEnd, end);
    most = end - first > most ? end - first : most;
    for (int64_t h = head; h < head + heads; h++) {
      const int j = a.count++;
      a.first[j] = first;
      a.end[j] = end;
      a.sink[j] = a.hasSinks ? call->sinks[h] : 0;
      a.q[j] = call->q + (r * call->heads + h) * call->keyDim;
      a.out[j] = call->out + (r * call->heads + h) * call->valueDim;
    }
  }
  for (int j = 0; j < a.count; j++) a.scores[j] = call->scratch + j * most - a.first[j];
  return a;
}

#endif
