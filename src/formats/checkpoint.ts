/** Opening a model directory: config, which files are the weights, and where every tensor lies. No tensor data is read. */

import { basename, join, resolve } from 'node:path';
import { ModelFileError } from '../common/errors.ts';
import type { Checkpoint, FileIdentity, TensorInfo } from './checkpoint-types.ts';
import { CONTAINER_INDEX_FILE, checkContainerTensors, readContainerIndex } from './container-index.ts';
import { isThere, quote, statOf } from './files.ts';
import { MAX_CONFIG_BYTES, readJsonObject } from './json.ts';
import { readSafetensorsHeader } from './safetensors.ts';
import { checkWeightMap, chooseShards } from './shard-index.ts';

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
  const { files, tensors } = readShards(root, shards);
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
    const inCache = isThere(join(root, 'snapshots'));
    throw new ModelFileError('CONFIG_MISSING', `${root} has no config.json`, {
      hint: inCache
        ? 'this is a download cache: give one of the directories below its snapshots/'
        : 'give the directory that holds config.json and .safetensors files',
      details: { file: join(root, 'config.json') },
    });
  }
}

/** Headers of all shards, merged; the same tensor in two shards is refused, because one of them would be ignored. */
function readShards(root: string, shards: readonly string[]) {
  const files: FileIdentity[] = [];
  const tensors = new Map<string, TensorInfo>();
  for (const [file, name] of shards.entries()) {
    const header = readSafetensorsHeader(join(root, name), file);
    files.push(header.identity);
    for (const tensor of header.tensors) {
      const first = tensors.get(tensor.name);
      if (first) throw duplicateTensor(tensor.name, files[first.file].path, header.identity.path);
      tensors.set(tensor.name, tensor);
    }
  }
  return { files, tensors };
}

function duplicateTensor(tensor: string, first: string, second: string): ModelFileError {
  return new ModelFileError('TENSOR_TWICE', `tensor ${quote(tensor)} is in ${basename(first)} and in ${second}`, {
    hint: 'shards of two models or versions lie in one directory: keep one of them',
    details: { file: second, tensor, other: first },
  });
}

function fileNames(tensors: ReadonlyMap<string, TensorInfo>, shards: readonly string[]): Map<string, string> {
  return new Map([...tensors].map(([name, tensor]) => [name, shards[tensor.file]]));
}
