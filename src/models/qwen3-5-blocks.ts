/** Parts of the layers of Qwen3.5 and its relatives: which tensors they have, by their published names, and those as weights. */

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

/** Norms, router and gated shared expert (of a width) of a layer. */
export function moeTensors(moe: MoeShape, width: number, p: string): DenseTensor[] {
  const hidden = moe.hiddenSize;
  return [
    centredNorm(`${p}.input_layernorm.weight`, hidden),
    centredNorm(`${p}.post_attention_layernorm.weight`, hidden),
    matrix(`${p}.mlp.gate.weight`, 'router', moe.experts, hidden),
    matrix(`${p}.mlp.shared_expert.gate_proj.weight`, 'shared', width, hidden),
    matrix(`${p}.mlp.shared_expert.up_proj.weight`, 'shared', width, hidden),
    matrix(`${p}.mlp.shared_expert.down_proj.weight`, 'shared', hidden, width),
    matrix(`${p}.mlp.shared_expert_gate.weight`, 'gate', 1, hidden),
  ];
}

/** Attention whose queries come with gates. */
export function attentionTensors({ hiddenSize, heads, kvHeads, headDim }: AttentionShape, p: string): DenseTensor[] {
  const q = heads * headDim;
  const kv = kvHeads * headDim;
  return [
    matrix(`${p}.self_attn.q_proj.weight`, 'attention', 2 * q, hiddenSize),
    matrix(`${p}.self_attn.k_proj.weight`, 'attention', kv, hiddenSize),
    matrix(`${p}.self_attn.v_proj.weight`, 'attention', kv, hiddenSize),
    matrix(`${p}.self_attn.o_proj.weight`, 'attention', hiddenSize, q),
    centredNorm(`${p}.self_attn.q_norm.weight`, headDim),
    centredNorm(`${p}.self_attn.k_norm.weight`, headDim),
  ];
}

/** Gated DeltaNet. */
export function deltaTensors(shape: DeltaNetShape, layer: string): DenseTensor[] {
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
    { ...vector(`${p}.conv1d.weight`, channels * taps), stored: [channels, 1, taps] },
    vector(`${p}.A_log`, valueHeads),
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

export function deltaWeights(weights: PlacedWeights, layer: string): DeltaNetWeights {
  const p = `${layer}.linear_attn`;
  return {
    inputNorm: weights.vector(`${layer}.input_layernorm.weight`),
    qkv: weights.matrix(`${p}.in_proj_qkv.weight`),
    z: weights.matrix(`${p}.in_proj_z.weight`),
    a: weights.matrix(`${p}.in_proj_a.weight`),
    b: weights.matrix(`${p}.in_proj_b.weight`),
    out: weights.matrix(`${p}.out_proj.weight`),
    conv: weights.vector(`${p}.conv1d.weight`),
    rates: { values: weights.vector(`${p}.A_log`), areLogarithms: true },
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
