/** The two files of the comparison: one random OLMoE as our q4g64 container, and the same weights as Q4_0 in a GGUF. */

import { existsSync, mkdirSync, renameSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { formatBytes } from '../../src/common/units.ts';
import { openCheckpoint } from '../../src/formats/checkpoint.ts';
import type { Checkpoint, TensorInfo } from '../../src/formats/checkpoint-types.ts';
import { readExact, withFile } from '../../src/formats/files.ts';
import { layoutBytes } from '../../src/quant/layouts.ts';
import { OLMOE_SHAPE, type SynthShape, writeSynth } from '../synth.ts';
import { type GgufTensor, type GgufValue, tilesToQ4_0, writeGguf } from './gguf.ts';

export const SHAPES = {
  olmoe: { ...OLMOE_SHAPE, dense_encoding: 'q4g64' },
  small: {
    ...OLMOE_SHAPE,
    layers: 8,
    experts: 32,
    hiddenSize: 1024,
    expertWidth: 512,
    heads: 8,
    dense_encoding: 'q4g64',
  },
} as const satisfies Record<string, SynthShape>;

export type ShapeName = keyof typeof SHAPES;

export interface PeerModel {
  readonly container: string;
  readonly gguf: string;
}

/** Makes what is missing below the (ignored) temporary folder; half-written files do not stay. */
export function peerModel(name: ShapeName, say: (line: string) => void): PeerModel {
  const directory = fileURLToPath(new URL(`../results/tmp/peer-${name}`, import.meta.url));
  const container = join(directory, 'q4g64');
  const gguf = join(directory, 'q4_0.gguf');
  mkdirSync(directory, { recursive: true });
  const make = (path: string, write: (partial: string) => number) => {
    if (existsSync(path)) return;
    say(`writing ${path} ...`);
    const partial = `${path}.partial`;
    rmSync(partial, { recursive: true, force: true });
    try {
      say(formatBytes(write(partial)));
      renameSync(partial, path);
    } finally {
      rmSync(partial, { recursive: true, force: true });
    }
  };
  make(container, partial => writeSynth(partial, SHAPES[name]));
  make(gguf, partial => containerToGguf(container, partial));
  return { container, gguf };
}

/** Weights of any kind that one decoded token reads, in bytes: all dense ones (one row of the embedding), `topK` experts. */
export function bytesPerToken({ layers, topK, hiddenSize, expertWidth, vocabSize, experts }: SynthShape, bits: number) {
  const dense = layers * 4 * hiddenSize ** 2 + vocabSize * hiddenSize + hiddenSize;
  const routed = layers * topK * 3 * hiddenSize * expertWidth;
  const floats = layers * (experts + 4) * hiddenSize + hiddenSize;
  return ((dense + routed) * bits) / 8 + floats * 4;
}

/** Our names of resident tensors, theirs; `L` stands for the layer. */
const DENSE_NAMES: readonly (readonly [string, string])[] = [
  ['model.embed_tokens.weight', 'token_embd.weight'],
  ['lm_head.weight', 'output.weight'],
  ['model.norm.weight', 'output_norm.weight'],
  ['model.layers.L.input_layernorm.weight', 'blk.L.attn_norm.weight'],
  ['model.layers.L.self_attn.q_proj.weight', 'blk.L.attn_q.weight'],
  ['model.layers.L.self_attn.k_proj.weight', 'blk.L.attn_k.weight'],
  ['model.layers.L.self_attn.v_proj.weight', 'blk.L.attn_v.weight'],
  ['model.layers.L.self_attn.o_proj.weight', 'blk.L.attn_output.weight'],
  ['model.layers.L.self_attn.q_norm.weight', 'blk.L.attn_q_norm.weight'],
  ['model.layers.L.self_attn.k_norm.weight', 'blk.L.attn_k_norm.weight'],
  ['model.layers.L.post_attention_layernorm.weight', 'blk.L.ffn_norm.weight'],
  ['model.layers.L.mlp.gate.weight', 'blk.L.ffn_gate_inp.weight'],
];

/** Rewrites an OLMoE container of q4g64 matrices as GGUF, weight for weight. Returns the size of the file. */
export function containerToGguf(directory: string, path: string): number {
  const checkpoint = openCheckpoint(directory);
  const { num_hidden_layers: layers } = checkpoint.config as Record<string, number>;
  const dense = DENSE_NAMES.flatMap(([ours, theirs]) =>
    ours.includes('.L.')
      ? Array.from({ length: layers }, (_, l) => [ours.replace('.L.', `.${l}.`), theirs.replace('.L.', `.${l}.`)])
      : [[ours, theirs]],
  ).map(([ours, theirs]) => denseTensor(checkpoint, ours, theirs));
  const experts = Array.from({ length: layers }, (_, l) => expertTensors(checkpoint, l)).flat();
  return writeGguf(path, metadata(checkpoint.config as Record<string, number>), [...dense, ...experts]);
}

type Source = GgufTensor & { pieces(): Iterable<Uint8Array> };

function denseTensor(checkpoint: Checkpoint, ours: string, theirs: string): Source {
  const tensor = checkpoint.tensors.get(ours)!;
  const matrix = checkpoint.container!.matrices.get(ours);
  if (!matrix) {
    const dims = [...tensor.shape].reverse();
    return { name: theirs, type: 'F32', dims, pieces: () => [readTensor(checkpoint, tensor)] };
  }
  const { rows, columns } = matrix;
  const pieces = () => [tilesToQ4_0(readTensor(checkpoint, tensor), rows, columns)];
  return { name: theirs, type: 'Q4_0', dims: [columns, rows], pieces };
}

/** gate, up and down of one layer, all experts in one tensor each. Equal records are converted once. */
function expertTensors(checkpoint: Checkpoint, layer: number): Source[] {
  const { experts, sha256 } = checkpoint.container!;
  const count = (checkpoint.config as Record<string, number>).num_experts;
  const names = Array.from({ length: count }, (_, e) => `model.layers.${layer}.mlp.experts.${e}.record`);
  return experts.get(names[0])!.parts.map(({ role, rows, columns, offset }) => ({
    name: `blk.${layer}.ffn_${role}_exps.weight`,
    type: 'Q4_0',
    dims: [columns, rows, count],
    *pieces() {
      const done = new Map<string, Uint8Array>();
      for (const name of names) {
        const hash = sha256.get(name)!;
        let piece = done.get(hash);
        if (!piece) {
          const record = readTensor(checkpoint, checkpoint.tensors.get(name)!);
          piece = tilesToQ4_0(record.subarray(offset, offset + layoutBytes('q4g64', rows, columns)), rows, columns);
          done.set(hash, piece);
        }
        yield piece;
      }
    },
  }));
}

function readTensor({ files }: Checkpoint, { file, offset, bytes }: TensorInfo): Uint8Array {
  const { path } = files[file];
  return withFile(path, fd => {
    const target = new Uint8Array(bytes);
    readExact(fd, target, offset, path);
    return target;
  });
}

/** What llama.cpp must know to load it. The vocabulary is made up: only ids are ever fed. */
function metadata(config: Record<string, number>): Map<string, GgufValue> {
  const vocabulary = Array.from({ length: config.vocab_size }, (_, id) => `token${id}`);
  return new Map<string, GgufValue>([
    ['general.architecture', { string: 'olmoe' }],
    ['general.name', { string: 'random weights of the peer benchmark' }],
    ['general.file_type', { uint32: 2 }],
    ['olmoe.block_count', { uint32: config.num_hidden_layers }],
    ['olmoe.context_length', { uint32: config.max_position_embeddings }],
    ['olmoe.embedding_length', { uint32: config.hidden_size }],
    ['olmoe.feed_forward_length', { uint32: config.intermediate_size }],
    ['olmoe.attention.head_count', { uint32: config.num_attention_heads }],
    ['olmoe.attention.head_count_kv', { uint32: config.num_key_value_heads }],
    ['olmoe.attention.layer_norm_rms_epsilon', { float32: config.rms_norm_eps }],
    ['olmoe.rope.freq_base', { float32: config.rope_theta }],
    ['olmoe.expert_count', { uint32: config.num_experts }],
    ['olmoe.expert_used_count', { uint32: config.num_experts_per_tok }],
    ['tokenizer.ggml.model', { string: 'gpt2' }],
    ['tokenizer.ggml.pre', { string: 'olmo' }],
    ['tokenizer.ggml.tokens', { strings: vocabulary }],
    ['tokenizer.ggml.token_type', { int32s: vocabulary.map(() => 1) }],
    ['tokenizer.ggml.merges', { strings: ['t o'] }],
    ['tokenizer.ggml.eos_token_id', { uint32: 0 }],
  ]);
}

/** Size of all files of the model as each engine stores it. */
export function sizesOnDisk({ container, gguf }: PeerModel): { container: number; gguf: number } {
  return { container: openCheckpoint(container).bytesOnDisk, gguf: statSync(gguf).size };
}
