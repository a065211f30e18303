/** Commands: kernel calls as an op code and arguments in shared words, so that any thread can run a part of one. */

import type { Kernels } from './kernels.ts';

export const Op = {
  quantise: 1,
  matmulTiles: 2,
  matmulFloat: 3,
  matmulExact: 4,
  rmsNorm: 5,
  rope: 6,
  attention: 7,
  swiglu: 8,
  add: 9,
  softmax: 10,
  topK: 11,
  combine: 12,
  clamp: 13,
  /** swiglu of whole rows, then their quantisation: one job less per expert batch. */
  swigluQuantise: 14,
  /** rmsNorm of whole rows, then their quantisation. */
  rmsNormQuantise: 15,
  toBf16: 16,
  layerNorm: 17,
  sigmoid: 18,
  sigmoidGate: 19,
  gateRows: 20,
  addRows: 21,
  swigluClamped: 22,
  copyColumns: 23,
  indexScores: 24,
  selectKeys: 25,
  convSilu: 26,
  deltaGates: 27,
  deltaRule: 28,
} as const;

export type OpCode = (typeof Op)[keyof typeof Op];

/** Shared 32-bit words that hold the arguments of commands: as addresses and counts, and as float32. */
export interface CommandWords {
  readonly unsigned: Uint32Array;
  readonly floats: Float32Array;
}

/**
 * Runs one chunk of a command. `at`: index of its first argument; `lane` selects lane-owned scratch; [from, to) counts the
 * command's items.
 */
export type RunCommand = (op: number, at: number, lane: number, from: number, to: number) => void;

/** Runs commands with the methods of any kernels. Native kernels read the words themselves: see native/c/commands.h. */
export function commandRunner(kernels: Kernels, words: CommandWords): RunCommand {
  return (op, at, lane, from, to) => execute(kernels, words, op, at, lane, from, to);
}

