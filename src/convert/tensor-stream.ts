/** Tensors of a shard one after the other: their bytes go to the file and into the hash of each, gaps are zeros. */

import { createHash, type Hash } from 'node:crypto';
import type { SafetensorsWriter } from '../formats/safetensors-writer.ts';
import type { PlannedTensor } from './types.ts';

export class TensorStream {
  readonly #writer: SafetensorsWriter;
  readonly #sha256: Record<string, string> = {};
  #tensor: PlannedTensor | null = null;
  #begin = 0;
  #hash: Hash = createHash('sha256');

  constructor(writer: SafetensorsWriter) {
    this.#writer = writer;
  }

  /** What comes next belongs to `tensor`, at this offset in it (null: where the last bytes ended). */
  goTo(tensor: PlannedTensor, offset: number | null): void {
    if (tensor !== this.#tensor) {
      this.#close();
      this.#tensor = tensor;
      this.#begin = this.#writer.position;
      this.#hash = createHash('sha256');
    }
    if (offset !== null) this.#pad(offset);
  }

  append(bytes: Uint8Array): void {
    this.#writer.append(bytes);
    this.#hash.update(bytes);
  }

  /** Name -> SHA-256 of every tensor. */
  end(): Record<string, string> {
    this.#close();
    return this.#sha256;
  }

  #close(): void {
    if (this.#tensor === null) return;
    this.#pad(this.#tensor.bytes);
    this.#sha256[this.#tensor.name] = this.#hash.digest('hex');
  }

  #pad(to: number): void {
    this.append(new Uint8Array(this.#begin + to - this.#writer.position));
  }
}
