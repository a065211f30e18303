/** Metadata of a GGUF file by key, with errors that name file and key. */

import { ModelFileError } from '../common/errors.ts';
import { listNames, quote } from '../formats/files.ts';
import type { GgufModel } from '../formats/gguf-files.ts';
import { isGgufArray } from '../formats/gguf-metadata.ts';
import { LIMITS } from './config.ts';

/** Keys of the architecture are given without its name: `attention.head_count`. */
export class GgufKeys {
  readonly model: GgufModel;
  readonly architecture: string;

  constructor(model: GgufModel, architecture: string) {
    this.model = model;
    this.architecture = architecture;
  }

  /** Exact where a double can be; float32 values as the shortest decimal that means the same float32. */
  number(key: string): number {
    return this.optional(key) ?? this.#fail(key, 'is missing; it must be a number');
  }

  optional(key: string): number | undefined {
    const value = this.model.metadata.get(this.#full(key));
    if (value === undefined) return undefined;
    if (isGgufArray(value)) return this.#sameForAll(key, value.values);
    return this.#number(key, value);
  }

  /** The key, or another one where it is absent. */
  either(key: string, other: string): number {
    return this.optional(key) ?? this.number(other);
  }

  flag(key: string): boolean | undefined {
    const value = this.model.metadata.get(this.#full(key));
    if (value === undefined || typeof value === 'boolean') return value;
    return this.#fail(key, 'must be a boolean');
  }

  text(key: string): string | undefined {
    const value = this.model.metadata.get(this.#full(key));
    if (value === undefined || typeof value === 'string') return value;
    return this.#fail(key, 'must be a string');
  }

  has(tensor: string): boolean {
    return this.model.tensors.has(tensor);
  }

  /** Layers, those of a prediction head included; limited, because tables are made of them. */
  get blocks(): number {
    const blocks = this.number('block_count');
    if (Number.isInteger(blocks) && blocks >= 1 && blocks <= LIMITS.layers) return blocks;
    return this.#fail('block_count', `is ${blocks}; possible are 1 to ${LIMITS.layers}`);
  }

  /** Tokens of the embedding. */
  get vocabulary(): number {
    const embedding = this.model.tensors.get('token_embd.weight');
    if (embedding?.shape.length === 2) return embedding.shape[0];
    return this.refuse(
      'GGUF_BAD_METADATA',
      'has no matrix token_embd.weight',
      'the file is incomplete or no language model',
    );
  }

  refuse(code: string, what: string, hint: string, details: Record<string, unknown> = {}): never {
    const file = this.model.files[0].path;
    throw new ModelFileError(code, `${file} ${what}`, { hint, details: { file, ...details } });
  }

  /** Some values may be given for each layer. */
  #sameForAll(key: string, values: readonly unknown[] | null): number {
    const numbers = values?.map(value => this.#number(key, value)) ?? [];
    if (numbers.length === 0) this.#fail(key, 'is an array that is empty or not of numbers');
    const different = new Set(numbers);
    if (different.size === 1) return numbers[0];
    const shown = listNames([...different].map(String));
    return this.#fail(key, `differs from layer to layer (${shown}); models like that are not supported`);
  }

  #number(key: string, value: unknown): number {
    if (typeof value === 'bigint' && BigInt.asIntN(54, value) === value) return Number(value);
    if (typeof value === 'number') return Math.fround(value) === value ? shortest(value) : value;
    return this.#fail(key, 'must be a number');
  }

  #full(key: string): string {
    return /^(?:general|tokenizer)\./.test(key) ? key : `${this.architecture}.${key}`;
  }

  #fail(key: string, what: string): never {
    const full = this.#full(key);
    return this.refuse('GGUF_BAD_METADATA', `has metadata that cannot be used: ${quote(full)} ${what}`, METADATA_HINT, {
      key: full,
    });
  }
}

const METADATA_HINT = 'get the file anew, from a source that makes files for current versions of llama.cpp';

/** 0.0001f is 0.00009999999747 as a double; the shortest text with the same float32 is what somebody once wrote. */
function shortest(value: number): number {
  if (Number.isInteger(value) || !Number.isFinite(value)) return value;
  for (let digits = 1; digits < 9; digits++) {
    const candidate = Number(value.toPrecision(digits));
    if (Math.fround(candidate) === value) return candidate;
  }
  return Number(value.toPrecision(9));
}
