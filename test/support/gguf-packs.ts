/**
 * Checkpoints in Hugging Face layout written as GGUF files, as converters do it: names, joined experts, metadata, vocabulary.
 * Names and rules are written down here a second time, so that a mistake in the reader's tables shows.
 */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { openCheckpoint } from '../../src/formats/checkpoint.ts';
import type { Checkpoint, TensorInfo } from '../../src/formats/checkpoint-types.ts';
import { bytesOfTensor } from './checkpoint-bytes.ts';
import { decode, encode, type GgufDtype, type GgufFloat, typeId } from './gguf-blocks.ts';
import type { GgufEntry, GgufField, GgufFile } from './gguf-writer.ts';

export type Json = Record<string, unknown>;
export type Pair = [string, GgufField];

/** A tensor as float32. */
export interface Floats {
  readonly name: string;
  /** Rows first. */
  readonly shape: readonly number[];
  readonly values: Float32Array;
}

const NAMES: readonly (readonly [RegExp, string])[] = [
  [/^model\.embed_tokens\.weight$/, 'token_embd.weight'],
  [/^model\.norm\.weight$/, 'output_norm.weight'],
  [/^lm_head\.weight$/, 'output.weight'],
  [/^input_layernorm\.(\w+)$/, 'attn_norm.$1'],
  [/^self_attn\.o_proj\.(\w+)$/, 'attn_output.$1'],
  [/^self_attn\.([qkv])_proj\.(\w+)$/, 'attn_$1.$2'],
  [/^self_attn\.([qk])_norm\.(\w+)$/, 'attn_$1_norm.$2'],
  [/^self_attn\.sinks$/, 'attn_sinks.weight'],
  [/^self_attn\.q_a_proj\.weight$/, 'attn_q_a.weight'],
  [/^self_attn\.q_a_layernorm\.weight$/, 'attn_q_a_norm.weight'],
  [/^self_attn\.q_b_proj\.weight$/, 'attn_q_b.weight'],
  [/^self_attn\.kv_a_proj_with_mqa\.weight$/, 'attn_kv_a_mqa.weight'],
  [/^self_attn\.kv_a_layernorm\.weight$/, 'attn_kv_a_norm.weight'],
  [/^self_attn\.kv_b_proj\.weight$/, 'attn_kv_b.weight'],
  [/^self_attn\.([kv])_b\.weight$/, 'attn_$1_b.weight'],
  [/^(?:mlp|block_sparse_moe)\.(?:gate|router)\.(weight|bias)$/, 'ffn_gate_inp.$1'],
  [/^(?:mlp\.gate|block_sparse_moe)\.e_score_correction_bias$/, 'exp_probs_b.bias'],
  [/^mlp\.(gate|up|down)_proj\.weight$/, 'ffn_$1.weight'],
  [/^mlp\.shared_experts\.(gate|up|down)_proj\.weight$/, 'ffn_$1_shexp.weight'],
  [/^experts\.(gate|up|down)_proj\.(\w+)$/, 'ffn_$1_exps.$2'],
  [/^(eh_proj|enorm|hnorm|embed_tokens)\.weight$/, 'nextn.$1.weight'],
  [/^shared_head\.(head|norm)\.weight$/, 'nextn.shared_head_$1.weight'],
];

/** Architectures whose norm after attention has a name of its own. */
const POST_NORM = /^(?:gpt-oss|glm4moe)$/;

function ggufName(name: string, architecture: string): string {
  const [, layer, inside = name] = /^model\.layers\.(\d+)\.(.+)$/.exec(name) ?? [];
  const prefix = layer === undefined ? '' : `blk.${layer}.`;
  if (inside === 'post_attention_layernorm.weight') {
    return `${prefix}${POST_NORM.test(architecture) ? 'post_attention_norm' : 'ffn_norm'}.weight`;
  }
  const rule = NAMES.find(([pattern]) => pattern.test(inside));
  if (!rule) throw new Error(`no GGUF name for ${name}`);
  return prefix + inside.replace(rule[0], rule[1]);
}

export function readTensor(checkpoint: Checkpoint, tensor: TensorInfo): Floats {
  const { name, shape, dtype } = tensor;
  return { name, shape, values: decode(dtype as GgufFloat, bytesOfTensor(checkpoint, tensor)) };
}

