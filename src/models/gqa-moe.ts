/**
 * Decoders of grouped-query attention and routed experts: what most families are, by a description of their differences.
 */

import type { Tensor } from '../compute/arenas.ts';
import {
  Attention,
  type AttentionShape,
  type AttentionWeights,
  AttentionWorkspace,
  attentionState,
} from '../layers/attention.ts';
import type { Mixer } from '../layers/decoder.ts';
import { type Rope, ropeTable } from '../layers/rope.ts';
import type { BuildContext, DenseTensor, PlacedWeights } from './family.ts';
import { type SparseDecoder, sparseDecoderFamily } from './sparse-decoder.ts';
import { matrix, norm, vector } from './tensors.ts';

export interface GqaMoe extends Omit<SparseDecoder, 'attentionTensors' | 'layerStates' | 'mixers'> {
  readonly attention: AttentionShape;
  readonly rope: Rope;
  /** Keys that a query of a layer sees, itself included; 0 = all. */
  windowOf(layer: number): number;
  readonly qkvBias: boolean;
  readonly outputBias: boolean;
  readonly sinks: boolean;
}

/** The part of a family that follows from the description of a config. */
export function gqaMoeFamily<Config>(describe: (config: Config) => GqaMoe) {
  return sparseDecoderFamily((config: Config) => decoderOf(describe(config)));
}

function decoderOf(m: GqaMoe): SparseDecoder {
  return {
    ...m,
    attentionTensors: layer => [
      norm(inputNormOf(layer), m.attention.hiddenSize),
      ...attentionTensors(m, attentionPrefix(layer)),
    ],
    layerStates: layer => [attentionState(m.attention, m.windowOf(layer))],
    mixers: context => makeMixers(m, context),
  };
}

function inputNormOf(layer: number): string {
  return `model.layers.${layer}.input_layernorm.weight`;
}

function attentionPrefix(layer: number): string {
  return `model.layers.${layer}.self_attn`;
}

/** All layers share their activations and the rotary table. */
function makeMixers(m: GqaMoe, context: BuildContext): (layer: number, firstState: number) => Mixer {
  const { compute, weights, maxRows } = context;
  const work = new AttentionWorkspace(compute, m.attention, maxRows);
  const rope = ropeTable(compute.arenas, m.rope, context.context);
  return (layer, state) => {
    const place = { layer, state, window: m.windowOf(layer) };
    const own = attentionWeights(m, weights, attentionPrefix(layer), weights.vector(inputNormOf(layer)));
    return new Attention(compute, place, m.attention, own, work, rope);
  };
}

function attentionTensors({ attention: a, ...m }: GqaMoe, p: string): DenseTensor[] {
  const q = a.heads * a.headDim;
  const kv = a.kvHeads * a.headDim;
  const list = [
    matrix(`${p}.q_proj.weight`, 'attention', q, a.hiddenSize),
    matrix(`${p}.k_proj.weight`, 'attention', kv, a.hiddenSize),
    matrix(`${p}.v_proj.weight`, 'attention', kv, a.hiddenSize),
    matrix(`${p}.o_proj.weight`, 'attention', a.hiddenSize, q),
  ];
  if (a.qkNorm) {
    list.push(norm(`${p}.q_norm.weight`, a.qkNorm === 'whole' ? q : a.headDim));
    list.push(norm(`${p}.k_norm.weight`, a.qkNorm === 'whole' ? kv : a.headDim));
  }
  if (m.qkvBias) {
    list.push(vector(`${p}.q_proj.bias`, q), vector(`${p}.k_proj.bias`, kv), vector(`${p}.v_proj.bias`, kv));
  }
  if (m.outputBias) list.push(vector(`${p}.o_proj.bias`, a.hiddenSize));
  if (m.sinks) list.push(vector(`${p}.sinks`, a.heads));
  return list;
}

function attentionWeights(m: GqaMoe, weights: PlacedWeights, p: string, inputNorm: Tensor): AttentionWeights {
  const vectorIf = (wanted: boolean, name: string) => (wanted ? weights.vector(`${p}.${name}`) : null);
  const { qkNorm } = m.attention;
  return {
    inputNorm,
    q: weights.matrix(`${p}.q_proj.weight`),
    k: weights.matrix(`${p}.k_proj.weight`),
    v: weights.matrix(`${p}.v_proj.weight`),
    o: weights.matrix(`${p}.o_proj.weight`),
    qNorm: vectorIf(qkNorm !== null, 'q_norm.weight'),
    kNorm: vectorIf(qkNorm !== null, 'k_norm.weight'),
    qBias: vectorIf(m.qkvBias, 'q_proj.bias'),
    kBias: vectorIf(m.qkvBias, 'k_proj.bias'),
    vBias: vectorIf(m.qkvBias, 'v_proj.bias'),
    oBias: vectorIf(m.outputBias, 'o_proj.bias'),
    sinks: vectorIf(m.sinks, 'sinks'),
  };
}
