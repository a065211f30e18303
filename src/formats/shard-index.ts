/** Which files of a directory are the weights: those that model.safetensors.index.json names, and nothing else. */

import { join } from 'node:path';
import { ModelFileError } from '../common/errors.ts';
import { listNames, namesIn, quote } from './files.ts';
import { isJsonObject, jsonType, MAX_INDEX_BYTES, readJsonObject } from './json.ts';

export const INDEX_FILE = 'model.safetensors.index.json';
const SINGLE_FILE = 'model.safetensors';

/** The largest published models have about 200 shards. */
export const MAX_SHARDS = 10_000;

/** Weight files of any tool, and copies and halves of them; listed when they are not read. */
const WEIGHT_LIKE = /\.(?:safetensors|bin|gguf|pt|pth|ckpt|h5)(?:\.\w+)?$/i;
/** Files named by Hugging Face tools: a set is complete or it is refused. */
const NUMBERED = /^(.+)-(\d{5})-of-(\d{5})\.safetensors$/;

export interface ShardChoice {
  /** File names inside the directory, in loading order. */
  readonly shards: readonly string[];
  /** Tensor name -> file name as the index states it; null without an index. */
  readonly weightMap: ReadonlyMap<string, string> | null;
  readonly ignored: readonly string[];
}

/** Chooses the shards of a model directory and checks that they exist; opens none of them. */
export function chooseShards(directory: string): ShardChoice {
  const names = namesIn(directory);
  const weightMap = names.includes(INDEX_FILE) ? readShardIndex(join(directory, INDEX_FILE)) : null;
  const shards = weightMap ? [...new Set(weightMap.values())].sort() : shardsWithoutIndex(directory, names);
  if (shards.length === 0) throw noWeights(directory, names);
  if (shards.length > MAX_SHARDS) {
    throw new ModelFileError(
      'TOO_MANY_SHARDS',
      `${directory} has ${shards.length} shards; the limit is ${MAX_SHARDS}`,
      {
        hint: 'keep one model per directory',
      },
    );
  }
  const present = new Set(names);
  requireShards(
    directory,
    shards.filter(name => !present.has(name)),
    shards.length,
  );
  const used = new Set(shards);
  const ignored = names.filter(name => WEIGHT_LIKE.test(name) && !used.has(name));
  return { shards, weightMap, ignored };
}

/** Reads and checks `weight_map`; every file must be a plain name of a .safetensors file in the same directory. */
export function readShardIndex(path: string): Map<string, string> {
  const { weight_map: map } = readJsonObject(path, MAX_INDEX_BYTES);
  if (!isJsonObject(map)) throw badIndex(path, `weight_map is ${jsonType(map)}, not an object`);
  const weightMap = new Map<string, string>();
  for (const [tensor, file] of Object.entries(map)) {
    const place = `weight_map[${quote(tensor)}]`;
    if (typeof file !== 'string') throw badIndex(path, `${place} is ${jsonType(file)}, not a file name`, { tensor });
    const problem = badShardName(file);
    if (problem) throw badIndex(path, `${place} names ${quote(file)}: ${problem}`, { tensor, name: file });
    weightMap.set(tensor, file);
  }
  if (weightMap.size === 0) throw badIndex(path, 'weight_map names no tensor');
  return weightMap;
}

function badShardName(name: string): string | null {
  if (/[/\\\0]/.test(name) || name === '..') return 'a shard must lie in the directory of its index';
  if (name.startsWith('._')) return 'this is a macOS side file, not a shard';
  if (!name.endsWith('.safetensors')) return 'only .safetensors files are read';
  return null;
}

function badIndex(path: string, what: string, details: Record<string, unknown> = {}): ModelFileError {
  return new ModelFileError('BAD_SHARD_INDEX', `${path}: ${what}`, {
    hint: 'download the index again, from a source you trust',
    details: { file: path, ...details },
  });
}

function shardsWithoutIndex(directory: string, names: readonly string[]): string[] {
  if (names.includes(SINGLE_FILE)) return [SINGLE_FILE];
  const candidates = names.filter(name => badShardName(name) === null);
  const sets = new Map<string, number>();
  for (const name of candidates) {
    const match = NUMBERED.exec(name);
    if (match) sets.set(match[1], Math.max(Number(match[3]), sets.get(match[1]) ?? 0));
  }
  if (sets.size === 0) return candidates;
  if (sets.size > 1) {
    const what = `${directory} holds several sets of shards (${listNames([...sets.keys()])}) and no ${INDEX_FILE}`;
    throw new ModelFileError('SHARDS_AMBIGUOUS', what, { hint: 'keep one set per directory, or add the index' });
  }
  const [[prefix, count]] = sets;
  const number = (n: number) => String(n).padStart(5, '0');
  const length = Math.min(count, MAX_SHARDS + 1); // one more than allowed is enough for the caller to refuse
  return Array.from({ length }, (_, i) => `${prefix}-${number(i + 1)}-of-${number(count)}.safetensors`);
}

function requireShards(directory: string, missing: readonly string[], total: number): void {
  if (missing.length === 0) return;
  const what = `${missing.length} of ${total} shards are missing: ${listNames(missing)}`;
  throw new ModelFileError('SHARD_MISSING', `${directory}: ${what}`, {
    hint: 'finish the download: these files must lie beside the index',
    details: { file: join(directory, missing[0]), missing: missing.slice(0, 100) },
  });
}

function noWeights(directory: string, names: readonly string[]): ModelFileError {
  const others = names.filter(name => WEIGHT_LIKE.test(name));
  const found = others.length > 0 ? `; found ${listNames(others)}, which cannot be read` : '';
  return new ModelFileError('WEIGHTS_MISSING', `${directory} holds no .safetensors weights${found}`, {
    hint: 'download the safetensors files of this model into the directory',
    details: { file: directory },
  });
}

/** Compares the index with what the shards really hold. `tensors`: name -> file name of the shard that has it. */
export function checkWeightMap(
  directory: string,
  weightMap: ReadonlyMap<string, string>,
  tensors: ReadonlyMap<string, string>,
): void {
  const wrong = [...weightMap].filter(([tensor, file]) => tensors.get(tensor) !== file);
  if (wrong.length === 0) return;
  const [tensor, file] = wrong[0];
  const actual = tensors.get(tensor);
  const where = actual === undefined ? 'no shard has it' : `it lies in ${quote(actual)}`;
  const more = wrong.length > 1 ? ` (and ${wrong.length - 1} more tensors are not where the index says)` : '';
  throw new ModelFileError(
    'TENSOR_NOT_IN_SHARD',
    `${join(directory, file)} lacks tensor ${quote(tensor)} that ${INDEX_FILE} places there; ${where}${more}`,
    {
      hint: 'index and shards come from different versions of the model: download them again together',
      details: { file: join(directory, file), tensor, count: wrong.length },
    },
  );
}
