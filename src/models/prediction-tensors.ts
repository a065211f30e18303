/** Tensors of a prediction head that is stored as one more decoder layer (DeepSeek-V3, GLM-4.5, GLM-5); see layers/mtp.ts. */

import type { PredictionWeights } from '../layers/mtp.ts';
import type { DenseTensor, PlacedWeights, TensorTable } from './family.ts';
import { matrix, norm } from './tensors.ts';

/**
 * Tensors of the head that a forward pass leaves alone: all, or, where the head is wanted, copies of the embedding and the output
 * matrix of the main model, which some files have there.
 */
export function ignoredOfPrediction(p: string, isWanted: boolean): RegExp {
  const copies = isWanted ? '(embed_tokens|shared_head\\.head)\\.' : '';
  return new RegExp(`^${p.replaceAll('.', '\\.')}\\.${copies}`);
}

/** How the head is told from a layer of the main model. */
export function headOf(p: string): NonNullable<TensorTable['head']> {
  return { names: ignoredOfPrediction(p, false), sign: namesOf(p).project };
}

function namesOf(p: string) {
  return {
    embeddingNorm: `${p}.enorm.weight`,
    hiddenNorm: `${p}.hnorm.weight`,
    project: `${p}.eh_proj.weight`,
    norm: `${p}.shared_head.norm.weight`,
  };
}

/** Without those of the decoder layer. p: model.layers.N. */
export function predictionTensors(p: string, hiddenSize: number): DenseTensor[] {
  const n = namesOf(p);
  return [
    norm(n.embeddingNorm, hiddenSize),
    norm(n.hiddenNorm, hiddenSize),
    matrix(n.project, 'mlp', hiddenSize, 2 * hiddenSize),
    norm(n.norm, hiddenSize),
  ];
}

export function predictionWeights(
  p: string,
  weights: PlacedWeights,
  main: Pick<PredictionWeights, 'embedding' | 'mainNorm' | 'head'>,
): PredictionWeights {
  const n = namesOf(p);
  return {
    ...main,
    embeddingNorm: weights.vector(n.embeddingNorm),
    hiddenNorm: weights.vector(n.hiddenNorm),
    project: weights.matrix(n.project),
    norm: weights.vector(n.norm),
  };
}
