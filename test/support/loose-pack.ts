/** A model directory taken apart: its config and tensors can be changed one by one and written as another directory. */

import fs from 'node:fs';
import path from 'node:path';
import { openCheckpoint } from '../../src/formats/checkpoint.ts';
import type { SafetensorsDtype } from '../../src/formats/checkpoint-types.ts';
import { encodeSafetensorsHeader, type TensorSource, writeSafetensors } from '../../src/formats/safetensors-writer.ts';
import { bytesOfTensor } from './checkpoint-bytes.ts';

export interface LooseTensor {
  dtype: SafetensorsDtype;
  shape: readonly number[];
  bytes: Uint8Array;
}

type Json = Record<string, unknown>;

export class LoosePack {
  readonly #source: string;
  readonly config: Json;
  readonly tensors: Map<string, LooseTensor>;

  /** Every change is made to a copy: `of` may be taken apart once and changed often. */
  constructor(source: string, of?: LoosePack) {
    this.#source = source;
    const checkpoint = of ? null : openCheckpoint(source);
    this.config = structuredClone(of?.config ?? (checkpoint!.config as Json));
    const loose = checkpoint
      ? [...checkpoint.tensors.values()].map(tensor => {
          const { name, dtype, shape } = tensor;
          return [name, { dtype: dtype as SafetensorsDtype, shape, bytes: bytesOfTensor(checkpoint, tensor) }] as const;
        })
      : [...of!.tensors].map(([name, tensor]) => [name, { ...tensor }] as const);
    this.tensors = new Map(loose);
  }

  copy(): LoosePack {
    return new LoosePack(this.#source, this);
  }

  /** Fields of the language model. */
  get text(): Json {
    return (this.config.text_config ?? this.config) as Json;
  }

  /** Names that match. */
  names(pattern: RegExp): string[] {
    return [...this.tensors.keys()].filter(name => pattern.test(name));
  }

  /** The only name that matches. */
  name(pattern: RegExp): string {
    const found = this.names(pattern);
    if (found.length !== 1) throw new Error(`${pattern} matches ${found.length} tensors`);
    return found[0];
  }

  get(name: string): LooseTensor {
    const tensor = this.tensors.get(name);
    if (!tensor) throw new Error(`no tensor ${name}`);
    return tensor;
  }

  remove(...patterns: RegExp[]): void {
    for (const pattern of patterns) for (const name of this.names(pattern)) this.tensors.delete(name);
  }

  /** A tensor of zeros. */
  put(name: string, dtype: SafetensorsDtype, shape: readonly number[]): void {
    this.tensors.set(name, { dtype, shape, bytes: new Uint8Array(shape.reduce((a, b) => a * b, 1) * BYTES[dtype]!) });
  }

  /** Keeps the first `count` of the first dimension. */
  cut(name: string, count: number): void {
    const { dtype, shape, bytes } = this.get(name);
    const each = bytes.length / shape[0];
    this.tensors.set(name, { dtype, shape: [count, ...shape.slice(1)], bytes: bytes.slice(0, count * each) });
  }

  /** Bytes that may be changed. */
  own(name: string): Uint8Array {
    const tensor = this.get(name);
    tensor.bytes = tensor.bytes.slice();
    return tensor.bytes;
  }

  /** Writes the model into `directory`, with the other files of the source. */
  write(directory: string): string {
    const sources = [...this.tensors].map(([name, tensor]): TensorSource => ({ name, ...tensor }) as TensorSource);
    writeSafetensors(path.join(this.#writeOthers(directory), 'model.safetensors'), sources);
    return directory;
  }

  /** The same with zeros for all weights: enough, and faster, for what is refused before a weight is read. */
  writeHeaders(directory: string): string {
    const shard = path.join(this.#writeOthers(directory), 'model.safetensors');
    const entries = [...this.tensors].map(([name, { dtype, shape }]) => ({ name, dtype, shape }));
    const header = encodeSafetensorsHeader(entries);
    fs.writeFileSync(shard, header);
    fs.truncateSync(
      shard,
      [...this.tensors.values()].reduce((sum, { bytes }) => sum + bytes.length, header.length),
    );
    return directory;
  }

  #writeOthers(directory: string): string {
    fs.mkdirSync(directory, { recursive: true });
    for (const name of fs.readdirSync(this.#source)) {
      if (/\.safetensors$|\.index\.json$|^config\.json$|^reference\./.test(name)) continue;
      fs.copyFileSync(path.join(this.#source, name), path.join(directory, name));
    }
    this.writeConfig(directory);
    return directory;
  }

  writeConfig(directory: string): void {
    fs.writeFileSync(path.join(directory, 'config.json'), JSON.stringify(this.config));
  }
}

/** Of an element, for types that tests use. */
const BYTES: Partial<Record<SafetensorsDtype, number>> = {
  F64: 8,
  F32: 4,
  F16: 2,
  BF16: 2,
  F8_E4M3: 1,
  F8_E5M2: 1,
  F8_E8M0: 1,
  I64: 8,
  I32: 4,
  I8: 1,
  U8: 1,
  BOOL: 1,
};
