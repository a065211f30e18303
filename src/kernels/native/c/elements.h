// Operations on single elements.
#ifndef COLI_ELEMENTS_H
#define COLI_ELEMENTS_H

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

static void sigmoid(const float *x, float *y, int64_t element0, int64_t element1) {
  EACH_16(element0, element1) { storeUpTo16(y + at, sigmoid16(loadUpTo16(x + at, left)), left); }
}

static void sigmoidGate(float *x, const float *gate, int64_t element0, int64_t element1) {
  EACH_16(element0, element1) {
    storeUpTo16(x + at, mul16(loadUpTo16(x + at, left), sigmoid16(loadUpTo16(gate + at, left))), left);
  }
}

static void swigluClamped(const float *gate, const float *up, float *y, float limit, float alpha, int64_t element0,
                          int64_t element1) {
  const Floats most = splat(limit), least = splat(-limit);
  EACH_16(element0, element1) {
    Lanes g = loadUpTo16(gate + at, left), u = loadUpTo16(up + at, left);
    EACH_PART {
      g.part[k] = choose(g.part[k] > most, most, g.part[k]);
      u.part[k] = choose(u.part[k] > most, most, choose(u.part[k] < least, least, u.part[k]));
      g.part[k] = (g.part[k] * sigmoidOf(alpha * g.part[k])) * (u.part[k] + 1.0f);
    }
    storeUpTo16(y + at, g, left);
  }
}

static bool allFinite(const float *x, int64_t elements) {
  const float infinity = INFINITY;
  int32_t finite = -1;
  for (int64_t i = 0; i < elements; i++) finite &= -(int32_t)(fabsf(x[i]) < infinity);
  return finite != 0;
}

#endif
