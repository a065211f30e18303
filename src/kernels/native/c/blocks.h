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

#if defined(__AVX512F__)
#define HAS_TABLES 1
// The values of 16 codes in one register.
INLINE Floats countFrom(float first) {
  return (Floats){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} + first;
}

// Entries by the lowest four bits of each byte.
INLINE Floats entriesOf(Floats table, __m128i codes) {
  return (Floats)_mm512_permutexvar_ps(_mm512_cvtepu8_epi32(codes), (__m512)table);
}

// 16 pairs of codes: all lower halves, then all upper ones.
INLINE void storeEntries(float *low, float *high, Floats lowTable, Floats highTable, Bytes16 pairs) {
  *(LooseFloats *)low = entriesOf(lowTable, (__m128i)pairs);
  *(LooseFloats *)high = entriesOf(highTable, _mm_srli_epi16((__m128i)pairs, 4));
}

// 16 pairs of codes, each the lower half first.
INLINE void storeAlternating(float *y, Floats table, Bytes16 pairs) {
  const __m512i shifts = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
  const __m512i first = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
  const __m512i words = _mm512_castsi128_si512((__m128i)pairs);
  const __m512i a = _mm512_srlv_epi32(_mm512_permutexvar_epi32(first, words), shifts);
  const __m512i b = _mm512_srlv_epi32(_mm512_permutexvar_epi32(_mm512_add_epi32(first, _mm512_set1_epi32(2)), words), shifts);
  *(LooseFloats *)y = (Floats)_mm512_permutexvar_ps(a, (__m512)table);
  *(LooseFloats *)(y + 16) = (Floats)_mm512_permutexvar_ps(b, (__m512)table);
}
#else
#define HAS_TABLES 0
#endif

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
#if HAS_TABLES
    const Floats table = countFrom(-8) * scale;
    storeEntries(y, y + 16, table, table, codes);
#else
    storeScaled(y, lowCodes(codes) - 8, scale);
    storeScaled(y + 16, highCodes(codes) - 8, scale);
#endif
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