const EXPERT = /^(model\.layers\.\d+)\.\w+\.experts\.(\d+)\.(\w+)\.weight$/;
const W123: Readonly<Record<string, string>> = { w1: 'gate_proj', w3: 'up_proj', w2: 'down_proj' };

/** Experts of a layer joined, expert by expert; all other tensors as they are. */
function joinExperts(tensors: readonly Floats[]): Floats[] {
  const joint = new Map<string, Floats[]>();
  const rest: Floats[] = [];
  for (const tensor of tensors) {
    const match = EXPERT.exec(tensor.name);
    if (!match) rest.push(...separate(tensor));
    else {
      const name = `${match[1]}.experts.${W123[match[3]] ?? match[3]}.weight`;
      const list = joint.get(name) ?? [];
      list[Number(match[2])] = tensor;
      joint.set(name, list);
    }
  }
  const joined = [...joint].map(([name, list]) => {
    const values = new Float32Array(list.length * list[0].values.length);
    for (const [i, expert] of list.entries()) values.set(expert.values, i * expert.values.length);
    return { name, shape: [list.length, ...list[0].shape], values };
  });
  return [...rest, ...joined];
}

/** gpt-oss: gate and up alternate in the last dimension, matrices are transposed. */
function separate({ name, shape, values }: Floats): Floats[] {
  const match = /^(.*)\.mlp\.experts\.(gate_up|down)_proj(_bias)?$/.exec(name);
  if (!match) return [{ name, shape, values }];
  const isBias = match[3] !== undefined;
  const [experts, rows, width] = isBias ? [shape[0], 1, shape[1]] : shape;
  const parts = match[2] === 'down' ? ['down'] : ['gate', 'up'];
  return parts.map((part, first) => {
    const outputs = width / parts.length;
    const result = new Float32Array(experts * outputs * rows);
    for (let e = 0, i = 0; e < experts; e++) {
      for (let output = 0; output < outputs; output++) {
        for (let row = 0; row < rows; row++, i++) {
          result[i] = values[(e * rows + row) * width + output * parts.length + first];
        }
      }
    }
    const own = `${match[1]}.experts.${part}_proj.${isBias ? 'bias' : 'weight'}`;
    return { name: own, shape: isBias ? [experts, outputs] : [experts, outputs, rows], values: result };
  });
}

/** Per head: key rows transposed, [latent, plain], and value rows, [value, latent]. */
function splitHeads(tensor: Floats, config: Json): Floats[] {
  const match = /^(.*self_attn)\.kv_b_proj\.weight$/.exec(tensor.name);
  if (!match) return [tensor];
  const [heads, plain, value, latent] = latentSizes(config);
  const keys = new Float32Array(heads * latent * plain);
  const values = new Float32Array(heads * value * latent);
  for (let head = 0; head < heads; head++) {
    const rows = head * (plain + value);
    for (let l = 0; l < latent; l++) {
      for (let d = 0; d < plain; d++) keys[(head * latent + l) * plain + d] = tensor.values[(rows + d) * latent + l];
    }
    const from = (rows + plain) * latent;
    values.set(tensor.values.subarray(from, from + value * latent), head * value * latent);
  }
  return [
    { name: `${match[1]}.k_b.weight`, shape: [heads, latent, plain], values: keys },
    { name: `${match[1]}.v_b.weight`, shape: [heads, value, latent], values },
  ];
}

function latentSizes(config: Json): number[] {
  const fields = ['num_attention_heads', 'qk_nope_head_dim', 'v_head_dim', 'kv_lora_rank'];
  return fields.map(field => Number(config[field]));
}

/** Attention over latents has one head of keys and values. */
function latentMetadata(config: Json, a: string): Pair[] {
  const [, plain, value, latent] = latentSizes(config);
  const rotary = Number(config.qk_rope_head_dim);
  return [
    [`${a}.attention.head_count_kv`, ['u32', 1]],
    [`${a}.attention.key_length`, ['u32', latent + rotary]],
    [`${a}.attention.value_length`, ['u32', latent]],
    [`${a}.attention.key_length_mla`, ['u32', plain + rotary]],
    [`${a}.attention.value_length_mla`, ['u32', value]],
  ];
}

export interface PackOptions {
  /** Type of a matrix; vectors, routers and everything small are F32. */
  readonly dtype?: (name: string, columns: number) => GgufFloat | 'Q8_0' | 'Q4_0';
  readonly metadata?: readonly Pair[];
  /** kv_b as two tensors, the way of newer converters. */
  readonly splitHeads?: boolean;
  /** Keys to leave out. */
  readonly without?: readonly string[];
}

