/** Reading a reference pack: what an independent implementation computed for a checkpoint. */

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { ModelFileError } from '../common/errors.ts';
import type { Dtype, TensorInfo } from '../formats/checkpoint-types.ts';
import { readExact, withFile } from '../formats/files.ts';
import { readJsonObject } from '../formats/json.ts';
import { readSafetensorsHeader } from '../formats/safetensors.ts';

/** Packs are tiny; anything larger is not one. */
const MAX_REFERENCE_JSON_BYTES = 16 * 2 ** 20;

const JSON_FILE = 'reference.json';
const TENSOR_FILE = 'reference.safetensors';

const schema = z.object({
  tolerance_hint: z.number().positive(),
  greedy: z.array(z.object({ prompt_ids: z.array(z.number().int()), generated_ids: z.array(z.number().int()) })).min(1),
});

export interface Reference {
  readonly inputIds: readonly number[];
  /** [tokens, vocab] */
  readonly logits: Float32Array;
  /** Per layer [tokens, hidden], where the pack has it; [hiddenRows, hidden] if it has some tokens only. */
  readonly hidden: readonly (Float32Array | null)[];
  /** Tokens that `hidden` is about; null = all. */
  readonly hiddenRows: readonly number[] | null;
  /** Per layer [tokens, topK], where the pack has it. */
  readonly routerIds: readonly (readonly number[] | null)[];
  /** Per layer, per token: keys that its indexer chooses, ascending; where the pack has it. */
  readonly selected: readonly (readonly (readonly number[])[] | null)[];
  /** The prediction head after the first tokens: [rows, vocab] and [rows, hidden]. */
  readonly mtp: { readonly rows: number; readonly logits: Float32Array; readonly hidden: Float32Array | null } | null;
  readonly tolerance: number;
  readonly greedy: readonly { readonly prompt_ids: number[]; readonly generated_ids: number[] }[];
}

/** Throws when `directory` holds no reference; cheap, so a wrong directory is noticed before its weights are loaded. */
export function requireReference(directory: string): void {
  const missing = [JSON_FILE, TENSOR_FILE].filter(name => !existsSync(join(directory, name)));
  if (missing.length === 0) return;
  throw new ModelFileError('NO_REFERENCE', `${directory} has no ${missing.join(' and no ')}`, {
    hint: `a reference pack is a model directory that also has ${JSON_FILE} and ${TENSOR_FILE}`,
    details: { missing },
  });
}

/** Whether the pack in `directory` says what a prediction head predicts. Reads a header only. */
export function hasPrediction(directory: string): boolean {
  return new TensorFile(join(directory, TENSOR_FILE)).rows('mtp.logits') !== null;
}

/** Reads the pack in `directory`; its arrays have one row per input id, or BAD_REFERENCE says which one does not. */
export function readReference(directory: string, layers: number): Reference {
  requireReference(directory);
  const path = join(directory, JSON_FILE);
  const parsed = schema.safeParse(readJsonObject(path, MAX_REFERENCE_JSON_BYTES));
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw bad(path, `${issue.path.join('.')}: ${issue.message}`, { path: issue.path.join('.') });
  }
  const pack = new TensorFile(join(directory, TENSOR_FILE));
  const inputIds = pack.integers('input_ids') ?? pack.missing('input_ids');
  const rows = inputIds.length;
  const perLayer = Array.from({ length: layers }, (_, layer) => layer);
  const hiddenRows = pack.integers('hidden_rows');
  return {
    inputIds,
    logits: pack.floats('logits', rows) ?? pack.missing('logits'),
    hidden: perLayer.map(layer => pack.floats(`hidden.${layer}`, hiddenRows?.length ?? rows)),
    hiddenRows,
    selected: perLayer.map(layer => selectedKeys(pack.integers(`index.${layer}.selected`, rows), rows)),
    mtp: readPrediction(pack, rows),
    routerIds: perLayer.map(layer => pack.integers(`router.${layer}.ids`, rows)),
    tolerance: parsed.data.tolerance_hint,
    greedy: parsed.data.greedy,
  };
}

/** [rows, some] -> a list per row, without what only fills it up: numbers that are no position. */
function selectedKeys(all: readonly number[] | null, rows: number): number[][] | null {
  if (all === null) return null;
  const width = all.length / rows;
  const isPosition = (key: number) => key >= 0 && key < rows;
  return Array.from({ length: rows }, (_, row) =>
    all
      .slice(row * width, (row + 1) * width)
      .filter(isPosition)
      .sort((a, b) => a - b),
  );
}

/** Packs keep as many rows as they like; nothing is predicted after the last token. */
function readPrediction(pack: TensorFile, tokens: number): Reference['mtp'] {
  const rows = pack.rows('mtp.logits');
  if (rows === null) return null;
  if (rows >= tokens) pack.refuse('mtp.logits', `has ${rows} rows for ${tokens} tokens`);
  const logits = pack.floats('mtp.logits', rows) ?? pack.missing('mtp.logits');
  return { rows, logits, hidden: pack.floats('mtp.hidden', rows) };
}

/** The tensors of reference.safetensors; null for one that it does not have. */
class TensorFile {
  readonly #path: string;
  readonly #tensors: readonly TensorInfo[];

  constructor(path: string) {
    this.#path = path;
    this.#tensors = readSafetensorsHeader(path).tensors;
  }

  floats(name: string, rows: number): Float32Array | null {
    const bytes = this.#bytes(name, 'F32', rows);
    return bytes && new Float32Array(bytes.buffer);
  }

  integers(name: string, rows?: number): number[] | null {
    const bytes = this.#bytes(name, 'I64', rows);
    return bytes && Array.from(new BigInt64Array(bytes.buffer), Number);
  }

  /** First dimension of a tensor. */
  rows(name: string): number | null {
    return this.#tensors.find(t => t.name === name)?.shape[0] ?? null;
  }

  missing(name: string): never {
    this.refuse(name, 'is missing');
  }

  refuse(name: string, what: string): never {
    throw bad(this.#path, `${name} ${what}`, { tensor: name });
  }

  #bytes(name: string, dtype: Dtype, rows?: number): Uint8Array<ArrayBuffer> | null {
    const tensor = this.#tensors.find(t => t.name === name);
    if (!tensor) return null;
    const fits = tensor.dtype === dtype && (rows === undefined ? tensor.shape.length === 1 : tensor.shape[0] === rows);
    if (!fits) {
      const expected = `${dtype} [${rows === undefined ? 'tokens' : `${rows}, ...`}]`;
      throw bad(this.#path, `${name} is ${tensor.dtype} [${tensor.shape.join(', ')}], expected ${expected}`, {
        tensor: name,
      });
    }
    const bytes = new Uint8Array(tensor.bytes);
    withFile(this.#path, fd => readExact(fd, bytes, tensor.offset, this.#path));
    return bytes;
  }
}

function bad(path: string, what: string, details: Record<string, unknown>): ModelFileError {
  return new ModelFileError('BAD_REFERENCE', `${path}: ${what}`, {
    hint: `a reference pack has ${JSON_FILE} (greedy, tolerance_hint) and ${TENSOR_FILE} (input_ids, logits, hidden.N, router.N.ids)`,
    details,
  });
}
