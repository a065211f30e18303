/** What lies in the cache. Reads names, sizes and configs; follows no link that leads out of a model's own folder. */

import fs from 'node:fs';
import { join, sep } from 'node:path';
import { ColiError } from '../common/errors.ts';
import { isThere, namesIn } from '../formats/files.ts';
import { MAX_CONFIG_BYTES, readJsonObject } from '../formats/json.ts';
import { idOfFolder, type RepoFolder, readRef, refNames, repoFolder } from './cache-layout.ts';
import { hasSafetensors, missingWeights, promisedWeights } from './completeness.ts';
import { isCommit } from './names.ts';

export interface CachedRevision {
  readonly commit: string;
  /** Branches and tags that stood for it when they were fetched. */
  readonly refs: readonly string[];
  readonly directory: string;
  /** Size of its files; one that two revisions share counts in both. */
  readonly bytes: number;
  /** `model_type` of config.json, or null. */
  readonly family: string | null;
  readonly missing: readonly string[];
  /** Weight files that belong to it, here or missing; 0 when nothing tells. */
  readonly weightFiles: number;
  readonly hasSafetensors: boolean;
  /** Why it could not be looked at, or null. */
  readonly problem: string | null;
}

export interface CachedRepo {
  readonly folder: RepoFolder;
  readonly revisions: readonly CachedRevision[];
  /** Files and bytes that downloads have left unfinished, those of other tools included. */
  readonly unfinishedFiles: number;
  readonly unfinishedBytes: number;
  /** All regular files of the folder. */
  readonly bytes: number;
}

/** Every model in the cache, in order of names; an absent cache has none. */
export function scanCache(cache: string): CachedRepo[] {
  if (!isThere(cache)) return [];
  return namesIn(cache)
    .map(name => idOfFolder(name))
    .filter(id => id !== null)
    .map(id => repoFolder(cache, id))
    .filter(folder => fs.lstatSync(folder.path).isDirectory())
    .map(scanRepo);
}

export function scanRepo(folder: RepoFolder): CachedRepo {
  const files = filesBelow(folder.path);
  const unfinished = files.filter(({ path }) => path.endsWith('.incomplete'));
  return {
    folder,
    revisions: commitsOf(folder).map(commit => scanRevision(folder, commit)),
    unfinishedFiles: unfinished.length,
    unfinishedBytes: totalOf(unfinished),
    bytes: totalOf(files),
  };
}

/** Revisions of which at least one file is there. */
export function commitsOf({ snapshots }: RepoFolder): string[] {
  if (!isThere(snapshots)) return [];
  return namesIn(snapshots).filter(name => isCommit(name) && fs.lstatSync(join(snapshots, name)).isDirectory());
}

/** The commit of a branch or tag, of a whole commit, or of the first seven digits or more of one; null when it is not there. */
export function commitOf(folder: RepoFolder, revision: string): string | null {
  const commits = commitsOf(folder);
  const named = readRef(folder, revision);
  if (named !== null) return commits.includes(named) ? named : null;
  const matching = /^[0-9a-f]{7,40}$/.test(revision) ? commits.filter(commit => commit.startsWith(revision)) : [];
  return matching.length === 1 ? matching[0] : null;
}

/** Branches and tags that stand for `commit`. */
export function refsOf(folder: RepoFolder, commit: string): string[] {
  return refNames(folder).filter(ref => readRef(folder, ref) === commit);
}

function scanRevision(folder: RepoFolder, commit: string): CachedRevision {
  const directory = join(folder.snapshots, commit);
  const facts = { commit, refs: refsOf(folder, commit), directory, bytes: sizeOfSnapshot(folder, directory) };
  try {
    return {
      ...facts,
      family: familyOf(directory),
      missing: missingWeights(directory),
      weightFiles: promisedWeights(directory).length,
      hasSafetensors: hasSafetensors(directory),
      problem: null,
    };
  } catch (error) {
    // one damaged model must not hide the others
    if (!(error instanceof ColiError)) throw error;
    return { ...facts, family: null, missing: [], weightFiles: 0, hasSafetensors: false, problem: error.message };
  }
}

function familyOf(directory: string): string | null {
  const config = join(directory, 'config.json');
  if (!isThere(config)) return null;
  const { model_type: family } = readJsonObject(config, MAX_CONFIG_BYTES);
  return typeof family === 'string' ? family : null;
}

function sizeOfSnapshot(folder: RepoFolder, directory: string): number {
  const blobs = new Map<string, number>();
  for (const { path, bytes, isLink } of filesBelow(directory)) {
    const target = isLink ? linkTarget(folder, path) : path;
    if (target !== null)
      blobs.set(target, isLink ? (fs.statSync(target, { throwIfNoEntry: false })?.size ?? 0) : bytes);
  }
  return [...blobs.values()].reduce((sum, bytes) => sum + bytes, 0);
}

/** The real path behind a link, when it exists and lies in the folder of the same model. */
export function linkTarget(folder: RepoFolder, link: string): string | null {
  try {
    const target = fs.realpathSync(link);
    return target.startsWith(fs.realpathSync(folder.path) + sep) ? target : null;
  } catch {
    return null;
  }
}

export interface FoundFile {
  readonly path: string;
  /** 0 for a link. */
  readonly bytes: number;
  readonly isLink: boolean;
}

/** Files and links at any depth; links are not followed. */
export function filesBelow(directory: string): FoundFile[] {
  return fs
    .readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter(entry => !entry.isDirectory())
    .map(entry => {
      const path = join(entry.parentPath, entry.name);
      const isLink = entry.isSymbolicLink();
      return { path, bytes: isLink ? 0 : fs.lstatSync(path).size, isLink };
    });
}

export function totalOf(files: readonly FoundFile[]): number {
  return files.reduce((sum, { bytes }) => sum + bytes, 0);
}
