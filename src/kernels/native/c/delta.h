// Linear attention: the short convolution before it, its gates, and the gated delta rule.
#ifndef COLI_DELTA_H
#define COLI_DELTA_H

#include "rows.h"

// One channel block of convSilu: weights of 16 channels by tap, so that they are vectors.
INLINE void loadTaps(const float *w, int64_t taps, int64_t channels, Lanes byTap[MAX_TAPS]) {
  for (int64_t j = 0; j < taps; j++) {
    float all[16] = {0};
    for (int64_t c = 0; c < atMost(16, channels); c++) all[c] = w[c * taps + j];
    byTap[j] = load16(all);
  }
}

static void convSilu(const float *u, float *tail, const float *w, float *y, int64_t channels, int64_t taps,
                     int64_t rows, int64_t channel0, int64_t channel1) {
  const int64_t before = taps - 1;
  Lanes byTap[MAX_TAPS];
  EACH_16(channel0, channel1) {
    loadTaps(w + at * taps, taps, left, byTap);
    for (int64_t t = 0; t < rows; t++) {
      Lanes sum = zeros();
      for (int64_t j = 0; j < taps; j++) {
        // Row t + j of the tail followed by u.
        const float *from = t + j < before ? tail + (t + j) * channels : u + (t + j - before) * channels;
        sum = add16(sum, mul16(byTap[j], loadUpTo16(from + at, left)));
      }
      storeUpTo16(y + t * channels + at, silu16(sum), left);
    }
    for (int64_t i = 0; i < before; i++) {
      const float *from = rows + i < before ? tail + (rows + i) * channels : u + (rows + i - before) * channels;
      storeUpTo16(tail + i * channels + at, loadUpTo16(from + at, left), left);
    }
  }
}

// ln(x) of finite x >= 1, with the operations of reference/math.ts in the same order.
INLINE Floats logarithm(Floats x) {
  const Floats half = (Floats)(((Ints)x & 0x007fffff) | 0x3f000000);
  const Ints isSmall = half < 0.70710678118654752f;
  const Floats exponent = __builtin_convertvector((Ints)((Words)x >> 23) - 126 + isSmall, Floats);
  const Floats m = choose(isSmall, half + half, half) - 1.0f;
  const Floats z = m * m;
  Floats y = 7.0376836292e-2f * m + -1.151461031e-1f;
  y = y * m + 1.167699874e-1f;
  y = y * m + -1.2420140846e-1f;
  y = y * m + 1.4249322787e-1f;
  y = y * m + -1.6668057665e-1f;
  y = y * m + 2.0000714765e-1f;
  y = y * m + -2.4999993993e-1f;
  y = y * m + 3.3333331174e-1f;
  y = (y * m) * z;
  y = y + exponent * -2.1219444e-4f;
  y = y - 0.5f * z;
  return (m + y) + exponent * 0.693359375f;
}

// ln(1 + e^x); x itself above 20, and NaN.
INLINE Floats softplus(Floats x) {
  const Floats e = exponential(x), u = 1.0f + e;
  const Floats y = choose(u == 1.0f, e, logarithm(u) * (e / (u - 1.0f)));
  return choose(x <= 20.0f, y, x);
}

static void deltaGates(const float *a, const float *b, const float *rates, bool logarithms, const float *dtBias,
                       float *decay, float *beta, int64_t heads, int64_t row0, int64_t row1) {
  for (int64_t row = row0; row < row1; row++) {
    const int64_t first = row * heads;
    EACH_16(0, heads) {
      Lanes step = add16(loadUpTo16(a + first + at, left), loadUpTo16(dtBias + at, left));
      Lanes rate = loadUpTo16(rates + at, left);
      if (logarithms) rate = scale16(exp16(rate), -1.0f);
      EACH_PART step.part[k] = rate.part[k] * softplus(step.part[k]);
      storeUpTo16(decay + first + at, exp16(step), left);
    }
    sigmoid(b + first, beta + first, 0, heads);
  }
}

// 16-column blocks of a state matrix that are worked on together: for each, a sum and a change stay in registers.
enum { DELTA_BLOCKS = SUM_REGISTERS / (2 * PARTS) > 4 ? 4 : SUM_REGISTERS / (2 * PARTS) < 1 ? 1 : SUM_REGISTERS / (2 * PARTS) };

// One token of one head, and the columns of the state that a pass works on.
typedef struct {
  const float *query, *key, *value;
  float decay, beta;
  float *state, *out;
  int64_t keyDim, valueDim;
} DeltaStep;

// y = (x * (1 / sqrt(sum16(x^2) + 1e-6))) * factor
static void normaliseHead(const float *x, float *y, int64_t count, float factor) {
  const float inverse = 1.0f / sqrtf(sumOf(x, count, true) + 1e-6f);
  EACH_16(0, count) { storeUpTo16(y + at, scale16(scale16(loadUpTo16(x + at, left), inverse), factor), left); }
}

