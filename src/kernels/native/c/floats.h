// Products of float rows in the 16-lane order, decoding of weights to float32.
#ifndef COLI_FLOATS_H
#define COLI_FLOATS_H

#include "blocks.h"
#include "lanes.h"

// Weight rows that are worked on together, so that activation rows come from the cache.
enum { BLOCK_ROWS = 16 };
// Activation rows of one pass, and weight rows beside them, so that the sums fit the registers. A single activation row meets
// one weight row at a time: from memory, one stream is faster than several that lie a page apart.
enum { MAX_X = SUM_REGISTERS / PARTS < 4 ? SUM_REGISTERS / PARTS : 4 };
#define ROWS_FOR(x) ((x) == 1 ? 1 : SUM_REGISTERS / ((x) * PARTS) > 4 ? 4 : SUM_REGISTERS / ((x) * PARTS))

INLINE Floats halfToFloat(const void *p) {
#if defined(__AVX512F__) && defined(__F16C__)
  return (Floats)_mm512_cvtph_ps(_mm256_loadu_si256(p));
#elif defined(__AVX2__) && defined(__F16C__)
  return (Floats)_mm256_cvtph_ps(_mm_loadu_si128(p));
#else
  // Sign, exponent and fraction in float32 places are the number times 2^-112; a power of two multiplies exactly.
  const Words wide = widen(p);
  const Floats value = (Floats)((wide & 0x7fff) << 13) * 0x1p112f;
  // The largest exponent, which would be 2^16, means infinity or NaN.
  const Words special = (Words)(value >= 65536.0f) & 0x7f800000u;
  return (Floats)((Words)value | special | ((wide & 0x8000) << 16));
#endif
}

// Part k of 16 weights as float32.
INLINE Floats decodePart(const int layout, const uint8_t *w, int k) {
  if (layout == F32) return *(const LooseFloats *)(w + k * WIDTH);
  return layout == BF16 ? (Floats)(widen(w + k * (WIDTH / 2)) << 16) : halfToFloat(w + k * (WIDTH / 2));
}

// The last weights of a row, fewer than 16, followed by zeros.
INLINE void padWeights(const int layout, const uint8_t *w, int64_t count, uint8_t padded[64]) {
  memset(padded, 0, 64);
  memcpy(padded, w, (size_t)(count * floatBytes(layout)));
}

// Up to 16 weights of which `count` exist; the others are +0.
INLINE Lanes decodeUpTo16(const int layout, const uint8_t *w, int64_t count) {
  uint8_t padded[64];
  padWeights(layout, w, atMost(16, count), padded);
  Lanes r;
  EACH_PART r.part[k] = decodePart(layout, padded, k);
  return r;
}

// sum[i][j] += 16 weights of row i times 16 floats of x[j].
INLINE void addProducts(const int layout, const int rows, const int xs, const uint8_t *const *w, const float *const *x,
                        Floats sum[4][4][PARTS]) {
  EACH_PART {
    Floats v[4];
    UNROLL for (int j = 0; j < xs; j++) v[j] = *(const LooseFloats *)(x[j] + k * LANES);
    UNROLL for (int i = 0; i < rows; i++) {
      const Floats weight = decodePart(layout, w[i], k);
      UNROLL for (int j = 0; j < xs; j++) sum[i][j][k] += weight * v[j];
    }
  }
}

