/** Runs one chunk of one command: the table from op codes to kernels, shared by the engine and the lanes. */

import type { Kernels } from '../kernels/kernels.ts';
import { ARGS, type Control } from './control.ts';

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
} as const;

export type OpCode = (typeof Op)[keyof typeof Op];

/** [from, to) counts the command's items; `lane` selects lane-owned scratch. */
export function execute(
  k: Kernels,
  control: Control,
  base: number,
  op: number,
  lane: number,
  from: number,
  to: number,
): void {
  const a = control.unsigned;
  const f = control.floats;
  const p = base + ARGS;
  switch (op) {
    case Op.quantise:
      return k.quantise(a[p], a[p + 1], a[p + 2], a[p + 3], a[p + 4], from, to);
    case Op.matmulTiles:
      return k.matmulTiles(
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
    case Op.matmulFloat:
      return k.matmulFloat(
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
    case Op.matmulExact:
      return k.matmulExact(
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
    case Op.rmsNorm:
      return k.rmsNorm(a[p], a[p + 1], a[p + 2], a[p + 3], f[p + 4], from, to);
    case Op.rmsNormQuantise:
      k.rmsNorm(a[p], a[p + 1], a[p + 2], a[p + 3], f[p + 4], from, to);
      return k.quantise(a[p + 2], a[p + 3], a[p + 5], a[p + 6], a[p + 7], from, to);
    case Op.rope:
      return k.rope(a[p], a[p + 1], a[p + 2], a[p + 3], a[p + 4], a[p + 5], from, to);
    case Op.attention:
      return k.attention(
        a[p],
        a[p + 1],
        a[p + 2],
        a[p + 3],
        a[p + 4],
        f[p + 5],
        a[p + 6],
        a[p + 7],
        a[p + 8] + lane * a[p + 9],
        from,
        to,
      );
    case Op.swiglu:
      return k.swiglu(a[p], a[p + 1], a[p], from, to);
    case Op.swigluQuantise:
      k.swiglu(a[p], a[p + 1], a[p], from * a[p + 2], to * a[p + 2]);
      return k.quantise(a[p], a[p + 2], a[p + 3], a[p + 4], a[p + 5], from, to);
    case Op.add:
      return k.add(a[p], a[p + 1], from, to);
    case Op.softmax:
      return k.softmax(a[p], a[p + 1], a[p + 2], from, to);
    case Op.topK:
      return k.topK(a[p], a[p + 1], a[p + 2], a[p + 3], a[p + 4], a[p + 5], from, to);
    case Op.combine:
      return k.combine(a[p], a[p + 1], a[p + 2], a[p + 3], a[p + 4], from, to);
    case Op.clamp:
      return k.clamp(a[p], f[p + 1], from, to);
    default:
      throw new Error(`unknown op code ${op}`);
  }
}
