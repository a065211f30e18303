// Rows of block layouts decoded to float32, 16 weights at a time. The definition is quant/blocks.ts.
#ifndef COLI_BLOCKS_H
#define COLI_BLOCKS_H

#include "lanes.h"

#if defined(__ARM_NEON)
#include <arm_neon.h>
#endif

typedef uint8_t Bytes16 __attribute__((vector_size(16)));
typedef uint8_t LooseBytes16 __attribute__((vector_size(16), aligned(1), may_alias));

INLINE Bytes16 bytesAt(const uint8_t *p) { return *(const LooseBytes16 *)p; }

INLINE Bytes16 lowCodes(Bytes16 v) { return v & 15; }

INLINE Bytes16 highCodes(Bytes16 v) { return v >> 4; }

// Entries 0..15 of a table.
INLINE Bytes16 lookUp(const uint8_t table[16], Bytes16 indices) {
#if defined(__AVX2__)
  return (Bytes16)_mm_shuffle_epi8((__m128i)bytesAt(table), (__m128i)indices);
#elif defined(__ARM_NEON)
  return (Bytes16)vqtbl1q_u8((uint8x16_t)bytesAt(table), (uint8x16_t)indices);
#else
  Bytes16 r;
  for (int i = 0; i < 16; i++) r[i] = table[indices[i]];
  return r;
#endif
}

#if defined(__clang__)
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (Bytes16){__VA_ARGS__})
#endif

// a0 b0 a1 b1 ...: the first or the last eight of each.
INLINE Bytes16 interleave(Bytes16 a, Bytes16 b, const bool upper) {
  return upper ? SHUFFLE(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
               : SHUFFLE(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

INLINE float floatFrom(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

INLINE float halfAt(const uint8_t *p) {
  uint16_t bits;
  memcpy(&bits, p, 2);
#if defined(__F16C__)
  return _cvtsh_ss(bits);
#else
  // as halfToFloat
  const float size = floatFrom((uint32_t)(bits & 0x7fff) << 13) * 0x1p112f;
  const uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
  uint32_t word;
  memcpy(&word, &size, 4);
  return floatFrom(word | sign | (size >= 65536.0f ? 0x7f800000u : 0));
#endif
}

// 16 signed bytes as numbers.
INLINE Lanes numbersOf(Bytes16 codes) {
  Lanes r;
#if defined(__AVX512F__)
  r.part[0] = (Floats)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32((__m128i)codes));
#elif defined(__AVX2__)
  r.part[0] = (Floats)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32((__m128i)codes));
  r.part[1] = (Floats)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128((__m128i)codes, 8)));
#else
  int8_t each[16];
  float all[16];
  memcpy(each, &codes, 16);
  for (int i = 0; i < 16; i++) all[i] = each[i];
  r = load16(all);
#endif
  return r;
}

// y = 16 signed bytes * scale.
INLINE void storeScaled(float *y, Bytes16 codes, float scale) { store16(y, scale16(numbersOf(codes), scale)); }

// y = 16 signed bytes * scale - low.
INLINE void storeAbove(float *y, Bytes16 codes, float scale, float low) {
  Lanes v = scale16(numbersOf(codes), scale);
  EACH_PART v.part[k] -= low;
  store16(y, v);
}

static void decodeQ4_0(const uint8_t *p, int64_t columns, float *y) {
  for (const float *end = y + columns; y < end; y += 32, p += 18) {
    const float scale = halfAt(p);
    const Bytes16 codes = bytesAt(p + 2);
    storeScaled(y, lowCodes(codes) - 8, scale);
    storeScaled(y + 16, highCodes(codes) - 8, scale);
  }
}

// 0xff in byte i where bit i of a word is set, for the lower or the upper 16 bits.
INLINE Bytes16 spreadBits(const uint8_t *word, const bool upper) {
  const uint8_t *p = word + (upper ? 2 : 0);
  const uint8_t a = p[0], b = p[1];
  const Bytes16 bytes = {a, a, a, a, a, a, a, a, b, b, b, b, b, b, b, b};
  const Bytes16 bits = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  return (Bytes16)((bytes & bits) != 0);
}

