// Operations on whole rows and on single elements.
#ifndef COLI_ROWS_H
#define COLI_ROWS_H

#include "lanes.h"

// For blocks of 16 elements from `from` to `to`: `at` is the block's first element, `left` what remains.
#define EACH_16(from, to) for (int64_t at = (from), left = (to) - at; left > 0; at += 16, left -= 16)

static void swiglu(const float *gate, const float *up, float *y, int64_t element0, int64_t element1) {
  EACH_16(element0, element1) {
    storeUpTo16(y + at, mul16(silu16(loadUpTo16(gate + at, left)), loadUpTo16(up + at, left)), left);
  }
}

static void add(float *x, const float *y, int64_t element0, int64_t element1) {
  EACH_16(element0, element1) {
    storeUpTo16(x + at, add16(loadUpTo16(x + at, left), loadUpTo16(y + at, left)), left);
  }
}

static void scale(float *x, float factor, int64_t element0, int64_t element1) {
  EACH_16(element0, element1) { storeUpTo16(x + at, scale16(loadUpTo16(x + at, left), factor), left); }
}

static void clamp(float *x, float limit, int64_t element0, int64_t element1) {
  for (int64_t i = element0; i < element1; i++) x[i] = x[i] > limit ? limit : x[i] < -limit ? -limit : x[i];
}

// To the nearest, ties to even, in the lower half of each lane; the upper half of a NaN with the bit that makes it quiet.
INLINE Words roundedToBf16(Floats x) {
  const Words bits = (Words)x, upper = bits >> 16;
  const Words isNan = (Words)(x != x);
  return (((bits + 0x7fff + (upper & 1)) >> 16) & ~isNan) | ((upper | 0x40) & isNan);
}

static void toBf16(const float *x, uint16_t *y, int64_t element0, int64_t element1) {
  EACH_16(element0, element1) {
    const Lanes v = loadUpTo16(x + at, left);
    uint16_t all[16];
    EACH_PART *(LooseHalves *)(all + k * LANES) = __builtin_convertvector(roundedToBf16(v.part[k]), LooseHalves);
    memcpy(y + at, all, (size_t)atMost(16, left) * 2);
  }
}

static bool allFinite(const float *x, int64_t elements) {
  const float infinity = INFINITY;
  int32_t finite = -1;
  for (int64_t i = 0; i < elements; i++) finite &= -(int32_t)(fabsf(x[i]) < infinity);
  return finite != 0;
}

// Sum of x * x, or of x, in the 16-lane order.
INLINE float sumOf(const float *x, int64_t count, const bool squares) {
  Lanes sum = zeros();
  EACH_16(0, count) {
    const Lanes v = loadUpTo16(x + at, left);
    sum = add16(sum, squares ? mul16(v, v) : v);
  }
  return tree16(sum);
}

static void rmsNorm(const float *x, const float *weight, float *y, int64_t columns, float eps, int64_t row0,
                    int64_t row1) {
  for (int64_t row = row0; row < row1; row++) {
    const float *from = x + row * columns;
    float *to = y + row * columns;
    const float mean = sumOf(from, columns, true) / (float)columns;
    const float factor = 1.0f / sqrtf(mean + eps);
    EACH_16(0, columns) {
      const Lanes v = scale16(loadUpTo16(from + at, left), factor);
      storeUpTo16(to + at, mul16(loadUpTo16(weight + at, left), v), left);
    }
  }
}

static void rope(float *x, int64_t heads, int64_t headDim, int64_t rotaryDim, const float *table,
                 const int32_t *positions, int64_t row0, int64_t row1) {
  const int64_t half = rotaryDim / 2;
  for (int64_t row = row0; row < row1; row++) {
    const float *cosines = table + positions[row] * rotaryDim;
    for (int64_t head = 0; head < heads; head++) {
      float *low = x + (row * heads + head) * headDim;
      float *high = low + half;
      EACH_16(0, half) {
        const Lanes a = loadUpTo16(low + at, left), b = loadUpTo16(high + at, left);
        const Lanes c = loadUpTo16(cosines + at, left), s = loadUpTo16(cosines + half + at, left);
        storeUpTo16(low + at, add16(mul16(a, c), scale16(mul16(b, s), -1.0f)), left);
        storeUpTo16(high + at, add16(mul16(b, c), mul16(a, s)), left);
      }
    }
  }
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

// y[i] = e^(x[i] - max); returns their sum in the 16-lane order. y may be x.
static float exponentials(const float *x, float *y, int64_t count, float max) {
  Lanes sum = zeros();
  EACH_16(0, count) {
    Lanes v = loadUpTo16(x + at, left);
    EACH_PART v.part[k] -= max;
    storeUpTo16(y + at, exp16(v), left);
    sum = add16(sum, loadUpTo16(y + at, left));
  }
  return tree16(sum);
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

static bool isTaken(const int32_t *ids, int64_t slots, int64_t id) {
  for (int64_t s = 0; s < slots; s++)
    if (ids[s] == id) return true;
  return false;
}

// The first index, not yet taken, whose value no later one exceeds: with NaN this is not the largest.
static void topKRow(const float *x, int64_t columns, int64_t k, int32_t *ids, float *weights) {
  for (int64_t slot = 0; slot < k; slot++) {
    int64_t best = -1;
    for (int64_t i = 0; i < columns; i++)
      if ((best < 0 || x[i] > x[best]) && !isTaken(ids, slot, i)) best = i;
    ids[slot] = (int32_t)best;
    weights[slot] = x[best];
  }
}

static void topK(const float *x, int64_t columns, int64_t k, int32_t *ids, float *weights, bool normalise,
                 int64_t row0, int64_t row1) {
  for (int64_t row = row0; row < row1; row++) {
    topKRow(x + row * columns, columns, k, ids + row * k, weights + row * k);
    if (normalise) divideRow(weights + row * k, k, sumOf(weights + row * k, k, false));
  }
}

static void combine(float *x, const float *parts, const float *weights, int64_t k, int64_t columns, int64_t row0,
                    int64_t row1) {
  for (int64_t row = row0; row < row1; row++) {
    const float *first = parts + row * k * columns;
    const float *factors = weights + row * k;
    float *to = x + row * columns;
    EACH_16(0, columns) {
      Lanes sum = zeros();
      for (int64_t slot = 0; slot < k; slot++) {
        const Lanes product = scale16(loadUpTo16(first + slot * columns + at, left), factors[slot]);
        sum = slot == 0 ? product : add16(sum, product);
      }
      storeUpTo16(to + at, add16(loadUpTo16(to + at, left), sum), left);
    }
  }
}

#endif
