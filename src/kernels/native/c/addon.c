// The Node-API side: every kernel as a function of numbers, bound to one arena and one variant.
#include "call.h"
#include "cpu.h"
#if defined(__linux__)
#include <sys/mman.h>
#endif

#define KERNEL(name) static napi_value call_##name(napi_env env, napi_callback_info info)
#define BEGIN(op, count) BEGIN_REAL(op, count, ALL_INTEGERS)
#define BEGIN_REAL(op, count, realAt) \
  Call call, *const c = &call; \
  if (!beginCall(env, info, op, count, realAt, c)) return NULL; \
  const KernelTable *const k = c->arena->kernels

KERNEL(quantise) {
  BEGIN("quantise", 7);
  const int64_t columns = countOf(c, 1), row0 = c->at[5], row1 = c->at[6];
  checkRange(c, row0, row1);
  const uint64_t groups = times(row1, groupsOf(columns));
  const float *x = span(c, 0, times(row1, columns), 4);
  int8_t *codes = span(c, 2, times(groups, GROUP), 1);
  float *scales = span(c, 3, groups, 4);
  int32_t *sums = span(c, 4, groups, 4);
  if (!c->failed) k->quantise(x, columns, codes, scales, sums, row0, row1);
  return NULL;
}

KERNEL(matmulTiles) {
  BEGIN("matmulTiles", 14);
  const int64_t layout = c->at[0], rows = countOf(c, 2), groups = countOf(c, 3), n = countOf(c, 11);
  const int64_t panel0 = c->at[12], panel1 = c->at[13];
  checkRange(c, panel0, panel1);
  if (layout < Q4 || layout >= LAYOUTS) fail(c, "not a tile layout");
  if (panel1 > (rows + TILE_ROWS - 1) / TILE_ROWS) fail(c, "more panels than the matrix has");
  if (c->failed) return NULL;
  int64_t lastX, lastY;
  Rows r = {.n = n, .yStride = countOf(c, 9)};
  r.xIndex = indexTable(c, 7, n, &lastX);
  r.yIndex = indexTable(c, 10, n, &lastY);
  const uint8_t *w = span(c, 1, times(times(panel1, groups), tileBytes((int)layout)), 1);
  const uint64_t xGroups = times(lastX + 1, groups);
  const Codes x = {span(c, 4, times(xGroups, GROUP), 1), span(c, 5, xGroups, 4), span(c, 6, xGroups, 4)};
  const int64_t width = panel1 * TILE_ROWS < rows ? panel1 * TILE_ROWS : rows;
  r.y = span(c, 8, n == 0 ? 0 : plus(times(lastY, r.yStride), width), 4);
  if (!c->failed) k->matmulTiles((int)layout, w, rows, groups, x, r, panel0, panel1);
  return NULL;
}

// What matmulFloat and matmulExact share: arguments 0 to 9.
static Rows floatRows(Call *c, int64_t row1, const float **x) {
  int64_t lastX, lastY;
  Rows r = {.n = countOf(c, 9), .xStride = countOf(c, 4), .yStride = countOf(c, 7)};
  r.xIndex = indexTable(c, 5, r.n, &lastX);
  r.yIndex = indexTable(c, 8, r.n, &lastY);
  *x = span(c, 3, r.n == 0 ? 0 : plus(times(lastX, r.xStride), countOf(c, 2)), 4);
  r.y = span(c, 6, r.n == 0 ? 0 : plus(times(lastY, r.yStride), row1), 4);
  return r;
}

KERNEL(matmulFloat) {
  BEGIN("matmulFloat", 12);
  const int64_t layout = c->at[0], columns = countOf(c, 2), row0 = c->at[10], row1 = c->at[11];
  checkRange(c, row0, row1);
  if (layout < F32 || layout > F16) fail(c, "not a float layout");
  const uint8_t *w = span(c, 1, times(times(row1, columns), floatBytes((int)layout)), 1);
  const float *x;
  const Rows r = floatRows(c, row1, &x);
  if (!c->failed) k->matmulFloat((int)layout, w, columns, x, r, row0, row1);
  return NULL;
}

// Bytes of `rows` rows of a matrix.
static uint64_t matrixBytes(int layout, int64_t rows, int64_t columns) {
  if (!isTile(layout)) return times(times(rows, columns), floatBytes(layout));
  return times(times((rows + TILE_ROWS - 1) / TILE_ROWS, groupsOf(columns)), tileBytes(layout));
}

