/**
 * Checkpoints of Qwen3.5 and 3.6 as GGUF files. The converter of llama.cpp changes more than names: one is added to zero-centred
 * norms, decay rates are no longer logarithms, and value heads are put in another order, so that head j belongs to key head j mod
 * keyHeads. Written from a description of that converter, apart from the reader.
 */

import { openCheckpoint } from '../../src/formats/checkpoint.ts';
import {
  entryOf,
  type Floats,
  type Json,
  modelMetadata,
  type PackOptions,
  type Pair,
  readTensor,
  tokenizerMetadata,
} from './gguf-packs.ts';
import type { GgufFile } from './gguf-writer.ts';

const ARCHITECTURE = 'qwen35moe';

const NAMES: readonly (readonly [RegExp, string])[] = [
  [/^(?:model\.)?(?:language_model\.)?embed_tokens\./, 'token_embd.'],
  [/^(?:model\.)?(?:language_model\.)?norm\./, 'output_norm.'],
  [/^lm_head\./, 'output.'],
  [/^input_layernorm\./, 'attn_norm.'],
  [/^post_attention_layernorm\./, 'post_attention_norm.'],
  [/^self_attn\.o_proj\./, 'attn_output.'],
  [/^self_attn\.([qkv])_(proj|norm)\./, 'attn_$1_$2.'],
  [/^linear_attn\.in_proj_qkv\./, 'attn_qkv.'],
  [/^linear_attn\.in_proj_z\./, 'attn_gate.'],
  [/^linear_attn\.in_proj_a\./, 'ssm_alpha.'],
  [/^linear_attn\.in_proj_b\./, 'ssm_beta.'],
  [/^linear_attn\.out_proj\./, 'ssm_out.'],
  [/^linear_attn\.(conv1d|norm)\./, 'ssm_$1.'],
  [/^linear_attn\.A_log$/, 'ssm_a'],
  [/^linear_attn\.dt_bias$/, 'ssm_dt.bias'],
  [/^mlp\.gate\./, 'ffn_gate_inp.'],
  [/^mlp\.shared_expert_gate\./, 'ffn_gate_inp_shexp.'],
  [/^mlp\.shared_expert\.(gate|up|down)_proj\./, 'ffn_$1_shexp.'],
  [/^mlp\.experts\.(gate_up|gate|up|down)_proj$/, 'ffn_$1_exps.weight'],
];

const PREDICTION: Readonly<Record<string, string>> = {
  'mtp.fc.weight': 'eh_proj',
  'mtp.pre_fc_norm_embedding.weight': 'enorm',
  'mtp.pre_fc_norm_hidden.weight': 'hnorm',
  'mtp.norm.weight': 'shared_head_norm',
};

function ggufName(name: string, layers: number): string {
  if (PREDICTION[name]) return `blk.${layers}.nextn.${PREDICTION[name]}.weight`;
  const [, own, layer, inside = name] = /^(model\.|mtp\.)(?:language_model\.)?layers\.(\d+)\.(.+)$/.exec(name) ?? [];
  const prefix = layer === undefined ? '' : `blk.${Number(layer) + (own === 'mtp.' ? layers : 0)}.`;
  const rule = NAMES.find(([pattern]) => pattern.test(inside));
  if (!rule) throw new Error(`no GGUF name for ${name}`);
  return prefix + inside.replace(rule[0], rule[1]).replace(/^attn_([qkv])_proj/, 'attn_$1');
}

/** Heads of `unit` floats each in the new order, after `skip` floats that stay: place i*keyHeads + g takes head g*ratio + i. */
function inTiles(values: Float32Array, config: Json, unit: number, skip = 0): Float32Array {
  const [keyHeads, heads] = [Number(config.linear_num_key_heads), Number(config.linear_num_value_heads)];
  const ratio = heads / keyHeads;
  const result = values.slice();
  if (config.grouped) return result;
  for (let g = 0; g < keyHeads; g++) {
    for (let i = 0; i < ratio; i++) {
      const from = skip + (g * ratio + i) * unit;
      result.set(values.subarray(from, from + unit), skip + (i * keyHeads + g) * unit);
    }
  }
  return result;
}

