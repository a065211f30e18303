/** Reading a reference pack: what an independent implementation computed for a checkpoint. */

import { closeSync, openSync, readSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { ModelFileError } from '../common/errors.ts';
import { readJsonObject } from '../formats/json.ts';
import { readSafetensorsHeader } from '../formats/safetensors.ts';

/** Packs are tiny; anything larger is not one. */
const MAX_REFERENCE_JSON_BYTES = 16 * 2 ** 20;

const schema = z.object({
  tolerance_hint: z.number().positive(),
  greedy: z.array(z.object({ prompt_ids: z.array(z.number().int()), generated_ids: z.array(z.number().int()) })).min(1),
});

export interface Reference {
  readonly inputIds: readonly number[];
  /** [tokens, vocab] */
  readonly logits: Float32Array;
  /** Per layer [tokens, hidden], where the pack has it. */
  readonly hidden: readonly (Float32Array | null)[];
  /** Per layer [tokens, topK], where the pack has it. */
  readonly routerIds: readonly (readonly number[] | null)[];
  readonly tolerance: number;
  readonly greedy: readonly { readonly prompt_ids: number[]; readonly generated_ids: number[] }[];
}

export function readReference(directory: string, layers: number): Reference {
  const parsed = schema.safeParse(readJsonObject(join(directory, 'reference.json'), MAX_REFERENCE_JSON_BYTES));
  if (!parsed.success) {
    throw new ModelFileError('BAD_REFERENCE', `${directory}/reference.json: ${parsed.error.issues[0].message}`, {
      hint: 'a reference pack has reference.json with greedy and tolerance_hint',
      details: { path: parsed.error.issues[0].path.join('.') },
    });
  }
  const read = tensorReader(join(directory, 'reference.safetensors'));
  const perLayer = Array.from({ length: layers }, (_, layer) => layer);
  return {
    inputIds: Array.from(read.integers('input_ids') ?? []),
    logits: read.floats('logits') ?? new Float32Array(0),
    hidden: perLayer.map(layer => read.floats(`hidden.${layer}`)),
    routerIds: perLayer.map(layer => read.integers(`router.${layer}.ids`)),
    tolerance: parsed.data.tolerance_hint,
    greedy: parsed.data.greedy,
  };
}

function tensorReader(path: string) {
  const { tensors } = readSafetensorsHeader(path);
  const bytesOf = (name: string): Uint8Array | null => {
    const tensor = tensors.find(t => t.name === name);
    if (!tensor) return null;
    const bytes = new Uint8Array(tensor.bytes);
    const file = openSync(path, 'r');
    readSync(file, bytes, 0, tensor.bytes, tensor.offset);
    closeSync(file);
    return bytes;
  };
  return {
    floats: (name: string) => {
      const bytes = bytesOf(name);
      return bytes && new Float32Array(bytes.buffer);
    },
    integers: (name: string) => {
      const bytes = bytesOf(name);
      return bytes && Array.from(new BigInt64Array(bytes.buffer), Number);
    },
  };
}