function execute(
  k: Kernels,
  { unsigned: a, floats: f }: CommandWords,
  op: number,
  p: number,
  lane: number,
  from: number,
  to: number,
): void {
  switch (op) {
    case Op.quantise:
      k.quantise(a[p], a[p + 1], a[p + 2], a[p + 3], a[p + 4], from, to);
      break;
    case Op.matmulTiles:
      k.matmulTiles(
        a[p],
        a[p + 1],
        a[p + 2],
        a[p + 3],
        a[p + 4],
        a[p + 5],
        a[p + 6],
        a[p + 7],
        a[p + 8],
        a[p + 9],
        a[p + 10],
        a[p + 11],
        from,
        to,
      );
      break;
    case Op.matmulFloat:
      k.matmulFloat(
        a[p],
        a[p + 1],
        a[p + 2],
        a[p + 3],
        a[p + 4],
        a[p + 5],
        a[p + 6],
        a[p + 7],
        a[p + 8],
        a[p + 9],
        from,
        to,
      );
      break;
    case Op.matmulExact:
      k.matmulExact(
        a[p],
        a[p + 1],
        a[p + 2],
        a[p + 3],
        a[p + 4],
        a[p + 5],
        a[p + 6],
        a[p + 7],
        a[p + 8],
        a[p + 9],
        a[p + 10] + lane * a[p + 11],
        from,
        to,
      );
      break;
    case Op.rmsNorm:
      k.rmsNorm(a[p], a[p + 1], a[p + 2], a[p + 3], a[p + 4], a[p + 5], f[p + 6], from, to);
      break;
    case Op.rmsNormQuantise:
      k.rmsNorm(a[p], a[p + 1], a[p + 2], a[p + 3], a[p + 4], a[p + 5], f[p + 6], from, to);
      k.quantise(a[p + 3], a[p + 5], a[p + 7], a[p + 8], a[p + 9], from, to);
      break;
    case Op.layerNorm:
      k.layerNorm(a[p], a[p + 1], a[p + 2], a[p + 3], a[p + 4], f[p + 5], from, to);
      break;
    case Op.rope:
      k.rope(a[p], a[p + 1], a[p + 2], a[p + 3], a[p + 4], a[p + 5], a[p + 6], a[p + 7], from, to);
      break;
    case Op.attention:
      k.attention(
        a[p],
        a[p + 1],
        a[p + 2],
        a[p + 3],
        a[p + 4],
        a[p + 5],
        f[p + 6],
        a[p + 7],
        a[p + 8],
        a[p + 9],
        a[p + 10],
        a[p + 11],
        a[p + 12],
        a[p + 13],
        a[p + 14],
        a[p + 15] + lane * a[p + 16],
        from,
        to,
      );
      break;
    case Op.indexScores:
      k.indexScores(
        a[p],
        a[p + 1],
        a[p + 2],
        a[p + 3],
        f[p + 4],
        a[p + 5],
        a[p + 6],
        a[p + 7],
        a[p + 8],
        a[p + 9],
        a[p + 10],
        from,
        to,
      );
      break;
    case Op.selectKeys:
      k.selectKeys(a[p], a[p + 1], a[p + 2], a[p + 3], a[p + 4], a[p + 5], a[p + 6] + lane * a[p + 7], from, to);
      break;
    case Op.swiglu:
      k.swiglu(a[p], a[p + 1], a[p], from, to);
      break;
    case Op.swigluQuantise:
      k.swiglu(a[p], a[p + 1], a[p], from * a[p + 2], to * a[p + 2]);
      k.quantise(a[p], a[p + 2], a[p + 3], a[p + 4], a[p + 5], from, to);
      break;
    case Op.add:
      k.add(a[p], a[p + 1], from, to);
      break;
    case Op.softmax:
      k.softmax(a[p], a[p + 1], a[p + 2], from, to);
      break;
    case Op.sigmoid:
      k.sigmoid(a[p], a[p + 1], from, to);
      break;
    case Op.sigmoidGate:
      k.sigmoidGate(a[p], a[p + 1], from, to);
      break;
    case Op.gateRows:
      k.gateRows(a[p], a[p + 1], a[p + 2], from, to);
      break;
    case Op.addRows:
      k.addRows(a[p], a[p + 1], a[p + 2], from, to);
      break;
    case Op.swigluClamped:
      k.swigluClamped(a[p], a[p + 1], a[p], f[p + 2], f[p + 3], from, to);
      break;
    case Op.copyColumns:
      k.copyColumns(a[p], a[p + 1], a[p + 2], a[p + 3], a[p + 4], from, to);
      break;
    case Op.topK:
      k.topK(
        a[p],
        a[p + 1],
        a[p + 2],
        a[p + 3],
        a[p + 4],
        a[p + 5],
        a[p + 6],
        a[p + 7],
        a[p + 8],
        a[p + 9],
        f[p + 10],
        from,
        to,
      );
      break;
    case Op.combine:
      k.combine(a[p], a[p + 1], a[p + 2], a[p + 3], a[p + 4], a[p + 5], from, to);
      break;
    case Op.convSilu:
      k.convSilu(a[p], a[p + 1], a[p + 2], a[p + 3], a[p + 4], a[p + 5], a[p + 6], from, to);
      break;
    case Op.deltaGates:
      k.deltaGates(a[p], a[p + 1], a[p + 2], a[p + 3], a[p + 4], a[p + 5], a[p + 6], a[p + 7], from, to);
      break;
    case Op.deltaRule:
      k.deltaRule(
        a[p],
        a[p + 1],
        a[p + 2],
        a[p + 3],
        a[p + 4],
        a[p + 5],
        a[p + 6],
        a[p + 7],
        a[p + 8],
        a[p + 9],
        a[p + 10],
        a[p + 11] + lane * a[p + 12],
        from,
        to,
      );
      break;
    case Op.clamp:
      k.clamp(a[p], f[p + 1], from, to);
      break;
    case Op.toBf16:
      k.toBf16(a[p], a[p + 1], from, to);
      break;
    default:
      throw new Error(`unknown op code ${op}`);
  }
}
