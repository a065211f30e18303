// Exact integer dots of four bytes per 32-bit lane, by instruction set. Weights come as quads (16 rows x 4 columns, the lane
// is the row); four activations are broadcast to all lanes. BIAS is what a variant adds to q8 codes to make them unsigned:
// the sum then starts at -BIAS * (sum of the activations). q4 nibbles are unsigned by nature, with bias 8.
#ifndef COLI_DOT_H
#define COLI_DOT_H

#include "lanes.h"

#if defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#endif

enum { Q4_BIAS = 8 };

INLINE Ints loadQuad(const uint8_t *p) {
  Ints v = *(const LooseInts *)p;
#if defined(__x86_64__)
  // Used twice: without this, gcc loads it twice, and every second tile straddles cache lines.
  __asm__("" : "+x"(v));
#endif
  return v;
}

INLINE Ints broadcast4(const int8_t *p) {
  int32_t four;
  memcpy(&four, p, 4);
  return splatInt(four);
}

INLINE Ints lowNibbles(Ints v) { return v & 0x0f0f0f0f; }

INLINE Ints highNibbles(Ints v) { return (Ints)((Words)v >> 4) & 0x0f0f0f0f; }

#if defined(__AVX512VNNI__)

enum { Q8_BIAS = 128 };

INLINE Ints dot(Ints sum, Ints w, Ints x) { return (Ints)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)w, (__m512i)x); }

INLINE Ints dotQ4(Ints sum, Ints low, Ints xLow, Ints high, Ints xHigh) { return dot(dot(sum, low, xLow), high, xHigh); }

INLINE Ints dotQ8(Ints sum, Ints w, Ints x) { return dot(sum, w ^ (int32_t)0x80808080, x); }

#elif defined(__AVXVNNI__)

enum { Q8_BIAS = 128 };

INLINE Ints dot(Ints sum, Ints w, Ints x) {
  return (Ints)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)w, (__m256i)x);
}

INLINE Ints dotQ4(Ints sum, Ints low, Ints xLow, Ints high, Ints xHigh) { return dot(dot(sum, low, xLow), high, xHigh); }

INLINE Ints dotQ8(Ints sum, Ints w, Ints x) { return dot(sum, w ^ (int32_t)0x80808080, x); }

#elif defined(__AVX2__)

enum { Q8_BIAS = 0 };

// Two products of nibbles and codes are at most 2 * 15 * 127, so two such pairs still fit 16 bits.
INLINE Ints dotQ4(Ints sum, Ints low, Ints xLow, Ints high, Ints xHigh) {
  __m256i a = _mm256_maddubs_epi16((__m256i)low, (__m256i)xLow);
  __m256i b = _mm256_maddubs_epi16((__m256i)high, (__m256i)xHigh);
  return sum + (Ints)_mm256_madd_epi16(_mm256_add_epi16(a, b), _mm256_set1_epi16(1));
}

// |w| times x with the sign of w: 2 * 128 * 127 fits 16 bits. Activation codes are never -128, so their sign can be turned.
INLINE Ints dotQ8(Ints sum, Ints w, Ints x) {
  __m256i signedX = _mm256_sign_epi8((__m256i)x, (__m256i)w);
  __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8((__m256i)w), signedX);
  return sum + (Ints)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

#elif defined(__ARM_FEATURE_DOTPROD)

enum { Q8_BIAS = 0 };

INLINE Ints dotQ8(Ints sum, Ints w, Ints x) { return (Ints)vdotq_s32((int32x4_t)sum, (int8x16_t)w, (int8x16_t)x); }

INLINE Ints dotQ4(Ints sum, Ints low, Ints xLow, Ints high, Ints xHigh) {
  return dotQ8(dotQ8(sum, low, xLow), high, xHigh);
}

#else

enum { Q8_BIAS = 0 };

// Byte j of every lane, sign-extended.
INLINE Ints byteOf(Ints v, int j) { return (Ints)((Words)v << (24 - 8 * j)) >> 24; }

INLINE Ints dotQ8(Ints sum, Ints w, Ints x) {
  UNROLL for (int j = 0; j < 4; j++) sum += byteOf(w, j) * byteOf(x, j);
  return sum;
}

INLINE Ints dotQ4(Ints sum, Ints low, Ints xLow, Ints high, Ints xHigh) {
  return dotQ8(dotQ8(sum, low, xLow), high, xHigh);
}

#endif

#endif
