// Arguments of one call: numbers, turned into pointers after a check against the arena's size. The contents of index tables
// are checked, too: a wrong number in them must end in an error and not in foreign memory.
#ifndef COLI_CALL_H
#define COLI_CALL_H

#include <node_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels.h"

enum { MAX_ARGUMENTS = 18 };

typedef struct {
  uint8_t *base;
  uint64_t bytes;
  const KernelTable *kernels;
} Arena;

typedef struct {
  napi_env env;
  const char *op;
  const Arena *arena;
  int64_t at[MAX_ARGUMENTS];
  // Arguments that are no integers.
  float real[MAX_ARGUMENTS];
  bool answer;
  bool failed;
} Call;

// No argument is larger: offsets and counts of an arena of 4 GiB.
static const int64_t MAX_VALUE = (int64_t)1 << 32;

static void fail(Call *call, const char *what) {
  if (call->failed) return;
  call->failed = true;
  char message[160];
  snprintf(message, sizeof message, "%s: %s", call->op, what);
  napi_throw_range_error(call->env, "KERNEL_BOUNDS", message);
}

// An argument that counts something.
static int64_t countOf(Call *call, int i) {
  const int64_t value = call->at[i];
  if (value < 0) fail(call, "a count is out of range");
  return call->failed ? 0 : value;
}

// Products and sums that would overflow become too large for any arena.
static uint64_t times(uint64_t a, uint64_t b) {
  uint64_t product;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t plus(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

// The address of `count` things of `unit` bytes. Things of 4 bytes lie at multiples of 4; weights are counted in bytes.
static void *spanAt(Call *call, int64_t offset, uint64_t count, uint64_t unit) {
  const Arena *arena = call->arena;
  if (call->failed) return NULL;
  if (offset <= 0 || (uint64_t)offset > arena->bytes || count > (arena->bytes - (uint64_t)offset) / unit) {
    fail(call, "a buffer reaches beyond the arena");
    return NULL;
  }
  if ((uint64_t)offset % unit != 0) {
    fail(call, "a buffer is not aligned");
    return NULL;
  }
  return arena->base + offset;
}

// Argument i as such an address.
static void *span(Call *call, int i, uint64_t count, uint64_t unit) { return spanAt(call, call->at[i], count, unit); }

// Argument i: `rows` rows of `width` things of 4 bytes that are `stride` apart.
static void *stridedSpan(Call *call, int i, int64_t rows, int64_t stride, uint64_t width) {
  return span(call, i, rows <= 0 ? 0 : plus(times((uint64_t)rows - 1, (uint64_t)stride), width), 4);
}

// Argument i as such an address, or NULL for 0.
static void *spanOrNull(Call *call, int i, uint64_t count) {
  return call->at[i] == 0 ? NULL : span(call, i, count, 4);
}

// An argument that is one of 0..last.
static int choiceOf(Call *call, int i, int64_t last) {
  if (call->at[i] < 0 || call->at[i] > last) fail(call, "a choice is out of range");
  return call->failed ? 0 : (int)call->at[i];
}

static void checkRange(Call *call, int64_t from, int64_t to) {
  if (from < 0 || to < from) fail(call, "the range of work is not in order");
}

// An index table of n entries, or NULL for 0; `largest` becomes the largest row.
static const int32_t *indexTable(Call *call, int i, int64_t n, int64_t *largest) {
  *largest = n - 1;
  if (call->at[i] == 0) return NULL;
  const int32_t *index = span(call, i, (uint64_t)n, 4);
  if (!index) return NULL;
  *largest = -1;
  for (int64_t k = 0; k < n; k++) {
    if (index[k] < 0) fail(call, "an index is negative");
    if (index[k] > *largest) *largest = index[k];
  }
  return index;
}

#endif
