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
      for (int i = 0; i < ROWS_FOR(xs); i++) y[j][row + i] = result[j][i];
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

typedef uint32_t FourWords __attribute__((vector_size(16)));

// 16 bytes of row r of a tile: those of quads q to q+3.
INLINE Bytes16 quadsAt(const uint8_t *tile, int64_t r, int64_t q) {
  uint32_t words[4];
  UNROLL for (int i = 0; i < 4; i++) memcpy(&words[i], tile + (q + i) * 64 + r * 4, 4);
  return (Bytes16)(FourWords){words[0], words[1], words[2], words[3]};
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

// The 64 columns of row r of a tile to float32.
INLINE void decodeGroup(const bool q8, const uint8_t *tile, int64_t r, float scale, float *y) {
  if (q8) {
    UNROLL for (int i = 0; i < 4; i++) storeScaled(y + i * 16, quadsAt(tile, r, i * 4), scale);
    return;
  }
  UNROLL for (int i = 0; i < 2; i++) {
    const Bytes16 pairs = quadsAt(tile, r, i * 4);
    storeScaled(y + i * 16, lowCodes(pairs) - 8, scale);
    storeScaled(y + 32 + i * 16, highCodes(pairs) - 8, scale);
  }
}

// Columns from..from+count of a row of tiles to float32; `from` is a multiple of GROUP.
static void decodeTiles(int layout, const uint8_t *w, int64_t columns, int64_t row, int64_t from, int64_t count, float *y) {
  const int64_t r = row % TILE_ROWS;
  const uint8_t *tile = w + (row / TILE_ROWS * groupsOf(columns) + from / GROUP) * tileBytes(layout);
  for (; count > 0; count -= GROUP, y += GROUP, tile += tileBytes(layout)) {
    float last[GROUP], *to = count < GROUP ? last : y;
    if (isQ8(layout)) decodeGroup(true, tile, r, scaleAt(layout, tile, r), to);
    else decodeGroup(false, tile, r, scaleAt(layout, tile, r), to);
    if (count < GROUP) memcpy(y, last, (size_t)count * 4);
  }
}

// Row `row` of w to float32.
static void decodeRow(int layout, const uint8_t *w, int64_t columns, int64_t row, float *y) {
  if (isBlock(layout)) {
    decodeBlocks(layout, w + row * blockRowBytes(layout, columns), columns, 0, 0, columns, y);
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
  decodeTiles(layout, w, columns, row, 0, columns, y);
}

// ---- rows that are decoded first ----

// Weight rows and columns that are decoded at a time, so that they stay in the first cache; and activation rows that meet
// all of w before the next do, so that they stay in the second.
enum { DECODED_ROWS = 8, DECODED_COLUMNS = 512, MET_ROWS = 64 };
// Float layouts are decoded first when so many activation rows meet them; for fewer it costs more than it saves.
enum { MANY_ROWS = 32 };
// Weight rows of one pass over them.
#define PASS_ROWS(xs) ((xs) * PARTS * 4 <= SUM_REGISTERS ? 4 : (xs) * PARTS * 2 <= SUM_REGISTERS ? 2 : 1)

// Weights of a float layout to float32.
INLINE void widenColumns(const int layout, const uint8_t *w, int64_t count, float *y) {
  int64_t c = 0;
  for (; c + 16 <= count; c += 16)
    EACH_PART *(LooseFloats *)(y + c + k * LANES) = decodePart(layout, w + c * floatBytes(layout), k);
  if (c < count) storeUpTo16(y + c, decodeUpTo16(layout, w + c * floatBytes(layout), count - c), count - c);
}

// Columns from..from+count of rows of w; `offset`: bytes of a row before them.
typedef struct {
  const uint8_t *w;
  int64_t rowBytes, columns, from, offset, count;
} Columns;

// Columns of row `row` to float32, then zeros up to a multiple of 16. Divisions cost as much as a good part of the decoding: what
// a row needs of them was done once for all rows.
INLINE void decodeColumns(int layout, const Columns *c, int64_t row, float *y) {
  const uint8_t *from = c->w + row * c->rowBytes;
  if (isBlock(layout)) decodeBlocks(layout, from, c->columns, c->from, c->offset, c->count, y);
  else if (isTile(layout)) decodeTiles(layout, c->w, c->columns, row, c->from, c->count, y);
  else if (layout == F32) widenColumns(F32, from + c->offset, c->count, y);
  else if (layout == BF16) widenColumns(BF16, from + c->offset, c->count, y);
  else widenColumns(F16, from + c->offset, c->count, y);
  for (int64_t i = c->count; i % 16 != 0; i++) y[i] = 0;
}

// sums[i][j] += w[i] . x[j] for `count` columns.
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

// Four decoded rows and xs activation rows.
INLINE void addFour(const int xs, const float *w, const float *const *x, int64_t count, Floats sums[4][4][PARTS]) {
  UNROLL for (int i = 0; i < 4; i += PASS_ROWS(xs))
    addDecoded(PASS_ROWS(xs), xs, w + i * DECODED_COLUMNS, x, count, sums + i);
}

#define ADD_FOUR(xs) \
  static __attribute__((noinline)) void addFour##xs(const float *w, const float *const *x, int64_t count, \
                                                    Floats sums[4][4][PARTS]) { \
    addFour(xs, w, x, count, sums); \
  }
ADD_FOUR(1)
ADD_FOUR(2)
ADD_FOUR(3)
ADD_FOUR(4)

// `rows` weight rows from `row` on, DECODED_ROWS at most, times activation rows first..first+xs, MET_ROWS at most.
static void decodedTimes(int layout, const uint8_t *w, int64_t rowBytes, int64_t row, int64_t rows, int64_t columns,
                         const float *x, Rows r, int64_t first, int64_t xs) {
  _Alignas(64) float decoded[DECODED_ROWS * DECODED_COLUMNS];
  Floats sums[MET_ROWS / 4][DECODED_ROWS / 4][4][4][PARTS];
  const float *from[MET_ROWS];
  memset(sums, 0, (size_t)((xs + 3) / 4) * sizeof sums[0]);
  for (int64_t j = 0; j < xs; j++) from[j] = x + rowOf(r.xIndex, first + j) * r.xStride;
  const int64_t fours = (rows + 3) / 4;
  if (rows % 4 != 0) memset(decoded, 0, sizeof decoded);
  for (int64_t c = 0; c < columns; c += DECODED_COLUMNS) {
    const int64_t count = atMost(DECODED_COLUMNS, columns - c), bytes = (count * rowBytes + columns - 1) / columns;
    const Columns part = {w, rowBytes, columns, c, c * rowBytes / columns, count};
    for (int64_t i = 0; i < rows; i++) {
      const uint8_t *next = w + (row + i + DECODED_ROWS) * rowBytes + part.offset;
      for (int64_t at = 0; first == 0 && at < bytes; at += 64) __builtin_prefetch(next + at);
      decodeColumns(layout, &part, row + i, decoded + i * DECODED_COLUMNS);
    }
    for (int64_t j = 0; j < xs; j += 4) {
      const float *at[4];
      const int64_t here = atMost(4, xs - j);
      for (int64_t k = 0; k < here; k++) at[k] = from[j + k] + c;
      for (int64_t i = 0; i < fours; i++) {
        const float *four = decoded + i * 4 * DECODED_COLUMNS;
        if (here == 4) addFour4(four, at, count, sums[j / 4][i]);
        else if (here == 3) addFour3(four, at, count, sums[j / 4][i]);
        else if (here == 2) addFour2(four, at, count, sums[j / 4][i]);
        else addFour1(four, at, count, sums[j / 4][i]);
      }
    }
  }
  for (int64_t j = 0; j < xs; j++) {
    float *y = r.y + rowOf(r.yIndex, first + j) * r.yStride + row;
    for (int64_t i = 0; i < fours; i++) {
      Floats(*s)[4][PARTS] = sums[j / 4][i];
      const Four result = treesOf(s[0][j % 4], s[1][j % 4], s[2][j % 4], s[3][j % 4]);
      if (i * 4 + 4 <= rows) *(LooseFour *)(y + i * 4) = result;
      else memcpy(y + i * 4, &result, (size_t)(rows - i * 4) * 4);
    }
  }
}

static void decodedFirst(int layout, const uint8_t *w, int64_t columns, const float *x, Rows r, int64_t row0,
                         int64_t row1) {
  // of tiles a share: the rows of a panel lie among each other
  const int64_t rowBytes = isBlock(layout)  ? blockRowBytes(layout, columns)
                           : isTile(layout) ? groupsOf(columns) * tileBytes(layout) / TILE_ROWS
                                            : columns * floatBytes(layout);
  for (int64_t first = 0; first < r.n; first += MET_ROWS)
    for (int64_t row = row0; row < row1; row += DECODED_ROWS)
      decodedTimes(layout, w, rowBytes, row, atMost(DECODED_ROWS, row1 - row), columns, x, r, first,
                   atMost(MET_ROWS, r.n - first));
}

// The rows are decoded on the stack, a part at a time; other implementations need the scratch.
static void matmulExact(int layout, const uint8_t *w, int64_t columns, const float *x, Rows r, float *scratch,
                        int64_t row0, int64_t row1) {
  (void)scratch;
  decodedFirst(layout, w, columns, x, r, row0, row1);
}

static void matmulFloat(int layout, const uint8_t *w, int64_t columns, const float *x, Rows r, int64_t row0,
                        int64_t row1) {
  if (r.n >= MANY_ROWS) decodedFirst(layout, w, columns, x, r, row0, row1);
  else if (layout == F32) floats_F32(w, columns, x, r, row0, row1);
  else if (layout == BF16) floats_BF16(w, columns, x, r, row0, row1);
  else floats_F16(w, columns, x, r, row0, row1);
}

static void embed(int layout, const uint8_t *w, int64_t columns, const int32_t *ids, float *y, int64_t row0,
                  int64_t row1) {
  for (int64_t i = row0; i < row1; i++) decodeRow(layout, w, columns, ids[i], y + i * columns);
}

#endif
