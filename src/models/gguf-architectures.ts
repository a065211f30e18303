/**
 * The architectures of GGUF files that can be run: their metadata as the fields of a config.json, and the names of their tensors
 * inside a block as those inside model.layers.N.
 */

import {
  BLOCK,
  CORRECTION,
  common,
  denseLayers,
  depth,
  GATING,
  type GgufArchitecture,
  headDim,
  kvHeads,
  LATENT,
  mainLayers,
  OTHER,
  PREDICTION,
  QK_NORM,
  QKV_BIAS,
  requireUsual,
  ropeScaling,
  routed,
  SHARED,
} from './gguf-parts.ts';

const olmoe: GgufArchitecture = {
  names: { ...BLOCK, ...QK_NORM, ...routed('mlp', 'gate') },
  stops: [],
  config(keys) {
    requireUsual(keys, GATING.softmax, headDim(keys));
    return {
      ...common(keys, 'olmoe'),
      num_key_value_heads: kvHeads(keys),
      intermediate_size: keys.either('expert_feed_forward_length', 'feed_forward_length'),
      num_experts: keys.number('expert_count'),
      norm_topk_prob: keys.flag('expert_weights_norm') ?? false,
      clip_qkv: keys.optional('attention.clamp_kqv') ?? null,
    };
  },
};

const qwen3moe: GgufArchitecture = {
  names: { ...BLOCK, ...QK_NORM, ...routed('mlp', 'gate') },
  stops: ['<|endoftext|>'],
  config(keys) {
    requireUsual(keys, GATING.softmax, headDim(keys));
    return {
      ...common(keys, 'qwen3_moe'),
      num_key_value_heads: kvHeads(keys),
      head_dim: headDim(keys),
      intermediate_size: keys.number('feed_forward_length'),
      moe_intermediate_size: keys.number('expert_feed_forward_length'),
      num_experts: keys.number('expert_count'),
      norm_topk_prob: keys.flag('expert_weights_norm') ?? true,
      decoder_sparse_step: 1,
      mlp_only_layers: denseLayers(keys),
    };
  },
};

const gptOss: GgufArchitecture = {
  names: {
    ...BLOCK,
    ...QKV_BIAS,
    ...routed('mlp', 'router'),
    'attn_output.bias': 'self_attn.o_proj.bias',
    'attn_sinks.weight': 'self_attn.sinks',
    'post_attention_norm.weight': 'post_attention_layernorm.weight',
    'ffn_gate_inp.bias': 'mlp.router.bias',
    'ffn_gate_exps.bias': 'mlp.experts.gate_proj.bias',
    'ffn_up_exps.bias': 'mlp.experts.up_proj.bias',
    'ffn_down_exps.bias': 'mlp.experts.down_proj.bias',
  },
  stops: ['<|call|>', '<|endoftext|>'],
  turnsHaveParts: true,
  config(keys) {
    requireUsual(keys, GATING.softmaxOfChosen, headDim(keys));
    return {
      ...common(keys, 'gpt_oss'),
      rope_scaling: keys.text('rope.scaling.type') ? { ...ropeScaling(keys), truncate: false } : null,
      num_key_value_heads: kvHeads(keys),
      head_dim: headDim(keys),
      intermediate_size: keys.either('expert_feed_forward_length', 'feed_forward_length'),
      num_local_experts: keys.number('expert_count'),
      sliding_window: keys.number('attention.sliding_window'),
      layer_types: Array.from({ length: keys.blocks }, (_, layer) =>
        layer % 2 === 0 ? 'sliding_attention' : 'full_attention',
      ),
      attention_bias: true,
      swiglu_limit: 7,
    };
  },
};

