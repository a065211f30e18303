/** Building blocks of the tables and models of families. */

import type { Decoder } from '../layers/decoder.ts';
import type { DenseTensor, Model, PredictionHead, TensorTable } from './family.ts';

/** A resident matrix [rows, columns]. */
export function matrix(name: string, role: DenseTensor['role'], rows: number, columns: number): DenseTensor {
  return { name, role, rows, columns };
}

export function norm(name: string, length: number): DenseTensor {
  return { name, role: 'norm', rows: 1, columns: length };
}

/** A bias, a gate, sinks and the like. */
export function vector(name: string, length: number): DenseTensor {
  return { name, role: 'vector', rows: 1, columns: length };
}

/** A norm whose stored weight is that of 1 + w. */
export function centredNorm(name: string, length: number): DenseTensor {
  return { ...norm(name, length), load: { step: 'plus-one' } };
}

/** Weights of a model, each tensor once. */
export function parameterCount({ dense, experts, hiddenSize, expertWidth }: TensorTable): number {
  const resident = dense.reduce((sum, tensor) => sum + tensor.rows * tensor.columns, 0);
  const biases = experts[0]?.forms[0]?.biases ? 2 * expertWidth + hiddenSize : 0;
  return resident + experts.length * (3 * hiddenSize * expertWidth + biases);
}

export function modelOf(decoder: Decoder, mtp: PredictionHead | null = null): Model {
  return {
    maxLogitRows: decoder.maxLogitRows,
    forward: (batch, observer) => decoder.forward(batch, observer),
    logits: (first, n) => decoder.logits(first, n),
    mtp,
  };
}
