/** Tensors of latent attention and of its indexer, by their published names, and those as weights. */

import type { IndexerShape, IndexerWeights } from '../layers/indexer.ts';
import type { MlaShape, MlaWeights } from '../layers/mla.ts';
import type { DenseTensor, PlacedWeights } from './family.ts';
import { matrix, norm, vector } from './tensors.ts';

function namesOf(layer: number) {
  const p = `model.layers.${layer}.self_attn`;
  return {
    inputNorm: `model.layers.${layer}.input_layernorm.weight`,
    q: `${p}.q_proj.weight`,
    qDown: `${p}.q_a_proj.weight`,
    qDownNorm: `${p}.q_a_layernorm.weight`,
    qUp: `${p}.q_b_proj.weight`,
    kvDown: `${p}.kv_a_proj_with_mqa.weight`,
    latentNorm: `${p}.kv_a_layernorm.weight`,
    kvUp: `${p}.kv_b_proj.weight`,
    headKeys: `${p}.kv_b_proj.keys`,
    headValues: `${p}.kv_b_proj.values`,
    o: `${p}.o_proj.weight`,
    indexQ: `${p}.indexer.wq_b.weight`,
    indexK: `${p}.indexer.wk.weight`,
    indexKNorm: `${p}.indexer.k_norm.weight`,
    indexKNormBias: `${p}.indexer.k_norm.bias`,
    indexWeights: `${p}.indexer.weights_proj.weight`,
  };
}

/** Attention of a layer and the norm before it. */
export function mlaTensors(a: MlaShape, layer: number): DenseTensor[] {
  const n = namesOf(layer);
  const { hiddenSize, heads, queryRank, latentDim, plainDim, rotaryDim, valueDim } = a;
  const qRows = heads * (plainDim + rotaryDim);
  const query =
    queryRank === null
      ? [matrix(n.q, 'attention', qRows, hiddenSize)]
      : [
          matrix(n.qDown, 'attention', queryRank, hiddenSize),
          norm(n.qDownNorm, queryRank),
          matrix(n.qUp, 'attention', qRows, queryRank),
        ];
  const split = { heads, keyDim: plainDim, valueDim };
  const stored = [heads * (plainDim + valueDim), latentDim];
  return [
    norm(n.inputNorm, hiddenSize),
    ...query,
    matrix(n.kvDown, 'attention', latentDim + rotaryDim, hiddenSize),
    norm(n.latentNorm, latentDim),
    {
      ...matrix(n.headKeys, 'latent', heads * latentDim, plainDim),
      from: n.kvUp,
      stored,
      load: { step: 'head-keys', ...split },
    },
    {
      ...matrix(n.headValues, 'latent', heads * valueDim, latentDim),
      from: n.kvUp,
      stored,
      load: { step: 'head-values', ...split },
    },
    matrix(n.o, 'attention', hiddenSize, heads * valueDim),
  ];
}

export function indexerTensors(a: MlaShape, { heads, headDim }: IndexerShape, layer: number): DenseTensor[] {
  const n = namesOf(layer);
  return [
    matrix(n.indexQ, 'indexer', heads * headDim, a.queryRank ?? a.hiddenSize),
    matrix(n.indexK, 'indexer', headDim, a.hiddenSize),
    vector(n.indexKNorm, headDim),
    vector(n.indexKNormBias, headDim),
    matrix(n.indexWeights, 'indexer', heads, a.hiddenSize),
  ];
}

export function mlaWeights({ queryRank }: MlaShape, weights: PlacedWeights, layer: number): MlaWeights {
  const n = namesOf(layer);
  const isDirect = queryRank === null;
  return {
    inputNorm: weights.vector(n.inputNorm),
    qDown: isDirect ? null : { matrix: weights.matrix(n.qDown), norm: weights.vector(n.qDownNorm) },
    q: weights.matrix(isDirect ? n.q : n.qUp),
    kvDown: weights.matrix(n.kvDown),
    latentNorm: weights.vector(n.latentNorm),
    headKeys: weights.matrix(n.headKeys),
    headValues: weights.matrix(n.headValues),
    o: weights.matrix(n.o),
  };
}

export function indexerWeights(weights: PlacedWeights, layer: number): IndexerWeights {
  const n = namesOf(layer);
  return {
    q: weights.matrix(n.indexQ),
    k: weights.matrix(n.indexK),
    kNorm: weights.vector(n.indexKNorm),
    kNormBias: weights.vector(n.indexKNormBias),
    weights: weights.matrix(n.indexWeights),
  };
}
