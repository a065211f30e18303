/** A model by its name: where it lies in the cache. Nothing is ever downloaded here. */

import { join } from 'node:path';
import { ModelFileError } from '../common/errors.ts';
import { isThere, listNames } from '../formats/files.ts';
import { type RepoFolder, refNames, repoFolder } from './cache-layout.ts';
import { commitOf, commitsOf, refsOf, scanRepo } from './cache-scan.ts';
import { ggufEntries, hasSafetensors, missingWeights } from './completeness.ts';
import { nameText, type RepoName } from './names.ts';

/**
 * The directory of the model, or its GGUF file when it has no other weights. Throws MODEL_NOT_PULLED and MODEL_INCOMPLETE with
 * the command that fetches it, MODEL_AMBIGUOUS for several GGUF files.
 */
export function findModel(cache: string, name: RepoName): string {
  const folder = repoFolder(cache, name.id);
  const commit = commitOf(folder, name.revision);
  if (commit === null) {
    if (isUnfinished(folder)) throw incomplete(name, 'the download was not finished', { directory: folder.path });
    const others = commitsOf(folder).map(each => refsOf(folder, each)[0] ?? each);
    const also = others.length > 0 ? `; it holds ${listNames(others.map(each => `${name.id}@${each}`))}` : '';
    const what = `${nameText(name)} is neither a path here nor in the cache ${cache}${also}`;
    throw new ModelFileError('MODEL_NOT_PULLED', what, {
      hint: `coli pull ${nameText(name)}`,
      details: { name: name.id, revision: name.revision, cache },
    });
  }
  const directory = join(folder.snapshots, commit);
  const missing = missingWeights(directory);
  if (missing.length > 0) {
    throw incomplete(name, `${listNames(missing)} missing`, { directory, missing: missing.slice(0, 100) });
  }
  const gguf = hasSafetensors(directory) ? [] : ggufEntries(directory);
  if (gguf.length > 1) {
    throw new ModelFileError('MODEL_AMBIGUOUS', `${nameText(name)} has several GGUF files: ${listNames(gguf)}`, {
      hint: `name one of them, like --model ${join(directory, gguf[0])}`,
    });
  }
  return gguf.length === 1 ? join(directory, gguf[0]) : directory;
}

/** A first download that has not come to its end: no branch or tag stands for anything yet. */
function isUnfinished(folder: RepoFolder): boolean {
  if (!isThere(folder.path) || refNames(folder).length > 0) return false;
  const { revisions, unfinishedFiles } = scanRepo(folder);
  return unfinishedFiles > 0 || revisions.some(({ missing }) => missing.length > 0);
}

function incomplete(name: RepoName, why: string, details: Record<string, unknown>): ModelFileError {
  return new ModelFileError('MODEL_INCOMPLETE', `${nameText(name)} is not completely downloaded: ${why}`, {
    hint: `coli pull ${nameText(name)} continues`,
    details,
  });
}

/** NAME of a directory in the cache, whose own last part is a commit; null for every other one. */
export function nameOfSnapshot(path: string): string | null {
  return /(?:^|\/)models--[^/]+?--([^/]+)\/snapshots\/[0-9a-f]{40}(?:\/|$)/.exec(path)?.[1] ?? null;
}
