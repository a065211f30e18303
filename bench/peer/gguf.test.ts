import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openCheckpoint } from '../../src/formats/checkpoint.ts';
import { decodeRow } from '../../src/quant/decode.ts';
import { layoutBytes } from '../../src/quant/layouts.ts';
import { type SynthShape, writeSynth } from '../synth.ts';
import { ggufHeader, tilesToQ4_0 } from './gguf.ts';
import { containerToGguf } from './models.ts';

/** Reads the header byte by byte, knowing nothing of the writer. */
class Reader {
  readonly #view: DataView;
  at = 0;

  constructor(bytes: Uint8Array) {
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  u32(): number {
    this.at += 4;
    return this.#view.getUint32(this.at - 4, true);
  }

  u64(): number {
    this.at += 8;
    return Number(this.#view.getBigUint64(this.at - 8, true));
  }

  f32(): number {
    this.at += 4;
    return this.#view.getFloat32(this.at - 4, true);
  }

  text(): string {
    const length = this.u64();
    this.at += length;
    return Buffer.from(this.#view.buffer, this.#view.byteOffset + this.at - length, length).toString();
  }

  value(type = this.u32()): unknown {
    if (type === 4) return this.u32();
    if (type === 5) return this.u32() | 0;
    if (type === 6) return this.f32();
    if (type === 8) return this.text();
    if (type !== 9) throw new Error(`value of type ${type}`);
    const of = this.u32();
    return Array.from({ length: this.u64() }, () => this.value(of));
  }

  header() {
    const [magic, version, tensorCount, valueCount] = [this.u32(), this.u32(), this.u64(), this.u64()];
    const values = Object.fromEntries(Array.from({ length: valueCount }, () => [this.text(), this.value()]));
    const tensors = Array.from({ length: tensorCount }, () => {
      const name = this.text();
      const dims = Array.from({ length: this.u32() }, () => this.u64());
      return { name, dims, type: this.u32(), offset: this.u64() };
    });
    return { magic, version, values, tensors, dataAt: Math.ceil(this.at / 32) * 32 };
  }
}

/** One row of Q4_0 as its definition says: (code - 8) x scale, 32 columns a block. */
function dequantise(bytes: Uint8Array, at: number, columns: number): number[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Array.from({ length: columns }, (_, c) => {
    const block = at + Math.floor(c / 32) * 18;
    const half = view.getUint16(block, true);
    const scale = (half & 0x8000 ? -1 : 1) * 2 ** (((half >> 10) & 31) - 15) * (1 + (half & 1023) / 1024);
    const i = c % 32;
    const byte = bytes[block + 2 + (i % 16)];
    return ((i < 16 ? byte & 15 : byte >> 4) - 8) * scale;
  });
}

const SHAPE: SynthShape = {
  layers: 2,
  experts: 10,
  topK: 2,
  hiddenSize: 128,
  expertWidth: 64,
  heads: 2,
  vocabSize: 80,
  dense_encoding: 'q4g64',
};
let directory: string;
let file: Buffer;
let header: ReturnType<Reader['header']>;

beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'coli-gguf-'));
  writeSynth(join(directory, 'model'), SHAPE);
  const bytes = containerToGguf(join(directory, 'model'), join(directory, 'model.gguf'));
  file = readFileSync(join(directory, 'model.gguf'));
  header = new Reader(file).header();
  expect(file.length).toBe(bytes);
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

test('the header holds what was written', () => {
  const metadata = new Map([
    ['a', { string: 'größe' }],
    ['b', { uint32: 4_000_000_000 }],
    ['c', { float32: 0.5 }],
    ['d', { strings: ['', 'x y'] }],
    ['e', { int32s: [1, -2] }],
  ] as const);
  const bytes = ggufHeader(metadata, [
    { name: 'first', type: 'F32', dims: [3] },
    { name: 'second', type: 'Q4_0', dims: [64, 2] },
    { name: 'third', type: 'F32', dims: [1] },
  ]);
  const parsed = new Reader(bytes).header();
  expect(parsed).toEqual({
    magic: Buffer.from('GGUF').readUInt32LE(),
    version: 3,
    values: { a: 'größe', b: 4_000_000_000, c: 0.5, d: ['', 'x y'], e: [1, -2] },
    tensors: [
      { name: 'first', dims: [3], type: 0, offset: 0 },
      { name: 'second', dims: [64, 2], type: 2, offset: 32 },
      { name: 'third', dims: [1], type: 0, offset: 32 + 96 },
    ],
    dataAt: bytes.length,
  });
});

test('a model has every tensor that llama.cpp asks for, and no room for more', () => {
  const perLayer = ['attn_norm', 'attn_q', 'attn_k', 'attn_v', 'attn_output', 'attn_q_norm', 'attn_k_norm', 'ffn_norm']
    .concat('ffn_gate_inp', 'ffn_gate_exps', 'ffn_up_exps', 'ffn_down_exps')
    .flatMap(name => [`blk.0.${name}.weight`, `blk.1.${name}.weight`]);
  const names = [...perLayer, 'token_embd.weight', 'output.weight', 'output_norm.weight'];
  expect(header.tensors.map(tensor => tensor.name).sort()).toEqual(names.sort());
  expect(header.values).toMatchObject({
    'general.architecture': 'olmoe',
    'olmoe.expert_count': 10,
    'olmoe.expert_used_count': 2,
    'olmoe.embedding_length': 128,
  });
  expect(header.values['tokenizer.ggml.tokens']).toHaveLength(80);
  const last = header.tensors.at(-1)!;
  expect(last.dims).toEqual([64, 128, 10]);
  expect(file.length).toBe(header.dataAt + last.offset + (64 * 128 * 10 * 18) / 32);
});

test('matrices and experts hold the weights of the container', () => {
  const checkpoint = openCheckpoint(join(directory, 'model'));
  const bytesOf = (name: string) => {
    const { file: shard, offset, bytes } = checkpoint.tensors.get(name)!;
    return readFileSync(checkpoint.files[shard].path).subarray(offset, offset + bytes);
  };
  const theirs = (name: string, row: number) => {
    const { dims, offset } = header.tensors.find(tensor => tensor.name === name)!;
    return dequantise(file, header.dataAt + offset + (row * dims[0] * 18) / 32, dims[0]);
  };
  const ours = (bytes: Uint8Array, rows: number, columns: number, row: number) => {
    const values = new Float32Array(columns);
    decodeRow('q4g64', bytes, rows, columns, row, values);
    return [...values];
  };
  const head = bytesOf('lm_head.weight');
  for (const row of [0, 17, 79]) expect(theirs('output.weight', row)).toEqual(ours(head, 80, 128, row));
  for (const expert of [0, 3, 9]) {
    const record = bytesOf(`model.layers.1.mlp.experts.${expert}.record`);
    const { parts } = checkpoint.container!.experts.get(`model.layers.1.mlp.experts.${expert}.record`)!;
    for (const { role, rows, columns, offset } of parts) {
      const part = record.subarray(offset, offset + layoutBytes('q4g64', rows, columns));
      for (const row of [0, 21, rows - 1]) {
        expect(theirs(`blk.1.ffn_${role}_exps.weight`, expert * rows + row)).toEqual(ours(part, rows, columns, row));
      }
    }
  }
  const router = header.tensors.find(tensor => tensor.name === 'blk.1.ffn_gate_inp.weight')!;
  const gate = bytesOf('model.layers.1.mlp.gate.weight');
  expect(router.dims).toEqual([128, 10]);
  expect(file.subarray(header.dataAt + router.offset).subarray(0, gate.length)).toEqual(gate);
});

test('a scale that float16 cannot hold is refused', () => {
  const tiles = new Uint8Array(16 * 32 + 32);
  const scales = new DataView(tiles.buffer, 16 * 32);
  scales.setUint16(6, 0xbf80, true); // -1
  expect(dequantise(tilesToQ4_0(tiles, 16, 64), 3 * 36, 64)).toEqual(new Array(64).fill(8));
  scales.setUint16(6, 0x4780, true); // 65536
  expect(() => tilesToQ4_0(tiles, 16, 64)).toThrow('a scale of 65536 is no float16');
});
