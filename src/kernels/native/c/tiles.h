// matmulTiles: weights are unpacked once per tile and used for up to MAX_ROWS activation rows. Integer and float sums stay in
// registers; a panel stays in the first cache while all activation rows pass over it.
#ifndef COLI_TILES_H
#define COLI_TILES_H

#include "dot.h"

// Activation rows that one pass takes, and how many parts of the 16 weight rows it takes at once.
#define MAX_ROWS (SUM_REGISTERS / 2)
#define PARTS_FOR(rows) ((rows) * PARTS <= SUM_REGISTERS / 2 ? PARTS : 1)
// The first pass over a panel asks for what comes this much later: the processor's own prefetching stops at pages.
enum { PREFETCH_BYTES = 16384 };

// Where the activations of one row of a pass are.
typedef struct {
  const int8_t *codes;
  const float *scales;
  const int32_t *sums;
  float *y;
} TileRow;

// float32 scales of the weight rows of a part. `p`: the tile's scales.
INLINE Floats tileScales(const uint8_t *p, const bool wide, int part) {
  if (wide) return *(const LooseFloats *)(p + part * WIDTH);
  return (Floats)(widen(p + part * (WIDTH / 2)) << 16);
}

// Sums of one group for rows x parts: 64 columns of 16 rows. Single sums would wait for the instruction's latency, so few
// rows get two each.
INLINE void dotGroup(const int layout, const int rows, const int parts, const uint8_t *tile, int64_t group,
                     const TileRow *row, Ints sum[][PARTS]) {
  const int bias = isQ8(layout) ? Q8_BIAS : Q4_BIAS;
  const int quads = isQ8(layout) ? 16 : 8;
  const bool twoSums = rows * parts <= SUM_REGISTERS / 4;
  Ints second[MAX_ROWS][PARTS];
  UNROLL for (int r = 0; r < rows; r++)
    UNROLL for (int k = 0; k < parts; k++) {
      sum[r][k] = splatInt(bias ? -bias * row[r].sums[group] : 0);
      second[r][k] = (Ints){0};
    }
  UNROLL for (int q = 0; q < quads; q++) {
    UNROLL for (int k = 0; k < parts; k++) {
      Ints w = loadQuad(tile + q * 64 + k * WIDTH);
      UNROLL for (int r = 0; r < rows; r++) {
        const int8_t *x = row[r].codes + group * GROUP + 4 * q;
        Ints *to = twoSums && (q & 1) ? &second[r][k] : &sum[r][k];
        *to = isQ8(layout) ? dotQ8(*to, w, broadcast4(x))
                           : dotQ4(*to, lowNibbles(w), broadcast4(x), highNibbles(w), broadcast4(x + 32));
      }
    }
  }
  if (twoSums)
    UNROLL for (int r = 0; r < rows; r++)
      UNROLL for (int k = 0; k < parts; k++) sum[r][k] += second[r][k];
}

// `parts` parts of a panel, from part `first` on, times `rows` activation rows. `lanes`: weight rows to write.
INLINE void panelParts(const int layout, const int rows, const int parts, const int first, const uint8_t *panel,
                       int64_t groups, const TileRow *row, int64_t lanes, bool fromMemory) {
  Floats total[MAX_ROWS][PARTS];
  UNROLL for (int r = 0; r < rows; r++)
    UNROLL for (int k = 0; k < parts; k++) total[r][k] = (Floats){0};
  for (int64_t g = 0; g < groups; g++) {
    const uint8_t *tile = panel + g * tileBytes(layout);
    if (fromMemory)
      for (int at = 0; at < tileBytes(layout); at += 64) __builtin_prefetch(tile + PREFETCH_BYTES + at);
    Ints sum[MAX_ROWS][PARTS];
    dotGroup(layout, rows, parts, tile + first * WIDTH, g, row, sum);
    UNROLL for (int k = 0; k < parts; k++) {
      Floats scale = tileScales(tile + codeBytes(layout), isWide(layout), first + k);
      UNROLL for (int r = 0; r < rows; r++)
        total[r][k] += __builtin_convertvector(sum[r][k], Floats) * (scale * row[r].scales[g]);
    }
  }
  UNROLL for (int r = 0; r < rows; r++)
    UNROLL for (int k = 0; k < parts; k++) {
      const int64_t from = (first + k) * LANES;
      float *y = row[r].y + from;
      if (lanes >= from + LANES) *(LooseFloats *)y = total[r][k];
      else
        for (int64_t i = 0; i < LANES && from + i < lanes; i++) y[i] = total[r][k][i];
    }
}

INLINE void panelRows(const int layout, const int rows, const uint8_t *panel, int64_t groups, const TileRow *row,
                      int64_t lanes, bool fromMemory) {
  UNROLL for (int first = 0; first < PARTS; first += PARTS_FOR(rows))
    panelParts(layout, rows, PARTS_FOR(rows), first, panel, groups, row, lanes, fromMemory && first == 0);
}

#define PANEL_CASE(count) \
  case count: \
    if (count <= MAX_ROWS) panelRows(layout, count <= MAX_ROWS ? count : 1, panel, groups, row, lanes, pass == 0); \
    break;

// A panel times all rows, in passes of nearly equal size.
INLINE void panelOf(const int layout, const uint8_t *panel, int64_t groups, Codes x, Rows r, int64_t first,
                    int64_t lanes) {
  const int64_t passes = (r.n + MAX_ROWS - 1) / MAX_ROWS;
  for (int64_t pass = 0, from = 0; pass < passes; pass++) {
    const int64_t to = r.n * (pass + 1) / passes;
    TileRow row[MAX_ROWS];
    for (int64_t i = from; i < to; i++) {
      const int64_t at = rowOf(r.xIndex, i) * groups;
      row[i - from] = (TileRow){x.codes + at * GROUP, x.scales + at, x.sums + at,
                                r.y + rowOf(r.yIndex, i) * r.yStride + first};
    }
    switch (to - from) {
      PANEL_CASE(1) PANEL_CASE(2) PANEL_CASE(3) PANEL_CASE(4) PANEL_CASE(5) PANEL_CASE(6) PANEL_CASE(7) PANEL_CASE(8)
    }
    from = to;
  }
}

#define TILES_OF(layout) \
  static __attribute__((noinline)) void tiles_##layout(const uint8_t *w, int64_t rows, int64_t groups, Codes x, Rows r, \
                                                       int64_t panel0, int64_t panel1) { \
    for (int64_t p = panel0; p < panel1; p++) \
      panelOf(layout, w + p * groups * tileBytes(layout), groups, x, r, p * TILE_ROWS, rows - p * TILE_ROWS); \
  }
TILES_OF(Q4)
TILES_OF(Q4_WIDE)
TILES_OF(Q8)
TILES_OF(Q8_WIDE)

static void matmulTiles(int layout, const uint8_t *w, int64_t rows, int64_t groups, Codes x, Rows r, int64_t panel0,
                        int64_t panel1) {
  if (layout == Q4) tiles_Q4(w, rows, groups, x, r, panel0, panel1);
  else if (layout == Q4_WIDE) tiles_Q4_WIDE(w, rows, groups, x, r, panel0, panel1);
  else if (layout == Q8) tiles_Q8(w, rows, groups, x, r, panel0, panel1);
  else tiles_Q8_WIDE(w, rows, groups, x, r, panel0, panel1);
}

#endif
