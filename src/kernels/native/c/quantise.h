// Activations to int8 per group of 64.
#ifndef COLI_QUANTISE_H
#define COLI_QUANTISE_H

#include "lanes.h"

typedef int8_t LooseBytes __attribute__((vector_size(WIDTH / 4), aligned(1), may_alias));

// Writes 16 codes and returns them as integers.
INLINE Ints roundedTo(Floats x, float scale) {
  // Adding 1.5 * 2^23 rounds to the nearest integer, ties to even, and leaves it in the low bits.
  const Ints q = (Ints)(x / scale + 12582912.0f) - 0x4b400000;
  const Ints below = q < -127, above = q > 127;
  return (q & ~(below | above)) | (below & -127) | (above & 127);
}

static void quantiseGroup(const float *x, int64_t count, int8_t *codes, float *scale, int32_t *sum) {
  float padded[GROUP];
  if (count < GROUP) {
    memset(padded, 0, sizeof padded);
    memcpy(padded, x, (size_t)count * 4);
    x = padded;
  }
  Lanes max = zeros();
  Ints finite = splatInt(-1);
  UNROLL for (int i = 0; i < GROUP; i += 16) {
    Lanes v = load16(x + i);
    EACH_PART {
      v.part[k] = (Floats)((Ints)v.part[k] & 0x7fffffff);
      finite &= v.part[k] < INFINITY;
    }
    max = larger16(v, max);
  }
  bool allAreFinite = true;
  for (int i = 0; i < LANES; i++) allAreFinite &= finite[i] != 0;
  float s = max16(max) / 127.0f;
  if (!(s >= 0x1p-126f)) s = 0.0f;
  *scale = allAreFinite ? s : NAN;
  *sum = 0;
  if (!allAreFinite || s == 0.0f) {
    memset(codes, 0, GROUP);
    return;
  }
  Ints total = {0};
  UNROLL for (int i = 0; i < GROUP; i += LANES) {
    const Ints q = roundedTo(*(const LooseFloats *)(x + i), s);
    *(LooseBytes *)(codes + i) = __builtin_convertvector(q, LooseBytes);
    total += q;
  }
  for (int i = 0; i < LANES; i++) *sum += total[i];
}

static void quantise(const float *x, int64_t columns, int8_t *codes, float *scales, int32_t *sums, int64_t row0,
                     int64_t row1) {
  const int64_t groups = groupsOf(columns);
  for (int64_t row = row0; row < row1; row++)
    for (int64_t g = 0; g < groups; g++) {
      const int64_t at = row * groups + g;
      quantiseGroup(x + row * columns + g * GROUP, atMost(GROUP, columns - g * GROUP), codes + at * GROUP, scales + at,
                    sums + at);
    }
}

#endif
