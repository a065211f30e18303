/**
 * Decoders of multi-head latent attention and routed experts: DeepSeek-V2, V3 and GLM-5. A family describes itself by an `MlaMoe`;
 * the tensor table, the session states and the forward pass follow from it.
 */

import type { Tensor } from '../compute/arenas.ts';
import { Decoder, type Mixer } from '../layers/decoder.ts';
import { Indexer, type IndexerShape, type IndexerWeights, IndexerWorkspace, indexerState } from '../layers/indexer.ts';
import { LatentAttention, type MlaShape, type MlaWeights, MlaWorkspace, mlaState } from '../layers/mla.ts';
import { PredictionLayer } from '../layers/mtp.ts';
import { type Rope, ropeTable } from '../layers/rope.ts';
import type { StateShape } from '../layers/state.ts';
import type { BuildContext, DenseTensor, Model, ModelShape, Parts, PlacedWeights, TensorTable } from './family.ts';
import { COPIES, predictionTensors, predictionWeights } from './prediction-tensors.ts';
import { routedExperts, type SparseMlp, SparseMlps, sparseMlpTensors } from './sparse-mlp.ts';
import { matrix, modelOf, norm, vector } from './tensors.ts';

export interface MlaMoe extends SparseMlp {
  readonly layers: number;
  readonly vocabSize: number;
  readonly maxContext: number;
  /** The output matrix is the embedding. */
  readonly tied: boolean;
  readonly attention: MlaShape;
  readonly rope: Rope;
  /** Null: every row attends to all earlier ones. */
  readonly indexer: IndexerShape | null;
  /** Whether a layer has an indexer of its own; otherwise it uses the selection of the last layer that has. */
  ownsIndexer(layer: number): boolean;
  /** Checkpoints have a prediction head, as one more layer after the last. */
  readonly hasPrediction: boolean;
}

const EMBEDDING = 'model.embed_tokens.weight';
const FINAL_NORM = 'model.norm.weight';
const HEAD = 'lm_head.weight';

/** The part of a family that follows from the description of a config. */
export function mlaMoeFamily<Config>(describe: (config: Config) => MlaMoe) {
  return {
    hasMtp: (config: Config) => describe(config).hasPrediction,
    shape: (config: Config, parts: Parts) => mlaMoeShape(describe(config), parts),
    tensors: (config: Config, parts: Parts) => mlaMoeTensors(describe(config), parts),
    states: (config: Config, parts: Parts) => statesOf(describe(config), parts).list,
    build: (config: Config, context: BuildContext) => buildMlaMoe(describe(config), context),
  };
}

/** Numbers of the layers; that of the prediction head follows the others. */
function layersOf(m: MlaMoe, { mtp }: Parts): number[] {
  return Array.from({ length: m.layers + (mtp ? 1 : 0) }, (_, layer) => layer);
}

function mlaMoeShape(m: MlaMoe, parts: Parts): ModelShape {
  return {
    layers: m.layers,
    hiddenSize: m.moe.hiddenSize,
    vocabSize: m.vocabSize,
    maxContext: m.maxContext,
    experts: m.moe.experts,
    topK: m.moe.topK,
    expertWidth: m.moe.expertWidth,
    moeLayers: layersOf(m, parts).filter(layer => !m.isDense(layer)),
  };
}

/** The states of all layers, and the numbers of each layer's latents and index keys among them. */
function statesOf(m: MlaMoe, parts: Parts) {
  const list: StateShape[] = [];
  const latent: number[] = [];
  const index: number[] = [];
  for (const layer of layersOf(m, parts)) {
    latent.push(list.push(mlaState(m.attention)) - 1);
    index.push(m.indexer && m.ownsIndexer(layer) ? list.push(indexerState(m.indexer)) - 1 : -1);
  }
  return { list, latent, index };
}

