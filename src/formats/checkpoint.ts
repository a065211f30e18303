/** Opening a model directory: config, which files are the weights, and where every tensor lies. No tensor data is read. */

import { join, resolve } from 'node:path';
import { ModelFileError } from '../common/errors.ts';
import type { Checkpoint, TensorInfo } from './checkpoint-types.ts';
import { CONTAINER_INDEX_FILE, checkContainerTensors, readContainerIndex } from './container-index.ts';
import { isThere, statOf } from './files.ts';
import { MAX_CONFIG_BYTES, readJsonObject } from './json.ts';
import { readSafetensorsHeader } from './safetensors.ts';
import { checkWeightMap, chooseShards } from './shard-index.ts';
import { joinTensors } from './tensor-table.ts';

/** Lies in the directory of a container while a conversion is unfinished. */
export const UNFINISHED_FILE = 'coli.convert.json';

export { assertUnchanged, readIdentity } from './files.ts';

/**
 * Opens a model directory in Hugging Face layout, a container of ours or one of the C engine. Reads JSON files and shard
 * headers only. Throws ModelFileError naming the file (and tensor) that is missing, damaged or contradicts another.
 */
export function openCheckpoint(directory: string): Checkpoint {
  const root = resolve(directory);
  requireModelDirectory(root);
  const config = readJsonObject(join(root, 'config.json'), MAX_CONFIG_BYTES);
  const generationPath = join(root, 'generation_config.json');
  const generationConfig = isThere(generationPath) ? readJsonObject(generationPath, MAX_CONFIG_BYTES) : null;

  const { shards, weightMap, ignored } = chooseShards(root);
  const headers = shards.map((name, file) => readSafetensorsHeader(join(root, name), file));
  const files = headers.map(header => header.identity);
  const tensors = joinTensors(headers);
  if (weightMap) checkWeightMap(root, weightMap, fileNames(tensors, shards));
  const container = isThere(join(root, CONTAINER_INDEX_FILE)) ? readContainerIndex(root) : null;
  if (container) checkContainerTensors(root, container, tensors);

  return {
    directory: root,
    config,
    generationConfig,
    files,
    tensors,
    container,
    ignoredFiles: ignored,
    unindexedTensors: weightMap ? [...tensors.keys()].filter(name => !weightMap.has(name)) : [],
    bytesOnDisk: files.reduce((total, file) => total + file.bytes, 0),
  };
}

function requireModelDirectory(root: string): void {
  const stat = statOf(root);
  if (stat === undefined) {
    throw new ModelFileError('MODEL_NOT_FOUND', `${root} does not exist`, {
      hint: 'give the path of a directory that holds config.json and .safetensors files, or of a .gguf file',
      details: { file: root },
    });
  }
  if (!stat.isDirectory()) {
    throw new ModelFileError('MODEL_NOT_A_DIRECTORY', `${root} is a file; a model is a directory or a .gguf file`, {
      hint: 'give the directory that holds config.json and .safetensors files',
      details: { file: root },
    });
  }
  if (!isThere(join(root, 'config.json'))) {
    if (isThere(join(root, UNFINISHED_FILE))) throw unfinishedConversion(root);
    const inCache = isThere(join(root, 'snapshots'));
    throw new ModelFileError('CONFIG_MISSING', `${root} has no config.json`, {
      hint: inCache
        ? 'this is a download cache: give one of the directories below its snapshots/'
        : 'give the directory that holds config.json and .safetensors files',
      details: { file: join(root, 'config.json') },
    });
  }
}

function unfinishedConversion(root: string): ModelFileError {
  return new ModelFileError('CONVERSION_UNFINISHED', `${root} holds an unfinished conversion`, {
    hint: 'repeat the coli convert command: it continues',
    details: { file: join(root, UNFINISHED_FILE) },
  });
}

function fileNames(tensors: ReadonlyMap<string, TensorInfo>, shards: readonly string[]): Map<string, string> {
  return new Map([...tensors].map(([name, tensor]) => [name, shards[tensor.file]]));
}