// 16 * blocks columns. The decayed state is computed twice and stored once: its bits are the same each time.
INLINE void deltaBlocks(const int blocks, const DeltaStep *s) {
  const float decay = s->decay;
  const int64_t keyDim = s->keyDim, valueDim = s->valueDim;
  Floats sum[4][PARTS], change[4][PARTS];
  UNROLL for (int b = 0; b < blocks; b++) EACH_PART sum[b][k] = (Floats){0};
  const float *old = s->state;
  for (int64_t i = 0; i < keyDim; i++, old += valueDim)
    UNROLL for (int b = 0; b < blocks; b++)
      EACH_PART sum[b][k] += s->key[i] * (*(const LooseFloats *)(old + b * 16 + k * LANES) * decay);
  UNROLL for (int b = 0; b < blocks; b++) EACH_PART {
    change[b][k] = s->beta * (*(const LooseFloats *)(s->value + b * 16 + k * LANES) - sum[b][k]);
    sum[b][k] = (Floats){0};
  }
  float *state = s->state;
  for (int64_t i = 0; i < keyDim; i++, state += valueDim) {
    const float key = s->key[i], query = s->query[i];
    UNROLL for (int b = 0; b < blocks; b++) EACH_PART {
      LooseFloats *at = (LooseFloats *)(state + b * 16 + k * LANES);
      const Floats now = *at * decay + key * change[b][k];
      *at = now;
      sum[b][k] += query * now;
    }
  }
  UNROLL for (int b = 0; b < blocks; b++) EACH_PART *(LooseFloats *)(s->out + b * 16 + k * LANES) = sum[b][k];
}

// The last columns, fewer than 16.
static void lastDeltaColumns(const DeltaStep *s, int64_t columns) {
  Lanes sum = zeros();
  for (int64_t i = 0; i < s->keyDim; i++) {
    const Lanes state = loadUpTo16(s->state + i * s->valueDim, columns);
    sum = add16(sum, scale16(scale16(state, s->decay), s->key[i]));
  }
  Lanes change = loadUpTo16(s->value, columns);
  EACH_PART change.part[k] = s->beta * (change.part[k] - sum.part[k]);
  sum = zeros();
  for (int64_t i = 0; i < s->keyDim; i++) {
    float *state = s->state + i * s->valueDim;
    const Lanes now = add16(scale16(loadUpTo16(state, columns), s->decay), scale16(change, s->key[i]));
    storeUpTo16(state, now, columns);
    sum = add16(sum, scale16(now, s->query[i]));
  }
  storeUpTo16(s->out, sum, columns);
}

static __attribute__((noinline)) void deltaMany(const DeltaStep *s) { deltaBlocks(DELTA_BLOCKS, s); }

static __attribute__((noinline)) void deltaOne(const DeltaStep *s) { deltaBlocks(1, s); }

// Columns column..column+columns-1 of one head for all tokens, so that this part of the state stays in the first cache.
static void deltaColumns(const DeltaCall *c, int64_t head, int64_t column, int64_t columns) {
  const int64_t keyDim = c->keyDim, valueDim = c->valueDim;
  const int64_t keyHead = c->tiled ? head % c->keyHeads : head / (c->valueHeads / c->keyHeads);
  const int64_t keyColumns = c->keyHeads * keyDim, stride = 2 * keyColumns + c->valueHeads * valueDim;
  const float root = 1.0f / sqrtf((float)keyDim);
  float *query = c->scratch, *key = c->scratch + keyDim;
  DeltaStep s = {.query = query, .key = key, .keyDim = keyDim, .valueDim = valueDim};
  s.state = c->state + head * keyDim * valueDim + column;
  for (int64_t row = 0; row < c->rows; row++) {
    const float *from = c->qkv + row * stride;
    normaliseHead(from + keyHead * keyDim, query, keyDim, root);
    normaliseHead(from + keyColumns + keyHead * keyDim, key, keyDim, 1.0f);
    s.value = from + 2 * keyColumns + head * valueDim + column;
    s.decay = c->decay[row * c->valueHeads + head];
    s.beta = c->beta[row * c->valueHeads + head];
    s.out = c->out + (row * c->valueHeads + head) * valueDim + column;
    if (columns == 16 * DELTA_BLOCKS) deltaMany(&s);
    else if (columns == 16) deltaOne(&s);
    else lastDeltaColumns(&s, columns);
  }
}

static void deltaRule(DeltaCall c, int64_t head0, int64_t head1) {
  for (int64_t head = head0; head < head1; head++) {
    int64_t column = 0;
    for (; column + 16 * DELTA_BLOCKS <= c.valueDim; column += 16 * DELTA_BLOCKS)
      deltaColumns(&c, head, column, 16 * DELTA_BLOCKS);
    for (; column + 16 <= c.valueDim; column += 16) deltaColumns(&c, head, column, 16);
    if (column < c.valueDim) deltaColumns(&c, head, column, c.valueDim - column);
  }
}

#endif