function rewritten(tensor: Floats, config: Json): Floats {
  const { name, shape, values } = tensor;
  const [, part] = /linear_attn\.(.+?)(?:\.weight)?$/.exec(name) ?? [];
  const [keyDim, valueDim] = [Number(config.linear_key_head_dim), Number(config.linear_value_head_dim)];
  const keyRows = 2 * Number(config.linear_num_key_heads) * keyDim;
  const width = shape[shape.length - 1];
  switch (part) {
    case undefined:
      break;
    case 'in_proj_qkv':
      return { ...tensor, values: inTiles(values, config, valueDim * width, keyRows * width) };
    case 'conv1d':
      return { name, shape: [shape[0], width], values: inTiles(values, config, valueDim * width, keyRows * width) };
    case 'in_proj_z':
      return { ...tensor, values: inTiles(values, config, valueDim * width) };
    case 'in_proj_a':
    case 'in_proj_b':
      return { ...tensor, values: inTiles(values, config, width) };
    case 'dt_bias':
      return { ...tensor, values: inTiles(values, config, 1) };
    case 'A_log':
      return { ...tensor, values: inTiles(values, config, 1).map(value => -Math.exp(value)) };
    case 'out_proj': {
      const rows = Array.from({ length: shape[0] }, (_, row) =>
        inTiles(values.subarray(row * width, (row + 1) * width), config, valueDim),
      );
      return { ...tensor, values: Float32Array.from(rows.flatMap(row => [...row])) };
    }
    default:
      return tensor;
  }
  if (name.endsWith('shared_expert_gate.weight')) return { ...tensor, shape: [width] };
  return /norm(?:_embedding|_hidden)?\.weight$/.test(name)
    ? { ...tensor, values: values.map(value => value + 1) }
    : tensor;
}

/** Gate and up of all experts are one tensor in the checkpoint, gate rows first. */
function apart(tensor: Floats): Floats[] {
  const [experts, rows, columns] = tensor.shape;
  const half = (rows / 2) * columns;
  return ['gate', 'up'].map((role, second) => {
    const values = new Float32Array(experts * half);
    for (let e = 0; e < experts; e++) {
      const from = (2 * e + second) * half;
      values.set(tensor.values.subarray(from, from + half), e * half);
    }
    return { name: tensor.name.replace('gate_up', role), shape: [experts, rows / 2, columns], values };
  });
}

function stateMetadata(config: Json): Pair[] {
  const number = (field: string) => Number(config[field]);
  const { rope_theta: theta } = config.rope_parameters as Json;
  const values = number('linear_num_value_heads') * number('linear_value_head_dim');
  const words: Readonly<Record<string, number>> = {
    'ssm.conv_kernel': number('linear_conv_kernel_dim'),
    'ssm.state_size': number('linear_key_head_dim'),
    'ssm.group_count': number('linear_num_key_heads'),
    'ssm.time_step_rank': number('linear_num_value_heads'),
    'ssm.inner_size': values,
    full_attention_interval: number('full_attention_interval'),
    expert_shared_feed_forward_length: number('shared_expert_intermediate_size'),
  };
  return [
    ...Object.entries(words).map(([key, value]): Pair => [`${ARCHITECTURE}.${key}`, ['u32', value]]),
    [`${ARCHITECTURE}.rope.freq_base`, ['f32', Number(theta)]],
    [`${ARCHITECTURE}.rope.dimension_sections`, ['array', 'i32', [2, 1, 1, 0]]],
  ];
}

export interface Qwen35Options extends Pick<PackOptions, 'dtype' | 'metadata'> {
  /** Gate and up of the experts stay one tensor. */
  readonly fused?: boolean;
  /** Value heads stay in the order of the checkpoint: such files are wrong. */
  readonly grouped?: boolean;
  /** Without the prediction head, which some publishers leave out. */
  readonly noPrediction?: boolean;
}

export function qwen35AsGguf(directory: string, options: Qwen35Options = {}): GgufFile {
  const { fused = false, grouped = false, noPrediction = false, dtype = () => 'BF16' as const } = options;
  const checkpoint = openCheckpoint(directory);
  const config = checkpoint.config.text_config as Json;
  const layers = Number(config.num_hidden_layers);
  const tensors = [...checkpoint.tensors.values()]
    .filter(({ name }) => !/visual\./.test(name) && !(noPrediction && name.startsWith('mtp.')))
    .map(tensor => rewritten(readTensor(checkpoint, tensor), { ...config, grouped }))
    .flatMap(tensor => (!fused && tensor.name.endsWith('gate_up_proj') ? apart(tensor) : [tensor]));
  const own = new Set(options.metadata?.map(([key]) => key));
  const prediction = noPrediction ? 0 : config.mtp_num_hidden_layers;
  const metadata = [
    ...modelMetadata({ ...config, num_nextn_predict_layers: prediction }, ARCHITECTURE),
    ...stateMetadata(config),
    ...tokenizerMetadata(directory),
  ];
  return {
    metadata: [...metadata.filter(([key]) => !own.has(key)), ...(options.metadata ?? [])],
    tensors: tensors.map(tensor => entryOf(ggufName(tensor.name, layers), tensor, dtype)),
  };
}
