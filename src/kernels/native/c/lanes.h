// The 16 virtual lanes of the number contract in the widest registers of a variant, and functions on 16 floats at once.
#ifndef COLI_LANES_H
#define COLI_LANES_H

#include <math.h>
#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif
#include "kernels.h"

#if defined(__AVX512F__)
#define WIDTH 64
#elif defined(__AVX2__)
#define WIDTH 32
#else
#define WIDTH 16
#endif

// Registers that sums may take: what is left of 32 or 16 after operands. Plain C needs registers for unpacking, too.
#if defined(__AVX512F__) || defined(__aarch64__)
#define SUM_REGISTERS 16
#elif defined(__AVX2__)
#define SUM_REGISTERS 8
#else
#define SUM_REGISTERS 4
#endif

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

enum { LANES = WIDTH / 4, PARTS = 64 / WIDTH };

typedef float Floats __attribute__((vector_size(WIDTH)));
typedef int32_t Ints __attribute__((vector_size(WIDTH)));
typedef uint32_t Words __attribute__((vector_size(WIDTH)));
// The same at any address.
typedef float LooseFloats __attribute__((vector_size(WIDTH), aligned(1), may_alias));
typedef int32_t LooseInts __attribute__((vector_size(WIDTH), aligned(1), may_alias));
typedef uint16_t LooseHalves __attribute__((vector_size(WIDTH / 2), aligned(1), may_alias));

// 16-bit elements as unsigned 32-bit lanes. gcc makes several steps of __builtin_convertvector.
INLINE Words widen(const void *p) {
#if defined(__AVX512F__)
  return (Words)_mm512_cvtepu16_epi32(_mm256_loadu_si256(p));
#elif defined(__AVX2__)
  return (Words)_mm256_cvtepu16_epi32(_mm_loadu_si128(p));
#else
  return __builtin_convertvector(*(const LooseHalves *)p, Words);
#endif
}

// Lanes 0..15; part k holds lanes k * LANES and up.
typedef struct {
  Floats part[PARTS];
} Lanes;

#define FOUR_OF(x) x, x, x, x
#if WIDTH == 64
#define ALL_OF(x) FOUR_OF(x), FOUR_OF(x), FOUR_OF(x), FOUR_OF(x)
#elif WIDTH == 32
#define ALL_OF(x) FOUR_OF(x), FOUR_OF(x)
#else
#define ALL_OF(x) FOUR_OF(x)
#endif

INLINE Floats splat(float x) { return (Floats){ALL_OF(x)}; }

INLINE Ints splatInt(int32_t x) { return (Ints){ALL_OF(x)}; }

// mask ? a : b, by lane.
INLINE Floats choose(Ints mask, Floats a, Floats b) { return (Floats)((mask & (Ints)a) | (~mask & (Ints)b)); }

#define EACH_PART UNROLL for (int k = 0; k < PARTS; k++)

INLINE Lanes zeros(void) {
  Lanes r;
  EACH_PART r.part[k] = (Floats){0};
  return r;
}

INLINE Lanes load16(const float *p) {
  Lanes r;
  EACH_PART r.part[k] = *(const LooseFloats *)(p + k * LANES);
  return r;
}

// Up to 16 floats of which `count` exist; the others are +0.
INLINE Lanes loadUpTo16(const float *p, int64_t count) {
  if (count >= 16) return load16(p);
  float all[16] = {0};
  memcpy(all, p, (size_t)count * 4);
  return load16(all);
}

INLINE void store16(float *p, Lanes v) {
  EACH_PART *(LooseFloats *)(p + k * LANES) = v.part[k];
}

INLINE void storeUpTo16(float *p, Lanes v, int64_t count) {
  if (count >= 16) {
    store16(p, v);
    return;
  }
  float all[16];
  store16(all, v);
  memcpy(p, all, (size_t)count * 4);
}

INLINE Lanes add16(Lanes a, Lanes b) {
  EACH_PART a.part[k] += b.part[k];
  return a;
}

INLINE Lanes mul16(Lanes a, Lanes b) {
  EACH_PART a.part[k] *= b.part[k];
  return a;
}

INLINE Lanes scale16(Lanes a, float factor) {
  EACH_PART a.part[k] *= factor;
  return a;
}

INLINE Lanes divide16(Lanes a, float divisor) {
  EACH_PART a.part[k] /= divisor;
  return a;
}

// a where it is greater, else b: a NaN in a is passed over.
INLINE Lanes larger16(Lanes a, Lanes b) {
  EACH_PART b.part[k] = choose(a.part[k] > b.part[k], a.part[k], b.part[k]);
  return b;
}