// Values of the codes of iq4_nl and iq4_xs.
static const int8_t IQ4_TABLE[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static void decodeIq4Nl(const uint8_t *p, int64_t columns, float *y) {
  for (const float *end = y + columns; y < end; y += 32, p += 18) {
    const float scale = halfAt(p);
    const Bytes16 codes = bytesAt(p + 2);
#if HAS_TABLES
    const Floats table = numbersOf(bytesAt((const uint8_t *)IQ4_TABLE)).part[0] * scale;
    storeEntries(y, y + 16, table, table, codes);
#else
    storeScaled(y, lookUp((const uint8_t *)IQ4_TABLE, lowCodes(codes)), scale);
    storeScaled(y + 16, lookUp((const uint8_t *)IQ4_TABLE, highCodes(codes)), scale);
#endif
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
#if HAS_TABLES
      if (!five) {
        const Floats table0 = countFrom(0) * step0 - low0, table1 = countFrom(0) * step1 - low1;
        storeEntries(y, y + 32, table0, table1, bytesAt(codes));
        storeEntries(y + 16, y + 48, table0, table1, bytesAt(codes + 16));
        continue;
      }
#endif
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

#if HAS_TABLES
static const Floats E2M1 = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
#endif

// 16 e2m1 codes as numbers.
INLINE Lanes e2m1Of(Bytes16 codes) {
  Lanes r;
#if HAS_TABLES
  r.part[0] = entriesOf(E2M1, (__m128i)codes);
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
  EACH_PART {
    Floats part = {0};
    UNROLL for (int i = 0; i < LANES; i++) part[i] = TABLE[codes[k * LANES + i]];
    r.part[k] = part;
  }
#endif
  return r;
}

INLINE void storeE2m1(float *y, Bytes16 codes, float scale) { store16(y, scale16(e2m1Of(codes), scale)); }

// 2^(code - 127); 255 is NaN. Both ends have a bit below the exponent: 2^-127 is a denormal.
INLINE float e8m0(uint8_t code) {
  return floatFrom((uint32_t)code << 23 | (code == 0 || code == 255 ? 0x400000u : 0));
}

// Columns and scales of a row lie apart: from column `from` on.
static void decodeMxfp4(const uint8_t *row, int64_t rowColumns, int64_t from, int64_t columns, float *y) {
  const uint8_t *p = row + from / 2, *scales = row + rowColumns / 2 + from / 32;
#if HAS_TABLES
  // 16 scales at a time
  for (; columns >= 512; columns -= 512, scales += 16) {
    const __m512i codes = _mm512_cvtepu8_epi32((__m128i)bytesAt(scales));
    const __mmask16 ends = (_mm512_test_epi32_mask(codes, codes) ^ 0xffff) | _mm512_cmpeq_epi32_mask(codes, _mm512_set1_epi32(255));
    const __m512i bits = _mm512_slli_epi32(codes, 23);
    float each[16];
    _mm512_storeu_ps(each, (__m512)_mm512_mask_or_epi32(bits, ends, bits, _mm512_set1_epi32(0x400000)));
    UNROLL for (int i = 0; i < 16; i++, y += 32, p += 16) storeAlternating(y, E2M1 * each[i], bytesAt(p));
  }
#endif
  for (const float *end = y + columns; y < end; y += 32, p += 16) {
    const float scale = e8m0(*scales++);
    const Bytes16 pairs = bytesAt(p);
#if HAS_TABLES
    storeAlternating(y, E2M1 * scale, pairs);
#else
    const Bytes16 even = lowCodes(pairs), odd = highCodes(pairs);
    storeE2m1(y, interleave(even, odd, false), scale);
    storeE2m1(y + 16, interleave(even, odd, true), scale);
#endif
  }
}

static void decodeMxfp4Gguf(const uint8_t *p, int64_t columns, float *y) {
  for (const float *end = y + columns; y < end; y += 32, p += 17) {
    const float scale = e8m0(p[0]);
    const Bytes16 pairs = bytesAt(p + 1);
#if HAS_TABLES
    storeEntries(y, y + 16, E2M1 * scale, E2M1 * scale, pairs);
#else
    storeE2m1(y, lowCodes(pairs), scale);
    storeE2m1(y + 16, highCodes(pairs), scale);
#endif
  }
}

// Sign, exponent and fraction in float32 places are the number times 2^-120; 0x7f and 0xff are NaN.
INLINE float e4m3(uint8_t code) {
  const float value = floatFrom((uint32_t)(code & 0x80) << 24 | (uint32_t)(code & 0x7f) << 20) * 0x1p120f;
  return (code & 0x7f) == 0x7f ? NAN : value;
}

static void decodeNvfp4(const uint8_t *row, int64_t rowColumns, int64_t from, int64_t columns, float *y) {
  float whole;
  memcpy(&whole, row, 4);
  const uint8_t *scales = row + 4 + from / 16, *p = row + 4 + rowColumns / 16 + from / 2;
  for (const float *end = y + columns; y < end; y += 16, p += 8) {
    uint64_t eight;
    memcpy(&eight, p, 8);
    typedef uint64_t Pair __attribute__((vector_size(16)));
    const Bytes16 pairs = (Bytes16)(Pair){eight, 0};
    const Bytes16 codes = interleave(lowCodes(pairs), highCodes(pairs), false);
    store16(y, scale16(scale16(e2m1Of(codes), e4m3(*scales++)), whole));
  }
}

// A factor of what decode128 gives, a power of two.
#if defined(__AVX2__) && defined(__F16C__)
#define E4M3_STEP 256.0f
#else
#define E4M3_STEP 0x1p120f
#endif

// 128 e4m3 codes divided by E4M3_STEP times a factor; false when there is a NaN among them.
INLINE bool decode128(const uint8_t *codes, float factor, float *y) {
#if defined(__AVX512F__)
  const __m512i sign = _mm512_set1_epi8((char)0x80), all = _mm512_set1_epi8(-1);
  __mmask64 nan = 0;
  UNROLL for (int i = 0; i < 128; i += 64) {
    const __m512i v = _mm512_loadu_si512(codes + i);
    nan |= _mm512_cmpeq_epi8_mask(_mm512_or_si512(v, sign), all);
    UNROLL for (int k = 0; k < 64; k += 32) {
      // in float16 places the number times 2^-8, which is never a float16 too small to be converted at full speed
      const __m512i wide = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(codes + i + k)));
      const __m512i places = _mm512_and_si512(_mm512_slli_epi16(wide, 7), _mm512_set1_epi16((short)0xbf80));
      *(LooseFloats *)(y + i + k) = (Floats)_mm512_cvtph_ps(_mm512_castsi512_si256(places)) * factor;
      *(LooseFloats *)(y + i + k + 16) = (Floats)_mm512_cvtph_ps(_mm512_extracti64x4_epi64(places, 1)) * factor;
    }
  }
  return nan == 0;
#elif defined(__AVX2__) && defined(__F16C__)
  __m256i nan = _mm256_setzero_si256();
  UNROLL for (int i = 0; i < 128; i += 32) {
    const __m256i v = _mm256_loadu_si256((const __m256i *)(codes + i));
    nan = _mm256_or_si256(nan, _mm256_cmpeq_epi8(_mm256_or_si256(v, _mm256_set1_epi8((char)0x80)), _mm256_set1_epi8(-1)));
    UNROLL for (int k = 0; k < 32; k += 16) {
      const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(codes + i + k)));
      const __m256i places = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16((short)0xbf80));
      *(LooseFloats *)(y + i + k) = (Floats)_mm256_cvtph_ps(_mm256_castsi256_si128(places)) * factor;
      *(LooseFloats *)(y + i + k + 8) = (Floats)_mm256_cvtph_ps(_mm256_extracti128_si256(places, 1)) * factor;
    }
  }
  return _mm256_movemask_epi8(nan) == 0;