static void decodeQ5_0(const uint8_t *p, int64_t columns, float *y) {
  for (const float *end = y + columns; y < end; y += 32, p += 22) {
    const float scale = halfAt(p);
    const Bytes16 codes = bytesAt(p + 6);
    // n - 16: without the fifth bit the upper half of the byte is that of a negative number
    storeScaled(y, lowCodes(codes) | (~spreadBits(p + 2, false) & 0xf0), scale);
    storeScaled(y + 16, highCodes(codes) | (~spreadBits(p + 2, true) & 0xf0), scale);
  }
}

static void decodeQ5_1(const uint8_t *p, int64_t columns, float *y) {
  for (const float *end = y + columns; y < end; y += 32, p += 24) {
    const float scale = halfAt(p), low = -halfAt(p + 2);
    const Bytes16 codes = bytesAt(p + 8);
    storeAbove(y, lowCodes(codes) | (spreadBits(p + 4, false) & 16), scale, low);
    storeAbove(y + 16, highCodes(codes) | (spreadBits(p + 4, true) & 16), scale, low);
  }
}

static void decodeQ8_0(const uint8_t *p, int64_t columns, float *y) {
  for (const float *end = y + columns; y < end; y += 32, p += 34) {
    const float scale = halfAt(p);
    storeScaled(y, bytesAt(p + 2), scale);
    storeScaled(y + 16, bytesAt(p + 18), scale);
  }
}

static void decodeIq4Nl(const uint8_t *p, int64_t columns, float *y) {
  static const int8_t TABLE[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  for (const float *end = y + columns; y < end; y += 32, p += 18) {
    const float scale = halfAt(p);
    const Bytes16 codes = bytesAt(p + 2);
    storeScaled(y, lookUp((const uint8_t *)TABLE, lowCodes(codes)), scale);
    storeScaled(y + 16, lookUp((const uint8_t *)TABLE, highCodes(codes)), scale);
  }
}

// Scale (first) and minimum of each of 8 sub-blocks, 6 bits each, from 12 bytes.
INLINE void sixBitPairs(const uint8_t *p, uint8_t scales[8], uint8_t lows[8]) {
  uint32_t a, b, c;
  memcpy(&a, p, 4);
  memcpy(&b, p + 4, 4);
  memcpy(&c, p + 8, 4);
  const uint32_t words[4] = {
      a & 0x3f3f3f3f,
      (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030),
      b & 0x3f3f3f3f,
      (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030),
  };
  memcpy(scales, words, 8);
  memcpy(lows, words + 2, 8);
}

// q4_k, or q5_k, whose fifth bits come before the codes: bit j of byte i for value i of sub-block j.
INLINE void decodeK(const bool five, const uint8_t *p, int64_t columns, float *y) {
  for (const float *end = y + columns; y < end; p += five ? 176 : 144) {
    const float d = halfAt(p), dLow = halfAt(p + 2);
    uint8_t scales[8], lows[8];
    sixBitPairs(p + 4, scales, lows);
    const uint8_t *codes = p + (five ? 48 : 16);
    UNROLL for (int g = 0; g < 4; g++, codes += 32, y += 64) {
      const float step0 = d * (float)scales[2 * g], low0 = dLow * (float)lows[2 * g];
      const float step1 = d * (float)scales[2 * g + 1], low1 = dLow * (float)lows[2 * g + 1];
      UNROLL for (int i = 0; i < 32; i += 16) {
        const Bytes16 pairs = bytesAt(codes + i);
        Bytes16 first = lowCodes(pairs), last = highCodes(pairs);
        if (five) {
          const Bytes16 bits = bytesAt(p + 16 + i) >> (2 * g);
          first |= (bits & 1) << 4;
          last |= (bits & 2) << 3;
        }
        storeAbove(y + i, first, step0, low0);
        storeAbove(y + 32 + i, last, step1, low1);
      }
    }
  }
}

static void decodeQ4K(const uint8_t *p, int64_t columns, float *y) { decodeK(false, p, columns, y); }

static void decodeQ5K(const uint8_t *p, int64_t columns, float *y) { decodeK(true, p, columns, y); }

static void decodeQ6K(const uint8_t *p, int64_t columns, float *y) {
  for (const float *end = y + columns; y < end; y += 256, p += 210) {
    const float d = halfAt(p + 208);
    UNROLL for (int i = 0; i < 4; i++) {
      // half i / 2 of the block, and there the values 16 (i mod 2) to 16 (i mod 2) + 15, modulo 32
      const int upper = i >> 1, at = (i & 1) * 16;
      const Bytes16 first = bytesAt(p + 64 * upper + at), last = bytesAt(p + 64 * upper + 32 + at);
      const Bytes16 above = bytesAt(p + 128 + 32 * upper + at);
      const int8_t *scale = (const int8_t *)p + 192 + 8 * upper + (i & 1);
      float *to = y + 128 * upper + at;
      storeScaled(to, (lowCodes(first) | (above << 4 & 0x30)) - 32, d * (float)scale[0]);
      storeScaled(to + 32, (lowCodes(last) | (above << 2 & 0x30)) - 32, d * (float)scale[2]);
      storeScaled(to + 64, (highCodes(first) | (above & 0x30)) - 32, d * (float)scale[4]);
      storeScaled(to + 96, (highCodes(last) | (above >> 2 & 0x30)) - 32, d * (float)scale[6]);
    }
  }
}

// 16 e2m1 codes as numbers.
INLINE Lanes e2m1Of(Bytes16 codes) {
  Lanes r;
#if defined(__AVX512F__)
  const __m512 table = _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6);
  r.part[0] = (Floats)_mm512_permutexvar_ps(_mm512_cvtepu8_epi32((__m128i)codes), table);
#elif defined(__AVX2__)
  // The instruction looks at three bits of an index; the fourth is the sign.
  const __m256 table = _mm256_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6);
  UNROLL for (int k = 0; k < 2; k++) {
    const __m256i n = _mm256_cvtepu8_epi32(k ? _mm_srli_si128((__m128i)codes, 8) : (__m128i)codes);
    const __m256 sign = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_srli_epi32(n, 3), 31));
    r.part[k] = (Floats)_mm256_xor_ps(_mm256_permutevar8x32_ps(table, n), sign);
  }