// The sums of rows x xs dots: result[j][i] belongs to row i and x j.
INLINE void treesOfAll(const int rows, const int xs, Floats sum[4][4][PARTS], Four result[4]) {
  if (rows == 4) {
    UNROLL for (int j = 0; j < xs; j++) result[j] = treesOf(sum[0][j], sum[1][j], sum[2][j], sum[3][j]);
  } else if (xs == 4) {
    UNROLL for (int i = 0; i < rows; i++) {
      const Four all = treesOf(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
      UNROLL for (int j = 0; j < 4; j++) result[j][i] = all[j];
    }
  } else {
    UNROLL for (int i = 0; i < rows; i++)
      UNROLL for (int j = 0; j < xs; j++) result[j][i] = treeOf(sum[i][j]);
  }
}

// rows x xs dots of `columns` elements: result[j][i] = w[i] . x[j].
INLINE void dotsOf(const int layout, const int rows, const int xs, const uint8_t *const *w, const float *const *x,
                   int64_t columns, Four result[4]) {
  Floats sum[4][4][PARTS];
  const uint8_t *wAt[4];
  const float *xAt[4];
  UNROLL for (int i = 0; i < rows; i++)
    UNROLL for (int j = 0; j < xs; j++) EACH_PART sum[i][j][k] = (Floats){0};
  int64_t c = 0;
  for (; c + 16 <= columns; c += 16) {
    UNROLL for (int i = 0; i < rows; i++) wAt[i] = w[i] + c * floatBytes(layout);
    UNROLL for (int j = 0; j < xs; j++) xAt[j] = x[j] + c;
    addProducts(layout, rows, xs, wAt, xAt, sum);
  }
  if (c < columns) {
    uint8_t weights[4][64];
    float values[4][16] = {{0}};
    UNROLL for (int i = 0; i < rows; i++) {
      padWeights(layout, w[i] + c * floatBytes(layout), columns - c, weights[i]);
      wAt[i] = weights[i];
    }
    UNROLL for (int j = 0; j < xs; j++) {
      memcpy(values[j], x[j] + c, (size_t)(columns - c) * 4);
      xAt[j] = values[j];
    }
    addProducts(layout, rows, xs, wAt, xAt, sum);
  }
  treesOfAll(rows, xs, sum, result);
}

// The same for rows that are rowBytes apart.
INLINE void dots(const int layout, const int rows, const int xs, const uint8_t *w, int64_t rowBytes,
                 const float *const *x, int64_t columns, Four result[4]) {
  const uint8_t *each[4];
  UNROLL for (int i = 0; i < rows; i++) each[i] = w + i * rowBytes;
  dotsOf(layout, rows, xs, each, x, columns, result);
}

// Rows row0..row1 of w times xs activation rows.
INLINE void rowsTimes(const int layout, const int xs, const uint8_t *w, int64_t columns, const float *const *x,
                      float *const *y, int64_t row0, int64_t row1) {
  const int64_t rowBytes = columns * floatBytes(layout);
  Four result[4] = {{0}};
  int64_t row = row0;
  for (; row + ROWS_FOR(xs) <= row1; row += ROWS_FOR(xs)) {
    dots(layout, ROWS_FOR(xs), xs, w + row * rowBytes, rowBytes, x, columns, result);
    UNROLL for (int j = 0; j < xs; j++)
      UNROLL for (int i = 0; i < ROWS_FOR(xs); i++) y[j][row + i] = result[j][i];
  }
  for (; row < row1; row++) {
    dots(layout, 1, xs, w + row * rowBytes, rowBytes, x, columns, result);
    UNROLL for (int j = 0; j < xs; j++) y[j][row] = result[j][0];
  }
}

// A block of weight rows times all activation rows.
INLINE void blockTimes(const int layout, const uint8_t *w, int64_t columns, const float *x, Rows r, int64_t row0,
                       int64_t row1) {
  for (int64_t from = 0; from < r.n;) {
    const int64_t count = atMost(MAX_X, r.n - from);
    const float *xs[4];
    float *ys[4];
    for (int64_t j = 0; j < count; j++) {
      xs[j] = x + rowOf(r.xIndex, from + j) * r.xStride;
      ys[j] = r.y + rowOf(r.yIndex, from + j) * r.yStride;
    }
    if (count == 4 && MAX_X >= 4) rowsTimes(layout, MAX_X >= 4 ? 4 : 1, w, columns, xs, ys, row0, row1);
    else if (count == 3 && MAX_X >= 3) rowsTimes(layout, MAX_X >= 3 ? 3 : 1, w, columns, xs, ys, row0, row1);
    else if (count == 2) rowsTimes(layout, 2, w, columns, xs, ys, row0, row1);
    else rowsTimes(layout, 1, w, columns, xs, ys, row0, row1);
    from += count;
  }
}

#define FLOATS_OF(layout) \
  static __attribute__((noinline)) void floats_##layout(const uint8_t *w, int64_t columns, const float *x, Rows r, \
                                                        int64_t row0, int64_t row1) { \
    for (int64_t row = row0; row < row1; row += BLOCK_ROWS) \
      blockTimes(layout, w, columns, x, r, row, atMost(row + BLOCK_ROWS, row1)); \
  }