/** DeepSeek V2 (softmax) and V3 (sigmoid) share an architecture name. */
const deepseek2: GgufArchitecture = {
  names: { ...BLOCK, ...LATENT, ...routed('mlp', 'gate'), ...SHARED, ...CORRECTION, ...PREDICTION },
  stops: [],
  config(keys) {
    const sigmoid = (keys.optional('expert_gating_func') ?? GATING.softmax) === GATING.sigmoid;
    const experts = keys.number('expert_count');
    const rotary = keys.number('rope.dimension_count');
    const scaling = ropeScaling(keys);
    // old files do not tell; these are the published models that choose among groups
    const groups = keys.optional('expert_group_count') ?? (experts === 256 || experts === 160 ? 8 : 1);
    const usedGroups = keys.optional('expert_group_used_count') ?? (experts === 256 ? 4 : experts === 160 ? 3 : 1);
    const grouped = groups > 1 ? 'group_limited_greedy' : 'greedy';
    const mscale = scaling && keys.number('rope.scaling.yarn_log_multiplier') * 10;
    return {
      ...common(keys, sigmoid ? 'deepseek_v3' : 'deepseek_v2'),
      ...depth(keys),
      // the factors of published models are equal, so cosines and sines are not scaled
      rope_scaling: scaling && { ...scaling, mscale: tidy(mscale!), mscale_all_dim: tidy(mscale!) },
      num_key_value_heads: keys.number('attention.head_count'),
      q_lora_rank: keys.optional('attention.q_lora_rank') ?? null,
      kv_lora_rank: keys.number('attention.kv_lora_rank'),
      qk_rope_head_dim: rotary,
      qk_nope_head_dim: keys.either('attention.key_length_mla', 'attention.key_length') - rotary,
      v_head_dim: keys.either('attention.value_length_mla', 'attention.value_length'),
      intermediate_size: keys.number('feed_forward_length'),
      moe_intermediate_size: keys.number('expert_feed_forward_length'),
      n_routed_experts: experts,
      n_shared_experts: keys.number('expert_shared_count'),
      first_k_dense_replace: keys.number('leading_dense_block_count'),
      moe_layer_freq: 1,
      n_group: groups,
      topk_group: usedGroups,
      topk_method: sigmoid ? 'noaux_tc' : grouped,
      scoring_func: sigmoid ? 'sigmoid' : 'softmax',
      norm_topk_prob: keys.flag('expert_weights_norm') ?? sigmoid,
      routed_scaling_factor: keys.optional('expert_weights_scale') ?? 1,
      attention_bias: false,
    };
  },
};

/** The prediction head is a model of its own beside the main one, `mtp`, with one layer. */
const qwen35moe: GgufArchitecture = {
  names: {
    ...BLOCK,
    ...QK_NORM,
    ...routed('mlp', 'gate'),
    'post_attention_norm.weight': 'post_attention_layernorm.weight',
    'ffn_gate_inp_shexp.weight': 'mlp.shared_expert_gate.weight',
    'ffn_gate_shexp.weight': 'mlp.shared_expert.gate_proj.weight',
    'ffn_up_shexp.weight': 'mlp.shared_expert.up_proj.weight',
    'ffn_down_shexp.weight': 'mlp.shared_expert.down_proj.weight',
    'attn_qkv.weight': 'linear_attn.in_proj_qkv.weight',
    'attn_gate.weight': 'linear_attn.in_proj_z.weight',
    'ssm_alpha.weight': 'linear_attn.in_proj_a.weight',
    'ssm_beta.weight': 'linear_attn.in_proj_b.weight',
    'ssm_conv1d.weight': 'linear_attn.conv1d.weight',
    ssm_a: 'linear_attn.decay_rates',
    'ssm_dt.bias': 'linear_attn.dt_bias',
    'ssm_norm.weight': 'linear_attn.norm.weight',
    'ssm_out.weight': 'linear_attn.out_proj.weight',
  },
  alone: {
    'nextn.eh_proj.weight': 'mtp.fc.weight',
    'nextn.enorm.weight': 'mtp.pre_fc_norm_embedding.weight',
    'nextn.hnorm.weight': 'mtp.pre_fc_norm_hidden.weight',
    'nextn.shared_head_norm.weight': 'mtp.norm.weight',
    'nextn.embed_tokens.weight': 'mtp.embed_tokens.weight',
    'nextn.shared_head_head.weight': 'mtp.lm_head.weight',
  },
  prefix(keys, block) {
    const { layers } = mainLayers(keys);
    return block < layers ? `model.layers.${block}` : `mtp.layers.${block - layers}`;
  },
  stops: ['<|im_end|>', '<|endoftext|>'],
  config(keys) {
    requireUsual(keys, GATING.softmax);
    if (keys.flag('expert_weights_norm') === false) {
      keys.refuse('GGUF_UNSUPPORTED', 'has expert_weights_norm false; models of this kind have true', OTHER);
    }
    const { layers, prediction } = mainLayers(keys);
    const head = headDim(keys);
    const valueHeads = keys.number('ssm.time_step_rank');
    const own = (part: string) => keys.has(`blk.${layers}.nextn.${part}.weight`);
    return {
      ...common(keys, 'qwen3_5_moe_text'),
      gguf_rewritten_weights: true,
      num_hidden_layers: layers,
      layer_types: Array.from({ length: layers }, (_, layer) =>
        keys.has(`blk.${layer}.attn_q.weight`) ? 'full_attention' : 'linear_attention',
      ),
      mtp_num_hidden_layers: own('eh_proj') ? prediction : 0,
      mtp_use_dedicated_embeddings: own('embed_tokens') || own('shared_head_head'),
      num_key_value_heads: kvHeads(keys),
      head_dim: head,
      partial_rotary_factor: keys.number('rope.dimension_count') / head,
      linear_num_key_heads: keys.number('ssm.group_count'),
      linear_num_value_heads: valueHeads,
      linear_key_head_dim: keys.number('ssm.state_size'),
      linear_value_head_dim: keys.number('ssm.inner_size') / valueHeads,
      linear_conv_kernel_dim: keys.number('ssm.conv_kernel'),
      num_experts: keys.number('expert_count'),
      moe_intermediate_size: keys.number('expert_feed_forward_length'),
      shared_expert_intermediate_size: keys.number('expert_shared_feed_forward_length'),
    };
  },
};