#elif defined(__ARM_NEON)
  // bfloat16: lower and upper bytes
  static const uint8_t LOW[16] = {0, 0, 0x80, 0xc0, 0, 0x40, 0x80, 0xc0, 0, 0, 0x80, 0xc0, 0, 0x40, 0x80, 0xc0};
  static const uint8_t HIGH[16] = {0,    0x3f, 0x3f, 0x3f, 0x40, 0x40, 0x40, 0x40,
                                   0x80, 0xbf, 0xbf, 0xbf, 0xc0, 0xc0, 0xc0, 0xc0};
  const Bytes16 low = lookUp(LOW, codes), high = lookUp(HIGH, codes);
  uint8_t halves[32];
  *(LooseBytes16 *)halves = interleave(low, high, false);
  *(LooseBytes16 *)(halves + 16) = interleave(low, high, true);
  EACH_PART r.part[k] = (Floats)(widen(halves + k * (WIDTH / 2)) << 16);
#else
  static const float TABLE[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  // made of registers: a vector that is read where single numbers were just written waits for them
  EACH_PART UNROLL for (int i = 0; i < LANES; i++) r.part[k][i] = TABLE[codes[k * LANES + i]];
#endif
  return r;
}

INLINE void storeE2m1(float *y, Bytes16 codes, float scale) { store16(y, scale16(e2m1Of(codes), scale)); }

// 2^(code - 127); 255 is NaN. Both ends have a bit below the exponent: 2^-127 is a denormal.
INLINE float e8m0(uint8_t code) {
  return floatFrom((uint32_t)code << 23 | (code == 0 || code == 255 ? 0x400000u : 0));
}

static void decodeMxfp4(const uint8_t *p, int64_t columns, float *y) {
  const uint8_t *scales = p + columns / 2;
  for (const float *end = y + columns; y < end; y += 32, p += 16) {
    const float scale = e8m0(*scales++);
    const Bytes16 pairs = bytesAt(p), even = lowCodes(pairs), odd = highCodes(pairs);
    storeE2m1(y, interleave(even, odd, false), scale);
    storeE2m1(y + 16, interleave(even, odd, true), scale);
  }
}

static void decodeMxfp4Gguf(const uint8_t *p, int64_t columns, float *y) {
  for (const float *end = y + columns; y < end; y += 32, p += 17) {
    const float scale = e8m0(p[0]);
    const Bytes16 pairs = bytesAt(p + 1);
    storeE2m1(y, lowCodes(pairs), scale);
    storeE2m1(y + 16, highCodes(pairs), scale);
  }
}

