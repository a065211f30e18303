/** Qwen3 MoE of random weights as a GGUF file with the types of Q4_K_M: Q6_K for values, down and the head, else Q4_K. */

import type { TensorTable } from '../src/models/family.ts';
import { type GgufTensor, type GgufValue, tensorBytes, writeGguf } from './peer/gguf.ts';
import { constantFloats, randomFloats, randomQ4K, randomQ6K } from './random-weights.ts';

/** Columns and distinct blocks of a tensor; more would only take time. */
const BLOCK = 256;
const DISTINCT_BLOCKS = 1 << 14;

type Entry = GgufTensor & { readonly deviation: number };

export function writeQwen3Gguf(
  path: string,
  config: Readonly<Record<string, unknown>>,
  { hiddenSize, expertWidth }: TensorTable,
  random: () => number,
): number {
  const c = config as Readonly<Record<string, number>>;
  const { num_hidden_layers: layers, num_experts: experts, vocab_size: vocab, head_dim: headDim } = c;
  const q = c.num_attention_heads * headDim;
  const kv = c.num_key_value_heads * headDim;
  const tensors: Entry[] = [
    quantised('token_embd.weight', 'Q4_K', [hiddenSize, vocab], 1),
    quantised('output.weight', 'Q6_K', [hiddenSize, vocab]),
    vector('output_norm.weight', hiddenSize),
  ];
  for (let layer = 0; layer < layers; layer++) {
    const p = `blk.${layer}`;
    tensors.push(
      vector(`${p}.attn_norm.weight`, hiddenSize),
      vector(`${p}.ffn_norm.weight`, hiddenSize),
      vector(`${p}.attn_q_norm.weight`, headDim),
      vector(`${p}.attn_k_norm.weight`, headDim),
      quantised(`${p}.attn_q.weight`, 'Q4_K', [hiddenSize, q]),
      quantised(`${p}.attn_k.weight`, 'Q4_K', [hiddenSize, kv]),
      quantised(`${p}.attn_v.weight`, 'Q6_K', [hiddenSize, kv]),
      quantised(`${p}.attn_output.weight`, 'Q4_K', [q, hiddenSize], 0.3 / Math.sqrt(q)),
      {
        name: `${p}.ffn_gate_inp.weight`,
        type: 'F32',
        dims: [hiddenSize, experts],
        deviation: 4 / Math.sqrt(hiddenSize),
      },
      quantised(`${p}.ffn_gate_exps.weight`, 'Q4_K', [hiddenSize, expertWidth, experts]),
      quantised(`${p}.ffn_up_exps.weight`, 'Q4_K', [hiddenSize, expertWidth, experts]),
      quantised(`${p}.ffn_down_exps.weight`, 'Q6_K', [expertWidth, hiddenSize, experts], 0.3 / Math.sqrt(expertWidth)),
    );
  }
  const sources = tensors.map(tensor => ({ ...tensor, pieces: () => piecesOf(tensor, random) }));
  return writeGguf(path, metadata(c, expertWidth), sources);
}

function vector(name: string, length: number): Entry {
  return { name, type: 'F32', dims: [length], deviation: 0 };
}

function quantised(name: string, type: 'Q4_K' | 'Q6_K', dims: number[], deviation = 1 / Math.sqrt(dims[0])): Entry {
  return { name, type, dims, deviation };
}

/** Blocks again and again; a norm is all ones. */
function* piecesOf(tensor: Entry, random: () => number): Generator<Uint8Array> {
  const { type, dims, deviation } = tensor;
  const elements = dims.reduce((product, n) => product * n, 1);
  if (type !== 'Q4_K' && type !== 'Q6_K') {
    yield deviation === 0 ? constantFloats(elements, 1) : randomFloats(elements, deviation * Math.sqrt(3), random);
    return;
  }
  const make = type === 'Q4_K' ? randomQ4K : randomQ6K;
  const pool = make(Math.min(DISTINCT_BLOCKS, elements / BLOCK), deviation, random);
  for (let left = tensorBytes(tensor); left > 0; left -= pool.length) {
    yield pool.subarray(0, Math.min(left, pool.length));
  }
}

function metadata(c: Readonly<Record<string, number>>, expertWidth: number): Map<string, GgufValue> {
  const tokens = Array.from({ length: c.vocab_size }, (_, i) => (i === 1 ? '<|endoftext|>' : `t${i}`));
  const key = (name: string) => `qwen3moe.${name}`;
  return new Map<string, GgufValue>([
    ['general.architecture', { string: 'qwen3moe' }],
    [key('block_count'), { uint32: c.num_hidden_layers }],
    [key('context_length'), { uint32: c.max_position_embeddings }],
    [key('embedding_length'), { uint32: c.hidden_size }],
    [key('feed_forward_length'), { uint32: c.intermediate_size }],
    [key('expert_feed_forward_length'), { uint32: expertWidth }],
    [key('expert_count'), { uint32: c.num_experts }],
    [key('expert_used_count'), { uint32: c.num_experts_per_tok }],
    [key('attention.head_count'), { uint32: c.num_attention_heads }],
    [key('attention.head_count_kv'), { uint32: c.num_key_value_heads }],
    [key('attention.key_length'), { uint32: c.head_dim }],
    [key('attention.value_length'), { uint32: c.head_dim }],
    [key('attention.layer_norm_rms_epsilon'), { float32: c.rms_norm_eps }],
    [key('rope.freq_base'), { float32: c.rope_theta }],
    ['tokenizer.ggml.model', { string: 'gpt2' }],
    ['tokenizer.ggml.pre', { string: 'qwen2' }],
    ['tokenizer.ggml.tokens', { strings: tokens }],
    ['tokenizer.ggml.token_type', { int32s: tokens.map((_, i) => (i === 1 ? 3 : 1)) }],
    ['tokenizer.ggml.merges', { strings: [] }],
    ['tokenizer.ggml.eos_token_id', { uint32: 1 }],
  ]);
}
