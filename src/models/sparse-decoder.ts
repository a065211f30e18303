/**
 * Decoders whose layers are attention of some kind and a feed-forward part with or without routed experts: the tensor table, the session
 * states and the forward pass that follow from a description. What differs in attention comes from the description.
 */

import { Decoder, type Mixer } from '../layers/decoder.ts';
import { PredictionLayer } from '../layers/mtp.ts';
import type { StateShape } from '../layers/state.ts';
import type { BuildContext, DenseTensor, Model, ModelShape, Parts, TensorTable } from './family.ts';
import { headOf, ignoredOfPrediction, predictionTensors, predictionWeights } from './prediction-tensors.ts';
import { routedExperts, type SparseMlp, SparseMlps, sparseMlpTensors } from './sparse-mlp.ts';
import { matrix, modelOf, norm } from './tensors.ts';

export interface SparseDecoder extends SparseMlp {
  readonly layers: number;
  readonly vocabSize: number;
  readonly maxContext: number;
  /** The output matrix is the embedding. */
  readonly tied: boolean;
  /** Checkpoints have a prediction head, stored as one more layer after the last. */
  readonly hasPrediction: boolean;
  readonly ignored: readonly RegExp[];
  /** Resident tensors of a layer's attention, the norm before it included. */
  attentionTensors(layer: number): DenseTensor[];
  /** What a layer keeps of a session. */
  layerStates(layer: number): StateShape[];
  /** Reserves activations; then gives the attention of a layer, whose first state has a number. */
  mixers(context: BuildContext): (layer: number, firstState: number) => Mixer;
}

const EMBEDDING = 'model.embed_tokens.weight';
const FINAL_NORM = 'model.norm.weight';
const HEAD = 'lm_head.weight';

/** The part of a family that follows from the description of a config. */
export function sparseDecoderFamily<Config>(describe: (config: Config, parts: Parts) => SparseDecoder) {
  return {
    hasMtp: (config: Config) => describe(config, { mtp: false }).hasPrediction,
    shape: (config: Config, parts: Parts) => shapeOf(describe(config, parts), parts),
    tensors: (config: Config, parts: Parts) => tensorsOf(describe(config, parts), parts),
    states: (config: Config, parts: Parts) => statesOf(describe(config, parts), parts),
    build: (config: Config, context: BuildContext) => buildDecoder(describe(config, context), context),
  };
}

/** Numbers of the layers; that of the prediction head follows the others. */
function layersOf(m: SparseDecoder, { mtp }: Parts): number[] {
  return Array.from({ length: m.layers + (mtp ? 1 : 0) }, (_, layer) => layer);
}

function predictionPrefix(m: SparseDecoder): string {
  return `model.layers.${m.layers}`;
}

function shapeOf(m: SparseDecoder, parts: Parts): ModelShape {
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

function statesOf(m: SparseDecoder, parts: Parts): StateShape[] {
  return layersOf(m, parts).flatMap(layer => m.layerStates(layer));
}

function tensorsOf(m: SparseDecoder, parts: Parts): TensorTable {
  const { hiddenSize, expertWidth } = m.moe;
  const layerTensors = (layer: number) => [...m.attentionTensors(layer), ...sparseMlpTensors(m, layer)];
  const dense = [matrix(EMBEDDING, 'embedding', m.vocabSize, hiddenSize), norm(FINAL_NORM, hiddenSize)];
  if (!m.tied) dense.push(matrix(HEAD, 'head', m.vocabSize, hiddenSize));
  for (const layer of layersOf(m, { mtp: false })) dense.push(...layerTensors(layer));
  if (parts.mtp) {
    const own = [...predictionTensors(predictionPrefix(m), hiddenSize), ...layerTensors(m.layers)];
    dense.push(...own.map(tensor => ({ ...tensor, mtp: true as const })));
  }
  const ignored = [...m.ignored, /\.rotary_emb\.inv_freq$/];
  if (m.tied) ignored.push(/^lm_head\.weight$/);
  if (m.hasPrediction) ignored.push(ignoredOfPrediction(predictionPrefix(m), parts.mtp));
  const experts = layersOf(m, parts).flatMap(layer => routedExperts(m, layer));
  const head = m.hasPrediction ? { head: headOf(predictionPrefix(m)) } : {};
  return { dense, experts, hiddenSize, expertWidth, ignored, ...head };
}

function buildDecoder(m: SparseDecoder, context: BuildContext): Model {
  const { compute, weights, experts, maxRows } = context;
  const main = layersOf(m, { mtp: false });
  const firstStates = [0];
  for (const layer of main) firstStates.push(firstStates[layer] + m.layerStates(layer).length);

  const decoder = new Decoder(compute, { hiddenSize: m.moe.hiddenSize, vocabSize: m.vocabSize }, maxRows);
  const mixerOf = m.mixers(context);
  const mlps = new SparseMlps(compute, m, main, maxRows);
  const prediction = context.mtp ? new PredictionLayer(compute, decoder.x, m.vocabSize) : null;

  const embedding = weights.matrix(EMBEDDING);
  const head = m.tied ? embedding : weights.matrix(HEAD);
  const finalNorm = weights.vector(FINAL_NORM);
  const make = (layers: readonly number[]) => {
    const mixers = layers.map(layer => mixerOf(layer, firstStates[layer]));
    const feedForwards = mlps.make(layers, weights, experts);
    return mixers.map((mixer, i) => ({ mixer, feedForward: feedForwards[i] }));
  };
  decoder.place({ embedding, norm: finalNorm, head }, make(main), m.eps);
  if (prediction) {
    const [layer] = make([m.layers]);
    const shared = { embedding, mainNorm: finalNorm, head };
    prediction.place(predictionWeights(predictionPrefix(m), weights, shared), layer, m.eps);
  }
  return modelOf(decoder, prediction);
}
