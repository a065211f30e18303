// The Node-API side: every kernel as a function of numbers, bound to one arena and one variant, and a function that runs
// commands from shared memory.
#include "commands.h"
#include "cpu.h"

static const Op *const METHODS[] = {
    &op_quantise,      &op_matmulTiles, &op_matmulFloat, &op_matmulExact, &op_embed,      &op_rmsNorm,
    &op_layerNorm,     &op_rope,        &op_attention,   &op_indexScores, &op_selectKeys, &op_swiglu,
    &op_swigluClamped, &op_add,         &op_addRows,     &op_clamp,       &op_toBf16,     &op_softmax,
    &op_sigmoid,       &op_sigmoidGate, &op_gateRows,    &op_copyColumns, &op_topK,       &op_combine,
    &op_convSilu,      &op_deltaGates,  &op_deltaRule,   &op_allFinite,
};
enum { METHOD_COUNT = sizeof METHODS / sizeof METHODS[0] };

typedef struct {
  Arena arena;
  const Op *op;
} Method;

// A function that runs commands: the words it reads, and the arena.
typedef struct {
  Arena arena;
  const uint32_t *words;
  uint64_t count;
} Runner;

static void readArguments(Call *call, napi_callback_info info, const Op *op) {
  napi_value values[MAX_ARGUMENTS];
  size_t given = MAX_ARGUMENTS;
  napi_get_cb_info(call->env, info, &given, values, NULL, NULL);
  if (given != (size_t)op->arguments) fail(call, "wrong number of arguments");
  for (int i = 0; i < op->arguments && !call->failed; i++) {
    double value;
    if (napi_get_value_double(call->env, values[i], &value) != napi_ok) fail(call, "an argument is not a number");
    else if (op->reals & REAL(i)) call->real[i] = (float)value;
    else if (value >= -MAX_VALUE && value <= MAX_VALUE && (double)(int64_t)value == value) call->at[i] = (int64_t)value;
    else fail(call, "an argument is not an offset or a count");
  }
}

static napi_value callMethod(napi_env env, napi_callback_info info) {
  void *data;
  napi_value result = NULL;
  napi_get_cb_info(env, info, NULL, NULL, NULL, &data);
  const Method *method = data;
  Call call = {.env = env, .op = method->op->name, .arena = &method->arena};
  readArguments(&call, info, method->op);
  if (!call.failed) method->op->run(&call);
  if (method->op == &op_allFinite && !call.failed) napi_create_uint32(env, call.answer, &result);
  return result;
}

// run(op, at, lane, from, to): `at` is the index of the command's first argument. All are small integers.
static napi_value callRunner(napi_env env, napi_callback_info info) {
  void *data;
  napi_value values[5];
  size_t given = 5;
  uint32_t numbers[5];
  napi_get_cb_info(env, info, &given, values, NULL, &data);
  const Runner *runner = data;
  Call call = {.env = env, .op = "command", .arena = &runner->arena};
  for (size_t i = 0; i < 5; i++)
    if (i >= given || napi_get_value_uint32(env, values[i], &numbers[i]) != napi_ok) fail(&call, "an argument is not a number");
  if (!call.failed && (uint64_t)numbers[1] + COMMAND_ARGUMENTS > runner->count) fail(&call, "not in the words");
  if (!call.failed) {
    const Command command = {runner->words + numbers[1], numbers[2], numbers[3], numbers[4]};
    runCommand(&call, numbers[0], &command);
  }
  return NULL;
}

static void freeData(napi_env env, void *data, void *hint) {
  (void)env;
  (void)hint;
  free(data);
}

// Gives a function its data, and keeps what the data points into alive as long as the function.
static napi_value makeFunction(napi_env env, const char *name, napi_callback call, const void *data, size_t bytes,
                               napi_value arena, napi_value words) {
  napi_value function = NULL;
  void *copy = malloc(bytes);
  if (!copy) {
    napi_throw_error(env, "KERNEL_UNAVAILABLE", "out of memory");
    return NULL;
  }
  memcpy(copy, data, bytes);
  napi_create_function(env, name, NAPI_AUTO_LENGTH, call, copy, &function);
  napi_add_finalizer(env, function, copy, freeData, NULL, NULL);
  const napi_property_descriptor keep[] = {
      {.utf8name = "arena", .value = arena, .attributes = napi_default},
      {.utf8name = "words", .value = words, .attributes = napi_default},
  };
  napi_define_properties(env, function, words ? 2 : 1, keep);
  return function;
}