FLOATS_OF(F32)
FLOATS_OF(BF16)
FLOATS_OF(F16)

static void matmulFloat(int layout, const uint8_t *w, int64_t columns, const float *x, Rows r, int64_t row0,
                        int64_t row1) {
  if (layout == F32) floats_F32(w, columns, x, r, row0, row1);
  else if (layout == BF16) floats_BF16(w, columns, x, r, row0, row1);
  else floats_F16(w, columns, x, r, row0, row1);
}

// Code of row r and column c of a tile.
static int codeAt(int layout, const uint8_t *tile, int64_t r, int64_t c) {
  if (isQ8(layout)) return (int8_t)tile[(c >> 2) * 64 + r * 4 + (c & 3)];
  const uint8_t pair = tile[((c & 31) >> 2) * 64 + r * 4 + (c & 3)];
  return (c < 32 ? pair & 15 : pair >> 4) - 8;
}

static float scaleAt(int layout, const uint8_t *tile, int64_t r) {
  const uint8_t *scales = tile + codeBytes(layout);
  uint32_t bits = 0;
  if (isWide(layout)) memcpy(&bits, scales + r * 4, 4);
  else memcpy((uint8_t *)&bits + 2, scales + r * 2, 2);
  float scale;
  memcpy(&scale, &bits, 4);
  return scale;
}

// Row `row` of w to float32.
static void decodeRow(int layout, const uint8_t *w, int64_t columns, int64_t row, float *y) {
  if (isBlock(layout)) {
    decodeBlocks(layout, w + row * blockRowBytes(layout, columns), columns, 0, columns, y);
    return;
  }
  if (!isTile(layout)) {
    w += row * columns * floatBytes(layout);
    for (int64_t c = 0; c < columns; c += 16) {
      const uint8_t *from = w + c * floatBytes(layout);
      const int64_t left = columns - c;
      const Lanes v = layout == F32 ? decodeUpTo16(F32, from, left)
                    : layout == BF16 ? decodeUpTo16(BF16, from, left) : decodeUpTo16(F16, from, left);
      storeUpTo16(y + c, v, left);
    }
    return;
  }
  const uint8_t *panel = w + row / TILE_ROWS * groupsOf(columns) * tileBytes(layout);
  for (int64_t c = 0; c < columns; c++) {
    const uint8_t *tile = panel + c / GROUP * tileBytes(layout);
    y[c] = (float)codeAt(layout, tile, row % TILE_ROWS, c % GROUP) * scaleAt(layout, tile, row % TILE_ROWS);
  }
}

// ---- rows that are decoded first ----

// Columns that are decoded at a time when few activation rows meet the DECODED_ROWS weight rows.
enum { DECODED_COLUMNS = 512 };
// Rows of one pass over them: they are in the cache, so that several meet even a single activation row.
#define DECODED_FOR(x) (SUM_REGISTERS / ((x) * PARTS) > 4 ? 4 : SUM_REGISTERS / ((x) * PARTS) < 1 ? 1 : SUM_REGISTERS / ((x) * PARTS))

// sum[i][j] += w[i] . x[j] for `count` columns.
INLINE void addDecoded(const int rows, const int xs, const float *w, const float *const *x, int64_t count,
                       Floats sums[4][4][PARTS]) {
  Floats sum[4][4][PARTS];
  UNROLL for (int i = 0; i < rows; i++)
    UNROLL for (int j = 0; j < xs; j++) EACH_PART sum[i][j][k] = sums[i][j][k];
  const uint8_t *wAt[4];
  const float *xAt[4];
  int64_t c = 0;
  for (; c + 16 <= count; c += 16) {
    UNROLL for (int i = 0; i < rows; i++) wAt[i] = (const uint8_t *)(w + i * DECODED_COLUMNS + c);
    UNROLL for (int j = 0; j < xs; j++) xAt[j] = x[j] + c;
    addProducts(F32, rows, xs, wAt, xAt, sum);
  }
  if (c < count) {
    float values[4][16] = {{0}};
    UNROLL for (int i = 0; i < rows; i++) wAt[i] = (const uint8_t *)(w + i * DECODED_COLUMNS + c);
    UNROLL for (int j = 0; j < xs; j++) xAt[j] = memcpy(values[j], x[j] + c, (size_t)(count - c) * 4);
    addProducts(F32, rows, xs, wAt, xAt, sum);
  }
  UNROLL for (int i = 0; i < rows; i++)
    UNROLL for (int j = 0; j < xs; j++) EACH_PART sums[i][j][k] = sum[i][j][k];
}