KERNEL(matmulExact) {
  BEGIN("matmulExact", 13);
  const int64_t layout = c->at[0], columns = countOf(c, 2), row0 = c->at[11], row1 = c->at[12];
  checkRange(c, row0, row1);
  if (layout < Q4 || layout >= LAYOUTS) fail(c, "not a tile layout");
  const uint8_t *w = span(c, 1, matrixBytes((int)layout, row1, columns), 1);
  const float *x;
  const Rows r = floatRows(c, row1, &x);
  float *scratch = span(c, 10, columns, 4);
  if (!c->failed) k->matmulExact((int)layout, w, columns, x, r, scratch, row0, row1);
  return NULL;
}

KERNEL(embed) {
  BEGIN("embed", 7);
  const int64_t layout = c->at[0], columns = countOf(c, 2), row0 = c->at[5], row1 = c->at[6];
  checkRange(c, row0, row1);
  if (layout < F32 || layout >= LAYOUTS) fail(c, "not a layout");
  const int32_t *ids = span(c, 3, row1, 4);
  float *y = span(c, 4, times(row1, columns), 4);
  for (int64_t i = row0; i < row1 && !c->failed; i++) {
    if (ids[i] < 0) fail(c, "an id is negative");
    span(c, 1, matrixBytes((int)layout, (int64_t)ids[i] + 1, columns), 1);
  }
  if (!c->failed) k->embed((int)layout, c->arena->base + c->at[1], columns, ids, y, row0, row1);
  return NULL;
}

KERNEL(rmsNorm) {
  BEGIN_REAL("rmsNorm", 7, 4);
  const int64_t columns = countOf(c, 3), row0 = c->at[5], row1 = c->at[6];
  checkRange(c, row0, row1);
  const float *x = span(c, 0, times(row1, columns), 4), *weight = span(c, 1, times(columns, 4), 1);
  float *y = span(c, 2, times(row1, columns), 4);
  if (!c->failed) k->rmsNorm(x, weight, y, columns, c->real, row0, row1);
  return NULL;
}

KERNEL(rope) {
  BEGIN("rope", 8);
  const int64_t heads = countOf(c, 1), headDim = countOf(c, 2), rotaryDim = countOf(c, 3);
  const int64_t row0 = c->at[6], row1 = c->at[7];
  checkRange(c, row0, row1);
  if (rotaryDim > headDim) fail(c, "rotaryDim exceeds headDim");
  float *x = span(c, 0, times(row1, times(heads, headDim)), 4);
  const int32_t *positions = span(c, 5, row1, 4);
  for (int64_t i = row0; i < row1 && !c->failed; i++) {
    if (positions[i] < 0) fail(c, "a position is negative");
    span(c, 4, times((int64_t)positions[i] + 1, rotaryDim), 4);
  }
  const float *table = (const float *)(c->arena->base + c->at[4]);
  if (!c->failed) k->rope(x, heads, headDim, rotaryDim, table, positions, row0, row1);
  return NULL;
}

// The block tables of the rows from item0 to item1, and what they point to.
static void checkHistory(Call *c, const AttentionCall *a, int64_t item0, int64_t item1) {
  const uint64_t blockFloats = times(2 * KV_BLOCK, times(a->kvHeads, a->headDim));
  for (int64_t row = item0 / a->heads; row * a->heads < item1 && !c->failed; row++) {
    if (a->positions[row] < 0) fail(c, "a position is negative");
    const int64_t keys = (int64_t)a->positions[row] + 1, blocks = (keys + KV_BLOCK - 1) / KV_BLOCK;
    span(c, 8, times(keys, ATTENTION_SCRATCH), 4);
    const uint32_t *table = spanAt(c, a->tables[row], blocks, 4);
    for (int64_t b = 0; b < blocks && !c->failed; b++) spanAt(c, table[b], blockFloats, 4);
  }
}

