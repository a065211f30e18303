/** coli rm: takes a model, or one revision of it, out of the cache. Blobs that another revision uses stay. */

import fs from 'node:fs';
import { dirname, join, resolve, sep } from 'node:path';
import { ModelFileError, StorageError } from '../common/errors.ts';
import { holdingLock, type RepoFolder, repoFolder } from './cache-layout.ts';
import { commitOf, commitsOf, type FoundFile, filesBelow, refsOf, totalOf } from './cache-scan.ts';
import { nameText, type RepoName } from './names.ts';
import { writing } from './partial-file.ts';

export interface Removal {
  readonly name: RepoName;
  /** Commits that will be gone. */
  readonly commits: readonly string[];
  /** Files and directories to delete, all inside the folder of the model. */
  readonly paths: readonly string[];
  readonly bytes: number;
  /** Bytes of blobs that stay because other revisions use them. */
  readonly sharedBytes: number;
}

/** What `coli rm` would delete. Throws MODEL_NOT_PULLED for what is not in the cache. */
export function planRemoval(cache: string, name: RepoName): Removal {
  const folder = repoFolder(cache, name.id);
  const isThere = fs.lstatSync(folder.path, { throwIfNoEntry: false }) !== undefined;
  const commit = isThere && name.hasRevision ? commitOf(folder, name.revision) : null;
  if (!isThere || (name.hasRevision && commit === null)) {
    throw new ModelFileError('MODEL_NOT_PULLED', `${nameText(name)} is not in the cache ${cache}`, {
      hint: 'coli list shows what is there',
    });
  }
  for (const path of [folder.path, folder.blobs, folder.snapshots]) refuseLink(path);
  const commits = commitsOf(folder);
  // with the last revision goes everything, unfinished downloads too
  if (commit === null || commits.length === 1) {
    return { name, commits, paths: [folder.path], bytes: totalOf(filesBelow(folder.path)), sharedBytes: 0 };
  }
  return planRevision(folder, name, commit, commits);
}

function planRevision(folder: RepoFolder, name: RepoName, commit: string, commits: readonly string[]): Removal {
  const directory = join(folder.snapshots, commit);
  const own = filesBelow(directory);
  const kept = new Set(
    commits
      .filter(other => other !== commit)
      .flatMap(other => filesBelow(join(folder.snapshots, other)).flatMap(file => blobOf(folder, file))),
  );
  const blobs = [...new Set(own.flatMap(file => blobOf(folder, file)))];
  const free = blobs.filter(blob => !kept.has(blob));
  const sizeOf = (paths: readonly string[]) => paths.reduce((sum, path) => sum + fs.lstatSync(path).size, 0);
  return {
    name,
    commits: [commit],
    paths: [...refsOf(folder, commit).map(ref => join(folder.refs, ref)), directory, ...free],
    bytes: sizeOf(free) + totalOf(own),
    sharedBytes: sizeOf(blobs.filter(blob => kept.has(blob))),
  };
}

/** The blob a link names, when it is one of this model's and there; by its text, whatever stands behind it. */
function blobOf(folder: RepoFolder, { path, isLink }: FoundFile): string[] {
  if (!isLink) return [];
  const target = resolve(dirname(path), fs.readlinkSync(path));
  const isBlob = dirname(target) === folder.blobs && target.startsWith(folder.path + sep);
  return isBlob && fs.lstatSync(target, { throwIfNoEntry: false })?.isFile() ? [target] : [];
}

function refuseLink(path: string): void {
  if (!fs.lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink()) return;
  throw new StorageError('CACHE_LINK', `${path} is a link to another place, and what lies there is not removed`, {
    hint: 'remove the link or its target by hand',
    details: { file: path },
  });
}

/** Deletes what `planRemoval` says now. Throws PULL_RUNNING while a download of the same model runs. */
export async function removeModel(cache: string, name: RepoName): Promise<Removal> {
  planRemoval(cache, name);
  return holdingLock(repoFolder(cache, name.id).lock, name.id, async () => {
    const removal = planRemoval(cache, name);
    for (const path of removal.paths) {
      // of a link only the link goes
      await writing(path, async () => fs.rmSync(path, { recursive: true, force: true }));
    }
    return removal;
  });
}
