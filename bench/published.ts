/** Published configs, with fewer layers and experts and a smaller vocabulary where a file is to stay small: widths are the true ones. */

/** How a config is cut down; what is left out stays as published. */
export interface Cut {
  readonly layers?: number;
  readonly experts?: number;
  readonly vocab?: number;
}

export interface Published {
  readonly about: string;
  /** Encodings in which it is published, or to which it is usually converted. */
  readonly encodings: readonly Encoding[];
  /** A cut that makes files of up to about 3 GB in any of them. */
  readonly cut: Required<Cut>;
  config(cut: Required<Cut>): Readonly<Record<string, unknown>>;
}

/** `container`: our own, routed experts q4g64, dense matrices q8g64. `gguf`: Q4_K, with Q6_K where llama.cpp uses it for Q4_K_M. */
export type Encoding = 'bf16' | 'fp8' | 'mxfp4' | 'container' | 'gguf';

const qwen3: Published = {
  about: 'Qwen3-30B-A3B: 48 layers of 128 experts',
  encodings: ['bf16', 'fp8', 'container', 'gguf'],
  cut: { layers: 4, experts: 128, vocab: 32768 },
  config: ({ layers, experts, vocab }) => ({
    model_type: 'qwen3_moe',
    architectures: ['Qwen3MoeForCausalLM'],
    attention_bias: false,
    decoder_sparse_step: 1,
    eos_token_id: 1,
    head_dim: 128,
    hidden_act: 'silu',
    hidden_size: 2048,
    intermediate_size: 6144,
    max_position_embeddings: 40960,
    mlp_only_layers: [],
    moe_intermediate_size: 768,
    norm_topk_prob: true,
    num_attention_heads: 32,
    num_experts: experts,
    num_experts_per_tok: 8,
    num_hidden_layers: layers,
    num_key_value_heads: 4,
    rms_norm_eps: 1e-6,
    rope_scaling: null,
    rope_theta: 1e6,
    sliding_window: null,
    tie_word_embeddings: false,
    use_sliding_window: false,
    vocab_size: vocab,
  }),
};

const qwen36: Published = {
  about: 'Qwen3.6-35B-A3B: 40 layers of 256 experts, every fourth with full attention',
  encodings: ['bf16', 'fp8', 'container'],
  cut: { layers: 4, experts: 256, vocab: 32768 },
  config: ({ layers, experts, vocab }) => ({
    model_type: 'qwen3_5_moe_text',
    architectures: ['Qwen3_5MoeForCausalLM'],
    attention_bias: false,
    attn_output_gate: true,
    eos_token_id: 1,
    full_attention_interval: 4,
    head_dim: 256,
    hidden_act: 'silu',
    hidden_size: 2048,
    linear_conv_kernel_dim: 4,
    linear_key_head_dim: 128,
    linear_num_key_heads: 16,
    linear_num_value_heads: 32,
    linear_value_head_dim: 128,
    mamba_ssm_dtype: 'float32',
    max_position_embeddings: 262144,
    moe_intermediate_size: 512,
    num_attention_heads: 16,
    num_experts: experts,
    num_experts_per_tok: 8,
    num_hidden_layers: layers,
    num_key_value_heads: 2,
    rms_norm_eps: 1e-6,
    rope_parameters: { rope_type: 'default', rope_theta: 1e7, partial_rotary_factor: 0.25 },
    shared_expert_intermediate_size: 512,
    tie_word_embeddings: false,
    vocab_size: vocab,
  }),
};

const gptOss: Published = {
  about: 'gpt-oss-20b: 24 layers of 32 experts, every other with a window of 128',
  encodings: ['mxfp4', 'container'],
  cut: { layers: 4, experts: 32, vocab: 32768 },
  config: ({ layers, experts, vocab }) => ({
    model_type: 'gpt_oss',
    architectures: ['GptOssForCausalLM'],
    attention_bias: true,
    eos_token_id: 1,
    head_dim: 64,
    hidden_act: 'silu',
    hidden_size: 2880,
    intermediate_size: 2880,
    layer_types: Array.from({ length: layers }, (_, i) => (i % 2 === 0 ? 'sliding_attention' : 'full_attention')),
    max_position_embeddings: 131072,
    num_attention_heads: 64,
    num_experts_per_tok: 4,
    num_hidden_layers: layers,
    num_key_value_heads: 8,
    num_local_experts: experts,
    rms_norm_eps: 1e-5,
    rope_scaling: {
      beta_fast: 32,
      beta_slow: 1,
      factor: 32,
      original_max_position_embeddings: 4096,
      rope_type: 'yarn',
      truncate: false,
    },
    rope_theta: 150000,
    sliding_window: 128,
    swiglu_limit: 7,
    tie_word_embeddings: false,
    vocab_size: vocab,
  }),
};

/** The first layer is dense; the first two have indexers, the others use their selections. */
const glm52: Published = {
  about: 'GLM-5.2: 3 dense layers, then 75 of 256 experts; latent attention over 2048 chosen keys',
  encodings: ['fp8', 'container'],
  cut: { layers: 3, experts: 16, vocab: 16384 },
  config: ({ layers, experts, vocab }) => ({
    model_type: 'glm_moe_dsa',
    architectures: ['GlmMoeDsaForCausalLM'],
    attention_bias: false,
    eos_token_id: 1,
    first_k_dense_replace: 1,
    hidden_act: 'silu',
    hidden_size: 6144,
    index_head_dim: 128,
    index_n_heads: 32,
    index_topk: 2048,
    indexer_rope_interleave: true,
    indexer_types: Array.from({ length: layers }, (_, i) => (i < 2 ? 'full' : 'shared')),
    intermediate_size: 12288,
    kv_lora_rank: 512,
    max_position_embeddings: 1048576,
    mlp_layer_types: Array.from({ length: layers }, (_, i) => (i < 1 ? 'dense' : 'sparse')),
    moe_intermediate_size: 2048,
    moe_router_dtype: 'float32',
    n_group: 1,
    n_routed_experts: experts,
    n_shared_experts: 1,
    norm_topk_prob: true,
    num_attention_heads: 64,
    num_experts_per_tok: 8,
    num_hidden_layers: layers,
    num_key_value_heads: 64,
    num_nextn_predict_layers: 0,
    q_lora_rank: 2048,
    qk_head_dim: 256,
    qk_nope_head_dim: 192,
    qk_rope_head_dim: 64,
    rms_norm_eps: 1e-5,
    rope_interleave: true,
    rope_parameters: { rope_theta: 8e6, rope_type: 'default' },
    routed_scaling_factor: 2.5,
    scoring_func: 'sigmoid',
    tie_word_embeddings: false,
    topk_group: 1,
    topk_method: 'noaux_tc',
    v_head_dim: 256,
    vocab_size: vocab,
  }),
};

export const PUBLISHED: Readonly<Record<string, Published>> = {
  qwen3,
  'qwen3.6': qwen36,
  'gpt-oss': gptOss,
  'glm-5.2': glm52,
};
