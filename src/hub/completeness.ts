/** Whether a downloaded model has all its weights: what its index and its file names promise against what is there. */

import { basename, join } from 'node:path';
import { isThere, namesIn, statOf } from '../formats/files.ts';
import { INDEX_FILE, readShardIndex } from '../formats/shard-index.ts';

const WEIGHTS = /\.(?:safetensors|gguf)$/i;
/** One of a set of files: prefix, number, count, ending. */
const NUMBERED = /^(.*)-(\d{5})-of-(\d{5})(\.(?:safetensors|gguf))$/i;
/** As many files as a set may promise before it is not believed. */
const MAX_SET = 10_000;

/**
 * Names of weight files that are missing from `directory`, or of what stands for all of them when there are none. Throws
 * ModelFileError for an index that cannot be read.
 */
export function missingWeights(directory: string): string[] {
  const promised = promisedWeights(directory);
  if (promised.length === 0) return ['all weights'];
  const names = namesIn(directory);
  return promised.filter(name => !names.includes(name) || statOf(join(directory, name)) === undefined);
}

/** Names of all weight files that belong to the model; none when nothing tells. Throws as missingWeights does. */
export function promisedWeights(directory: string): string[] {
  const names = namesIn(directory);
  const promised = new Set<string>(names.filter(name => WEIGHTS.test(name)));
  for (const name of [...promised]) {
    const [, prefix, , count, ending] = NUMBERED.exec(name) ?? [];
    if (prefix === undefined || Number(count) > MAX_SET) continue;
    for (let n = 1; n <= Number(count); n++)
      promised.add(`${prefix}-${String(n).padStart(5, '0')}-of-${count}${ending}`);
  }
  // who has asked for GGUF files alone has the index of the others too
  const onlyGguf = promised.size > 0 && [...promised].every(name => /\.gguf$/i.test(name));
  if (!onlyGguf && isThere(join(directory, INDEX_FILE))) {
    for (const file of readShardIndex(join(directory, INDEX_FILE)).values()) promised.add(file);
  }
  return [...promised].sort();
}

/** GGUF files that a model can be opened by: single ones, and the first of each set. */
export function ggufEntries(directory: string): string[] {
  return namesIn(directory).filter(
    name => /\.gguf$/i.test(name) && !/-(?!00001)\d{5}-of-\d{5}\.gguf$/i.test(basename(name)),
  );
}

export function hasSafetensors(directory: string): boolean {
  return namesIn(directory).some(name => /\.safetensors$/i.test(name));
}
