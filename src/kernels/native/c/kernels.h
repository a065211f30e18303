// What every variant offers: the kernels of kernels.ts with pointers instead of offsets. Results are defined to the last
// bit by kernels/README.md; so every product is rounded before it is added (-ffp-contract=off), and no sum is reordered.
#ifndef COLI_KERNELS_H
#define COLI_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// LAYOUT_ID of quant/layouts.ts.
enum { F32 = 0, BF16 = 1, F16 = 2, Q4 = 3, Q4_WIDE = 4, Q8 = 5, Q8_WIDE = 6, LAYOUTS = 7 };
enum { KV_BLOCK = 64, TILE_ROWS = 16, GROUP = 64, ATTENTION_SCRATCH = 4 };

static inline bool isTile(int layout) { return layout >= Q4; }

static inline bool isQ8(int layout) { return layout >= Q8; }

// Scales are float32 (else bfloat16).
static inline bool isWide(int layout) { return layout == Q4_WIDE || layout == Q8_WIDE; }

static inline int64_t codeBytes(int layout) { return isQ8(layout) ? 1024 : 512; }

static inline int64_t tileBytes(int layout) { return codeBytes(layout) + (isWide(layout) ? 64 : 32); }

static inline int64_t floatBytes(int layout) { return layout == F32 ? 4 : 2; }

static inline int64_t groupsOf(int64_t columns) { return (columns + GROUP - 1) / GROUP; }

// int8 activations [rows, groups * 64] with the scale and the sum of each group.
typedef struct {
  const int8_t *codes;
  const float *scales;
  const int32_t *sums;
} Codes;

// Rows of a matrix product: which rows of x, and where in y. A null index means row i.
typedef struct {
  int64_t n;
  const int32_t *xIndex;
  int64_t xStride;
  float *y;
  int64_t yStride;
  const int32_t *yIndex;
} Rows;

typedef struct {
  const float *q;
  float *out;
  int64_t heads, kvHeads, headDim;
  float scale;
  const int32_t *positions;
  const uint32_t *tables;
  // F32 or BF16: what the blocks hold.
  int layout;
  // The arena: block tables hold offsets into it.
  const uint8_t *arena;
  float *scratch;
} AttentionCall;

typedef struct {
  void (*quantise)(const float *x, int64_t columns, int8_t *codes, float *scales, int32_t *sums, int64_t row0, int64_t row1);
  void (*matmulTiles)(int layout, const uint8_t *w, int64_t rows, int64_t groups, Codes x, Rows r, int64_t panel0, int64_t panel1);
  void (*matmulFloat)(int layout, const uint8_t *w, int64_t columns, const float *x, Rows r, int64_t row0, int64_t row1);
  void (*matmulExact)(int layout, const uint8_t *w, int64_t columns, const float *x, Rows r, float *scratch, int64_t row0, int64_t row1);
  void (*embed)(int layout, const uint8_t *w, int64_t columns, const int32_t *ids, float *y, int64_t row0, int64_t row1);
  void (*rmsNorm)(const float *x, const float *weight, float *y, int64_t columns, float eps, int64_t row0, int64_t row1);
  void (*rope)(float *x, int64_t heads, int64_t headDim, int64_t rotaryDim, const float *table, const int32_t *positions, int64_t row0, int64_t row1);
  void (*attention)(AttentionCall call, int64_t item0, int64_t item1);
  void (*swiglu)(const float *gate, const float *up, float *y, int64_t element0, int64_t element1);
  void (*add)(float *x, const float *y, int64_t element0, int64_t element1);
  void (*scale)(float *x, float factor, int64_t element0, int64_t element1);
  void (*clamp)(float *x, float limit, int64_t element0, int64_t element1);
  void (*toBf16)(const float *x, uint16_t *y, int64_t element0, int64_t element1);
  void (*softmax)(const float *x, float *y, int64_t columns, int64_t row0, int64_t row1);
  void (*topK)(const float *x, int64_t columns, int64_t k, int32_t *ids, float *weights, bool normalise, int64_t row0, int64_t row1);
  void (*combine)(float *x, const float *parts, const float *weights, int64_t k, int64_t columns, int64_t row0, int64_t row1);
  bool (*allFinite)(const float *x, int64_t elements);
} KernelTable;

#endif
