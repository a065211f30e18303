// What every variant offers: the kernels of kernels.ts with pointers instead of offsets. Results are defined to the last
// bit by kernels/README.md; so every product is rounded before it is added (-ffp-contract=off), and no sum is reordered.
#ifndef COLI_KERNELS_H
#define COLI_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// LAYOUT_ID of quant/layouts.ts.
enum {
  F32,
  BF16,
  F16,
  Q4,
  Q4_WIDE,
  Q8,
  Q8_WIDE,
  FP8,
  MXFP4,
  NVFP4,
  Q4_0,
  Q5_0,
  Q5_1,
  Q8_0,
  Q4_K,
  Q5_K,
  Q6_K,
  IQ4_NL,
  MXFP4_GGUF,
  Q4_1,
  Q2_K,
  Q3_K,
  IQ4_XS,
  LAYOUTS,
};
enum { KV_BLOCK = 64, TILE_ROWS = 16, GROUP = 64, ATTENTION_SCRATCH = 4, SELECT_SCRATCH = 512 };

static inline bool isTile(int64_t layout) { return layout >= Q4 && layout <= Q8_WIDE; }

// Rows of blocks (BLOCKS of quant/layouts.ts).
static inline bool isBlock(int64_t layout) { return layout >= FP8 && layout < LAYOUTS; }

// Columns that a row of a block layout must be a multiple of. An fp8 row may end inside a block.
static inline int64_t blockColumns(int layout) {
  if (layout == FP8) return 1;
  const bool large = (layout >= Q4_K && layout <= Q6_K) || layout >= Q2_K;
  return layout == NVFP4 ? 16 : large ? 256 : 32;
}

static inline int64_t blockRowBytes(int layout, int64_t columns) {
  static const uint8_t BYTES[LAYOUTS] = {
      [MXFP4] = 17, [NVFP4] = 9,   [Q4_0] = 18,  [Q5_0] = 22,   [Q5_1] = 24,       [Q8_0] = 34,
      [Q4_K] = 144, [Q5_K] = 176, [Q6_K] = 210, [IQ4_NL] = 18, [MXFP4_GGUF] = 17,
      [Q4_1] = 20,  [Q2_K] = 84,  [Q3_K] = 110, [IQ4_XS] = 136,
  };
  if (layout == FP8) return (columns + 127) / 128 * 4 + columns;
  return columns / blockColumns(layout) * BYTES[layout] + (layout == NVFP4 ? 4 : 0);
}

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

// Where the keys (and values) of a batch lie: blocks of KV_BLOCK tokens in one arena.
typedef struct {
  const int32_t *positions;
  const uint32_t *tables;
  // F32 or BF16: what the blocks hold.
  int layout;
  // Block tables and their entries are offsets into it.
  const uint8_t *arena;
} History;

typedef struct {
  const float *q;
  float *out;
  int64_t heads, kvHeads, keyDim, valueDim;
  float scale;
  // Keys that a query sees; 0: all.
  int64_t window;
  // A logit without a value for each head, or NULL.
  const float *sinks;
  History history;
  // A value is the beginning of its key.
  bool valuesInKeys;
  // Rows of selectionStride words, how many and then which keys; or NULL.
  const int32_t *selection;
  int64_t selectionStride;
  float *scratch;
} AttentionCall;

typedef struct {
  const float *q, *weights;
  int64_t heads, headDim;
  float scale;
  History history;
  float *scores;
  int64_t stride, blocks;
} IndexCall;

typedef struct {
  const float *x;
  const float *bias;
  int64_t columns, k, groups, keptGroups;
  bool sumOfTwo;
  int32_t *ids;
  float *weights;
  int weightRule;
  float factor;
} TopKCall;

// groupRule and weightRule of topK.
enum { LARGEST = 0, TWO_LARGEST = 1 };
enum { AS_THEY_ARE = 0, NORMALISED = 1, SOFTMAX_OF_CHOSEN = 2 };
// Groups of topK whose scores are kept on the stack, and taps of convSilu whose weights are.
enum { MAX_GROUPS = 256, MAX_TAPS = 64 };