KERNEL(attention) {
  BEGIN_REAL("attention", 11, 5);
  const int64_t item0 = c->at[9], item1 = c->at[10];
  AttentionCall a = {.heads = countOf(c, 2), .kvHeads = countOf(c, 3), .headDim = countOf(c, 4), .scale = c->real};
  checkRange(c, item0, item1);
  if (a.heads < 1 || a.kvHeads < 1 || a.heads % a.kvHeads != 0) fail(c, "kvHeads must divide heads");
  if (c->failed) return NULL;
  const int64_t rows = (item1 + a.heads - 1) / a.heads;
  a.q = span(c, 0, times(item1, a.headDim), 4);
  a.out = span(c, 1, times(item1, a.headDim), 4);
  a.positions = span(c, 6, rows, 4);
  a.tables = span(c, 7, rows, 4);
  a.scratch = span(c, 8, 1, 4);
  a.arena = c->arena->base;
  if (!c->failed) checkHistory(c, &a, item0, item1);
  if (!c->failed) k->attention(a, item0, item1);
  return NULL;
}

KERNEL(swiglu) {
  BEGIN("swiglu", 5);
  const int64_t from = c->at[3], to = c->at[4];
  checkRange(c, from, to);
  const float *gate = span(c, 0, to, 4), *up = span(c, 1, to, 4);
  float *y = span(c, 2, to, 4);
  if (!c->failed) k->swiglu(gate, up, y, from, to);
  return NULL;
}

KERNEL(add) {
  BEGIN("add", 4);
  const int64_t from = c->at[2], to = c->at[3];
  checkRange(c, from, to);
  float *x = span(c, 0, to, 4);
  const float *y = span(c, 1, to, 4);
  if (!c->failed) k->add(x, y, from, to);
  return NULL;
}

KERNEL(scale) {
  BEGIN_REAL("scale", 4, 1);
  const int64_t from = c->at[2], to = c->at[3];
  checkRange(c, from, to);
  float *x = span(c, 0, to, 4);
  if (!c->failed) k->scale(x, c->real, from, to);
  return NULL;
}

KERNEL(clamp) {
  BEGIN_REAL("clamp", 4, 1);
  const int64_t from = c->at[2], to = c->at[3];
  checkRange(c, from, to);
  float *x = span(c, 0, to, 4);
  if (!c->failed) k->clamp(x, c->real, from, to);
  return NULL;
}

KERNEL(softmax) {
  BEGIN("softmax", 5);
  const int64_t columns = countOf(c, 2), row0 = c->at[3], row1 = c->at[4];
  checkRange(c, row0, row1);
  const float *x = span(c, 0, times(row1, columns), 4);
  float *y = span(c, 1, times(row1, columns), 4);
  if (!c->failed) k->softmax(x, y, columns, row0, row1);
  return NULL;
}

KERNEL(topK) {
  BEGIN("topK", 8);
  const int64_t columns = countOf(c, 1), count = countOf(c, 2), row0 = c->at[6], row1 = c->at[7];
  checkRange(c, row0, row1);
  if (count > columns) fail(c, "k exceeds columns");
  const float *x = span(c, 0, times(row1, columns), 4);
  int32_t *ids = span(c, 3, times(row1, count), 4);
  float *weights = span(c, 4, times(row1, count), 4);
  if (!c->failed) k->topK(x, columns, count, ids, weights, c->at[5] != 0, row0, row1);
  return NULL;
}

KERNEL(combine) {
  BEGIN("combine", 7);
  const int64_t count = countOf(c, 3), columns = countOf(c, 4), row0 = c->at[5], row1 = c->at[6];
  checkRange(c, row0, row1);
  float *x = span(c, 0, times(row1, columns), 4);
  const float *parts = span(c, 1, times(times(row1, count), columns), 4), *weights = span(c, 2, times(row1, count), 4);
  if (!c->failed) k->combine(x, parts, weights, count, columns, row0, row1);
  return NULL;
}

KERNEL(allFinite) {
  BEGIN("allFinite", 2);
  const int64_t elements = countOf(c, 1);
  const float *x = span(c, 0, elements, 4);
  napi_value result = NULL;
  if (!c->failed) napi_create_uint32(env, k->allFinite(x, elements), &result);
  return result;
}

static const struct {
  const char *name;
  napi_callback call;
} METHODS[] = {
    {"quantise", call_quantise},   {"matmulTiles", call_matmulTiles}, {"matmulFloat", call_matmulFloat},
    {"matmulExact", call_matmulExact}, {"embed", call_embed},         {"rmsNorm", call_rmsNorm},
    {"rope", call_rope},           {"attention", call_attention},     {"swiglu", call_swiglu},
    {"add", call_add},             {"scale", call_scale},             {"clamp", call_clamp},
    {"softmax", call_softmax},     {"topK", call_topK},               {"combine", call_combine},
    {"allFinite", call_allFinite},
};