/** The pack in `directory` as a GGUF file of `architecture`; packed bytes (U8) are left to others. */
export function packAsGguf(directory: string, architecture: string, options: PackOptions = {}): GgufFile {
  const checkpoint = openCheckpoint(directory);
  const floats = joinExperts(
    [...checkpoint.tensors.values()]
      .filter(({ dtype }) => dtype !== 'U8')
      .map(tensor => readTensor(checkpoint, tensor)),
  );
  const { config } = checkpoint;
  const tensors = options.splitHeads ? floats.flatMap(tensor => splitHeads(tensor, config)) : floats;
  const latent = options.splitHeads ? latentMetadata(config, architecture) : [];
  const all = [...modelMetadata(config, architecture), ...tokenizerMetadata(directory)];
  const metadata = [...all.filter(([key]) => !latent.some(([other]) => other === key)), ...latent];
  const own = new Set([...(options.metadata ?? []).map(([key]) => key), ...(options.without ?? [])]);
  return {
    metadata: [...metadata.filter(([key]) => !own.has(key)), ...(options.metadata ?? [])],
    tensors: tensors.map(tensor =>
      entryOf(ggufName(tensor.name, architecture), tensor, options.dtype ?? (() => 'BF16')),
    ),
  };
}

/** `name`: that of the GGUF file. */
export function entryOf(name: string, tensor: Floats, dtypeOf: NonNullable<PackOptions['dtype']>): GgufEntry {
  const isPlain = tensor.shape.length === 1 || /ffn_gate_inp|_exps\.bias|ssm_conv1d/.test(name);
  const dtype = isPlain ? 'F32' : dtypeOf(name, tensor.shape[tensor.shape.length - 1]);
  const bytes = encode(dtype, tensor.values);
  return { name, dims: [...tensor.shape].reverse(), type: typeId(dtype as GgufDtype), bytes };
}

/** Fields of config.json -> keys, with their types. */
const KEYS: Readonly<Record<string, readonly [key: string, type: string]>> = {
  hidden_size: ['embedding_length', 'u32'],
  num_attention_heads: ['attention.head_count', 'u32'],
  num_key_value_heads: ['attention.head_count_kv', 'u32'],
  max_position_embeddings: ['context_length', 'u32'],
  intermediate_size: ['feed_forward_length', 'u32'],
  moe_intermediate_size: ['expert_feed_forward_length', 'u32'],
  rms_norm_eps: ['attention.layer_norm_rms_epsilon', 'f32'],
  rope_theta: ['rope.freq_base', 'f32'],
  num_experts: ['expert_count', 'u32'],
  num_local_experts: ['expert_count', 'u32'],
  n_routed_experts: ['expert_count', 'u32'],
  n_shared_experts: ['expert_shared_count', 'u32'],
  num_experts_per_tok: ['expert_used_count', 'u32'],
  norm_topk_prob: ['expert_weights_norm', 'bool'],
  routed_scaling_factor: ['expert_weights_scale', 'f32'],
  n_group: ['expert_group_count', 'u32'],
  topk_group: ['expert_group_used_count', 'u32'],
  first_k_dense_replace: ['leading_dense_block_count', 'u32'],
  num_nextn_predict_layers: ['nextn_predict_layers', 'u32'],
  sliding_window: ['attention.sliding_window', 'u32'],
  rotary_dim: ['rope.dimension_count', 'u32'],
  q_lora_rank: ['attention.q_lora_rank', 'u32'],
  kv_lora_rank: ['attention.kv_lora_rank', 'u32'],
  v_head_dim: ['attention.value_length', 'u32'],
  qk_rope_head_dim: ['rope.dimension_count', 'u32'],
};

