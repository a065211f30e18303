/** Writes a model directory again with some of its matrices in another encoding, or with the values that these mean. */

import fs from 'node:fs';
import path from 'node:path';
import { openCheckpoint } from '../../src/formats/checkpoint.ts';
import type { Checkpoint, TensorInfo } from '../../src/formats/checkpoint-types.ts';
import { type TensorSource, writeSafetensors } from '../../src/formats/safetensors-writer.ts';
import { bytesOfTensor, floatsOfTensor } from './checkpoint-bytes.ts';
import { type Encoded, type Encoding, encodingNamed } from './encodings.ts';

export interface Rewritten {
  /** The matrices in their encodings. */
  readonly encoded: string;
  /** The same model, these matrices as the float32 values that the encodings mean. */
  readonly plain: string;
}

/** What becomes of a tensor: a matrix of floats gets the encoding that this names, null leaves it. */
export type Choose = (name: string) => string | null;

/** Writes both forms below `root`. `keep`: tensors that stay at all (those of a head may be left out). */
export function rewriteModel(source: string, root: string, choose: Choose, keep: Choose = name => name): Rewritten {
  const checkpoint = openCheckpoint(source);
  const result = { encoded: path.join(root, 'encoded'), plain: path.join(root, 'plain') };
  const tensors: { encoded: TensorSource[]; plain: TensorSource[] } = { encoded: [], plain: [] };
  let config = checkpoint.config;
  for (const tensor of checkpoint.tensors.values()) {
    if (keep(tensor.name) === null) continue;
    const choice = choose(tensor.name);
    const encoding = choice === null ? null : encodingNamed(choice);
    // a matrix of the wrong width stays as it is
    if (encoding === null || tensor.shape[1] % encoding.step !== 0) {
      const { name, dtype, shape } = tensor;
      const same = { name, dtype, shape, bytes: bytesOfTensor(checkpoint, tensor) } as TensorSource;
      tensors.encoded.push(same);
      tensors.plain.push(same);
      continue;
    }
    config = { ...config, ...encoding.config };
    const { encoded, plain } = encodeTensor(checkpoint, tensor, encoding);
    tensors.encoded.push(...encoded);
    tensors.plain.push(plain);
  }
  writeDirectory(source, result.encoded, config, tensors.encoded);
  writeDirectory(source, result.plain, checkpoint.config, tensors.plain);
  return result;
}

function encodeTensor(checkpoint: Checkpoint, tensor: TensorInfo, encoding: Encoding) {
  const { name, shape } = tensor;
  const [rows, columns] = shape;
  const { tensors, values }: Encoded = encoding.encode(floatsOfTensor(checkpoint, tensor), rows, columns);
  const base = name.replace(/\.weight$/, '');
  const encoded = tensors.map(({ suffix, ...each }): TensorSource => ({ ...each, name: base + suffix }));
  const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  return { encoded, plain: { name, dtype: 'F32', shape, bytes } as TensorSource };
}

function writeDirectory(
  source: string,
  directory: string,
  config: Readonly<Record<string, unknown>>,
  tensors: readonly TensorSource[],
): void {
  fs.mkdirSync(directory, { recursive: true });
  for (const name of fs.readdirSync(source)) {
    if (/\.safetensors|index\.json|^config\.json$|^reference/.test(name)) continue;
    if (!fs.statSync(path.join(source, name)).isFile()) continue;
    fs.copyFileSync(path.join(source, name), path.join(directory, name));
  }
  fs.writeFileSync(path.join(directory, 'config.json'), JSON.stringify(config));
  writeSafetensors(path.join(directory, 'model.safetensors'), tensors);
}
