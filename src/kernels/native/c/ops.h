// The kernels as functions of checked arguments, in the order of kernels.ts.
#ifndef COLI_OPS_H
#define COLI_OPS_H

#include "call.h"

static void run_quantise(Call *c) {
  const int64_t columns = countOf(c, 1), row0 = c->at[5], row1 = c->at[6];
  checkRange(c, row0, row1);
  const uint64_t groups = times(row1, groupsOf(columns));
  const float *x = span(c, 0, times(row1, columns), 4);
  int8_t *codes = span(c, 2, times(groups, GROUP), 1);
  float *scales = span(c, 3, groups, 4);
  int32_t *sums = span(c, 4, groups, 4);
  if (!c->failed) c->arena->kernels->quantise(x, columns, codes, scales, sums, row0, row1);
}

static void run_matmulTiles(Call *c) {
  const int64_t layout = c->at[0], rows = countOf(c, 2), groups = countOf(c, 3), n = countOf(c, 11);
  const int64_t panel0 = c->at[12], panel1 = c->at[13];
  checkRange(c, panel0, panel1);
  if (layout < Q4 || layout >= LAYOUTS) fail(c, "not a tile layout");
  if (panel1 > (rows + TILE_ROWS - 1) / TILE_ROWS) fail(c, "more panels than the matrix has");
  if (c->failed) return;
  int64_t lastX, lastY;
  Rows r = {.n = n, .yStride = countOf(c, 9)};
  r.xIndex = indexTable(c, 7, n, &lastX);
  r.yIndex = indexTable(c, 10, n, &lastY);
  const uint8_t *w = span(c, 1, times(times(panel1, groups), tileBytes((int)layout)), 1);
  const uint64_t xGroups = times(lastX + 1, groups);
  const Codes x = {span(c, 4, times(xGroups, GROUP), 1), span(c, 5, xGroups, 4), span(c, 6, xGroups, 4)};
  const int64_t width = panel1 * TILE_ROWS < rows ? panel1 * TILE_ROWS : rows;
  r.y = span(c, 8, n == 0 ? 0 : plus(times(lastY, r.yStride), width), 4);
  if (!c->failed) c->arena->kernels->matmulTiles((int)layout, w, rows, groups, x, r, panel0, panel1);
}

// What matmulFloat and matmulExact share: arguments 0 to 9.
static Rows floatRows(Call *c, int64_t row1, const float **x) {
  int64_t lastX, lastY;
  Rows r = {.n = countOf(c, 9), .xStride = countOf(c, 4), .yStride = countOf(c, 7)};
  r.xIndex = indexTable(c, 5, r.n, &lastX);
  r.yIndex = indexTable(c, 8, r.n, &lastY);
  *x = span(c, 3, r.n == 0 ? 0 : plus(times(lastX, r.xStride), countOf(c, 2)), 4);
  r.y = span(c, 6, r.n == 0 ? 0 : plus(times(lastY, r.yStride), row1), 4);
  return r;
}

static void run_matmulFloat(Call *c) {
  const int64_t layout = c->at[0], columns = countOf(c, 2), row0 = c->at[10], row1 = c->at[11];
  checkRange(c, row0, row1);
  if (layout < F32 || layout > F16) fail(c, "not a float layout");
  const uint8_t *w = span(c, 1, times(times(row1, columns), floatBytes((int)layout)), 1);
  const float *x;
  const Rows r = floatRows(c, row1, &x);
  if (!c->failed) c->arena->kernels->matmulFloat((int)layout, w, columns, x, r, row0, row1);
}

// Bytes of `rows` rows of a matrix.
static uint64_t matrixBytes(int layout, int64_t rows, int64_t columns) {
  if (!isTile(layout)) return times(times(rows, columns), floatBytes(layout));
  return times(times((rows + TILE_ROWS - 1) / TILE_ROWS, groupsOf(columns)), tileBytes(layout));
}

static void run_matmulExact(Call *c) {
  const int64_t layout = c->at[0], columns = countOf(c, 2), row0 = c->at[11], row1 = c->at[12];
  checkRange(c, row0, row1);
  if (layout < Q4 || layout >= LAYOUTS) fail(c, "not a tile layout");
  const uint8_t *w = span(c, 1, matrixBytes((int)layout, row1, columns), 1);
  const float *x;
  const Rows r = floatRows(c, row1, &x);
  float *scratch = span(c, 10, columns, 4);
  if (!c->failed) c->arena->kernels->matmulExact((int)layout, w, columns, x, r, scratch, row0, row1);
}

