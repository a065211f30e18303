/**
 * Parts of the layers of Qwen3.5 and its relatives: which tensors they have, by their published names, and those as weights.
 * `rewritten`: the tensors are those of a GGUF file, whose converter changes values. Norms hold the factor itself and not what it is
 * above 1, the decay rates are no longer logarithms, and value heads are in another order (DeltaShape.tiled).
 */

import type { Tensor } from '../compute/arenas.ts';
import type { Compute } from '../compute/compute.ts';
import { type AttentionShape, type AttentionWeights, NO_BIASES } from '../layers/attention.ts';
import { type DeltaNetShape, type DeltaNetWeights, deltaChannels } from '../layers/delta-net.ts';
import { type MlpWorkspace, SharedExpert } from '../layers/mlp.ts';
import type { MoeShape } from '../layers/moe.ts';
import type { MoeLayer } from '../layers/moe-block.ts';
import { plainChoice, Router } from '../layers/router.ts';
import type { DenseTensor, PlacedWeights } from './family.ts';
import { mlpWeights } from './sparse-mlp.ts';
import { centredNorm, matrix, norm, vector } from './tensors.ts';

/** A norm of the layers; that inside Gated DeltaNet is plain in all files. */
export function layerNorm(name: string, length: number, rewritten: boolean): DenseTensor {
  return rewritten ? norm(name, length) : centredNorm(name, length);
}

/** Norms, router and gated shared expert (of a width) of a layer. */
export function moeTensors(moe: MoeShape, width: number, p: string, rewritten: boolean): DenseTensor[] {
  const hidden = moe.hiddenSize;
  const gate = `${p}.mlp.shared_expert_gate.weight`;
  return [
    layerNorm(`${p}.input_layernorm.weight`, hidden, rewritten),
    layerNorm(`${p}.post_attention_layernorm.weight`, hidden, rewritten),
    matrix(`${p}.mlp.gate.weight`, 'router', moe.experts, hidden),
    matrix(`${p}.mlp.shared_expert.gate_proj.weight`, 'shared', width, hidden),
    matrix(`${p}.mlp.shared_expert.up_proj.weight`, 'shared', width, hidden),
    matrix(`${p}.mlp.shared_expert.down_proj.weight`, 'shared', hidden, width),
    { ...matrix(gate, 'gate', 1, hidden), ...(rewritten && { stored: [hidden] }) },
  ];
}

/** Attention whose queries come with gates. */
export function attentionTensors(shape: AttentionShape, p: string, rewritten: boolean): DenseTensor[] {
  const { hiddenSize, heads, kvHeads, headDim } = shape;
  const q = heads * headDim;
  const kv = kvHeads * headDim;
  return [
    matrix(`${p}.self_attn.q_proj.weight`, 'attention', 2 * q, hiddenSize),
    matrix(`${p}.self_attn.k_proj.weight`, 'attention', kv, hiddenSize),
    matrix(`${p}.self_attn.v_proj.weight`, 'attention', kv, hiddenSize),
    matrix(`${p}.self_attn.o_proj.weight`, 'attention', hiddenSize, q),
    layerNorm(`${p}.self_attn.q_norm.weight`, headDim, rewritten),
    layerNorm(`${p}.self_attn.k_norm.weight`, headDim, rewritten),
  ];
}

/** Name of the decay rates. */
function ratesName(p: string, rewritten: boolean): string {
  return rewritten ? `${p}.decay_rates` : `${p}.A_log`;
}

/** Gated DeltaNet. */
export function deltaTensors(shape: DeltaNetShape, layer: string, rewritten: boolean): DenseTensor[] {
  const p = `${layer}.linear_attn`;
  const { hiddenSize, valueHeads, valueDim, taps } = shape;
  const channels = deltaChannels(shape);
  const values = valueHeads * valueDim;
  return [
    matrix(`${p}.in_proj_qkv.weight`, 'attention', channels, hiddenSize),
    matrix(`${p}.in_proj_z.weight`, 'attention', values, hiddenSize),
    matrix(`${p}.in_proj_a.weight`, 'gate', valueHeads, hiddenSize),
    matrix(`${p}.in_proj_b.weight`, 'gate', valueHeads, hiddenSize),
    matrix(`${p}.out_proj.weight`, 'attention', hiddenSize, values),
    { ...vector(`${p}.conv1d.weight`, channels * taps), stored: rewritten ? [channels, taps] : [channels, 1, taps] },
    vector(ratesName(p, rewritten), valueHeads),
    vector(`${p}.dt_bias`, valueHeads),
    norm(`${p}.norm.weight`, valueDim),
  ];
}

export function attentionWeights(weights: PlacedWeights, p: string): AttentionWeights {
  return {
    ...NO_BIASES,
    inputNorm: weights.vector(`${p}.input_layernorm.weight`),
    q: weights.matrix(`${p}.self_attn.q_proj.weight`),
    k: weights.matrix(`${p}.self_attn.k_proj.weight`),
    v: weights.matrix(`${p}.self_attn.v_proj.weight`),
    o: weights.matrix(`${p}.self_attn.o_proj.weight`),
    qNorm: weights.vector(`${p}.self_attn.q_norm.weight`),
    kNorm: weights.vector(`${p}.self_attn.k_norm.weight`),
    sinks: null,
  };
}

export function deltaWeights(weights: PlacedWeights, layer: string, rewritten: boolean): DeltaNetWeights {
  const p = `${layer}.linear_attn`;
  return {
    inputNorm: weights.vector(`${layer}.input_layernorm.weight`),
    qkv: weights.matrix(`${p}.in_proj_qkv.weight`),
    z: weights.matrix(`${p}.in_proj_z.weight`),
    a: weights.matrix(`${p}.in_proj_a.weight`),
    b: weights.matrix(`${p}.in_proj_b.weight`),
    out: weights.matrix(`${p}.out_proj.weight`),
    conv: weights.vector(`${p}.conv1d.weight`),
    rates: { values: weights.vector(ratesName(p, rewritten)), areLogarithms: !rewritten },
    dtBias: weights.vector(`${p}.dt_bias`),
    norm: weights.vector(`${p}.norm.weight`),
  };
}

/** Router and gated shared expert of a layer. shared: workspaces of all of them. */
export function moeLayer(
  compute: Compute,
  layer: number,
  weights: PlacedWeights,
  p: string,
  config: { readonly num_experts_per_tok: number; readonly rms_norm_eps: number },
  shared: { readonly mlp: MlpWorkspace; readonly gates: Tensor },
): MoeLayer {
  const choice = plainChoice(config.num_experts_per_tok, 'normalised');
  const gate = { gate: weights.matrix(`${p}.mlp.gate.weight`), bias: null };
  const mlp = mlpWeights(weights, `${p}.mlp.shared_expert`);
  const sharedGate = weights.matrix(`${p}.mlp.shared_expert_gate.weight`);
  return {
    norm: weights.vector(`${p}.post_attention_layernorm.weight`),
    eps: config.rms_norm_eps,
    router: new Router(compute, layer, { ...choice, score: 'softmax' }, gate),
    shared: new SharedExpert(compute, mlp, sharedGate, shared.gates, shared.mlp),
  };
}