static void freeArena(napi_env env, void *data, void *hint) {
  (void)env;
  (void)hint;
  free(data);
}

static const Variant *variantNamed(napi_env env, napi_value value) {
  char name[32];
  size_t length;
  if (napi_get_value_string_utf8(env, value, name, sizeof name, &length) != napi_ok) return NULL;
  for (int i = 0; i < VARIANT_COUNT; i++)
    if (strcmp(VARIANTS[i].name, name) == 0 && VARIANTS[i].supported()) return &VARIANTS[i];
  return NULL;
}

// Asks for huge pages, where the system leaves that to programs: fewer address lookups for weights that are read once per
// token, and a cheaper first touch. All of an arena is in the plan, so it cannot grow beyond it. A refusal changes nothing.
static void adviseHugePages(uint8_t *base, size_t bytes) {
#if defined(MADV_HUGEPAGE)
  const uintptr_t page = 4096, from = ((uintptr_t)base + page - 1) & ~(page - 1);
  const uintptr_t to = ((uintptr_t)base + bytes) & ~(page - 1);
  if (to > from) madvise((void *)from, to - from, MADV_HUGEPAGE);
#else
  (void)base;
  (void)bytes;
#endif
}

// create(variant, bytes): the methods of Kernels over the memory of a Uint8Array that covers a whole arena.
static napi_value create(napi_env env, napi_callback_info info) {
  napi_value args[2], buffer, result;
  size_t count = 2, length;
  void *data;
  napi_typedarray_type type;
  bool canBeDetached;
  napi_get_cb_info(env, info, &count, args, NULL, NULL);
  const Variant *variant = count == 2 ? variantNamed(env, args[0]) : NULL;
  if (!variant) {
    napi_throw_error(env, "KERNEL_UNAVAILABLE", "this processor or this build has no such variant");
    return NULL;
  }
  if (napi_get_typedarray_info(env, args[1], &type, &length, &data, &buffer, NULL) != napi_ok || type != napi_uint8_array) {
    napi_throw_type_error(env, "KERNEL_UNAVAILABLE", "the arena must be a Uint8Array");
    return NULL;
  }
  // An ordinary buffer can be taken away from under the kernels.
  napi_is_arraybuffer(env, buffer, &canBeDetached);
  if (canBeDetached || (uintptr_t)data % 16 != 0) {
    napi_throw_type_error(env, "KERNEL_UNAVAILABLE", "the arena must be shared memory from its start");
    return NULL;
  }
  Arena *arena = malloc(sizeof *arena);
  if (!arena) {
    napi_throw_error(env, "KERNEL_UNAVAILABLE", "out of memory");
    return NULL;
  }
  *arena = (Arena){data, length, variant->table};
  adviseHugePages(data, length);
  napi_create_object(env, &result);
  // Functions keep the bytes alive, and the bytes keep what the functions read.
  napi_add_finalizer(env, args[1], arena, freeArena, NULL, NULL);
  for (size_t i = 0; i < sizeof METHODS / sizeof METHODS[0]; i++) {
    napi_value method;
    napi_create_function(env, METHODS[i].name, NAPI_AUTO_LENGTH, METHODS[i].call, arena, &method);
    const napi_property_descriptor keep = {.utf8name = "arena", .value = args[1], .attributes = napi_default};
    napi_define_properties(env, method, 1, &keep);
    napi_set_named_property(env, result, METHODS[i].name, method);
  }
  return result;
}

// The variants of this build that this processor can run, fastest first.
static napi_value supportedVariants(napi_env env) {
  napi_value list, name;
  napi_create_array(env, &list);
  for (uint32_t i = 0, at = 0; i < VARIANT_COUNT; i++) {
    if (!VARIANTS[i].supported()) continue;
    napi_create_string_utf8(env, VARIANTS[i].name, NAPI_AUTO_LENGTH, &name);
    napi_set_element(env, list, at++, name);
  }
  return list;
}

// INTERFACE of native.ts.
enum { INTERFACE = 1 };

NAPI_MODULE_INIT() {
  napi_value method, version;
  napi_create_uint32(env, INTERFACE, &version);
  napi_set_named_property(env, exports, "interface", version);
  napi_create_function(env, "create", NAPI_AUTO_LENGTH, create, NULL, &method);
  napi_set_named_property(env, exports, "create", method);
  napi_set_named_property(env, exports, "variants", supportedVariants(env));
  return exports;
}
