// Checks of linear attention.
#ifndef COLI_OPS_DELTA_H
#define COLI_OPS_DELTA_H

#include "call.h"

static void run_convSilu(Call *c) {
  const int64_t channels = countOf(c, 4), taps = countOf(c, 5), rows = countOf(c, 6);
  const int64_t channel0 = c->at[7], channel1 = c->at[8];
  checkRange(c, channel0, channel1);
  if (taps < 1 || taps > MAX_TAPS) fail(c, "taps is out of range");
  if (channel1 > channels) fail(c, "more channels than there are");
  const float *u = span(c, 0, times(rows, channels), 4);
  float *tail = span(c, 1, times(taps - 1, channels), 4);
  const float *w = span(c, 2, times(channel1, taps), 4);
  float *y = span(c, 3, times(rows, channels), 4);
  if (!c->failed) c->arena->kernels->convSilu(u, tail, w, y, channels, taps, rows, channel0, channel1);
}

static void run_deltaGates(Call *c) {
  const int64_t heads = countOf(c, 7), row0 = c->at[8], row1 = c->at[9];
  const bool logarithms = choiceOf(c, 3, 1) != 0;
  checkRange(c, row0, row1);
  const float *a = span(c, 0, times(row1, heads), 4), *b = span(c, 1, times(row1, heads), 4);
  const float *rates = span(c, 2, heads, 4), *dtBias = span(c, 4, heads, 4);
  float *decay = span(c, 5, times(row1, heads), 4), *beta = span(c, 6, times(row1, heads), 4);
  if (!c->failed) c->arena->kernels->deltaGates(a, b, rates, logarithms, dtBias, decay, beta, heads, row0, row1);
}

static void run_deltaRule(Call *c) {
  const int64_t head0 = c->at[12], head1 = c->at[13];
  DeltaCall d = {.keyHeads = countOf(c, 5), .valueHeads = countOf(c, 6), .keyDim = countOf(c, 8), .valueDim = countOf(c, 9)};
  d.tiled = choiceOf(c, 7, 1) != 0;
  d.rows = countOf(c, 10);
  checkRange(c, head0, head1);
  if (d.keyHeads < 1 || d.valueHeads < 1 || d.valueHeads % d.keyHeads != 0) fail(c, "keyHeads must divide valueHeads");
  if (head1 > d.valueHeads) fail(c, "more heads than there are");
  if (c->failed) return;
  const uint64_t keys = times(d.keyHeads, d.keyDim), values = times(d.valueHeads, d.valueDim);
  d.qkv = span(c, 0, times(d.rows, plus(plus(keys, keys), values)), 4);
  d.decay = span(c, 1, times(d.rows, d.valueHeads), 4);
  d.beta = span(c, 2, times(d.rows, d.valueHeads), 4);
  d.state = span(c, 3, times(head1, times(d.keyDim, d.valueDim)), 4);
  d.out = span(c, 4, times(d.rows, values), 4);
  d.scratch = span(c, 11, plus(times(d.keyDim, 2), d.valueDim), 4);
  if (!c->failed) c->arena->kernels->deltaRule(d, head0, head1);
}

#endif
