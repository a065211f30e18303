/**
 * `synth`: writes an OLMoE container of random weights and any size, laid out as the converter lays it out. Only speed and
 * memory are measured on it; its text is noise.
 */

import { createHash } from 'node:crypto';
import { copyFileSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { UsageError } from '../src/common/errors.ts';
import { alignUp, formatBytes } from '../src/common/units.ts';
import type { ContainerIndex } from '../src/formats/checkpoint-types.ts';
import { CONTAINER_VERSION, containerIndexToJson } from '../src/formats/container-index.ts';
import { SafetensorsWriter, type TensorSpec } from '../src/formats/safetensors-writer.ts';
import { layoutBytes, type TileLayout } from '../src/quant/layouts.ts';
import { PUBLISHED } from './published.ts';
import { constantFloats, generator, randomFloats, randomTiles } from './random-weights.ts';
import { DAMPED, writeFamily } from './synth-family.ts';

export interface SynthShape {
  readonly layers: number;
  readonly experts: number;
  readonly topK: number;
  readonly hiddenSize: number;
  readonly expertWidth: number;
  readonly heads: number;
  readonly vocabSize: number;
  readonly experts_encoding?: TileLayout;
  readonly dense_encoding?: TileLayout;
}

/** The published shape with the vocabulary cut to a tokenizer that is at hand: about 3.9 GB. */
export const OLMOE_SHAPE: SynthShape = {
  layers: 16,
  experts: 64,
  topK: 8,
  hiddenSize: 2048,
  expertWidth: 1024,
  heads: 16,
  vocabSize: 50304,
};

/** Distinct random records; the file repeats them, which no reader can notice. */
const DISTINCT_RECORDS = 8;
const PAGE = 4096;
/** A tokenizer for prompts given as text; the benchmarks feed ids. */
const TOKENIZER_DIRECTORY = new URL('../test/oracles/olmoe/', import.meta.url).pathname;

/** Writes the model; `directory` must not exist. Returns its size in bytes. */
export function writeSynth(directory: string, shape: SynthShape, seed = 1): number {
  mkdirSync(directory, { recursive: true });
  const random = generator(seed);
  const matrices: [string, { encoding: string; rows: number; columns: number }][] = [];
  const expertEntries: [
    string,
    { parts: { role: string; encoding: string; rows: number; columns: number; offset: number }[] },
  ][] = [];
  const weightMap: Record<string, string> = {};
  const sha256: [string, string][] = [];
  let total = 0;

  const write = (file: string, tensors: (TensorSpec & { bytes: Uint8Array })[]) => {
    const writer = new SafetensorsWriter(join(directory, file), tensors, { alignDataTo: PAGE });
    for (const tensor of tensors) {
      writer.append(tensor.bytes);
      weightMap[tensor.name] = file;
      sha256.push([tensor.name, createHash('sha256').update(tensor.bytes).digest('hex')]);
    }
    writer.close();
    total += writer.totalBytes;
  };

  const { hiddenSize: hidden, expertWidth: width } = shape;
  const denseLayout = shape.dense_encoding ?? 'q8g64';
  const matrix = (name: string, rows: number, columns: number, deviation = 1 / Math.sqrt(columns)) => {
    matrices.push([name, { encoding: denseLayout, rows, columns }]);
    const bytes = randomTiles(denseLayout, rows, columns, deviation, random);
    return { name, dtype: 'U8' as const, shape: [bytes.length], bytes };
  };
  const f32 = (name: string, dims: number[], bytes: Uint8Array) => ({
    name,
    dtype: 'F32' as const,
    shape: dims,
    bytes,
  });

  const dense = [
    // tokens must stay apart in the residual stream, or all of them would choose the same experts
    matrix('model.embed_tokens.weight', shape.vocabSize, hidden, 1),
    matrix('lm_head.weight', shape.vocabSize, hidden),
    f32('model.norm.weight', [hidden], constantFloats(hidden, 1)),
  ];
  for (let layer = 0; layer < shape.layers; layer++) {
    const p = `model.layers.${layer}`;
    for (const m of ['q', 'k', 'v']) dense.push(matrix(`${p}.self_attn.${m}_proj.weight`, hidden, hidden));
    dense.push(matrix(`${p}.self_attn.o_proj.weight`, hidden, hidden, DAMPED / Math.sqrt(hidden)));
    for (const n of ['input_layernorm', 'post_attention_layernorm', 'self_attn.q_norm', 'self_attn.k_norm']) {
      dense.push(f32(`${p}.${n}.weight`, [hidden], constantFloats(hidden, 1)));
    }
    const router = randomFloats(shape.experts * hidden, 4 / Math.sqrt(hidden), random);
    dense.push(f32(`${p}.mlp.gate.weight`, [shape.experts, hidden], router));
  }
  write('dense.safetensors', dense);

  const layout = shape.experts_encoding ?? 'q4g64';
  const shapes = [
    { role: 'gate', rows: width, columns: hidden },
    { role: 'up', rows: width, columns: hidden },
    { role: 'down', rows: hidden, columns: width },
  ];
  let offset = 0;
  const parts = shapes.map(s => {
    const part = { ...s, encoding: layout, offset };
    offset += layoutBytes(layout, s.rows, s.columns);
    return part;
  });
  const recordBytes = alignUp(offset, PAGE);
  const pool = Array.from({ length: DISTINCT_RECORDS }, () => {
    const record = new Uint8Array(recordBytes);
    for (const part of parts) {
      const deviation = (part.role === 'down' ? DAMPED : 1) / Math.sqrt(part.columns);
      record.set(randomTiles(layout, part.rows, part.columns, deviation, random), part.offset);
    }
    return record;
  });
  for (let layer = 0; layer < shape.layers; layer++) {
    const tensors = Array.from({ length: shape.experts }, (_, e) => {
      const name = `model.layers.${layer}.mlp.experts.${e}.record`;
      expertEntries.push([name, { parts }]);
      return { name, dtype: 'U8' as const, shape: [recordBytes], bytes: pool[(layer * 7 + e) % DISTINCT_RECORDS] };
    });
    write(`experts-${String(layer).padStart(5, '0')}.safetensors`, tensors);
  }

  const index: ContainerIndex = {
    version: CONTAINER_VERSION,
    writer: 'bench synth',
    source: null,
    matrices: new Map(matrices),
    experts: new Map(expertEntries),
    sha256: new Map(sha256),
  };
  const json = (file: string, value: unknown) => writeFileSync(join(directory, file), `${JSON.stringify(value)}\n`);
  json('coli.index.json', containerIndexToJson(index));
  json('model.safetensors.index.json', { metadata: { total_size: total }, weight_map: weightMap });
  json('config.json', {
    model_type: 'olmoe',
    architectures: ['OlmoeForCausalLM'],
    hidden_size: hidden,
    intermediate_size: width,
    num_hidden_layers: shape.layers,
    num_attention_heads: shape.heads,
    num_key_value_heads: shape.heads,
    num_experts: shape.experts,
    num_experts_per_tok: shape.topK,
    norm_topk_prob: false,
    vocab_size: shape.vocabSize,
    max_position_embeddings: 4096,
    rms_norm_eps: 1e-5,
    rope_theta: 10000,
  });
  for (const file of ['tokenizer.json', 'tokenizer_config.json']) {
    copyFileSync(join(TOKENIZER_DIRECTORY, file), join(directory, file));
  }
  return total;
}

const HELP = `usage: npm run bench -- synth DIRECTORY [--layers 16 --experts 64 --top-k 8 --hidden 2048 --width 1024]
       npm run bench -- synth DIRECTORY --family NAME --encoding NAME [--layers N --experts N --vocab N]
families and their encodings:
${Object.entries(PUBLISHED)
  .map(([name, { about, encodings }]) => `  ${name.padEnd(8)} ${about} (${encodings.join(', ')})`)
  .join('\n')}`;

export async function run(args: string[]): Promise<void> {
  const { values, positionals } = parseArgs({
    args,
    allowPositionals: true,
    options: {
      family: { type: 'string' },
      encoding: { type: 'string' },
      layers: { type: 'string' },
      experts: { type: 'string' },
      'top-k': { type: 'string' },
      hidden: { type: 'string' },
      width: { type: 'string' },
      heads: { type: 'string' },
      vocab: { type: 'string' },
      force: { type: 'boolean' },
      help: { type: 'boolean' },
    },
  });
  const [directory] = positionals;
  if (!directory || values.help) throw new UsageError('HELP', HELP);
  const number = (text: string | undefined, fallback: number) => (text === undefined ? fallback : Number(text));
  if (values.force) rmSync(directory, { recursive: true, force: true });
  if (values.family !== undefined) {
    const published = PUBLISHED[values.family];
    const encoding = published?.encodings.find(known => known === values.encoding);
    if (!encoding) {
      const what = `${values.family} in ${values.encoding ?? 'no encoding'} is not known`;
      throw new UsageError('BAD_OPTION', what, { hint: HELP });
    }
    const { layers, experts, vocab } = published.cut;
    writeFamily(directory, published, encoding, {
      layers: number(values.layers, layers),
      experts: number(values.experts, experts),
      vocab: number(values.vocab, vocab),
    });
    console.log(directory);
    return;
  }
  const bytes = writeSynth(directory, {
    layers: number(values.layers, OLMOE_SHAPE.layers),
    experts: number(values.experts, OLMOE_SHAPE.experts),
    topK: number(values['top-k'], OLMOE_SHAPE.topK),
    hiddenSize: number(values.hidden, OLMOE_SHAPE.hiddenSize),
    expertWidth: number(values.width, OLMOE_SHAPE.expertWidth),
    heads: number(values.heads, OLMOE_SHAPE.heads),
    vocabSize: number(values.vocab, OLMOE_SHAPE.vocabSize),
  });
  console.log(`${directory}: ${formatBytes(bytes)}`);
}
