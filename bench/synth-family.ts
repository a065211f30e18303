/**
 * Models of random weights of any family, in the encodings in which they are published and in our container. Tensors come from the
 * family's own table, so names and shapes are those of the published files.
 */

import { copyFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { alignUp } from '../src/common/units.ts';
import { denseLayout, expertLayout } from '../src/convert/roles.ts';
import { CONTAINER_VERSION, containerIndexToJson } from '../src/formats/container-index.ts';
import { type TensorSource, writeSafetensors } from '../src/formats/safetensors-writer.ts';
import { type DenseTensor, isVector, type TensorTable } from '../src/models/family.ts';
import { familyOf } from '../src/models/registry.ts';
import { isTileLayout, type Layout, layoutBytes } from '../src/quant/layouts.ts';
import type { ExpertForm, ExpertNames, MatrixRef } from '../src/quant/refs.ts';
import type { Cut, Encoding, Published } from './published.ts';
import {
  bf16Codes,
  CodeStream,
  constantFloats,
  E2M1_DEVIATION,
  FP8_DEVIATION,
  fp8Codes,
  generator,
  randomFloats,
  randomTiles,
} from './random-weights.ts';
import { writeQwen3Gguf } from './synth-gguf.ts';

const PAGE = 4096;
/** Columns and rows of an fp8 scale, columns of an mxfp4 scale. */
const FP8_BLOCK = 128;
const MXFP4_BLOCK = 32;
/** What layers add is kept below what the token brought. */
export const DAMPED = 0.3;
/** Distinct random records of a container; the file repeats them. */
const DISTINCT_RECORDS = 8;
/** A tokenizer for prompts given as text; the benchmarks feed ids. */
const TOKENIZER_DIRECTORY = new URL('../test/oracles/olmoe/', import.meta.url).pathname;

/** Writes the model into `directory`, which must not exist, and returns the config. */
export function writeFamily(directory: string, published: Published, encoding: Encoding, cut: Cut = {}, seed = 1) {
  const config = published.config({ ...published.cut, ...cut });
  const family = familyOf(config);
  const table = family.tensors(family.parseConfig(config), { mtp: false });
  mkdirSync(directory, { recursive: true });
  const random = generator(seed);
  if (encoding === 'gguf') {
    writeQwen3Gguf(join(directory, 'model.gguf'), config, table, random);
    return config;
  }
  const quantization = QUANTIZATION[encoding];
  const json = (file: string, value: unknown) => writeFileSync(join(directory, file), `${JSON.stringify(value)}\n`);
  json('config.json', quantization ? { ...config, quantization_config: quantization } : config);
  for (const file of ['tokenizer.json', 'tokenizer_config.json']) {
    copyFileSync(join(TOKENIZER_DIRECTORY, file), join(directory, file));
  }
  const weights = encoding === 'container' ? new ContainerWeights(random) : new PublishedWeights(encoding, random);
  const weightMap: Record<string, string> = {};
  const write = (file: string, tensors: readonly TensorSource[]) => {
    writeSafetensors(join(directory, file), tensors, { alignDataTo: encoding === 'container' ? PAGE : 8 });
    for (const { name } of tensors) weightMap[name] = file;
  };
  write('dense.safetensors', denseTensors(table, weights));
  for (const layer of new Set(table.experts.map(expert => expert.layer))) {
    const experts = table.experts.filter(expert => expert.layer === layer);
    write(`experts-${String(layer).padStart(5, '0')}.safetensors`, weights.experts(experts, table));
  }
  if (weights instanceof ContainerWeights) json('coli.index.json', weights.index());
  json('model.safetensors.index.json', { metadata: {}, weight_map: weightMap });
  return config;
}

const QUANTIZATION: Readonly<Partial<Record<Encoding, Record<string, unknown>>>> = {
  fp8: { activation_scheme: 'dynamic', fmt: 'e4m3', quant_method: 'fp8', weight_block_size: [128, 128] },
  mxfp4: { quant_method: 'mxfp4', modules_to_not_convert: ['model.layers.*.self_attn', 'model.layers.*.mlp.router'] },
};

interface WeightMaker {
  dense(tensor: DenseTensor & { readonly file: string; readonly shape: readonly number[] }): TensorSource[];
  experts(experts: readonly ExpertNames[], table: TensorTable): TensorSource[];
}

function denseTensors(table: TensorTable, weights: WeightMaker): TensorSource[] {
  const seen = new Set<string>();
  return table.dense.flatMap(tensor => {
    const file = tensor.from ?? tensor.name;
    if (seen.has(file)) return [];
    seen.add(file);
    const shape = tensor.stored ?? (isVector(tensor) ? [tensor.columns] : [tensor.rows, tensor.columns]);
    return weights.dense({ ...tensor, file, shape });
  });
}

const count = (shape: readonly number[]) => shape.reduce((product, n) => product * n, 1);

/** Standard deviation of a matrix by what it is for. */
export function deviationOf({ role, name, columns }: Pick<DenseTensor, 'role' | 'name' | 'columns'>): number {
  // tokens must stay apart in the residual stream, or all of them would choose the same experts
  if (role === 'embedding') return 1;
  if (role === 'router') return 4 / Math.sqrt(columns);
  const damped = /\.(?:o_proj|out_proj|down_proj)\./.test(name);
  return (damped ? DAMPED : 1) / Math.sqrt(columns);
}

/** Values of a vector by its name. */
function vectorBytes({ name, role, load }: DenseTensor, length: number, random: () => number): Uint8Array {
  if (role === 'norm') return constantFloats(length, load?.step === 'plus-one' ? 0 : 1);
  if (name.endsWith('.A_log')) return constantFloats(length, 1);
  if (name.endsWith('.dt_bias')) return constantFloats(length, -4);
  if (name.endsWith('.k_norm.weight')) return constantFloats(length, 1);
  return randomFloats(length, name.includes('.conv1d.') ? 0.5 : 0.01, random);
}

// ---- as published -----------------------------------------------------------------------------------------------------

class PublishedWeights implements WeightMaker {
  readonly #encoding: Encoding;
  readonly #random: () => number;
  readonly #bf16 = new Map<number, CodeStream>();
  readonly #fp8: CodeStream;
  readonly #bytes: CodeStream;

  constructor(encoding: Encoding, random: () => number) {
    this.#encoding = encoding;
    this.#random = random;
    this.#fp8 = fp8Codes(random);
    this.#bytes = new CodeStream(random);
  }

  dense(tensor: DenseTensor & { file: string; shape: readonly number[] }): TensorSource[] {
    const { file, shape, role } = tensor;
    if (isVector(tensor)) {
      return [{ name: file, dtype: 'F32', shape, bytes: vectorBytes(tensor, count(shape), this.#random) }];
    }
    const isFloat = ['embedding', 'head', 'router', 'gate'].includes(role) || file.includes('weights_proj');
    const deviation = deviationOf(tensor);
    if (this.#encoding === 'fp8' && !isFloat) return this.#fp8Matrix(file, shape, deviation);
    return [this.#bf16Matrix(file, shape, deviation)];
  }

  /** Scales first, then by name, as writers that sort by the size of elements leave them. */
  experts(experts: readonly ExpertNames[], table: TensorTable): TensorSource[] {
    const tensors = new Map<string, TensorSource>();
    for (const { forms } of experts) {
      const form = this.#encoding === 'fp8' ? (forms.find(f => !f.gate.slice) ?? forms[0]) : forms[0];
      for (const source of this.#expert(form, table)) tensors.set(source.name, source);
    }
    const size = (source: TensorSource) => ({ F32: 4, BF16: 2 })[source.dtype as string] ?? 1;
    return [...tensors.values()].sort((a, b) => size(b) - size(a) || (a.name < b.name ? -1 : 1));
  }

  #expert(form: ExpertForm, { hiddenSize, expertWidth }: TensorTable): TensorSource[] {
    const shapeOf = (ref: MatrixRef, shape: number[]) => {
      const [rows, ...columns] = shape;
      const stored = [ref.rows?.of ?? rows, ...columns];
      return ref.slice ? [ref.slice.of, ...stored] : stored;
    };
    const wide = [expertWidth, hiddenSize];
    const matrices = [
      { ref: form.gate, shape: wide, deviation: 1 / Math.sqrt(hiddenSize) },
      { ref: form.up, shape: wide, deviation: 1 / Math.sqrt(hiddenSize) },
      { ref: form.down, shape: [hiddenSize, expertWidth], deviation: DAMPED / Math.sqrt(expertWidth) },
    ].flatMap(({ ref, shape, deviation }) => this.#expertMatrix(ref.name, shapeOf(ref, shape), deviation));
    const { biases } = form;
    if (!biases) return matrices;
    const vectors = [
      [biases.gate, expertWidth],
      [biases.up, expertWidth],
      [biases.down, hiddenSize],
    ] as const;
    return [...matrices, ...vectors.map(([ref, length]) => this.#bf16Matrix(ref.name, shapeOf(ref, [length]), 0.01))];
  }

  #expertMatrix(name: string, shape: readonly number[], deviation: number): TensorSource[] {
    if (this.#encoding === 'fp8') return this.#fp8Matrix(name, shape, deviation);
    if (this.#encoding === 'mxfp4') return this.#mxfp4Matrix(name, shape, deviation);
    return [this.#bf16Matrix(name, shape, deviation)];
  }

  #bf16Matrix(name: string, shape: readonly number[], deviation: number): TensorSource {
    const power = Math.round(Math.log2(deviation));
    let codes = this.#bf16.get(power);
    if (!codes) {
      codes = bf16Codes(this.#random, 2 ** power);
      this.#bf16.set(power, codes);
    }
    return { name, dtype: 'BF16', shape, bytes: () => codes.take(count(shape) * 2) };
  }

  #fp8Matrix(name: string, shape: readonly number[], deviation: number): TensorSource[] {
    const blocks = shape.map(size => Math.ceil(size / FP8_BLOCK));
    return [
      {
        name: `${name}_scale_inv`,
        dtype: 'F32',
        shape: blocks,
        bytes: constantFloats(count(blocks), deviation / FP8_DEVIATION),
      },
      { name, dtype: 'F8_E4M3', shape, bytes: () => this.#fp8.take(count(shape)) },
    ];
  }

  #mxfp4Matrix(name: string, shape: readonly number[], deviation: number): TensorSource[] {
    const scales = [...shape.slice(0, -1), shape[shape.length - 1] / MXFP4_BLOCK];
    const scale = 127 + Math.round(Math.log2(deviation / E2M1_DEVIATION));
    const bytes = new Uint8Array(count(scales)).fill(scale);
    return [
      {
        name: `${name}_blocks`,
        dtype: 'U8',
        shape: [...scales, MXFP4_BLOCK / 2],
        bytes: () => this.#bytes.take((count(scales) * MXFP4_BLOCK) / 2),
      },
      { name: `${name}_scales`, dtype: 'U8', shape: scales, bytes },
    ];
  }
}

// ---- our container ----------------------------------------------------------------------------------------------------

const EXPERT_ROLES = ['gate', 'up', 'down', 'gateBias', 'upBias', 'downBias'];

class ContainerWeights implements WeightMaker {
  readonly #random: () => number;
  readonly #matrices = new Map<string, { encoding: string; rows: number; columns: number }>();
  readonly #experts = new Map<string, { parts: ReturnType<typeof recordParts> }>();
  #pool: readonly Uint8Array[] = [];

  constructor(random: () => number) {
    this.#random = random;
  }

  dense(tensor: DenseTensor & { file: string; shape: readonly number[] }): TensorSource[] {
    const { file: name, shape, role, rows, columns } = tensor;
    const layout = denseLayout(role, 'bf16', 'q8');
    const deviation = deviationOf(tensor);
    if (isTileLayout(layout)) {
      this.#matrices.set(name, { encoding: layout, rows, columns });
      const bytes = layoutBytes(layout, rows, columns);
      return [
        {
          name,
          dtype: 'U8',
          shape: [bytes],
          bytes: () => [randomTiles(layout, rows, columns, deviation, this.#random)],
        },
      ];
    }
    if (layout === 'f32') {
      const values = isVector(tensor)
        ? vectorBytes(tensor, count(shape), this.#random)
        : randomFloats(count(shape), deviation * Math.sqrt(3), this.#random);
      return [{ name, dtype: 'F32', shape, bytes: values }];
    }
    const codes = bf16Codes(this.#random, deviation);
    return [{ name, dtype: 'BF16', shape, bytes: () => codes.take(count(shape) * 2) }];
  }

  experts(experts: readonly ExpertNames[], table: TensorTable): TensorSource[] {
    const parts = recordParts(table);
    const last = parts[parts.length - 1];
    const bytes = alignUp(last.offset + layoutBytes(last.encoding, last.rows, last.columns), PAGE);
    if (this.#pool.length === 0) {
      this.#pool = Array.from({ length: DISTINCT_RECORDS }, () => this.#record(parts, bytes));
    }
    return experts.map(({ record, layer, expert }) => {
      this.#experts.set(record, { parts });
      const chosen = this.#pool[(layer * 7 + expert) % DISTINCT_RECORDS];
      return { name: record, dtype: 'U8', shape: [bytes], bytes: chosen };
    });
  }

  #record(parts: ReturnType<typeof recordParts>, bytes: number): Uint8Array {
    const record = new Uint8Array(bytes);
    for (const { role, encoding, rows, columns, offset } of parts) {
      const deviation = (role === 'down' ? DAMPED : 1) / Math.sqrt(columns);
      const values = isTileLayout(encoding)
        ? randomTiles(encoding, rows, columns, deviation, this.#random)
        : randomFloats(rows * columns, 0.01, this.#random);
      record.set(values, offset);
    }
    return record;
  }

  index() {
    return containerIndexToJson({
      version: CONTAINER_VERSION,
      writer: 'bench synth',
      source: null,
      matrices: this.#matrices,
      experts: this.#experts,
      sha256: new Map(),
    });
  }
}

/** Parts of an expert record, biases where the family has them. */
function recordParts({ hiddenSize, expertWidth, experts }: TensorTable) {
  const layout = expertLayout('bf16', false, 'q4g64');
  const matrix = (rows: number, columns: number): [number, number, Layout] => [rows, columns, layout];
  const vector = (length: number): [number, number, Layout] => [1, length, 'f32'];
  const shapes = [
    matrix(expertWidth, hiddenSize),
    matrix(expertWidth, hiddenSize),
    matrix(hiddenSize, expertWidth),
    ...(experts[0].forms.some(form => form.biases) ? [expertWidth, expertWidth, hiddenSize].map(vector) : []),
  ];
  let end = 0;
  return shapes.map(([rows, columns, encoding], i) => {
    const offset = end;
    end = alignUp(offset + layoutBytes(encoding, rows, columns), 64);
    return { role: EXPERT_ROLES[i], encoding, rows, columns, offset };
  });
}
