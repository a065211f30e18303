/**
 * The standard cache of the hub's tools: `models--ORG--NAME/` with `blobs/<digest>`, `snapshots/<commit>/<path>` (links to
 * blobs) and `refs/<revision>` (the commit it stood for when it was fetched).
 */

import fs from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { StorageError } from '../common/errors.ts';
import { takeLock } from '../common/process-lock.ts';
import { isThere, readSmallFile } from '../formats/files.ts';
import { isCommit, isRepoId } from './names.ts';
import { writing } from './partial-file.ts';

const PREFIX = 'models--';

/** A commit and a line feed. */
const MAX_REF_BYTES = 256;

export interface RepoFolder {
  readonly id: string;
  readonly path: string;
  readonly blobs: string;
  readonly snapshots: string;
  readonly refs: string;
  /** Where all tools keep their locks: a sibling, which outlives the folder. */
  readonly lock: string;
}

export function repoFolder(cache: string, id: string): RepoFolder {
  const name = `${PREFIX}${id.replace('/', '--')}`;
  const path = join(cache, name);
  return {
    id,
    path,
    blobs: join(path, 'blobs'),
    snapshots: join(path, 'snapshots'),
    refs: join(path, 'refs'),
    lock: join(cache, '.locks', name, 'coli.lock'),
  };
}

/** ORG/NAME of a folder in the cache, or null for everything else that lies there. */
export function idOfFolder(name: string): string | null {
  if (!name.startsWith(PREFIX)) return null;
  const id = name.slice(PREFIX.length).replace('--', '/');
  return isRepoId(id) ? id : null;
}

/** The commit that a branch or tag stood for when it was last fetched, or null. */
export function readRef({ refs }: RepoFolder, revision: string): string | null {
  const path = join(refs, revision);
  if (!isThere(path) || !fs.statSync(path).isFile()) return null;
  const text = new TextDecoder().decode(readSmallFile(path, MAX_REF_BYTES)).trim();
  return isCommit(text) ? text : null;
}

/** All names of branches and tags in the cache. */
export function refNames({ refs }: RepoFolder): string[] {
  if (!isThere(refs)) return [];
  return fs
    .readdirSync(refs, { recursive: true, withFileTypes: true })
    .filter(entry => entry.isFile())
    .map(entry => relative(refs, join(entry.parentPath, entry.name)))
    .sort();
}

export function writeRef({ refs }: RepoFolder, revision: string, commit: string): void {
  const path = join(refs, revision);
  fs.mkdirSync(dirname(path), { recursive: true });
  const partial = `${path}.${process.pid}`;
  // no line feed: other tools take the whole file as the commit
  fs.writeFileSync(partial, commit);
  fs.renameSync(partial, path);
}

/** Makes snapshots/<commit>/<path> a relative link to its blob; an existing one is replaced at once. */
export function linkBlob({ blobs, snapshots }: RepoFolder, commit: string, path: string, digest: string): void {
  const link = join(snapshots, commit, path);
  fs.mkdirSync(dirname(link), { recursive: true });
  const target = relative(dirname(link), join(blobs, digest));
  if (fs.lstatSync(link, { throwIfNoEntry: false })?.isSymbolicLink() && fs.readlinkSync(link) === target) return;
  const fresh = `${link}.${process.pid}`;
  try {
    fs.rmSync(fresh, { force: true });
    fs.symlinkSync(target, fresh);
    fs.renameSync(fresh, link);
  } catch (error) {
    throw new StorageError('NO_LINK', `${link} cannot be made a link: ${(error as Error).message}`, {
      hint: 'use --dest DIR to have plain files, or set HF_HUB_CACHE to a disk that knows symbolic links',
      cause: error,
    });
  }
}

/** Holds the lock at `path` while `work` runs. Throws PULL_RUNNING when another process has it. */
export async function holdingLock<T>(path: string, what: string, work: () => Promise<T>): Promise<T> {
  const attempt = await writing(path, async () => {
    fs.mkdirSync(dirname(path), { recursive: true });
    return takeLock(path);
  });
  if (attempt.release === null) {
    const who = attempt.holder ? `process ${attempt.holder.pid}` : 'another process';
    throw new StorageError('PULL_RUNNING', `${who} is at work on ${what}`, {
      hint: 'wait until it has finished; the same command then takes over what it left',
      details: { pid: attempt.holder?.pid ?? null, lock: path },
    });
  }
  try {
    return await work();
  } finally {
    attempt.release();
  }
}
