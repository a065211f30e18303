// Checks of the kernels on elements and rows, and of routing.
#ifndef COLI_OPS_ROWS_H
#define COLI_OPS_ROWS_H

#include "call.h"

static void run_rmsNorm(Call *c) {
  const int64_t xStride = countOf(c, 1), yStride = countOf(c, 4), columns = countOf(c, 5), row0 = c->at[7], row1 = c->at[8];
  checkRange(c, row0, row1);
  const float *x = stridedSpan(c, 0, row1, xStride, columns), *weight = span(c, 2, times(columns, 4), 1);
  float *y = stridedSpan(c, 3, row1, yStride, columns);
  if (!c->failed) c->arena->kernels->rmsNorm(x, xStride, weight, y, yStride, columns, c->real[6], row0, row1);
}

static void run_layerNorm(Call *c) {
  const int64_t stride = countOf(c, 1), columns = countOf(c, 4), row0 = c->at[6], row1 = c->at[7];
  checkRange(c, row0, row1);
  float *x = stridedSpan(c, 0, row1, stride, columns);
  const float *weight = span(c, 2, columns, 4), *bias = span(c, 3, columns, 4);
  if (!c->failed) c->arena->kernels->layerNorm(x, stride, weight, bias, columns, c->real[5], row0, row1);
}

static void run_rope(Call *c) {
  const int64_t heads = countOf(c, 1), headDim = countOf(c, 2), first = countOf(c, 3), rotaryDim = countOf(c, 4);
  const int64_t row0 = c->at[8], row1 = c->at[9];
  const int adjacent = choiceOf(c, 5, 1);
  checkRange(c, row0, row1);
  if (first > headDim || rotaryDim > headDim - first) fail(c, "rotaryDim exceeds headDim");
  float *x = span(c, 0, times(row1, times(heads, headDim)), 4);
  const int32_t *positions = span(c, 7, row1, 4);
  for (int64_t i = row0; i < row1 && !c->failed; i++) {
    if (positions[i] < 0) fail(c, "a position is negative");
    span(c, 6, times((int64_t)positions[i] + 1, rotaryDim), 4);
  }
  if (c->failed) return;
  const float *table = (const float *)(c->arena->base + c->at[6]);
  c->arena->kernels->rope(x, heads, headDim, first, rotaryDim, adjacent, table, positions, row0, row1);
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

static void run_clamp(Call *c) {
  const int64_t from = c->at[2], to = c->at[3];
  checkRange(c, from, to);
  float *x = span(c, 0, to, 4);
  if (!c->failed) c->arena->kernels->clamp(x, c->real[1], from, to);
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

static void run_sigmoid(Call *c) {
  const int64_t from = c->at[2], to = c->at[3];
  checkRange(c, from, to);
  const float *x = span(c, 0, to, 4);
  float *y = span(c, 1, to, 4);
  if (!c->failed) c->arena->kernels->sigmoid(x, y, from, to);
}

static void run_sigmoidGate(Call *c) {
  const int64_t from = c->at[2], to = c->at[3];
  checkRange(c, from, to);
  float *x = span(c, 0, to, 4);
  const float *gate = span(c, 1, to, 4);
  if (!c->failed) c->arena->kernels->sigmoidGate(x, gate, from, to);
}

static void run_gateRows(Call *c) {
  const int64_t columns = countOf(c, 2), row0 = c->at[3], row1 = c->at[4];
  checkRange(c, row0, row1);
  float *x = span(c, 0, times(row1, columns), 4);
  const float *gates = span(c, 1, row1, 4);
  if (!c->failed) c->arena->kernels->gateRows(x, gates, columns, row0, row1);
}

static void run_addRows(Call *c) {
  const int64_t columns = countOf(c, 2), row0 = c->at[3], row1 = c->at[4];
  checkRange(c, row0, row1);
  float *x = span(c, 0, times(row1, columns), 4);
  const float *bias = span(c, 1, columns, 4);
  if (!c->failed) c->arena->kernels->addRows(x, bias, columns, row0, row1);
}

static void run_swigluClamped(Call *c) {
  const int64_t from = c->at[5], to = c->at[6];
  checkRange(c, from, to);
  const float *gate = span(c, 0, to, 4), *up = span(c, 1, to, 4);
  float *y = span(c, 2, to, 4);
  if (!c->failed) c->arena->kernels->swigluClamped(gate, up, y, c->real[3], c->real[4], from, to);
}

static void run_copyColumns(Call *c) {
  const int64_t xStride = countOf(c, 1), yStride = countOf(c, 3), width = countOf(c, 4), from = c->at[5], to = c->at[6];
  checkRange(c, from, to);
  const float *x = stridedSpan(c, 0, to, xStride, width);
  float *y = stridedSpan(c, 2, to, yStride, width);
  if (!c->failed) c->arena->kernels->copyColumns(x, xStride, y, yStride, width, from, to);
}

// Groups of columns that take part: enough of them, each with as many members as its score needs.
static void checkGroups(Call *c, const TopKCall *t) {
  if (t->groups < 1 || t->groups > MAX_GROUPS) fail(c, "groups is out of range");
  else if (t->columns % t->groups != 0) fail(c, "groups must divide columns");
  else if (t->keptGroups < 1 || t->keptGroups > t->groups) fail(c, "keptGroups is out of range");
  else if (t->k > t->columns / t->groups * t->keptGroups) fail(c, "k exceeds the columns of the kept groups");
  else if (t->sumOfTwo && t->columns / t->groups < 2) fail(c, "a group has no two columns");
}

static void run_topK(Call *c) {
  const int64_t row0 = c->at[11], row1 = c->at[12];
  TopKCall t = {.columns = countOf(c, 2), .k = countOf(c, 3), .groups = countOf(c, 4), .keptGroups = countOf(c, 5)};
  checkRange(c, row0, row1);
  t.sumOfTwo = choiceOf(c, 6, TWO_LARGEST) == TWO_LARGEST;
  t.weightRule = choiceOf(c, 9, SOFTMAX_OF_CHOSEN);
  t.factor = c->real[10];
  if (t.k > t.columns) fail(c, "k exceeds columns");
  if (t.groups != 1) checkGroups(c, &t);
  t.x = span(c, 0, times(row1, t.columns), 4);
  t.bias = spanOrNull(c, 1, t.columns);
  t.ids = span(c, 7, times(row1, t.k), 4);
  t.weights = span(c, 8, times(row1, t.k), 4);
  if (!c->failed) c->arena->kernels->topK(t, row0, row1);
}

static void run_combine(Call *c) {
  const int64_t count = countOf(c, 3), columns = countOf(c, 5), row0 = c->at[6], row1 = c->at[7];
  checkRange(c, row0, row1);
  float *x = span(c, 0, times(row1, columns), 4);
  const float *parts = span(c, 1, times(times(row1, count), columns), 4), *weights = span(c, 2, times(row1, count), 4);
  const float *shared = spanOrNull(c, 4, times(row1, columns));
  if (!c->failed) c->arena->kernels->combine(x, parts, weights, count, shared, columns, row0, row1);
}

static void run_allFinite(Call *c) {
  const int64_t elements = countOf(c, 1);
  const float *x = span(c, 0, elements, 4);
  if (!c->failed) c->answer = c->arena->kernels->allFinite(x, elements);
}

#endif