export function modelMetadata(config: Json, a: string): Pair[] {
  const number = (field: string) => Number(config[field]);
  const prediction = Number(config.num_nextn_predict_layers ?? 0);
  const pairs: Pair[] = [
    ['general.architecture', ['string', a]],
    [`${a}.block_count`, ['u32', number('num_hidden_layers') + prediction]],
  ];
  for (const [field, [key, type]] of Object.entries(KEYS)) {
    const value = config[field];
    if (value !== null && value !== undefined) pairs.push([`${a}.${key}`, [type, value as number]]);
  }
  const headDim = number(config.head_dim === undefined ? 'hidden_size' : 'head_dim');
  if (config.head_dim !== undefined) pairs.push([`${a}.attention.key_length`, ['u32', headDim]]);
  if (config.head_dim !== undefined) pairs.push([`${a}.attention.value_length`, ['u32', headDim]]);
  if (config.qk_nope_head_dim !== undefined) {
    const length = number('qk_nope_head_dim') + number('qk_rope_head_dim');
    pairs.push([`${a}.attention.key_length`, ['u32', length]]);
  }
  if (config.partial_rotary_factor !== undefined) {
    pairs.push([`${a}.rope.dimension_count`, ['u32', headDim * number('partial_rotary_factor')]]);
  }
  if (config.scoring_func !== undefined || a === 'glm4moe') {
    pairs.push([`${a}.expert_gating_func`, ['u32', config.scoring_func === 'softmax' ? 1 : 2]]);
  }
  const scaling = config.rope_scaling as Json | null | undefined;
  if (scaling) {
    pairs.push([`${a}.rope.scaling.type`, ['string', 'yarn']]);
    pairs.push([`${a}.rope.scaling.factor`, ['f32', scaling.factor as number]]);
    const original = scaling.original_max_position_embeddings as number;
    pairs.push([`${a}.rope.scaling.original_context_length`, ['u32', original]]);
    const all = scaling.mscale_all_dim;
    if (all !== undefined) pairs.push([`${a}.rope.scaling.yarn_log_multiplier`, ['f32', 0.1 * Number(all)]]);
  }
  return pairs;
}

/** What tokenizers call their rules is not in their files. */
const PRE_TOKENIZERS: readonly (readonly [part: string, name: string])[] = [
  ['\\p{Lu}\\p{Lt}', 'gpt-4o'],
  ['\\s?[!-/', 'deepseek-llm'],
  ['[A-Za-z]+|', 'deepseek-v3'],
  ['\\p{L}\\p{M}]+|\\p{N}|', 'qwen35'],
  ['\\p{N}{1,3}', 'glm4'],
  ['|\\p{N}| ?', 'qwen2'],
  ['| ?\\p{N}+', 'olmo'],
];

export function tokenizerMetadata(directory: string): Pair[] {
  const read = (name: string) => JSON.parse(readFileSync(join(directory, name), 'utf8')) as Json;
  const tokenizer = read('tokenizer.json');
  const config = read('tokenizer_config.json');
  const model = tokenizer.model as { vocab: Record<string, number>; merges: ([string, string] | string)[] };
  const added = tokenizer.added_tokens as { id: number; content: string; special: boolean }[];
  const tokens: string[] = [];
  const types: number[] = [];
  for (const [token, id] of Object.entries(model.vocab)) {
    tokens[id] = token;
    types[id] = 1;
  }
  for (const { id, content, special } of added) {
    tokens[id] = content;
    types[id] = special || /^<\|.*\|>$/.test(content) ? 3 : 4;
  }
  for (let id = 0; id < tokens.length; id++) {
    tokens[id] ??= `[PAD${id}]`;
    types[id] ??= 5;
  }
  const rules = JSON.stringify(tokenizer.pre_tokenizer).replaceAll('\\\\', '\\');
  const pre = PRE_TOKENIZERS.find(([part]) => rules.includes(part))?.[1] ?? 'unknown';
  const merges = model.merges.map(merge => (typeof merge === 'string' ? merge : merge.join(' ')));
  const pairs: Pair[] = [
    ['tokenizer.ggml.model', ['string', 'gpt2']],
    ['tokenizer.ggml.pre', ['string', pre]],
    ['tokenizer.ggml.tokens', ['array', 'string', tokens]],
    ['tokenizer.ggml.token_type', ['array', 'i32', types]],
    ['tokenizer.ggml.merges', ['array', 'string', merges]],
  ];
  for (const [field, role] of Object.entries({ bos_token: 'bos', eos_token: 'eos', pad_token: 'padding' })) {
    const value = config[field] as string | { content: string } | null | undefined;
    const text = typeof value === 'object' ? value?.content : value;
    const id = text === undefined ? -1 : tokens.indexOf(text);
    if (id >= 0) pairs.push([`tokenizer.ggml.${role}_token_id`, ['u32', id]]);
  }
  if (typeof config.chat_template === 'string')
    pairs.push(['tokenizer.chat_template', ['string', config.chat_template]]);
  return pairs;
}