// DECODED_ROWS rows of blocks times xs activation rows.
INLINE void fewTimes(const int xs, int layout, const uint8_t *w, int64_t columns, const float *x, Rows r) {
  const int64_t rowBytes = blockRowBytes(layout, columns);
  _Alignas(64) float decoded[DECODED_ROWS * DECODED_COLUMNS];
  Floats sum[4][4][PARTS] = {{{{0}}}};
  const float *rows[4];
  UNROLL for (int j = 0; j < xs; j++) rows[j] = x + rowOf(r.xIndex, j) * r.xStride;
  for (int64_t c = 0; c < columns; c += DECODED_COLUMNS) {
    const int64_t count = atMost(DECODED_COLUMNS, columns - c);
    const int64_t from = blockRowBytes(layout, c), to = blockRowBytes(layout, c + count);
    for (int i = 0; i < DECODED_ROWS; i++) {
      const uint8_t *row = w + i * rowBytes;
      for (int64_t at = from; at < to; at += 64) __builtin_prefetch(row + DECODED_ROWS * rowBytes + at);
      decodeBlocks(layout, row, columns, c, count, decoded + i * DECODED_COLUMNS);
      for (int64_t k = count; k % 16 != 0; k++) decoded[i * DECODED_COLUMNS + k] = 0;
    }
    const float *at[4];
    UNROLL for (int j = 0; j < xs; j++) at[j] = rows[j] + c;
    UNROLL for (int i = 0; i < DECODED_ROWS; i += DECODED_FOR(xs))
      addDecoded(DECODED_FOR(xs), xs, decoded + i * DECODED_COLUMNS, at, count, sum + i);
  }
  UNROLL for (int j = 0; j < xs; j++)
    *(LooseFour *)(r.y + rowOf(r.yIndex, j) * r.yStride) = treesOf(sum[0][j], sum[1][j], sum[2][j], sum[3][j]);
}

#define FEW_TIMES(xs) \
  static __attribute__((noinline)) void fewTimes##xs(int layout, const uint8_t *w, int64_t columns, const float *x, Rows r) { \
    fewTimes(xs, layout, w, columns, x, r); \
  }
FEW_TIMES(1)
FEW_TIMES(2)
FEW_TIMES(3)
FEW_TIMES(4)

static void matmulExact(int layout, const uint8_t *w, int64_t columns, const float *x, Rows r, float *scratch,
                        int64_t row0, int64_t row1) {
  for (int64_t row = row0; row < row1; row += DECODED_ROWS) {
    const int64_t count = atMost(DECODED_ROWS, row1 - row);
    Rows shifted = r;
    shifted.y = r.y + row;
    if (isBlock(layout) && r.n <= 4 && count == DECODED_ROWS) {
      const uint8_t *from = w + row * blockRowBytes(layout, columns);
      if (r.n == 1) fewTimes1(layout, from, columns, x, shifted);
      else if (r.n == 2) fewTimes2(layout, from, columns, x, shifted);
      else if (r.n == 3) fewTimes3(layout, from, columns, x, shifted);
      else fewTimes4(layout, from, columns, x, shifted);
      continue;
    }
    for (int64_t i = 0; i < count; i++) decodeRow(layout, w, columns, row + i, scratch + i * columns);
    floats_F32((const uint8_t *)scratch, columns, x, shifted, 0, count);
  }
}

static void embed(int layout, const uint8_t *w, int64_t columns, const int32_t *ids, float *y, int64_t row0,
                  int64_t row1) {
  for (int64_t i = row0; i < row1; i++) decodeRow(layout, w, columns, ids[i], y + i * columns);
}

#endif