static const Variant *variantNamed(napi_env env, napi_value value) {
  char name[32];
  size_t length;
  if (napi_get_value_string_utf8(env, value, name, sizeof name, &length) != napi_ok) return NULL;
  for (int i = 0; i < VARIANT_COUNT; i++)
    if (strcmp(VARIANTS[i].name, name) == 0 && VARIANTS[i].supported()) return &VARIANTS[i];
  return NULL;
}

// The bytes of a Uint8Array over shared memory: an ordinary buffer can be taken away from under the kernels.
static bool sharedBytes(napi_env env, napi_value value, uint8_t **data, size_t *length) {
  napi_typedarray_type type;
  napi_value buffer;
  bool canBeDetached;
  void *at;
  if (napi_get_typedarray_info(env, value, &type, length, &at, &buffer, NULL) == napi_ok && type == napi_uint8_array) {
    napi_is_arraybuffer(env, buffer, &canBeDetached);
    *data = at;
    if (!canBeDetached && (uintptr_t)at % 16 == 0) return true;
  }
  napi_throw_type_error(env, "KERNEL_UNAVAILABLE", "memory must be a Uint8Array over shared memory from its start");
  return false;
}

// What create and createRunner begin with: the variant's name and the arena.
static bool readArena(napi_env env, const napi_value *args, Arena *arena) {
  size_t length;
  if (!sharedBytes(env, args[1], &arena->base, &length)) return false;
  const Variant *variant = variantNamed(env, args[0]);
  if (!variant) {
    napi_throw_error(env, "KERNEL_UNAVAILABLE", "this processor or this build has no such variant");
    return false;
  }
  arena->bytes = length;
  arena->kernels = variant->table;
  return true;
}

// create(variant, arena): the methods of Kernels over a Uint8Array that covers a whole arena.
static napi_value create(napi_env env, napi_callback_info info) {
  napi_value args[2], result;
  size_t count = 2;
  Method method;
  napi_get_cb_info(env, info, &count, args, NULL, NULL);
  if (!readArena(env, args, &method.arena)) return NULL;
  napi_create_object(env, &result);
  for (int i = 0; i < METHOD_COUNT; i++) {
    method.op = METHODS[i];
    const napi_value function = makeFunction(env, METHODS[i]->name, callMethod, &method, sizeof method, args[1], NULL);
    if (!function) return NULL;
    napi_set_named_property(env, result, METHODS[i]->name, function);
  }
  return result;
}

// createRunner(variant, arena, words): a function that runs commands whose arguments lie in `words`.
static napi_value createRunner(napi_env env, napi_callback_info info) {
  napi_value args[3];
  size_t count = 3, length;
  Runner runner;
  uint8_t *words;
  napi_get_cb_info(env, info, &count, args, NULL, NULL);
  if (!readArena(env, args, &runner.arena) || !sharedBytes(env, args[2], &words, &length)) return NULL;
  runner.words = (const uint32_t *)words;
  runner.count = length / 4;
  return makeFunction(env, "run", callRunner, &runner, sizeof runner, args[1], args[2]);
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
enum { INTERFACE = 5 };

NAPI_MODULE_INIT() {
  napi_value method, version;
  napi_create_uint32(env, INTERFACE, &version);
  napi_set_named_property(env, exports, "interface", version);
  napi_create_function(env, "create", NAPI_AUTO_LENGTH, create, NULL, &method);
  napi_set_named_property(env, exports, "create", method);
  napi_create_function(env, "createRunner", NAPI_AUTO_LENGTH, createRunner, NULL, &method);
  napi_set_named_property(env, exports, "createRunner", method);
  napi_set_named_property(env, exports, "variants", supportedVariants(env));
  return exports;
}