typedef struct {
  const float *qkv, *decay, *beta;
  float *state, *out;
  int64_t keyHeads, valueHeads, keyDim, valueDim, rows;
  // Value head j belongs to key head j % keyHeads.
  bool tiled;
  float *scratch;
} DeltaCall;

typedef struct {
  void (*quantise)(const float *x, int64_t columns, int8_t *codes, float *scales, int32_t *sums, int64_t row0, int64_t row1);
  void (*matmulTiles)(int layout, const uint8_t *w, int64_t rows, int64_t groups, Codes x, Rows r, int64_t panel0, int64_t panel1);
  void (*matmulFloat)(int layout, const uint8_t *w, int64_t columns, const float *x, Rows r, int64_t row0, int64_t row1);
  void (*matmulExact)(int layout, const uint8_t *w, int64_t columns, const float *x, Rows r, float *scratch, int64_t row0, int64_t row1);
  void (*embed)(int layout, const uint8_t *w, int64_t columns, const int32_t *ids, float *y, int64_t row0, int64_t row1);
  void (*rmsNorm)(const float *x, int64_t xStride, const float *weight, float *y, int64_t yStride, int64_t columns, float eps, int64_t row0, int64_t row1);
  void (*layerNorm)(float *x, int64_t stride, const float *weight, const float *bias, int64_t columns, float eps, int64_t row0, int64_t row1);
  void (*rope)(float *x, int64_t heads, int64_t headDim, int64_t first, int64_t rotaryDim, bool adjacent, const float *table, const int32_t *positions, int64_t row0, int64_t row1);
  void (*attention)(AttentionCall call, int64_t item0, int64_t item1);
  void (*indexScores)(IndexCall call, int64_t item0, int64_t item1);
  void (*selectKeys)(const float *scores, int64_t stride, int64_t k, const int32_t *positions, int32_t *selection, int64_t selectionStride, uint32_t *scratch, int64_t row0, int64_t row1);
  void (*swiglu)(const float *gate, const float *up, float *y, int64_t element0, int64_t element1);
  void (*add)(float *x, const float *y, int64_t element0, int64_t element1);
  void (*clamp)(float *x, float limit, int64_t element0, int64_t element1);
  void (*toBf16)(const float *x, uint16_t *y, int64_t element0, int64_t element1);
  void (*softmax)(const float *x, float *y, int64_t columns, int64_t row0, int64_t row1);
  void (*sigmoid)(const float *x, float *y, int64_t element0, int64_t element1);
  void (*sigmoidGate)(float *x, const float *gate, int64_t element0, int64_t element1);
  void (*gateRows)(float *x, const float *gates, int64_t columns, int64_t row0, int64_t row1);
  void (*addRows)(float *x, const float *bias, int64_t columns, int64_t row0, int64_t row1);
  void (*swigluClamped)(const float *gate, const float *up, float *y, float limit, float alpha, int64_t element0, int64_t element1);
  void (*copyColumns)(const float *x, int64_t xStride, float *y, int64_t yStride, int64_t width, int64_t item0, int64_t item1);
  void (*topK)(TopKCall call, int64_t row0, int64_t row1);
  void (*combine)(float *x, const float *parts, const float *weights, int64_t k, const float *shared, int64_t columns, int64_t row0, int64_t row1);
  void (*convSilu)(const float *u, float *tail, const float *w, float *y, int64_t channels, int64_t taps, int64_t rows, int64_t channel0, int64_t channel1);
  void (*deltaGates)(const float *a, const float *b, const float *rates, bool logarithms, const float *dtBias, float *decay, float *beta, int64_t heads, int64_t row0, int64_t row1);
  void (*deltaRule)(DeltaCall call, int64_t head0, int64_t head1);
  bool (*allFinite)(const float *x, int64_t elements);
} KernelTable;

#endif