function attentionNames(layer: number) {
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

// ---- tensors --------------------------------------------------------------------------------------------------------

function mlaMoeTensors(m: MlaMoe, parts: Parts): TensorTable {
  const { hiddenSize, expertWidth } = m.moe;
  const dense = [matrix(EMBEDDING, 'embedding', m.vocabSize, hiddenSize), norm(FINAL_NORM, hiddenSize)];
  if (!m.tied) dense.push(matrix(HEAD, 'head', m.vocabSize, hiddenSize));
  for (const layer of layersOf(m, { mtp: false })) dense.push(...layerTensors(m, layer));
  const ignored = [/\.rotary_emb\.inv_freq$/];
  if (m.tied) ignored.push(/^lm_head\./);
  const prediction = `model.layers.${m.layers}`;
  if (parts.mtp) {
    const own = [...predictionTensors(prediction, hiddenSize), ...layerTensors(m, m.layers)];
    dense.push(...own.map(tensor => ({ ...tensor, mtp: true as const })));
    ignored.push(new RegExp(`^${prediction.replaceAll('.', '\\.')}\\.${COPIES}\\.`));
  } else if (m.hasPrediction) ignored.push(new RegExp(`^${prediction.replaceAll('.', '\\.')}\\.`));
  const experts = layersOf(m, parts).flatMap(layer => routedExperts(m, layer));
  return { dense, experts, hiddenSize, expertWidth, ignored };
}

function layerTensors(m: MlaMoe, layer: number): DenseTensor[] {
  const indexer = m.indexer && m.ownsIndexer(layer) ? indexerTensors(m, m.indexer, layer) : [];
  return [...attentionTensors(m.attention, layer), ...indexer, ...sparseMlpTensors(m, layer)];
}

function attentionTensors(a: MlaShape, layer: number): DenseTensor[] {
  const n = attentionNames(layer);
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

function indexerTensors({ attention: a }: MlaMoe, { heads, headDim }: IndexerShape, layer: number): DenseTensor[] {
  const n = attentionNames(layer);
  return [
    matrix(n.indexQ, 'indexer', heads * headDim, a.queryRank ?? a.hiddenSize),
    matrix(n.indexK, 'indexer', headDim, a.hiddenSize),
    vector(n.indexKNorm, headDim),
    vector(n.indexKNormBias, headDim),
    matrix(n.indexWeights, 'indexer', heads, a.hiddenSize),
  ];
}

// ---- forward pass ---------------------------------------------------------------------------------------------------

function buildMlaMoe(m: MlaMoe, context: BuildContext): Model {
  const { compute, weights, experts, maxRows } = context;
  const main = layersOf(m, { mtp: false });
  const decoder = new Decoder(compute, { hiddenSize: m.moe.hiddenSize, vocabSize: m.vocabSize }, maxRows);
  const mixers = new Mixers(m, context);
  const mlps = new SparseMlps(compute, m, main, maxRows);
  const prediction = context.mtp ? new PredictionLayer(compute, decoder.x, m.vocabSize) : null;

  const embedding = weights.matrix(EMBEDDING);
  const head = m.tied ? embedding : weights.matrix(HEAD);
  const finalNorm = weights.vector(FINAL_NORM);
  const layersFrom = (layers: readonly number[]) => {
    const feedForwards = mlps.make(layers, weights, experts);
    return layers.map((layer, i) => ({ mixer: mixers.make(layer, weights), feedForward: feedForwards[i] }));
  };
  decoder.place({ embedding, norm: finalNorm, head }, layersFrom(main), m.eps);
  if (prediction) {
    const shared = { embedding, mainNorm: finalNorm, head };
    const own = predictionWeights(`model.layers.${m.layers}`, weights, shared);
    prediction.place(own, layersFrom([m.layers])[0], m.eps);
  }
  return modelOf(decoder, prediction);
}

/** Makes the attention of all layers, which share their activations, the rotary table and the selection of keys. */
class Mixers {
  readonly #m: MlaMoe;
  readonly #context: BuildContext;
  readonly #states: ReturnType<typeof statesOf>;
  readonly #work: MlaWorkspace;
  readonly #indexerWork: IndexerWorkspace | null;
  readonly #rope: Tensor;

  constructor(m: MlaMoe, build: BuildContext) {
    const { compute, maxRows, context } = build;
    this.#m = m;
    this.#context = build;
    this.#states = statesOf(m, build);
    this.#work = new MlaWorkspace(compute, m.attention, maxRows);
    this.#indexerWork = m.indexer && new IndexerWorkspace(compute, m.indexer, maxRows, context);
    this.#rope = ropeTable(compute.arenas, m.rope, context);
  }

  make(layer: number, weights: PlacedWeights): Mixer {
    const { compute } = this.#context;
    const { attention, indexer: shape } = this.#m;
    const work = this.#indexerWork;
    const { latent, index } = this.#states;
    const own = index[layer] < 0 ? null : indexerWeights(weights, layer);
    const place = { layer, state: index[layer] };
    const indexer = shape && work && own && new Indexer(compute, place, shape, own, work, this.#rope);
    const choice = work && { selection: work.selection, indexer };
    const attentionPlace = { layer, state: latent[layer] };
    const mine = mlaWeights(attention, weights, layer);
    return new LatentAttention(compute, attentionPlace, attention, mine, this.#work, this.#rope, choice);
  }
}

function mlaWeights({ queryRank }: MlaShape, weights: PlacedWeights, layer: number): MlaWeights {
  const n = attentionNames(layer);
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

function indexerWeights(weights: PlacedWeights, layer: number): IndexerWeights {
  const n = attentionNames(layer);
  return {
    q: weights.matrix(n.indexQ),
    k: weights.matrix(n.indexK),
    kNorm: weights.vector(n.indexKNorm),
    kNormBias: weights.vector(n.indexKNormBias),
    weights: weights.matrix(n.indexWeights),
  };
}
