// Blocks of GGUF with few bits, and those that came after them: rows decoded to float32. Included by blocks.h, whose helpers it uses.
#ifndef COLI_LOW_BITS_H
#define COLI_LOW_BITS_H

static void decodeQ4_1(const uint8_t *p, int64_t columns, float *y) {
  for (const float *end = y + columns; y < end; y += 32, p += 20) {
    const float scale = halfAt(p), low = -halfAt(p + 2);
    const Bytes16 codes = bytesAt(p + 4);
    storeAbove(y, lowCodes(codes), scale, low);
    storeAbove(y + 16, highCodes(codes), scale, low);
  }
}

static void decodeQ2K(const uint8_t *p, int64_t columns, float *y) {
  for (const float *end = y + columns; y < end; y += 256, p += 84) {
    const float d = halfAt(p + 80), dLow = halfAt(p + 82);
    UNROLL for (int v = 0; v < 4; v++) {
      // 16 bytes hold the values 16 (v mod 2) to 16 (v mod 2) + 15 of the four quarters of a half
      const Bytes16 codes = bytesAt(p + 16 + 16 * v);
      const uint8_t *pairs = p + 8 * (v >> 1) + (v & 1);
      float *to = y + 128 * (v >> 1) + 16 * (v & 1);
      UNROLL for (int j = 0; j < 4; j++) {
        const int pair = pairs[2 * j];
        storeAbove(to + 32 * j, codes >> (2 * j) & 3, d * (float)(pair & 15), dLow * (float)(pair >> 4));
      }
    }
  }
}

// 16 scales of 6 bits from 12 bytes: nibbles of the first 8, then two more bits each from the last 4.
INLINE void sixBitScales(const uint8_t *p, int8_t scales[16]) {
  uint32_t a, b, c;
  memcpy(&a, p, 4);
  memcpy(&b, p + 4, 4);
  memcpy(&c, p + 8, 4);
  const uint32_t words[4] = {
      (a & 0x0f0f0f0f) | (c << 4 & 0x30303030),
      (b & 0x0f0f0f0f) | (c << 2 & 0x30303030),
      (a >> 4 & 0x0f0f0f0f) | (c & 0x30303030),
      (b >> 4 & 0x0f0f0f0f) | (c >> 2 & 0x30303030),
  };
  memcpy(scales, words, 16);
  for (int i = 0; i < 16; i++) scales[i] -= 32;
}

static void decodeQ3K(const uint8_t *p, int64_t columns, float *y) {
  for (const float *end = y + columns; y < end; y += 256, p += 110) {
    const float d = halfAt(p + 108);
    int8_t scales[16];
    sixBitScales(p + 96, scales);
    UNROLL for (int v = 0; v < 4; v++) {
      const int upper = v >> 1, odd = v & 1;
      const Bytes16 codes = bytesAt(p + 32 + 16 * v), third = bytesAt(p + 16 * odd);
      float *to = y + 128 * upper + 16 * odd;
      UNROLL for (int j = 0; j < 4; j++) {
        const Bytes16 n = (codes >> (2 * j) & 3) | (third >> (4 * upper + j) & 1) << 2;
        storeScaled(to + 32 * j, n - 4, d * (float)scales[8 * upper + 2 * j + odd]);
      }
    }
  }
}

static void decodeIq4Xs(const uint8_t *p, int64_t columns, float *y) {
  for (const float *end = y + columns; y < end; p += 136) {
    const float d = halfAt(p);
    uint16_t highs;
    uint32_t lows;
    memcpy(&highs, p + 2, 2);
    memcpy(&lows, p + 4, 4);
    UNROLL for (int j = 0; j < 8; j++, y += 32) {
      const int n = (int)(lows >> (4 * j) & 15) | (highs >> (2 * j) & 3) << 4;
      const float scale = d * (float)(n - 32);
      const Bytes16 codes = bytesAt(p + 8 + 16 * j);
      storeScaled(y, lookUp((const uint8_t *)IQ4_TABLE, lowCodes(codes)), scale);
      storeScaled(y + 16, lookUp((const uint8_t *)IQ4_TABLE, highCodes(codes)), scale);
    }
  }
}

#endif