static void run_embed(Call *c) {
  const int64_t layout = c->at[0], columns = countOf(c, 2), row0 = c->at[5], row1 = c->at[6];
  checkRange(c, row0, row1);
  if (layout < F32 || layout >= LAYOUTS) fail(c, "not a layout");
  const int32_t *ids = span(c, 3, row1, 4);
  float *y = span(c, 4, times(row1, columns), 4);
  for (int64_t i = row0; i < row1 && !c->failed; i++) {
    if (ids[i] < 0) fail(c, "an id is negative");
    span(c, 1, matrixBytes((int)layout, (int64_t)ids[i] + 1, columns), 1);
  }
  if (!c->failed) c->arena->kernels->embed((int)layout, c->arena->base + c->at[1], columns, ids, y, row0, row1);
}

static void run_rmsNorm(Call *c) {
  const int64_t columns = countOf(c, 3), row0 = c->at[5], row1 = c->at[6];
  checkRange(c, row0, row1);
  const float *x = span(c, 0, times(row1, columns), 4), *weight = span(c, 1, times(columns, 4), 1);
  float *y = span(c, 2, times(row1, columns), 4);
  if (!c->failed) c->arena->kernels->rmsNorm(x, weight, y, columns, c->real, row0, row1);
}

static void run_rope(Call *c) {
  const int64_t heads = countOf(c, 1), headDim = countOf(c, 2), rotaryDim = countOf(c, 3);
  const int64_t row0 = c->at[6], row1 = c->at[7];
  checkRange(c, row0, row1);
  if (rotaryDim > headDim) fail(c, "rotaryDim exceeds headDim");
  float *x = span(c, 0, times(row1, times(heads, headDim)), 4);
  const int32_t *positions = span(c, 5, row1, 4);
  for (int64_t i = row0; i < row1 && !c->failed; i++) {
    if (positions[i] < 0) fail(c, "a position is negative");
    span(c, 4, times((int64_t)positions[i] + 1, rotaryDim), 4);
  }
  const float *table = (const float *)(c->arena->base + c->at[4]);
  if (!c->failed) c->arena->kernels->rope(x, heads, headDim, rotaryDim, table, positions, row0, row1);
}

// The block tables of the rows from item0 to item1, and what they point to.
static void checkHistory(Call *c, const AttentionCall *a, int64_t item0, int64_t item1) {
  const uint64_t columnWords = 2 * KV_BLOCK * floatBytes(a->layout) / 4;
  const uint64_t blockWords = times(columnWords, times(a->kvHeads, a->headDim));
  for (int64_t row = item0 / a->heads; row * a->heads < item1 && !c->failed; row++) {
    if (a->positions[row] < 0) fail(c, "a position is negative");
    const int64_t keys = (int64_t)a->positions[row] + 1, blocks = (keys + KV_BLOCK - 1) / KV_BLOCK;
    span(c, 9, times(keys, ATTENTION_SCRATCH), 4);
    const uint32_t *table = spanAt(c, a->tables[row], blocks, 4);
    for (int64_t b = 0; b < blocks && !c->failed; b++) spanAt(c, table[b], blockWords, 4);
  }
}

static void run_attention(Call *c) {
  const int64_t layout = c->at[8], item0 = c->at[10], item1 = c->at[11];
  AttentionCall a = {.heads = countOf(c, 2), .kvHeads = countOf(c, 3), .headDim = countOf(c, 4), .scale = c->real};
  checkRange(c, item0, item1);
  if (layout != F32 && layout != BF16) fail(c, "not a layout of keys and values");
  if (a.heads < 1 || a.kvHeads < 1 || a.heads % a.kvHeads != 0) fail(c, "kvHeads must divide heads");
  if (c->failed) return;
  const int64_t rows = (item1 + a.heads - 1) / a.heads;
  a.q = span(c, 0, times(item1, a.headDim), 4);
  a.out = span(c, 1, times(item1, a.headDim), 4);
  a.positions = span(c, 6, rows, 4);
  a.tables = span(c, 7, rows, 4);
  a.layout = (int)layout;
  a.scratch = span(c, 9, 1, 4);
  a.arena = c->arena->base;
  if (!c->failed) checkHistory(c, &a, item0, item1);
  if (!c->failed) c->arena->kernels->attention(a, item0, item1);
}