typedef float Four __attribute__((vector_size(16)));
typedef float LooseFour __attribute__((vector_size(16), aligned(1), may_alias));

// Elements of two vectors, numbered 0..3 and 4..7.
#if defined(__clang__) || __GNUC__ >= 12
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int32_t FourInts __attribute__((vector_size(16)));
#define PICK(a, b, ...) __builtin_shuffle(a, b, (FourInts){__VA_ARGS__})
#endif

// The first half of the fixed tree over the parts of 16 lanes: lane i takes lane i + 8, then + 4.
INLINE Four quarterOf(const Floats part[PARTS]) {
  Four a, b, c, d;
  memcpy(&a, (const char *)part, 16);
  memcpy(&b, (const char *)part + 16, 16);
  memcpy(&c, (const char *)part + 32, 16);
  memcpy(&d, (const char *)part + 48, 16);
  return (a + c) + (b + d);
}

// The whole tree: then + 2, + 1.
INLINE float treeOf(const Floats part[PARTS]) {
  const Four four = quarterOf(part);
  return (four[0] + four[2]) + (four[1] + four[3]);
}

// Four trees at once, with fewer steps than one by one.
INLINE Four treesOf(const Floats a[PARTS], const Floats b[PARTS], const Floats c[PARTS], const Floats d[PARTS]) {
#if WIDTH == 64
  const __m512 ab = _mm512_shuffle_f32x4((__m512)a[0], (__m512)b[0], 0x44) + _mm512_shuffle_f32x4((__m512)a[0], (__m512)b[0], 0xee);
  const __m512 cd = _mm512_shuffle_f32x4((__m512)c[0], (__m512)d[0], 0x44) + _mm512_shuffle_f32x4((__m512)c[0], (__m512)d[0], 0xee);
  __m512 four = _mm512_shuffle_f32x4(ab, cd, 0x88) + _mm512_shuffle_f32x4(ab, cd, 0xdd);
  four += _mm512_permute_ps(four, 0x4e);
  four += _mm512_permute_ps(four, 0xb1);
  // 128 bits hold the sum of one.
  const __m512i firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
  return (Four)_mm512_castps512_ps128(_mm512_permutexvar_ps(firsts, four));
#else
  const Four p = quarterOf(a), q = quarterOf(b), r = quarterOf(c), s = quarterOf(d);
  const Four pq = PICK(p, q, 0, 1, 4, 5) + PICK(p, q, 2, 3, 6, 7), rs = PICK(r, s, 0, 1, 4, 5) + PICK(r, s, 2, 3, 6, 7);
  return PICK(pq, rs, 0, 2, 4, 6) + PICK(pq, rs, 1, 3, 5, 7);
#endif
}

INLINE float tree16(Lanes v) { return treeOf(v.part); }

// The largest of 16 lanes without NaN.
INLINE float max16(Lanes v) {
  float all[16];
  store16(all, v);
  float max = all[0];
  for (int i = 1; i < 16; i++) max = all[i] > max ? all[i] : max;
  return max;
}

// e^x with the operations of reference/math.ts in the same order.
INLINE Floats exponential(Floats x) {
  // Adding it rounds |x| < 2^22 to the nearest integer, ties to even, and leaves that integer in the low bits.
  const Floats round = splat(12582912.0f);
  Floats rounded = x * 1.4426950408889634f + round;
  Floats n = rounded - round;
  Floats r = x - n * 0.693359375f;
  r = r - n * -2.1219444e-4f;
  Floats y = 1.98756915e-4f * r + 1.3981999507e-3f;
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = (y * (r * r) + r) + 1.0f;
  y = y * (Floats)(((Words)rounded + 127) << 23);
  y = (Floats)((Ints)y & ~(x < -87.3365447504019f));
  return choose(x > 88.3762626647949f, splat(INFINITY), y);
}

INLINE Lanes exp16(Lanes x) {
  EACH_PART x.part[k] = exponential(x.part[k]);
  return x;
}

// x / (1 + e^-x)
INLINE Lanes silu16(Lanes x) {
  EACH_PART x.part[k] = x.part[k] / (1.0f + exponential(-x.part[k]));
  return x;
}

INLINE Floats sigmoidOf(Floats x) { return 1.0f / (1.0f + exponential(-x)); }

INLINE Lanes sigmoid16(Lanes x) {
  EACH_PART x.part[k] = sigmoidOf(x.part[k]);
  return x;
}

// Of one number.
INLINE float exp1(float x) { return exponential(splat(x))[0]; }

INLINE int64_t rowOf(const int32_t *index, int64_t i) { return index ? index[i] : i; }

INLINE int64_t atMost(int64_t a, int64_t b) { return a < b ? a : b; }

#endif
