/** What architectures of GGUF files share: names of tensors inside a block, and metadata as fields of a config.json. */

import type { GgufKeys } from './gguf-keys.ts';

export type Config = Record<string, unknown>;
export type Names = Readonly<Record<string, string>>;

export interface GgufArchitecture {
  config(keys: GgufKeys): Config;
  readonly names: Names;
  /** Full names of parts that are no part of a layer. */
  readonly alone?: Names;
  /** What stands before the names of a block, where it is not model.layers.N. */
  prefix?(keys: GgufKeys, block: number): string;
  /** Spellings of tokens that end an answer besides those that the metadata name. */
  readonly stops: readonly string[];
  /** The token that ends a turn also ends parts of one: it does not stop. */
  readonly turnsHaveParts?: true;
}

// ---- names ----------------------------------------------------------------------------------------------------------

export const BLOCK: Names = {
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

export const QK_NORM: Names = {
  'attn_q_norm.weight': 'self_attn.q_norm.weight',
  'attn_k_norm.weight': 'self_attn.k_norm.weight',
};

export const QKV_BIAS: Names = {
  'attn_q.bias': 'self_attn.q_proj.bias',
  'attn_k.bias': 'self_attn.k_proj.bias',
  'attn_v.bias': 'self_attn.v_proj.bias',
};

/** Experts of a layer are joined in one tensor per role. `part` is the part of a layer that has the router and the experts. */
export function routed(part: string, router: string): Names {
  return {
    'ffn_gate_inp.weight': `${part}.${router}.weight`,
    'ffn_gate_exps.weight': `${part}.experts.gate_proj.weight`,
    'ffn_up_exps.weight': `${part}.experts.up_proj.weight`,
    'ffn_down_exps.weight': `${part}.experts.down_proj.weight`,
    // gate rows first; such a layer has its down matrices under the name that goes with it (models/gguf.ts)
    'ffn_gate_up_exps.weight': `${part}.experts.gate_up_proj`,
  };
}

export const SHARED: Names = {
  'ffn_gate_shexp.weight': 'mlp.shared_experts.gate_proj.weight',
  'ffn_up_shexp.weight': 'mlp.shared_experts.up_proj.weight',
  'ffn_down_shexp.weight': 'mlp.shared_experts.down_proj.weight',
};

export const CORRECTION: Names = { 'exp_probs_b.bias': 'mlp.gate.e_score_correction_bias' };

export const PREDICTION: Names = {
  'nextn.eh_proj.weight': 'eh_proj.weight',
  'nextn.enorm.weight': 'enorm.weight',
  'nextn.hnorm.weight': 'hnorm.weight',
  'nextn.embed_tokens.weight': 'embed_tokens.weight',
  'nextn.shared_head_head.weight': 'shared_head.head.weight',
  'nextn.shared_head_norm.weight': 'shared_head.norm.weight',
};

export const LATENT: Names = {
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
export function common(keys: GgufKeys, modelType: string): Config {
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

export function ropeScaling(keys: GgufKeys): Config | null {
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

export const kvHeads = (keys: GgufKeys) =>
  keys.optional('attention.head_count_kv') ?? keys.number('attention.head_count');

/** Sizes of keys and values, where the family says one for both. */
export function headDim(keys: GgufKeys): number {
  const key =
    keys.optional('attention.key_length') ?? keys.number('embedding_length') / keys.number('attention.head_count');
  const value = keys.optional('attention.value_length') ?? key;
  if (key === value) return key;
  return keys.refuse('GGUF_UNSUPPORTED', `has keys of ${key} and values of ${value} per head`, OTHER);
}

/** How scores become weights, in the numbers of the format. */
export const GATING = { softmax: 1, sigmoid: 2, softmaxOfChosen: 3 };

/** What a family always does: a file that says something else is of another model. */
export function requireUsual(keys: GgufKeys, gating: number, rotated?: number): void {
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

export const OTHER = 'this is a variant that is not supported: use the safetensors files of the model';

/** Layers of the main model, and how many of a prediction head come after them. */
export function mainLayers(keys: GgufKeys): { layers: number; prediction: number } {
  const { blocks } = keys;
  const prediction = keys.optional('nextn_predict_layers') ?? 0;
  if (Number.isInteger(prediction) && prediction >= 0 && prediction < blocks)
    return { layers: blocks - prediction, prediction };
  const what = `has nextn_predict_layers ${prediction}; of ${blocks} blocks 0 to ${blocks - 1} are possible`;
  return keys.refuse('GGUF_BAD_METADATA', what, 'the file is damaged: get it anew');
}

/** Blocks of a prediction head are counted even where they are left out of the file. */
export function depth(keys: GgufKeys): Config {
  const { layers, prediction } = mainLayers(keys);
  const isThere = keys.has(`blk.${layers}.nextn.eh_proj.weight`);
  return { num_hidden_layers: layers, num_nextn_predict_layers: isThere ? prediction : 0 };
}

/** Layers that have an MLP instead of experts. */
export function denseLayers(keys: GgufKeys): number[] {
  const layers = Array.from({ length: keys.blocks }, (_, layer) => layer);
  return layers.filter(
    layer => keys.has(`blk.${layer}.ffn_gate.weight`) && !keys.has(`blk.${layer}.ffn_gate_inp.weight`),
  );
}