static void run_swiglu(Call *c) {
  const int64_t from = c->at[3], to = c->at[4];
  checkRange(c, from, to);
  const float *gate = span(c, 0, to, 4), *up = span(c, 1, to, 4);
  float *y = span(c, 2, to, 4);
  if (!c->failed) c->arena->kernels->swiglu(gate, up, y, from, to);
}

static void run_add(Call *c) {
  const int64_t from = c->at[2], to = c->at[3];
  checkRange(c, from, to);
  float *x = span(c, 0, to, 4);
  const float *y = span(c, 1, to, 4);
  if (!c->failed) c->arena->kernels->add(x, y, from, to);
}

static void run_scale(Call *c) {
  const int64_t from = c->at[2], to = c->at[3];
  checkRange(c, from, to);
  float *x = span(c, 0, to, 4);
  if (!c->failed) c->arena->kernels->scale(x, c->real, from, to);
}

static void run_clamp(Call *c) {
  const int64_t from = c->at[2], to = c->at[3];
  checkRange(c, from, to);
  float *x = span(c, 0, to, 4);
  if (!c->failed) c->arena->kernels->clamp(x, c->real, from, to);
}

static void run_toBf16(Call *c) {
  const int64_t from = c->at[2], to = c->at[3];
  checkRange(c, from, to);
  const float *x = span(c, 0, to, 4);
  uint16_t *y = span(c, 1, to, 2);
  if (!c->failed) c->arena->kernels->toBf16(x, y, from, to);
}

static void run_softmax(Call *c) {
  const int64_t columns = countOf(c, 2), row0 = c->at[3], row1 = c->at[4];
  checkRange(c, row0, row1);
  const float *x = span(c, 0, times(row1, columns), 4);
  float *y = span(c, 1, times(row1, columns), 4);
  if (!c->failed) c->arena->kernels->softmax(x, y, columns, row0, row1);
}

static void run_topK(Call *c) {
  const int64_t columns = countOf(c, 1), count = countOf(c, 2), row0 = c->at[6], row1 = c->at[7];
  checkRange(c, row0, row1);
  if (count > columns) fail(c, "k exceeds columns");
  const float *x = span(c, 0, times(row1, columns), 4);
  int32_t *ids = span(c, 3, times(row1, count), 4);
  float *weights = span(c, 4, times(row1, count), 4);
  if (!c->failed) c->arena->kernels->topK(x, columns, count, ids, weights, c->at[5] != 0, row0, row1);
}

static void run_combine(Call *c) {
  const int64_t count = countOf(c, 3), columns = countOf(c, 4), row0 = c->at[5], row1 = c->at[6];
  checkRange(c, row0, row1);
  float *x = span(c, 0, times(row1, columns), 4);
  const float *parts = span(c, 1, times(times(row1, count), columns), 4), *weights = span(c, 2, times(row1, count), 4);
  if (!c->failed) c->arena->kernels->combine(x, parts, weights, count, columns, row0, row1);
}

static void run_allFinite(Call *c) {
  const int64_t elements = countOf(c, 1);
  const float *x = span(c, 0, elements, 4);
  if (!c->failed) c->answer = c->arena->kernels->allFinite(x, elements);
}

typedef struct Op {
  const char *name;
  void (*run)(Call *c);
  int arguments;
  // The argument that may be any float, or ALL_INTEGERS.
  int realAt;
} Op;

enum { ALL_INTEGERS = -1 };

#define OP(name, arguments, realAt) static const Op op_##name = {#name, run_##name, arguments, realAt}
OP(quantise, 7, ALL_INTEGERS);
OP(matmulTiles, 14, ALL_INTEGERS);
OP(matmulFloat, 12, ALL_INTEGERS);
OP(matmulExact, 13, ALL_INTEGERS);
OP(embed, 7, ALL_INTEGERS);
OP(rmsNorm, 7, 4);
OP(rope, 8, ALL_INTEGERS);
OP(attention, 12, 5);
OP(swiglu, 5, ALL_INTEGERS);
OP(add, 4, ALL_INTEGERS);
OP(scale, 4, 1);
OP(clamp, 4, 1);
OP(toBf16, 4, ALL_INTEGERS);
OP(softmax, 5, ALL_INTEGERS);
OP(topK, 8, ALL_INTEGERS);
OP(combine, 7, ALL_INTEGERS);
OP(allFinite, 2, ALL_INTEGERS);

#endif