// Sign, exponent and fraction in float32 places are the number times 2^-120; 0x7f and 0xff are NaN.
INLINE float e4m3(uint8_t code) {
  const float value = floatFrom((uint32_t)(code & 0x80) << 24 | (uint32_t)(code & 0x7f) << 20) * 0x1p120f;
  return (code & 0x7f) == 0x7f ? NAN : value;
}

static void decodeNvfp4(const uint8_t *p, int64_t columns, float *y) {
  float whole;
  memcpy(&whole, p, 4);
  const uint8_t *scales = p + 4;
  p = scales + columns / 16;
  for (const float *end = y + columns; y < end; y += 16, p += 8) {
    uint64_t eight;
    memcpy(&eight, p, 8);
    typedef uint64_t Pair __attribute__((vector_size(16)));
    const Bytes16 pairs = (Bytes16)(Pair){eight, 0};
    const Bytes16 codes = interleave(lowCodes(pairs), highCodes(pairs), false);
    store16(y, scale16(scale16(e2m1Of(codes), e4m3(*scales++)), whole));
  }
}

// 16 e4m3 codes as numbers, without regard to NaN.
INLINE Lanes e4m3Of(Bytes16 codes) {
  Lanes r;
#if defined(__AVX2__) && defined(__F16C__)
  // in float16 places the number times 2^-8, which is never a float16 too small to be converted at full speed
  const __m256i halves = _mm256_slli_epi16(_mm256_cvtepu8_epi16((__m128i)codes), 8);
  const __m256i places = _mm256_and_si256(_mm256_srai_epi16(halves, 1), _mm256_set1_epi16((short)0xbf80));
#if defined(__AVX512F__)
  r.part[0] = (Floats)_mm512_cvtph_ps(places);
#else
  r.part[0] = (Floats)_mm256_cvtph_ps(_mm256_castsi256_si128(places));
  r.part[1] = (Floats)_mm256_cvtph_ps(_mm256_extracti128_si256(places, 1));
#endif
  return scale16(r, 256.0f);
#else
  uint32_t words[16];
  uint8_t each[16];
  memcpy(each, &codes, 16);
  for (int i = 0; i < 16; i++) words[i] = (uint32_t)(each[i] & 0x80) << 24 | (uint32_t)(each[i] & 0x7f) << 20;
  memcpy(&r, words, 64);
  return scale16(r, 0x1p120f);
#endif
}

INLINE bool hasNaN(Bytes16 codes) {
  const Bytes16 equal = (Bytes16)((codes | 0x80) == 0xff);
  uint64_t halves[2];
  memcpy(halves, &equal, 16);
  return (halves[0] | halves[1]) != 0;
}

static void decodeFp8(const uint8_t *p, int64_t columns, float *y) {
  const uint8_t *codes = p + (columns + 127) / 128 * 4;
  for (int64_t c = 0; c < columns; c += 128, p += 4) {
    float scale;
    memcpy(&scale, p, 4);
    const int64_t count = atMost(128, columns - c);
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
      const Bytes16 v = bytesAt(codes + c + i);
      store16(y + c + i, scale16(e4m3Of(v), scale));
      if (__builtin_expect(hasNaN(v), 0)) {
        for (int k = 0; k < 16; k++) y[c + i + k] = e4m3(codes[c + i + k]) * scale;
      }
    }
    for (; i < count; i++) y[c + i] = e4m3(codes[c + i]) * scale;
  }
}

// Row `row` of w to float32.
static void decodeBlockRow(int layout, const uint8_t *w, int64_t columns, int64_t row, float *y) {
  const uint8_t *p = w + row * blockRowBytes(layout, columns);
  switch (layout) {
    case FP8: decodeFp8(p, columns, y); break;
    case MXFP4: decodeMxfp4(p, columns, y); break;
    case NVFP4: decodeNvfp4(p, columns, y); break;
    case Q4_0: decodeQ4_0(p, columns, y); break;
    case Q5_0: decodeQ5_0(p, columns, y); break;
    case Q5_1: decodeQ5_1(p, columns, y); break;
    case Q8_0: decodeQ8_0(p, columns, y); break;
    case Q4_K: decodeQ4K(p, columns, y); break;
    case Q5_K: decodeQ5K(p, columns, y); break;
    case Q6_K: decodeQ6K(p, columns, y); break;
    case IQ4_NL: decodeIq4Nl(p, columns, y); break;
    default: decodeMxfp4Gguf(p, columns, y);
  }
}

#endif
