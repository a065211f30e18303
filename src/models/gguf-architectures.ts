/**
 * The architectures of GGUF files that can be run: their metadata as the fields of a config.json, and the names of their tensors
 * inside a block as those inside model.layers.N.
 */

import type { GgufKeys } from './gguf-keys.ts';

type Config = Record<string, unknown>;
type Names = Readonly<Record<string, string>>;

export interface GgufArchitecture {
  config(keys: GgufKeys): Config;
  readonly names: Names;
  /** Spellings of tokens that end an answer besides those that the metadata name. */
  readonly stops: readonly string[];
  /** The token that ends a turn also ends parts of one: it does not stop. */
  readonly turnsHaveParts?: true;
}

// ---- names ----------------------------------------------------------------------------------------------------------

const BLOCK: Names = {
  'attn_norm.weight': 'input_layernorm.weight',
  'attn_q.weight': 'self_attn.q_proj.weight',
  'attn_k.weight': 'self_attn.k_proj.weight',
  'attn_v.weight': 'self_attn.v_proj.weight',
  'attn_output.weight': 'self_attn.o_proj.weight',
  'ffn_norm.weight': 'post_attention_layernorm.weight',
  'ffn_gate.weight': 'mlp.gate_proj.weight',
  'ffn_up.weight': 'mlp.up_proj.weight',
  'ffn_down.weight': 'mlp.down_proj.weight',
};

const QK_NORM: Names = {
  'attn_q_norm.weight': 'self_attn.q_norm.weight',
  'attn_k_norm.weight': 'self_attn.k_norm.weight',
};

const QKV_BIAS: Names = {
  'attn_q.bias': 'self_attn.q_proj.bias',
  'attn_k.bias': 'self_attn.k_proj.bias',
  'attn_v.bias': 'self_attn.v_proj.bias',
};

/** Experts of a layer are joined in one tensor per role. `part` is the part of a layer that has the router and the experts. */
function routed(part: string, router: string): Names {
  return {
    'ffn_gate_inp.weight': `${part}.${router}.weight`,
    'ffn_gate_exps.weight': `${part}.experts.gate_proj.weight`,
    'ffn_up_exps.weight': `${part}.experts.up_proj.weight`,
    'ffn_down_exps.weight': `${part}.experts.down_proj.weight`,
    // gate rows first; such a layer has its down matrices under the name that goes with it (models/gguf.ts)
    'ffn_gate_up_exps.weight': `${part}.experts.gate_up_proj`,
  };
}

const SHARED: Names = {
  'ffn_gate_shexp.weight': 'mlp.shared_experts.gate_proj.weight',
  'ffn_up_shexp.weight': 'mlp.shared_experts.up_proj.weight',
  'ffn_down_shexp.weight': 'mlp.shared_experts.down_proj.weight',
};

const CORRECTION: Names = { 'exp_probs_b.bias': 'mlp.gate.e_score_correction_bias' };

const PREDICTION: Names = {
  'nextn.eh_proj.weight': 'eh_proj.weight',
  'nextn.enorm.weight': 'enorm.weight',
  'nextn.hnorm.weight': 'hnorm.weight',
  'nextn.embed_tokens.weight': 'embed_tokens.weight',
  'nextn.shared_head_head.weight': 'shared_head.head.weight',
  'nextn.shared_head_norm.weight': 'shared_head.norm.weight',
};

const LATENT: Names = {
  'attn_q_a.weight': 'self_attn.q_a_proj.weight',
  'attn_q_a_norm.weight': 'self_attn.q_a_layernorm.weight',
  'attn_q_b.weight': 'self_attn.q_b_proj.weight',
  'attn_kv_a_mqa.weight': 'self_attn.kv_a_proj_with_mqa.weight',
  'attn_kv_a_norm.weight': 'self_attn.kv_a_layernorm.weight',
  'attn_kv_b.weight': 'self_attn.kv_b_proj.weight',
  // the same apart, keys transposed: what the family makes of it on loading (models/mla-moe.ts)
  'attn_k_b.weight': 'self_attn.kv_b_proj.keys',
  'attn_v_b.weight': 'self_attn.kv_b_proj.values',
};

// ---- configs --------------------------------------------------------------------------------------------------------