#else
  Bytes16 nan = {0};
  for (int i = 0; i < 128; i += 16) {
    nan |= (Bytes16)((bytesAt(codes + i) | 0x80) == 0xff);
    uint32_t words[16];
    for (int k = 0; k < 16; k++)
      words[k] = (uint32_t)(codes[i + k] & 0x80) << 24 | (uint32_t)(codes[i + k] & 0x7f) << 20;
    store16(y + i, scale16(load16((const float *)words), factor));
  }
  uint64_t halves[2];
  memcpy(halves, &nan, 16);
  return (halves[0] | halves[1]) == 0;
#endif
}

static void decodeFp8(const uint8_t *row, int64_t rowColumns, int64_t from, int64_t columns, float *y) {
  const uint8_t *scales = row + from / 128 * 4, *codes = row + (rowColumns + 127) / 128 * 4 + from;
  for (int64_t c = 0; c < columns; c += 128, scales += 4) {
    float scale;
    memcpy(&scale, scales, 4);
    // exact, and so the product with it is rounded as that of code and scale is
    const float factor = scale * E4M3_STEP;
    if (c + 128 <= columns && fabsf(factor) < INFINITY && decode128(codes + c, factor, y + c)) continue;
    const int64_t count = atMost(128, columns - c);
    for (int64_t i = 0; i < count; i++) y[c + i] = e4m3(codes[c + i]) * scale;
  }
}

#include "low-bits.h"

// Columns from..from+count of a row to float32; `from` is a multiple of BLOCK_STEP, `offset` the bytes of whole blocks before it.
enum { BLOCK_STEP = 256 };
static void decodeBlocks(int layout, const uint8_t *row, int64_t columns, int64_t from, int64_t offset, int64_t count,
                         float *y) {
  const uint8_t *p = row + offset;
  switch (layout) {
    case FP8: decodeFp8(row, columns, from, count, y); break;
    case MXFP4: decodeMxfp4(row, columns, from, count, y); break;
    case NVFP4: decodeNvfp4(row, columns, from, count, y); break;
    case Q4_0: decodeQ4_0(p, count, y); break;
    case Q5_0: decodeQ5_0(p, count, y); break;
    case Q5_1: decodeQ5_1(p, count, y); break;
    case Q8_0: decodeQ8_0(p, count, y); break;
    case Q4_K: decodeQ4K(p, count, y); break;
    case Q5_K: decodeQ5K(p, count, y); break;
    case Q6_K: decodeQ6K(p, count, y); break;
    case IQ4_NL: decodeIq4Nl(p, count, y); break;
    case Q4_1: decodeQ4_1(p, count, y); break;
    case Q2_K: decodeQ2K(p, count, y); break;
    case Q3_K: decodeQ3K(p, count, y); break;
    case IQ4_XS: decodeIq4Xs(p, count, y); break;
    default: decodeMxfp4Gguf(p, count, y);
  }
}

#endif