const glm4moe: GgufArchitecture = {
  names: {
    ...BLOCK,
    ...QKV_BIAS,
    ...QK_NORM,
    ...routed('mlp', 'gate'),
    ...SHARED,
    ...CORRECTION,
    ...PREDICTION,
    'post_attention_norm.weight': 'post_attention_layernorm.weight',
  },
  stops: ['<|user|>', '<|observation|>'],
  config(keys) {
    const head = headDim(keys);
    return {
      ...common(keys, 'glm4_moe'),
      ...depth(keys),
      num_key_value_heads: kvHeads(keys),
      head_dim: head,
      partial_rotary_factor: (keys.optional('rope.dimension_count') ?? head) / head,
      attention_bias: keys.has('blk.0.attn_q.bias'),
      use_qk_norm: keys.has('blk.0.attn_q_norm.weight'),
      intermediate_size: keys.number('feed_forward_length'),
      moe_intermediate_size: keys.number('expert_feed_forward_length'),
      n_routed_experts: keys.number('expert_count'),
      n_shared_experts: keys.number('expert_shared_count'),
      first_k_dense_replace: keys.number('leading_dense_block_count'),
      n_group: keys.optional('expert_group_count') ?? 1,
      topk_group: keys.optional('expert_group_used_count') ?? 1,
      norm_topk_prob: keys.flag('expert_weights_norm') ?? true,
      routed_scaling_factor: keys.optional('expert_weights_scale') ?? 1,
    };
  },
};

const MINIMAX_PART = 'block_sparse_moe';

const minimaxM2: GgufArchitecture = {
  names: {
    ...BLOCK,
    ...QK_NORM,
    ...routed(MINIMAX_PART, 'gate'),
    'exp_probs_b.bias': `${MINIMAX_PART}.e_score_correction_bias`,
  },
  stops: [],
  config(keys) {
    requireUsual(keys, GATING.sigmoid);
    return {
      ...common(keys, 'minimax_m2'),
      num_key_value_heads: kvHeads(keys),
      head_dim: headDim(keys),
      rotary_dim: keys.number('rope.dimension_count'),
      intermediate_size: keys.either('expert_feed_forward_length', 'feed_forward_length'),
      num_local_experts: keys.number('expert_count'),
      scoring_func: 'sigmoid',
      use_qk_norm: true,
      qk_norm_type: 'per_layer',
      use_routing_bias: true,
    };
  },
};

/** A product of float32 values, without the noise of their last bits. */
function tidy(value: number): number {
  return Number(value.toPrecision(6));
}

export const GGUF_ARCHITECTURES: Readonly<Record<string, GgufArchitecture>> = {
  olmoe,
  qwen3moe,
  qwen35moe,
  'gpt-oss': gptOss,
  deepseek2,
  glm4moe,
  'minimax-m2': minimaxM2,
};

/** Known, and not read: why. */
export const REFUSED_ARCHITECTURES: Readonly<Record<string, string>> = {
  llama: 'its query and key rows are in another order than this program computes with (Mixtral among others)',
};
