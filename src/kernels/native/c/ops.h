// The kernels as functions of checked arguments, in the order of kernels.ts.
#ifndef COLI_OPS_H
#define COLI_OPS_H

#include "call.h"
#include "ops-attention.h"
#include "ops-delta.h"
#include "ops-rows.h"

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
  if (!isTile(layout)) fail(c, "not a tile layout");
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
  if (isBlock(layout)) return times(rows, blockRowBytes(layout, columns));
  if (!isTile(layout)) return times(times(rows, columns), floatBytes(layout));
  return times(times((rows + TILE_ROWS - 1) / TILE_ROWS, groupsOf(columns)), tileBytes(layout));
}

static void checkWholeBlocks(Call *c, int64_t layout, int64_t columns) {
  if (isBlock(layout) && columns % blockColumns((int)layout) != 0) fail(c, "a row does not consist of whole blocks");
}

static void run_matmulExact(Call *c) {
  const int64_t layout = c->at[0], columns = countOf(c, 2), row0 = c->at[11], row1 = c->at[12];
  checkRange(c, row0, row1);
  if (!isTile(layout) && !isBlock(layout)) fail(c, "not a layout of tiles or blocks");
  checkWholeBlocks(c, layout, columns);
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
  checkWholeBlocks(c, layout, columns);
  const int32_t *ids = span(c, 3, row1, 4);
  float *y = span(c, 4, times(row1, columns), 4);
  for (int64_t i = row0; i < row1 && !c->failed; i++) {
    if (ids[i] < 0) fail(c, "an id is negative");
    span(c, 1, matrixBytes((int)layout, (int64_t)ids[i] + 1, columns), 1);
  }
  if (!c->failed) c->arena->kernels->embed((int)layout, c->arena->base + c->at[1], columns, ids, y, row0, row1);
}

typedef struct Op {
  const char *name;
  void (*run)(Call *c);
  int arguments;
  // Bit i: argument i may be any float. All others are integers.
  uint32_t reals;
} Op;

#define REAL(argument) (1u << (argument))
#define OP(name, arguments, reals) static const Op op_##name = {#name, run_##name, arguments, reals}
OP(quantise, 7, 0);
OP(matmulTiles, 14, 0);
OP(matmulFloat, 12, 0);
OP(matmulExact, 13, 0);
OP(embed, 7, 0);
OP(rmsNorm, 9, REAL(6));
OP(layerNorm, 8, REAL(5));
OP(rope, 10, 0);
OP(attention, 18, REAL(6));
OP(indexScores, 13, REAL(4));
OP(selectKeys, 9, 0);
OP(swiglu, 5, 0);
OP(add, 4, 0);
OP(clamp, 4, REAL(1));
OP(toBf16, 4, 0);
OP(softmax, 5, 0);
OP(sigmoid, 4, 0);
OP(sigmoidGate, 4, 0);
OP(gateRows, 5, 0);
OP(addRows, 5, 0);
OP(swigluClamped, 7, REAL(3) | REAL(4));
OP(copyColumns, 7, 0);
OP(topK, 13, REAL(10));
OP(combine, 8, 0);
OP(convSilu, 9, 0);
OP(deltaGates, 10, 0);
OP(deltaRule, 14, 0);
OP(allFinite, 2, 0);

#endif
