// Operations on whole rows.
#ifndef COLI_ROWS_H
#define COLI_ROWS_H

#include "elements.h"

// Sum of x * x, or of x, in the 16-lane order.
INLINE float sumOf(const float *x, int64_t count, const bool squares) {
  Lanes sum = zeros();
  EACH_16(0, count) {
    const Lanes v = loadUpTo16(x + at, left);
    sum = add16(sum, squares ? mul16(v, v) : v);
  }
  return tree16(sum);
}

static void rmsNorm(const float *x, int64_t xStride, const float *weight, float *y, int64_t yStride, int64_t columns,
                    float eps, int64_t row0, int64_t row1) {
  for (int64_t row = row0; row < row1; row++) {
    const float *from = x + row * xStride;
    float *to = y + row * yStride;
    const float mean = sumOf(from, columns, true) / (float)columns;
    const float factor = 1.0f / sqrtf(mean + eps);
    EACH_16(0, columns) {
      const Lanes v = scale16(loadUpTo16(from + at, left), factor);
      storeUpTo16(to + at, mul16(loadUpTo16(weight + at, left), v), left);
    }
  }
}

static void layerNorm(float *x, int64_t stride, const float *weight, const float *bias, int64_t columns, float eps,
                      int64_t row0, int64_t row1) {
  for (int64_t row = row0; row < row1; row++) {
    float *to = x + row * stride;
    const float mean = sumOf(to, columns, false) / (float)columns;
    EACH_16(0, columns) {
      Lanes d = loadUpTo16(to + at, left);
      EACH_PART d.part[k] -= mean;
      storeUpTo16(to + at, d, left);
    }
    const float variance = sumOf(to, columns, true) / (float)columns;
    const float factor = 1.0f / sqrtf(variance + eps);
    EACH_16(0, columns) {
      const Lanes scaled = mul16(scale16(loadUpTo16(to + at, left), factor), loadUpTo16(weight + at, left));
      storeUpTo16(to + at, add16(scaled, loadUpTo16(bias + at, left)), left);
    }
  }
}

// Pairs (i, i + half) of one head.
static void rotateHalves(float *low, int64_t half, const float *cosines) {
  float *high = low + half;
  EACH_16(0, half) {
    const Lanes a = loadUpTo16(low + at, left), b = loadUpTo16(high + at, left);
    const Lanes c = loadUpTo16(cosines + at, left), s = loadUpTo16(cosines + half + at, left);
    storeUpTo16(low + at, add16(mul16(a, c), scale16(mul16(b, s), -1.0f)), left);
    storeUpTo16(high + at, add16(mul16(b, c), mul16(a, s)), left);
  }
}

// Pairs (2i, 2i + 1).
static void rotateNeighbours(float *x, int64_t half, const float *cosines) {
  for (int64_t i = 0; i < half; i++) {
    const float a = x[2 * i], b = x[2 * i + 1], c = cosines[i], s = cosines[half + i];
    x[2 * i] = a * c - b * s;
    x[2 * i + 1] = b * c + a * s;
  }
}

static void rope(float *x, int64_t heads, int64_t headDim, int64_t first, int64_t rotaryDim, bool adjacent,
                 const float *table, const int32_t *positions, int64_t row0, int64_t row1) {
  for (int64_t row = row0; row < row1; row++) {
    const float *cosines = table + positions[row] * rotaryDim;
    for (int64_t head = 0; head < heads; head++) {
      float *from = x + (row * heads + head) * headDim + first;
      if (adjacent) rotateNeighbours(from, rotaryDim / 2, cosines);
      else rotateHalves(from, rotaryDim / 2, cosines);
    }
  }
}

// x[r, :] *= sigmoid(gates[r])
static void gateRows(float *x, const float *gates, int64_t columns, int64_t row0, int64_t row1) {
  for (int64_t row = row0; row < row1; row++)
    scale(x + row * columns, sigmoidOf(splat(gates[row]))[0], 0, columns);
}

static void addRows(float *x, const float *bias, int64_t columns, int64_t row0, int64_t row1) {
  for (int64_t row = row0; row < row1; row++) add(x + row * columns, bias, 0, columns);
}

static void copyColumns(const float *x, int64_t xStride, float *y, int64_t yStride, int64_t width, int64_t item0,
                        int64_t item1) {
  for (int64_t i = item0; i < item1; i++) memmove(y + i * yStride, x + i * xStride, (size_t)width * 4);
}

// The largest of `count` floats, NaN left out; -inf when there is none.
static float maxOf(const float *x, int64_t count) {
  Lanes max;
  EACH_PART max.part[k] = splat(-INFINITY);
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) max = larger16(load16(x + i), max);
  float result = max16(max);
  for (; i < count; i++) result = x[i] > result ? x[i] : result;
  return result;
}

// y[i] = e^(x[i] - max); returns the lanes of their sum, on top of `sum`. y may be x.
INLINE Lanes addExponentials(Lanes sum, const float *x, float *y, int64_t count, float max) {
  EACH_16(0, count) {
    Lanes v = loadUpTo16(x + at, left);
    EACH_PART v.part[k] -= max;
    storeUpTo16(y + at, exp16(v), left);
    sum = add16(sum, loadUpTo16(y + at, left));
  }
  return sum;
}

// As addExponentials; returns the sum.
static float exponentials(const float *x, float *y, int64_t count, float max) {
  return tree16(addExponentials(zeros(), x, y, count, max));
}

static void divideRow(float *y, int64_t columns, float divisor) {
  EACH_16(0, columns) { storeUpTo16(y + at, divide16(loadUpTo16(y + at, left), divisor), left); }
}

static void softmax(const float *x, float *y, int64_t columns, int64_t row0, int64_t row1) {
  for (int64_t row = row0; row < row1; row++) {
    const float *from = x + row * columns;
    float *to = y + row * columns;
    const float sum = exponentials(from, to, columns, maxOf(from, columns));
    divideRow(to, columns, sum);
  }
}

#endif
