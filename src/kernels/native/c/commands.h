// Commands as compute writes them: an op code and arguments in shared 32-bit words. Numbers that cross from JavaScript into C
// are boxed when they exceed 31 bits or are no integers, which would be garbage for every chunk of work; words are not.
#ifndef COLI_COMMANDS_H
#define COLI_COMMANDS_H

#include "ops.h"

// Op of commands.ts.
enum {
  QUANTISE = 1,
  MATMUL_TILES,
  MATMUL_FLOAT,
  MATMUL_EXACT,
  RMS_NORM,
  ROPE,
  ATTENTION,
  SWIGLU,
  ADD,
  SOFTMAX,
  TOP_K,
  COMBINE,
  CLAMP,
  SWIGLU_QUANTISE,
  RMS_NORM_QUANTISE,
  TO_BF16,
  LAYER_NORM,
  SIGMOID,
  SIGMOID_GATE,
  GATE_ROWS,
  ADD_ROWS,
  SWIGLU_CLAMPED,
  COPY_COLUMNS,
  INDEX_SCORES,
  SELECT_KEYS,
  CONV_SILU,
  DELTA_GATES,
  DELTA_RULE,
};

// Words that a command may use.
enum { COMMAND_ARGUMENTS = 17 };

typedef struct {
  const uint32_t *words;
  uint32_t lane;
  int64_t from, to;
} Command;

// All arguments but the range are words, in order.
static void load(Call *c, const Op *op, const Command *command) {
  const int count = op->arguments - 2;
  c->op = op->name;
  for (int i = 0; i < count; i++) {
    if (op->reals & REAL(i)) memcpy(&c->real[i], &command->words[i], 4);
    else c->at[i] = command->words[i];
  }
  c->at[count] = command->from;
  c->at[count + 1] = command->to;
}

static void runOp(Call *c, const Op *op, const Command *command) {
  load(c, op, command);
  op->run(c);
}

// As runOp; argument `i` is the scratch of lane 0, and the word after it the distance to the next lane's.
static void runWithScratch(Call *c, const Op *op, const Command *command, int i) {
  load(c, op, command);
  c->at[i] += (int64_t)command->lane * command->words[i + 1];
  op->run(c);
}

static void runSwiglu(Call *c, const Command *command, int64_t from, int64_t to) {
  const uint32_t *w = command->words;
  const uint32_t words[] = {w[0], w[1], w[0]};
  runOp(c, &op_swiglu, &(Command){words, command->lane, from, to});
}

// The result replaces the gate.
static void runSwigluClamped(Call *c, const Command *command) {
  const uint32_t *w = command->words;
  const uint32_t words[] = {w[0], w[1], w[0], w[2], w[3]};
  runOp(c, &op_swigluClamped, &(Command){words, command->lane, command->from, command->to});
}

// Quantises what the first half of a command made: rows at x, to the three words from `codes` on.
static void quantiseAfter(Call *c, const Command *command, uint32_t x, uint32_t columns, int codes) {
  const uint32_t *w = command->words;
  const uint32_t words[] = {x, columns, w[codes], w[codes + 1], w[codes + 2]};
  if (!c->failed) runOp(c, &op_quantise, &(Command){words, command->lane, command->from, command->to});
}

static void failUnknown(Call *c, uint32_t code) {
  char text[40];
  snprintf(text, sizeof text, "unknown op code %u", code);
  fail(c, text);
}

static void runCommand(Call *c, uint32_t code, const Command *command) {
  const uint32_t *w = command->words;
  switch (code) {
    case QUANTISE: runOp(c, &op_quantise, command); break;
    case MATMUL_TILES: runOp(c, &op_matmulTiles, command); break;
    case MATMUL_FLOAT: runOp(c, &op_matmulFloat, command); break;
    case MATMUL_EXACT: runWithScratch(c, &op_matmulExact, command, 10); break;
    case RMS_NORM: runOp(c, &op_rmsNorm, command); break;
    case ROPE: runOp(c, &op_rope, command); break;
    case ATTENTION: runWithScratch(c, &op_attention, command, 15); break;
    case SWIGLU: runSwiglu(c, command, command->from, command->to); break;
    case ADD: runOp(c, &op_add, command); break;
    case SOFTMAX: runOp(c, &op_softmax, command); break;
    case TOP_K: runOp(c, &op_topK, command); break;
    case COMBINE: runOp(c, &op_combine, command); break;
    case CLAMP: runOp(c, &op_clamp, command); break;
    case TO_BF16: runOp(c, &op_toBf16, command); break;
    case LAYER_NORM: runOp(c, &op_layerNorm, command); break;
    case SIGMOID: runOp(c, &op_sigmoid, command); break;
    case SIGMOID_GATE: runOp(c, &op_sigmoidGate, command); break;
    case GATE_ROWS: runOp(c, &op_gateRows, command); break;
    case ADD_ROWS: runOp(c, &op_addRows, command); break;
    case SWIGLU_CLAMPED: runSwigluClamped(c, command); break;
    case COPY_COLUMNS: runOp(c, &op_copyColumns, command); break;
    case INDEX_SCORES: runOp(c, &op_indexScores, command); break;
    case SELECT_KEYS: runWithScratch(c, &op_selectKeys, command, 6); break;
    case CONV_SILU: runOp(c, &op_convSilu, command); break;
    case DELTA_GATES: runOp(c, &op_deltaGates, command); break;
    case DELTA_RULE: runWithScratch(c, &op_deltaRule, command, 11); break;
    case SWIGLU_QUANTISE:
      runSwiglu(c, command, command->from * w[2], command->to * w[2]);
      quantiseAfter(c, command, w[0], w[2], 3);
      break;
    case RMS_NORM_QUANTISE:
      runOp(c, &op_rmsNorm, command);
      quantiseAfter(c, command, w[3], w[5], 7);
      break;
    default: failUnknown(c, code);
  }
}

#endif