/** What all families have. */
function common(keys: GgufKeys, modelType: string): Config {
  return {
    model_type: modelType,
    hidden_size: keys.number('embedding_length'),
    num_hidden_layers: keys.blocks,
    num_attention_heads: keys.number('attention.head_count'),
    vocab_size: keys.vocabulary,
    max_position_embeddings: keys.number('context_length'),
    rms_norm_eps: keys.number('attention.layer_norm_rms_epsilon'),
    rope_theta: keys.optional('rope.freq_base') ?? 10000,
    rope_scaling: ropeScaling(keys),
    num_experts_per_tok: keys.number('expert_used_count'),
    hidden_act: 'silu',
    tie_word_embeddings: !keys.has('output.weight'),
  };
}

function ropeScaling(keys: GgufKeys): Config | null {
  const type = keys.text('rope.scaling.type') ?? 'none';
  if (type === 'none') return null;
  for (const key of ['rope.scaling.attn_factor', 'rope.scaling.yarn_attn_factor']) {
    const factor = keys.optional(key) ?? 1;
    if (factor !== 1) keys.refuse('GGUF_UNSUPPORTED', `scales attention by ${factor} (${key})`, OTHER);
  }
  return {
    rope_type: type,
    factor: keys.number('rope.scaling.factor'),
    original_max_position_embeddings: keys.number('rope.scaling.original_context_length'),
    beta_fast: keys.optional('rope.scaling.yarn_beta_fast') ?? 32,
    beta_slow: keys.optional('rope.scaling.yarn_beta_slow') ?? 1,
  };
}

const kvHeads = (keys: GgufKeys) => keys.optional('attention.head_count_kv') ?? keys.number('attention.head_count');

/** Sizes of keys and values, where the family says one for both. */
function headDim(keys: GgufKeys): number {
  const key =
    keys.optional('attention.key_length') ?? keys.number('embedding_length') / keys.number('attention.head_count');
  const value = keys.optional('attention.value_length') ?? key;
  if (key === value) return key;
  return keys.refuse('GGUF_UNSUPPORTED', `has keys of ${key} and values of ${value} per head`, OTHER);
}

/** How scores become weights, in the numbers of the format. */
const GATING = { softmax: 1, sigmoid: 2, softmaxOfChosen: 3 };

/** What a family always does: a file that says something else is of another model. */
function requireUsual(keys: GgufKeys, gating: number, rotated?: number): void {
  const usual: readonly (readonly [key: string, values: readonly number[]])[] = [
    ['expert_gating_func', [gating]],
    // 0 means that there is none
    ['expert_weights_scale', [0, 1]],
    ['rope.dimension_count', rotated === undefined ? [] : [rotated]],
  ];
  for (const [key, values] of usual) {
    const value = keys.optional(key);
    if (value === undefined || values.length === 0 || values.includes(value)) continue;
    keys.refuse('GGUF_UNSUPPORTED', `has ${key} ${value}; models of this kind have ${values.join(' or ')}`, OTHER);
  }
}

const OTHER = 'this is a variant that is not supported: use the safetensors files of the model';

/** Blocks of a prediction head are counted even where they are left out of the file. */
function depth(keys: GgufKeys): Config {
  const prediction = keys.optional('nextn_predict_layers') ?? 0;
  const layers = keys.blocks - prediction;
  const isThere = keys.has(`blk.${layers}.nextn.eh_proj.weight`);
  return { num_hidden_layers: layers, num_nextn_predict_layers: isThere ? prediction : 0 };
}

/** Layers that have an MLP instead of experts. */
function denseLayers(keys: GgufKeys): number[] {
  const layers = Array.from({ length: keys.blocks }, (_, layer) => layer);
  return layers.filter(
    layer => keys.has(`blk.${layer}.ffn_gate.weight`) && !keys.has(`blk.${layer}.ffn_gate_inp.weight`),
  );
}

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
  'gpt-oss': gptOss,
  deepseek2,
  glm4moe,
  'minimax-m2': minimaxM2,
};

/** Known, and not read: why. */
export const REFUSED_ARCHITECTURES: Readonly<Record<string, string>> = {
  llama: 'its query and key rows are in another order than this program computes with (Mixtral among others)',
  qwen35moe: 'its value heads are in another order than this program computes with',
  qwen3next: 'its value heads are in another order than this program computes with',
};
