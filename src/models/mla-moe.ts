/** Decoders of multi-head latent attention and routed experts: DeepSeek-V2, V3 and GLM-5, by a description of what they are. */

import type { Mixer } from '../layers/decoder.ts';
import { Indexer, type IndexerShape, IndexerWorkspace, indexerState } from '../layers/indexer.ts';
import { type KeyChoice, LatentAttention, type MlaShape, MlaWorkspace, mlaState } from '../layers/mla.ts';
import { type Rope, ropeTable } from '../layers/rope.ts';
import type { BuildContext, DenseTensor } from './family.ts';
import { indexerTensors, indexerWeights, mlaTensors, mlaWeights } from './mla-tensors.ts';
import { type SparseDecoder, sparseDecoderFamily } from './sparse-decoder.ts';

export interface MlaMoe extends Omit<SparseDecoder, 'attentionTensors' | 'layerStates' | 'mixers'> {
  readonly attention: MlaShape;
  readonly rope: Rope;
  /** Null: every row attends to all earlier ones. */
  readonly indexer: IndexerShape | null;
  /** Whether a layer has an indexer of its own; otherwise it uses the selection of the last layer that has. */
  ownsIndexer(layer: number): boolean;
}

/** The part of a family that follows from the description of a config. */
export function mlaMoeFamily<Config>(describe: (config: Config) => MlaMoe) {
  return sparseDecoderFamily((config: Config, { indexer }) => {
    const m = describe(config);
    return decoderOf(indexer === false ? { ...m, indexer: null } : m);
  });
}

function decoderOf(m: MlaMoe): SparseDecoder {
  return {
    ...m,
    attentionTensors: layer => attentionTensors(m, layer),
    // latents, then index keys
    layerStates: layer => {
      const indexer = ownIndexer(m, layer);
      return indexer ? [mlaState(m.attention), indexerState(indexer)] : [mlaState(m.attention)];
    },
    mixers: context => makeMixers(m, context),
  };
}

function ownIndexer(m: MlaMoe, layer: number): IndexerShape | null {
  return m.ownsIndexer(layer) ? m.indexer : null;
}

function attentionTensors(m: MlaMoe, layer: number): DenseTensor[] {
  const indexer = ownIndexer(m, layer);
  const own = mlaTensors(m.attention, layer);
  return indexer ? [...own, ...indexerTensors(m.attention, indexer, layer)] : own;
}

/** All layers share their activations, the rotary table and the selection of keys. */
function makeMixers(m: MlaMoe, context: BuildContext): (layer: number, firstState: number) => Mixer {
  const { compute, weights, maxRows } = context;
  const work = new MlaWorkspace(compute, m.attention, maxRows);
  const indexerWork = m.indexer && new IndexerWorkspace(compute, m.indexer, maxRows, context.context);
  const rope = ropeTable(compute.arenas, m.rope, context.context);

  const choiceOf = (layer: number, state: number): KeyChoice | null => {
    if (indexerWork === null) return null;
    const shape = ownIndexer(m, layer);
    const place = { layer, state };
    const indexer = shape && new Indexer(compute, place, shape, indexerWeights(weights, layer), indexerWork, rope);
    return { selection: indexerWork.selection, indexer };
  };
  return (layer, state) => {
    const own = mlaWeights(m.attention, weights, layer);
    const choice = choiceOf(layer, state + 1);
    return new LatentAttention(compute, { layer, state }, m.attention, own, work, rope, choice);
  };
}
